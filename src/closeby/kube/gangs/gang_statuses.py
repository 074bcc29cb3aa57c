"""Keeps the status of PodGroups true: the plan of a start before its first binding, and conditions after.

A gang's status is written as a whole each time, so what is written last is what counts. A refusal must have
stood for a moment, so that a gang on its way to its nodes is never called unschedulable.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from closeby.kube.client.errors import ApiError
from closeby.kube.client.waiting import RequestPace
from closeby.kube.gangs.objects import GangObject, GangObjects
from closeby.kube.gangs.start_events import StatusWritten
from closeby.kube.gangs.starts import Starts
from closeby.kube.gangs.status import (
    CONSTRAINTS_MET,
    PRIORITY_LIMITED,
    SCHEDULED,
    VALID,
    VOLUMES_BOUND,
    GangStanding,
    Said,
    constraints_met,
    last_decision,
    limited,
    path_of,
    plan,
    scheduled,
    valid,
    volumes_bound,
)
from closeby.kube.gangs.status_records import GangStatusRecords, Record
from closeby.kube.writing.events import Events
from closeby.kube.writing.pod_statuses import UNSCHEDULABLE
from closeby.kube.writing.statuses import Desired, ReportingSettings, StatusReconciler
from closeby.kube.writing.work_queue import Places, WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import Note, Reference, StatusCondition, Writer, WriteResult, Written
from closeby.objects.groups import PodGroup
from closeby.objects.process import Contained, Say, fields_of
from closeby.objects.quantities import utc
from closeby.objects.reasons import Reason
from closeby.objects.recorded import DecisionStatus, EvictionStatus, PreemptionStatus
from closeby.reading.common.plans import rank_list
from closeby.scheduling.outcomes import Released, Reserved

#: Upstream's name of the condition that we call Scheduled.
_UPSTREAM_SCHEDULED: Final = "PodGroupScheduled"
_ABOUT_PLACEMENT: Final = frozenset({SCHEDULED, _UPSTREAM_SCHEDULED})
#: Between two attempts while the server has trouble, or another client wrote meanwhile (seconds).
_PACE: Final = RequestPace(0.2, 10.0)
#: Statuses that are written at the same time.
_AT_ONCE: Final = 8
#: Gangs whose place is looked at in one go, and seconds until the next ones.
_PLACES: Final = 100
_PAUSE: Final = 0.25


class _Memory:
    """What is remembered of a gang's status."""

    __slots__ = ("decision", "domain", "since", "uid", "unmet")

    def __init__(self) -> None:
        #: By type: since when each condition is as it is.
        self.since: dict[str, tuple[bool, str]] = {}
        #: The newest decision, and the uid of the object on which it is said.
        self.decision: DecisionStatus | None = None
        self.uid = ""
        #: The domain that was written last.
        self.domain = ""
        #: Whether members do not meet what it asks for, as was said last.
        self.unmet = False


