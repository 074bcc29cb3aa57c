"""Carries out the engine's plans of preemption on a cluster.

A plan is written down before the first eviction, so that a process which comes after this one carries it on.
Victims that a PodDisruptionBudget covers go first: a plan that a budget refuses has cost nothing then. The
engine keeps the cleared nodes free, and places the preemptor once the last victim is gone.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace, Stopping
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.preempting.evicting import PlanUnderway, VictimEvictions
from closeby.kube.preempting.history import EvictionHistory
from closeby.kube.preempting.meters import PreemptionMeters
from closeby.kube.preempting.nominated import NominatedPods
from closeby.kube.preempting.nominating import Nominations
from closeby.kube.preempting.notes import (
    begun_note,
    evicted_note,
    given_up_note,
    preemptor_of,
    where_text,
)
from closeby.kube.preempting.records import status_of
from closeby.kube.preempting.restoring import written_plans
from closeby.kube.preempting.stranded import stranded
from closeby.kube.state.ownership import OwnGangs
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.events import Events
from closeby.kube.writing.pod_statuses import PodStatuses
from closeby.kube.writing.writer import Reference, WriteResult, Written, pod_reference
from closeby.objects.pods import Pod, gang_key
from closeby.objects.process import Contained, Say, brief, fields_of
from closeby.objects.quantities import utc
from closeby.objects.recorded import PreemptionStatus
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    FlushUnschedulable,
    PreemptionEvent,
    PreemptionGivenUp,
    PreemptionRestored,
    VictimEvicted,
)
from closeby.scheduling.outcomes import Outcome, Preemption, PreemptionEnded
from closeby.scheduling.preemption.rule import PreemptionRule, rule_of

#: Between attempts to write a plan (seconds).
_PACE: Final = RequestPace(0.2, 10.0)

#: What is said to the engine.
PreemptionReport = PreemptionEvent | FlushUnschedulable


class PreemptionContext(Protocol):
    """What carrying out plans needs of its scheduler."""

    @property
    def own(self) -> OwnGangs:
        """The gangs that it schedules."""

    def informed(self) -> bool:
        """Whether the cluster need not be read again first."""

    async def until_informed(self) -> None:
        """Returns when that may be so."""

    def catch_up(self) -> bool:
        """Feeds the engine all that was received; False when it can't be relied upon any more."""

    def may_bind(self) -> bool:
        """Whether this process certainly leads; once it does not it never will again."""

    async def write_plan(self, key: str) -> Written:
        """Writes the status of the gang, with its plans."""

    def review(self, key: str, *, waits: bool) -> None:
        """The status of the gang may not be true any more."""

    def wake(self) -> None:
        """There is something for the engine to take in."""


class PreemptionDependencies(Struct, frozen=True, kw_only=True):
    """What carrying out plans works with."""

    objects: GangObjects
    pod_statuses: PodStatuses
    transport: Transport
    events: Events
    say: Say
    meters: PreemptionMeters
    #: Entered before a plan is carried out.
    tasks: asyncio.TaskGroup
    #: Otherwise there are no plans.
    evicts: bool
    #: Whether anything is written.
    writes: bool
    #: Whether a pod may be evicted at all, by its namespace and its scheduler.
    may_evict: Callable[[Pod], bool]


