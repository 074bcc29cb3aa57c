"""Keeps the status of PodGroups true: the plan of a start before its first binding, and conditions after.

A gang's status is written as a whole each time, so what is written last is what counts. A refusal must have
stood for a moment, so that a gang on its way to its nodes is never called unschedulable.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Struct

from closeby.kube.client.errors import FAULT, ApiError
from closeby.kube.gangs.objects import GangObject, GangObjects
from closeby.kube.gangs.records import GangRecords, Record
from closeby.kube.gangs.start_events import StatusWritten
from closeby.kube.gangs.starts import Starts
from closeby.kube.gangs.status import (
    PRIORITY_LIMITED,
    SCHEDULED,
    VALID,
    GangStanding,
    Said,
    last_decision,
    limited,
    path_of,
    plan,
    scheduled,
    valid,
)
from closeby.kube.writing.events import Events
from closeby.kube.writing.pod_statuses import UNSCHEDULABLE
from closeby.kube.writing.statuses import ReportingSettings
from closeby.kube.writing.writer import DONE, Note, StatusCondition, Verdict, Writer, Written
from closeby.objects.groups import PodGroup
from closeby.objects.recorded import DecisionStatus, ReservationStatus
from closeby.objects.saying import Say
from closeby.objects.times import utc
from closeby.objects.unexpected import Contained, brief, fields_of
from closeby.reading.dialects.plans import rank_list
from closeby.scheduling.outcomes import Released, Reserved

#: Upstream's name of the condition that we call Scheduled.
_UPSTREAM_SCHEDULED: Final = "PodGroupScheduled"
_ABOUT_PLACEMENT: Final = frozenset({SCHEDULED, _UPSTREAM_SCHEDULED})
#: Seconds until what could not be written is tried again, by why: the server had trouble, somebody else wrote
#: meanwhile, or it was refused.
_AGAIN: Final = {Verdict.RETRYABLE: 2.0, Verdict.CONFLICT: 0.2, Verdict.FATAL: 60.0}
#: Gangs whose place is looked at in one go.
_PLACES: Final = 100


class _Told(Struct, frozen=True):
    """What was last written on an object."""

    uid: str
    generation: int
    said: tuple[Said, ...]
    #: Members that are bound, the path of their domain, and the ranks.
    figures: tuple[int, str, tuple[str, ...]]
    at: float
    decision: DecisionStatus | None
    reservation: ReservationStatus | None


class GangReporter:
    """What was told about each gang, and what is still to be told."""

    def __init__(
        self,
        writer: Writer,
        events: Events,
        say: Say,
        objects: GangObjects,
        starts: Starts,
        settings: ReportingSettings,
        informed: Callable[[], bool],
    ) -> None:
        """``starts`` knows how gangs stand; ``informed``: whether that may be relied upon."""
        self._events = events
        self._say = say
        self._objects = objects
        self._starts = starts
        self._standing_of = starts.standing
        self._informed = informed
        self._settings = settings
        #: By gang: when it is to be looked at (monotonic seconds).
        self._due: dict[str, float] = {}
        self._told: dict[str, _Told] = {}
        #: By gang: since when each condition is as it is.
        self._since: dict[str, dict[str, tuple[bool, str]]] = {}
        self._records = GangRecords(writer, objects, self._condition, say)
        #: Whether gangs may lie elsewhere than was told, and those of which that is still to be looked at.
        self._moved = False
        self._unseen: list[str] = []
        #: One write at a time for each gang, so that the last one wins; also where it is forgotten meanwhile.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: Writes that are under way.
        self._writing: set[asyncio.Task[Written]] = set()

    def review(self, key: str, within: float = 0.0) -> None:
        """Look at the gang soon; what is due earlier stays so."""
        due = time.monotonic() + within
        self._due[key] = min(due, self._due.get(key, due))

    def refused(self, key: str) -> None:
        """Members of the gang wait: told if that still holds in a moment."""
        self.review(key, self._settings.stands)

    def lost(self, key: str) -> None:
        """A member of the gang is gone: what was told of the gang may be true no more."""
        standing = self._standing_of(key)
        objects = () if standing is None else self._objects_of(standing.group)
        told = any(not one.conditions.keys().isdisjoint(_ABOUT_PLACEMENT) for one in objects)
        if told or key in self._told:
            self.review(key, self._settings.stands)

    def heard(self, key: str) -> None:
        """The gang's object is a new one, or says something new: what was told of the gang is told anew."""
        standing = self._standing_of(key)
        if standing is not None and standing.present:
            self.review(key, self._settings.stands)

    def resume(self, key: str) -> None:
        """Since somebody before us told of the gang it may have got its last pod, or have lost one."""
        standing = self._standing_of(key)
        if standing is None:
            return
        for found in self._objects_of(standing.group):
            told = found.conditions.get(SCHEDULED if found.ours else _UPSTREAM_SCHEDULED)
            ended = (
                found.has_conditions and (told is not None and told.status == "True") is not standing.enough
            )
            if ended or (found.domain and found.domain != path_of(self._starts.place(key))):
                self.review(key, self._settings.stands)

    def moved(self) -> None:
        """Nodes, their labels or topologies are others: gangs may lie elsewhere than was told."""
        self._moved = True

    def forget(self, key: str) -> None:
        """The gang is gone."""
        for kept in (self._due, self._told, self._since):
            kept.pop(key, None)
        self._records.forget(key)

    async def write_plan(self, key: str) -> Written:
        """Writes down where the gang's members go; what follows may rely on it once this is done.

        CONFLICT when the object is not as we last heard of it: somebody else may have written a plan.
        """
        return await self._written(key)

    async def reserved(self, change: Reserved | Released) -> None:
        """An Event on the gang: nodes are kept free for it, or are so no more; its condition follows."""
        kept = change.reservation
        standing = self._standing_of(kept.key)
        found = None if standing is None else self._objects.of(standing.group)
        if standing is None or found is None:
            return
        if standing.waiting:
            self.review(kept.key, self._settings.stands)
        if isinstance(change, Reserved):
            note = Note(reason="NodesReserved", action="Reserving", text=kept.sentence())
        else:
            note = Note(reason="NodesReleased", action="Reserving", text=kept.released(change.why))
        with Contained() as telling:
            await self._events.post(found.reference, note, time.time())
        if telling.error is not None:
            self._say("reporting failed", warning=True, gang=kept.key, **fields_of(telling.error))

    async def run(self) -> None:
        """Tells what is due, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            slots = asyncio.Semaphore(4)
            while True:
                await asyncio.sleep(0.25)
                if not self._informed():
                    continue
                self._look_where_they_lie()
                now = time.monotonic()
                for key in [key for key, due in self._due.items() if due <= now]:
                    del self._due[key]
                    tasks.create_task(self._tell(key, slots))

    def _look_where_they_lie(self) -> None:
        """A part at a time, so that nothing else has to wait."""
        if not self._unseen and self._moved:
            self._moved = False
            self._unseen = [key for key, told in self._told.items() if told.figures[1]]
        now, self._unseen = self._unseen[:_PLACES], self._unseen[_PLACES:]
        for key in now:
            if key in self._told and self._told[key].figures[1] != path_of(self._starts.place(key)):
                self.review(key)

    async def finish(self) -> None:
        """Writes what came to its end; refusals that have not stood long are left to whoever comes next."""
        if self._writing:
            await asyncio.wait(self._writing)
        due, self._due = self._due, {}
        for key in due:
            standing = self._standing_of(key)
            if standing is not None and not standing.waiting:
                await self._written(key)

    async def _tell(self, key: str, slots: asyncio.Semaphore) -> None:
        try:
            async with slots:
                verdict = (await asyncio.shield(self._under_way(key))).verdict
        except asyncio.CancelledError:
            self.review(key)  # The end is near: `finish` writes what must be.
            raise
        if verdict in _AGAIN:
            self.review(key, _AGAIN[verdict])

    def _under_way(self, key: str) -> asyncio.Task[Written]:
        """Writes in any case to the end: of a write that is given up nobody knows what it led to."""
        writing = asyncio.create_task(self._written(key))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return writing

    async def _written(self, key: str) -> Written:
        """What came of writing; a fault of ours with one gang does not keep us from all the others."""
        with Contained() as writing:
            return await self._write(key)
        assert writing.error is not None
        self._say("PodGroup not written", warning=True, gang=key, **fields_of(writing.error))
        return Written(Verdict.FATAL, ApiError(None, FAULT, brief(writing.error)))

    async def _write(self, key: str) -> Written:
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            standing = self._starts.standing(key, with_place=True)
            found = None if standing is None else self._objects.of(standing.group)
            if standing is None or found is None:
                self.forget(key)
                return Written(Verdict.GONE)
            written = await self._write_on(key, standing, found)
        if written.verdict is Verdict.FATAL:
            self._say("PodGroup not written", warning=True, gang=key, error=written.error)
        return written

    async def _write_on(self, key: str, standing: GangStanding, found: GangObject) -> Written:
        told = self._told.get(key)
        if standing.outcome is None and not standing.held and told is None and not standing.group.plan:
            return DONE  # Nothing was decided about it.
        said = self._said(key, standing, found)
        figures = standing.bound, path_of(standing.place), tuple(rank_list(standing.ranks))
        wire = plan(standing, self._starts.plan_made(key))
        planned = wire is not None or self._starts.plan_may_stand(key)
        record = Record(
            said=said,
            scheduled=figures[0],
            domain=figures[1],
            ranks=figures[2],
            plan=wire,
            last_decision=self._decision(standing, found, told),
            reservation=None if standing.reservation is None else standing.reservation.status,
        )
        now = time.monotonic()
        if told is not None and told.uid == found.uid and not planned:
            known = told.decision, told.reservation
            same = told.said == said and told.figures == figures and told.generation == found.generation
            if same and known == (record.last_decision, record.reservation):
                return DONE
            if _rephrased(told.said, said) and now < told.at + self._settings.rephrased_after:
                self.review(key, told.at + self._settings.rephrased_after - now)
                return DONE
        written = await self._records.write(key, found, record, must_last=planned)
        still = self._objects.of(standing.group)
        if still is None or still.uid != found.uid:
            # Nothing was told of the one that bears its name now.
            self._records.forget(key, found.uid)
            return Written(Verdict.CONFLICT, written.error)
        if written.ok:
            self._told[key] = _Told(
                uid=found.uid,
                generation=found.generation,
                said=said,
                figures=figures,
                at=now,
                decision=record.last_decision,
                reservation=record.reservation,
            )
            self._starts.handle(StatusWritten(key, planned=wire is not None))
            await self._events_of(told, said, found)
        return written

    def _objects_of(self, group: PodGroup) -> tuple[GangObject, ...]:
        """All objects on which something of the gang is told."""
        found = self._objects.of(group)
        if found is None:
            return ()
        mirror = self._objects.mirror_of(found)
        return (found,) if mirror is None else (found, mirror)

    def _decision(
        self, standing: GangStanding, found: GangObject, told: _Told | None
    ) -> DecisionStatus | None:
        """The newest decision; until this process has made one, that which stands in the cluster."""
        if told is not None and told.uid == found.uid:
            before = told.decision
        else:
            record = self._objects.record_of(standing.group)
            before = None if record is None else record.last_decision
        return last_decision(standing, before, utc(time.time()))

    def _said(self, key: str, standing: GangStanding, found: GangObject) -> tuple[Said, ...]:
        wrong = valid(standing)
        if wrong is None:
            before = found.conditions.get(VALID)
            told = any(one.type == VALID for one in (self._told[key].said if key in self._told else ()))
            if told or (before is not None and before.status == "False"):
                wrong = Said(VALID, True, VALID, "nothing is wrong with what it asks for")
        said = scheduled(standing), wrong if found.ours else None, limited(standing)
        return tuple(one for one in said if one is not None)

    def _condition(self, key: str, said: Said, found: GangObject) -> StatusCondition:
        """As it is written: with the time of its last transition, in upstream's words on upstream's kind."""
        type_, reason, message = said.type, said.reason, said.message
        if not found.ours and said.type == SCHEDULED:
            type_ = _UPSTREAM_SCHEDULED
            if not said.true:
                reason, message = UNSCHEDULABLE, f"{said.reason}: {said.message}"
        since = self._since.setdefault(key, {})
        before = since.get(type_)
        standing = found.conditions.get(type_)
        if before is None and standing is not None:
            before = standing.status == "True", standing.last_transition_time
        if before is None or before[0] != said.true:
            before = said.true, utc(time.time())
        since[type_] = before
        return StatusCondition(
            type=type_,
            status="True" if said.true else "False",
            reason=reason,
            message=message,
            last_transition_time=before[1],
            observed_generation=found.generation,
        )

    async def _events_of(self, told: _Told | None, said: tuple[Said, ...], found: GangObject) -> None:
        """On objects without conditions the only way to tell; once per transition."""
        if found.has_conditions:
            return
        before = {(one.type, one.true, one.reason) for one in ([] if told is None else told.said)}
        for one in said:
            if (one.type, one.true, one.reason) in before:
                continue
            if one.type == PRIORITY_LIMITED:
                reason, text, warning = one.reason, one.message, True
            else:
                text = one.message if one.true else f"{one.reason}: {one.message}"
                reason, warning = "Scheduled" if one.true else "FailedScheduling", not one.true
            note = Note(reason=reason, action="Scheduling", text=text, warning=warning)
            await self._events.post(found.reference, note, time.time())


def _rephrased(before: tuple[Said, ...], now: tuple[Said, ...]) -> bool:
    """Whether nothing changed but the words of what waits."""
    return not now[0].true and [(one.type, one.true, one.reason) for one in before] == [
        (one.type, one.true, one.reason) for one in now
    ]