class GangStatuses:
    """Gangs of which something is to be said, or was said last."""

    name: Final = "gang-statuses"

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
        #: The plan by which pods are evicted for a gang, and when it was evicted itself.
        self.preemption: Callable[[str], PreemptionStatus | None] = lambda key: None
        self.evictions: Callable[[str], tuple[EvictionStatus, ...]] = lambda key: ()
        self._events = events
        self._say = say
        self._objects = objects
        self._starts = starts
        self._stands = settings.stands
        self._memory: dict[str, _Memory] = {}
        self._records = GangStatusRecords(writer, objects, self._condition, say)
        self._moved = asyncio.Event()
        work: WorkQueue[str] = WorkQueue(
            time.monotonic, lambda key: key.partition("/")[0], _PACE, places=Places(all=_AT_ONCE)
        )
        self._statuses = StatusReconciler(
            self,
            work,
            events,
            say,
            informed=informed,
            insistence=settings.insistence,
            rephrased_after=settings.rephrased_after,
        )
        self._workers = Workers(self._statuses, say)

    async def run(self, stopping: asyncio.Event) -> None:
        """Writes what is due until ``stopping`` is set, and ends what is under way."""
        watching = asyncio.create_task(self._watch_places())
        try:
            await self._workers.run(stopping)
        finally:
            watching.cancel()

    async def finish(self) -> None:
        """Writes what came to its end; refusals that have not stood long are left to the next process."""
        keys = iter(tuple(self._statuses.work.keys))

        async def write() -> None:
            for key in keys:
                standing = self._starts.standing(key)
                if standing is not None and not standing.waiting:
                    await self._statuses.write_now(key, if_changed=True)

        await asyncio.gather(*(write() for _ in range(_AT_ONCE)))

    async def write_plan(self, key: str) -> Written:
        """Writes down where the gang's members go; what follows may rely on it once this is done.

        CONFLICT when the object is not as the watch reported it: another client may have written a plan.
        """
        standing = self._starts.standing(key)
        if standing is not None and self._starts.own.planned_by_another(standing.group):
            why = "the plan of another scheduler stands in the PodGroup's status"
            return Written(WriteResult.FATAL, ApiError(None, "PlannedByAnother", why, unsent=True))
        return await self._statuses.write_now(key)

    # What happens

    def review(self, key: str, within: float = 0.0) -> None:
        """Look at the gang within so many seconds; what is due earlier stays so."""
        self._statuses.work.add(key, after=within)

    def refused(self, key: str) -> None:
        """Members of the gang wait: written if that still holds in a moment."""
        self.review(key, self._stands)

    def lost(self, key: str) -> None:
        """A member of the gang is gone: what the status says may not be true any more."""
        if key not in self._starts.own:
            return
        standing = self._starts.standing(key)
        objects = () if standing is None else self._objects_of(standing.group)
        written = any(not one.conditions.keys().isdisjoint(_ABOUT_PLACEMENT) for one in objects)
        if written or key in self._statuses:
            self.refused(key)

    def renewed(self, key: str) -> None:
        """The gang's object is a new one, or asks for something else: its status is looked at again."""
        standing = self._starts.standing(key) if key in self._starts.own else None
        if standing is not None and standing.present:
            self.refused(key)

    def resume(self, key: str) -> None:
        """Since another process wrote the status the gang may have got its last pod, or have lost one."""
        standing = self._starts.standing(key) if key in self._starts.own else None
        if standing is None:
            return
        for found in self._objects_of(standing.group):
            written = found.conditions.get(SCHEDULED if found.ours else _UPSTREAM_SCHEDULED)
            placed = written is not None and written.status == "True"
            ended = found.has_conditions and placed is not standing.enough
            met = found.conditions.get(CONSTRAINTS_MET)
            if ended or self._elsewhere(key, found.domain, unmet=met is not None and met.status == "False"):
                self.refused(key)

    def moved(self) -> None:
        """Nodes, their labels or topologies changed: gangs may be elsewhere than their status says."""
        self._moved.set()

    def forget(self, key: str) -> None:
        """The gang is gone."""
        self._memory.pop(key, None)
        self._records.forget(key)
        self._statuses.forget(key)

    def reserved(self, change: Reserved | Released) -> None:
        """An Event on the gang: nodes are kept free for it, or are so no more; its condition follows."""
        kept = change.reservation
        standing = self._starts.standing(kept.key)
        found = None if standing is None else self._objects.of(standing.group)
        if standing is None or found is None:
            return
        if standing.waiting:
            self.refused(kept.key)
        if isinstance(change, Reserved):
            note = Note(reason="NodesReserved", action="Reserving", text=kept.sentence())
        else:
            note = Note(reason="NodesReleased", action="Reserving", text=kept.released(change.why))
        self._events.post(found.reference, note)

    async def _watch_places(self) -> None:
        """A part at a time, so that nothing else has to wait."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            for number, key in enumerate(tuple(self._memory)):
                if number % _PLACES == 0:
                    await asyncio.sleep(_PAUSE)
                with Contained() as looking:
                    memory = self._memory.get(key)
                    if memory is not None and self._elsewhere(key, memory.domain, unmet=memory.unmet):
                        self.review(key)
                if looking.error is not None:
                    self._say("place not known", warning=True, gang=key, **fields_of(looking.error))

    def _elsewhere(self, key: str, domain: str, *, unmet: bool) -> bool:
        """Whether what was said of the members' place, and of their constraints, is not true any more."""
        moved = domain and domain != path_of(self._starts.place(key))
        return bool(moved) or (self._starts.unmet(key) is not None) is not unmet

    # What is to be said

    def regarding(self, key: str) -> Reference | None:
        """The gang's PodGroup."""
        standing = self._starts.standing(key)
        found = None if standing is None else self._objects.of(standing.group)
        return None if found is None else found.reference

    def desired(self, key: str) -> Desired | None:
        """Its status; None where nothing was decided about the gang, or it is not ours, or it is gone."""
        standing = self._starts.standing(key, with_place=True)
        found = None if standing is None else self._objects.of(standing.group)
        if standing is None or found is None or not self._starts.own.may_write(standing.group):
            self.forget(key)
            return None
        preemption, before = self.preemption(key), self._objects.record_of(standing.group)
        cleared = preemption is not None or (before is not None and before.preemption is not None)
        undecided = standing.outcome is None and not standing.held and not standing.group.plan
        if undecided and not cleared and key not in self._statuses:
            return None
        memory = self._memory.setdefault(key, _Memory())
        said = self._said(memory, standing, found)
        wire = plan(standing, self._starts.plan_made(key))
        planned = wire is not None or cleared or self._starts.plan_may_stand(key)
        record = Record(
            said=said,
            scheduled=standing.bound,
            domain=path_of(standing.place),
            ranks=tuple(rank_list(standing.ranks)),
            plan=wire,
            last_decision=self._decision(memory, standing, found),
            reservation=None if standing.reservation is None else standing.reservation.status,
            preemption=preemption,
            evictions=self.evictions(key),
        )
        transitions = tuple((one.type, one.true, one.reason) for one in said)
        return Desired(
            about=found.reference,
            content=(found.generation, record),
            # Of a gang that waits, other words may come later; a plan never does.
            gist=None if planned or said[0].true else transitions,
            stands=False if planned else None,
            write=lambda: self._write(key, standing.group, found, record, planned),
            events={
                transition: _note(one)
                for transition, one in zip(transitions, said, strict=True)
                if not found.has_conditions or one.reason == Reason.BINDING_REFUSED or _is_lost_volume(one)
            },
        )

    async def _write(
        self, key: str, group: PodGroup, found: GangObject, record: Record, planned: bool
    ) -> Written:
        written = await self._records.write(key, found, record, must_last=planned)
        still = self._objects.of(group)
        if still is None or still.uid != found.uid:
            # Nothing was said on the one that has its name now.
            self._records.forget(key, found.uid)
            return Written(WriteResult.CONFLICT, written.error)
        if written.ok:
            self._starts.handle(StatusWritten(key, planned=record.plan is not None))
            if key in self._memory:
                self._memory[key].domain = record.domain
        return written

    def _objects_of(self, group: PodGroup) -> tuple[GangObject, ...]:
        """All objects on which something of the gang is said."""
        found = self._objects.of(group)
        if found is None:
            return ()
        mirror = self._objects.mirror_of(found)
        return (found,) if mirror is None else (found, mirror)

    def _decision(self, memory: _Memory, standing: GangStanding, found: GangObject) -> DecisionStatus | None:
        """The newest decision; until this process has made one, that which stands in the cluster."""
        if memory.uid != found.uid:
            record = self._objects.record_of(standing.group)
            memory.decision = None if record is None else record.last_decision
            memory.uid = found.uid
        memory.decision = last_decision(standing, memory.decision, utc(time.time()))
        return memory.decision

    def _said(self, memory: _Memory, standing: GangStanding, found: GangObject) -> tuple[Said, ...]:
        wrong = valid(standing)
        if wrong is None:
            before = found.conditions.get(VALID)
            if VALID in memory.since or (before is not None and before.status == "False"):
                wrong = Said(VALID, True, VALID, "nothing is wrong with what it asks for")
        mentioned = VOLUMES_BOUND in memory.since or VOLUMES_BOUND in found.conditions
        volumes = volumes_bound(standing.no_volume) if standing.no_volume or mentioned else None
        if not found.ours:
            wrong = volumes = None
        memory.unmet = standing.unmet is not None
        mentioned = CONSTRAINTS_MET in memory.since or CONSTRAINTS_MET in found.conditions
        met = constraints_met(standing) if (standing.unmet and standing.bound) or mentioned else None
        said = scheduled(standing), wrong, volumes, met, limited(standing)
        return tuple(one for one in said if one is not None)

    def _condition(self, key: str, said: Said, found: GangObject) -> StatusCondition:
        """As it is written: with the time of its last transition, in upstream's words on upstream's kind."""
        type_, reason, message = said.type, said.reason, said.message
        if not found.ours and said.type == SCHEDULED:
            type_ = _UPSTREAM_SCHEDULED
            if not said.true:
                reason, message = UNSCHEDULABLE, f"{said.reason}: {said.message}"
        since = (self._memory.get(key) or _Memory()).since
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


def _is_lost_volume(said: Said) -> bool:
    return said.type == VOLUMES_BOUND and not said.true


def _note(said: Said) -> Note:
    """On objects without conditions an Event is the only way to report."""
    if said.type in (PRIORITY_LIMITED, CONSTRAINTS_MET):
        warning = said.reason != CONSTRAINTS_MET
        return Note(reason=said.reason, action="Scheduling", text=said.message, warning=warning)
    text = said.message if said.true else f"{said.reason}: {said.message}"
    reason = "Scheduled" if said.true else "FailedScheduling"
    return Note(reason=reason, action="Scheduling", text=text, warning=not said.true)