class LivePreemption:
    """The plans of one scheduler that are in force."""

    def __init__(self, engine: Engine, given: PreemptionDependencies, context: PreemptionContext) -> None:
        """Does nothing yet."""
        self._engine = engine
        self._state = engine.state
        self._given = given
        self._objects = given.objects
        self._events = given.events
        self._say = say = given.say
        self._meters = given.meters
        self._context = context
        rule = rule_of(engine.profile.post_filters) or PreemptionRule()
        self._deadline = rule.deadline
        #: Which gangs were evicted.
        self.history = EvictionHistory()
        self._nominated = NominatedPods()
        self._plans: list[PlanUnderway] = []
        #: Plans that ended while victims were left that may have to go all the same. They stay written down.
        self._ended: list[PlanUnderway] = []
        self._reports: list[PreemptionReport] = []
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = Stopping()
        self._evictions = VictimEvictions(engine, given.transport, say, given.meters, self)
        self._nominating = Nominations(
            engine,
            given.pod_statuses,
            say,
            leads=context.may_bind,
            in_force=self.in_force,
            start=self._start,
        )

    # What the scheduler passes on

    def look(self, changes: Iterable[tuple[Resource, Change]]) -> None:
        """What the watches brought."""
        self._nominated.take(changes)

    def status(self, key: str) -> PreemptionStatus | None:
        """What the status of a gang says of its plan."""
        plans = (*self._plans, *self._ended)
        return next((one.status for one in plans if one.plan.is_gang and one.plan.item == key), None)

    def decided(self, outcome: Outcome) -> None:
        """Begins the plans of a decision."""
        for plan in outcome.preemptions:
            if not plan.observed:
                status = status_of(plan, secrets.token_hex(4), utc(time.time()), self._state.pods)
                carried = PlanUnderway(plan, status, self._preemptor(plan))
                self._meters.begun(len(plan.victims))
                self._begin(carried, self._carry_out(carried, written=False))

    def ended(self, end: PreemptionEnded) -> None:
        """A plan is in force no more."""
        carried = next((one for one in self._plans if one.plan is end.plan or one.plan == end.plan), None)
        if carried is None:
            return
        carried.over = True
        self._plans.remove(carried)
        if carried.written and not carried.cleared and self._any_left(carried):
            self._ended.append(carried)
        self._meters.in_force(len(self._plans))
        took = time.monotonic() - carried.begun
        item, id_ = carried.plan.preemptor, carried.status.id
        if end.why:
            self._meters.given_up()
            self._say("preemption given up", warning=True, item=item, plan=id_, why=end.why)
            if carried.about is not None:
                self._events.post(carried.about, given_up_note(id_, end.why))
        else:
            self._meters.placed(took)
            self._say("preemption complete", item=item, plan=id_, seconds=f"{took:.1f}")
        if carried.plan.is_gang:
            self._context.review(carried.plan.item, waits=False)
        others = {uid for one in self._plans for uid, _ in one.plan.places}
        self._nominating.clear(carried, others, end.why)

    @property
    def pending(self) -> bool:
        """Whether there is something for the engine to take in."""
        return bool(self._reports)

    def take(self) -> tuple[PreemptionReport, ...]:
        """What happened to plans and victims since the last call."""
        taken, self._reports = tuple(self._reports), []
        return taken

    def resume(self) -> None:
        """Hands the engine the plans that an earlier process wrote down, before it decides."""
        if not self._given.writes:
            return
        self._engine.handle(*self.history.restore(self._state, self._objects))
        for carried in written_plans(self._state, self._objects, self._context.own, self._nominated.plans):
            self._say("preemption resumed", item=carried.plan.preemptor, plan=carried.status.id)
            carried.waited = carried.written = True
            victims = carried.plan.victims
            if len(victims) < carried.plan.cost.pods or any(pod.terminating for pod in victims):
                carried.lost_members = {gang_key(pod) for pod in victims if pod.group}
            if self._has_its_place(carried.plan):
                carried.over = True
                self._ended.append(carried)
                self._carry(carried, self._evictions.clear_stranded(carried))
                continue
            counted = self.history.counted(carried.status.id)
            self._engine.handle(PreemptionRestored(carried.plan, counted))
            self._begin(carried, self._carry_out(carried, written=True))
            if not self._given.evicts:
                self.ended(PreemptionEnded(plan=carried.plan, why="preemption is not on"))
            elif not all(map(self._given.may_evict, carried.plan.victims)):
                self.give_up(carried, "its victims may not be evicted any more")
        kept = {uid for one in self._plans for uid in one.nominated}
        for uid, written in self._nominated.plans.items():
            if written.ours and uid not in kept:
                self._nominating.clear_pod(uid)

    async def finish(self) -> None:
        """Sends nothing more; what is under way is left to the next leader."""
        self._stopping.set()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # One plan

    def _begin(self, carried: PlanUnderway, work: Coroutine[Any, Any, None]) -> None:
        self._plans.append(carried)
        self._meters.in_force(len(self._plans))
        self._carry(carried, work)

    def _carry(self, carried: PlanUnderway, work: Coroutine[Any, Any, None]) -> None:
        """Works in the background until nothing more is to be evicted for the plan."""

        async def contained() -> None:
            with Contained() as working:
                await work
            if working.error is not None:
                plan = carried.plan
                self._say("preemption failed", warning=True, item=plan.preemptor, **fields_of(working.error))
                self.give_up(carried, f"a fault of closeby: {brief(working.error)}")
            if self.leads():
                self._cleared(carried)

        self._start(contained())

    def _cleared(self, carried: PlanUnderway) -> None:
        """The plan need not be written down any more, unless it is in force."""
        carried.cleared = True
        if carried in self._ended:
            self._ended.remove(carried)
            if carried.plan.is_gang:
                self._context.review(carried.plan.item, waits=False)

    def _any_left(self, carried: PlanUnderway) -> bool:
        """Whether a victim is there that was not evicted."""
        left = (self._state.pods.get(pod.uid) for pod in carried.plan.victims)
        return any(pod is not None and pod.uid not in carried.agreed for pod in left)

    def _has_its_place(self, plan: Preemption) -> bool:
        """Whether the preemptor needs no more room: all that is written down is what its plan left behind."""
        return plan.is_gang and not self._state.waits(plan.item) and bool(self._state.placed(plan.item))

    async def _carry_out(self, carried: PlanUnderway, *, written: bool) -> None:
        if not written:
            if not await self._write(carried):
                return
            plan, id_ = carried.plan, carried.status.id
            self._say(
                "preempts",
                item=plan.preemptor,
                plan=id_,
                domain=where_text(plan),
                pods=len(plan.victims),
                priority=plan.cost.highest_priority,
            )
            if carried.about is not None:
                self._events.post(carried.about, begun_note(plan, id_))
        carried.written = True
        await self._evictions.clear(carried)
        await self._evictions.clear_stranded(carried)

    async def _write(self, carried: PlanUnderway) -> bool:
        """Writes the plan down; whether it stands, and is in force still."""
        attempts = Backoff(_PACE)
        ends = carried.begun + self._deadline
        while await self.may_go_on(carried):
            written = await self._write_once(carried)
            if written.ok:
                return self.in_force(carried)
            refused = written.verdict in (WriteResult.GONE, WriteResult.FATAL)
            if refused or time.monotonic() > ends:
                why = written.error or "its object is gone"
                self.give_up(carried, f"the plan could not be written: {why}")
                return False
            await self._stopping.rest(attempts.next(written.error.retry_after if written.error else None))
        return False

    async def _write_once(self, carried: PlanUnderway) -> Written:
        if carried.plan.is_gang:
            return await self._context.write_plan(carried.plan.item)
        return await self._nominating.write_plan(carried)

    # What evicting asks

    def evicted(self, carried: PlanUnderway, pod: Pod) -> None:
        """The server agreed to evict a victim."""
        plan = carried.plan
        self._report(VictimEvicted(plan, pod.uid, time.time()))
        gang = self.history.note(pod, carried.status.id, plan.priority)
        if gang is not None:
            self._context.review(gang, waits=False)
        overruled = self._state.budgets.overrules(pod)
        note = evicted_note(pod, plan, carried.status.id, carried.about, overruled=overruled)
        self._events.post(pod_reference(pod), note)

    def try_again(self) -> None:
        """All that waits may be placed by now."""
        self._report(FlushUnschedulable())

    def stranded(self, carried: PlanUnderway) -> Sequence[Pod]:
        """Victims that the end of a plan leaves behind of gangs which can't do without those that went.

        Where the preemptor itself is gone there are none: the room is free for who was evicted.
        """
        plan = carried.plan
        if not carried.over or not self._given.evicts or self._preemptor(plan) != carried.about:
            return ()
        gangs = {*self.history.counted(carried.status.id), *carried.lost_members}
        planned = {pod.uid for one in self._plans if one is not carried for pod in one.plan.victims}
        found = stranded(plan, carried.agreed, gangs, planned, self._state)
        return [pod for pod in found if self._given.may_evict(pod)]

    def all_leave(self, carried: PlanUnderway) -> None:
        """No more evictions are to be sent, so others may learn where the members go."""
        if carried.plan.is_gang:
            self._nominating.nominate_members(carried)

    async def rest(self, seconds: float) -> bool:
        """Waits; False when the process stops meanwhile."""
        return await self._stopping.rest(seconds)

    def give_up(
        self, carried: PlanUnderway, why: str, blocked: Sequence[str] = (), *, strict: bool = False
    ) -> None:
        """The plan can't be carried out; ``blocked`` are uids of victims that do not go.

        ``strict``: the next ones may violate no budget.
        """
        if not carried.over:
            carried.over = True
            self._report(PreemptionGivenUp(carried.plan, why, tuple(blocked), strict))

    def in_force(self, carried: PlanUnderway) -> bool:
        """Whether the plan is in force, and this process leads."""
        if carried.over or self._stopping.is_set or not self._context.may_bind():
            return False
        return any(plan is carried.plan for plan in self._engine.preemptions)

    @property
    def deadline(self) -> float:
        """Seconds for budgets to agree, and for victims to end beyond their grace."""
        return self._deadline

    async def may_go_on(self, carried: PlanUnderway) -> bool:
        """Whether the plan is in force, by all that was received."""
        while not self._context.informed() and not self._stopping.is_set:
            await self._stopping.unless(self._context.until_informed)
        if not self._context.catch_up() or not self.in_force(carried):
            return False
        if carried.about is None or self._preemptor(carried.plan) != carried.about:
            # What has its name now has no plan in its status.
            self.give_up(carried, "its PodGroup or pod is gone")
            return False
        return True

    def leads(self) -> bool:
        """Whether this process certainly leads."""
        return not self._stopping.is_set and self._context.may_bind()

    # What all need

    def _report(self, event: PreemptionReport) -> None:
        self._reports.append(event)
        self._context.wake()

    def _preemptor(self, plan: Preemption) -> Reference | None:
        return preemptor_of(plan, self._state, self._objects)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._given.tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
