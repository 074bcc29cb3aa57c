"""Evicts the victims of a plan of preemption, those first that a PodDisruptionBudget covers.

A budget that refuses is asked again until the plan's deadline. Victims are recognised by the plan alone.
Time in which the server does not answer counts towards no deadline.

A plan may end before all of its victims are gone: room elsewhere makes up for the rest, or others take what
was cleared. What is left then of a gang that lost too many members is evicted all the same: those members
would hold their nodes for nothing, and tie the gang to a domain where the others may not fit any more. The
plan of a gang stays written down until they are gone.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, Protocol

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.preempting.meters import PreemptionMeters
from closeby.kube.writing.evictions import EvictionVerdict, evict, is_there
from closeby.kube.writing.writer import Reference
from closeby.objects.pods import Pod
from closeby.objects.process import Say
from closeby.objects.recorded import PreemptionStatus
from closeby.objects.words import plural
from closeby.scheduling.engine import Engine
from closeby.scheduling.intake.budgets import NONE
from closeby.scheduling.outcomes import Preemption
from closeby.scheduling.preemption.plans import PlanState

#: Between attempts to evict what was not evicted (seconds).
_PACE: Final = RequestPace(0.5, 10.0)
#: Between two looks at victims that leave (seconds).
_LOOK: Final = 0.25
#: Between two questions to the server meanwhile, which may be away; without an answer for so long it was.
_ASKED: Final = 1.0
_AWAY: Final = 3.0
#: Evictions that are sent at the same time.
_AT_ONCE: Final = 16
_BAD_REQUEST: Final = 400


class _Answers:
    """Since when the server answers (seconds since the epoch). An outage restarts a deadline."""

    __slots__ = ("_failed", "last", "since")

    def __init__(self) -> None:
        self.since = self.last = time.time()
        #: Whether it gave no answer after the last one.
        self._failed = False

    @property
    def due(self) -> bool:
        """Whether it is time to ask again."""
        return time.time() > self.last + _ASKED

    def note(self, *, answered: bool) -> bool:
        """The server was asked; returns whether it is back after an outage."""
        if not answered:
            self._failed = True
            return False
        before, self.last = self.last, time.time()
        back = self._failed and self.last > before + _AWAY
        if back:
            self.since = self.last
        self._failed = False
        return back


class PlanUnderway:
    """A plan that is carried out."""

    __slots__ = (
        "about",
        "agreed",
        "begun",
        "cleared",
        "doubtful",
        "lost_members",
        "nominated",
        "over",
        "plan",
        "status",
        "waited",
        "written",
    )

    def __init__(self, plan: Preemption, status: PreemptionStatus, about: Reference | None) -> None:
        self.plan = plan
        self.status = status
        #: The preemptor: the PodGroup, or the pod.
        self.about = about
        #: Monotonic seconds.
        self.begun = time.monotonic()
        #: uids of victims: those that the server agreed to evict, and those of which that is not known.
        self.agreed: set[str] = set()
        self.doubtful: set[str] = set()
        #: Gangs that may have lost members to it before this process began.
        self.lost_members: set[str] = set()
        #: uids of members that got a nominated node.
        self.nominated: set[str] = set()
        #: Whether something held evictions up, so that others may have changed the room meanwhile.
        self.waited = False
        #: Whether it is written down.
        self.written = False
        #: Whether it came to its end, or is given up.
        self.over = False
        #: Whether nothing more is evicted for it, nor for what its end left behind.
        self.cleared = False


class PlanControl(Protocol):
    """What evicting needs of those who own the plans."""

    @property
    def deadline(self) -> float:
        """Seconds for budgets to agree, and for victims to end beyond their grace."""

    def in_force(self, carried: PlanUnderway) -> bool:
        """Whether the plan is in force, and this process leads."""

    async def may_go_on(self, carried: PlanUnderway) -> bool:
        """The same, by all that was received."""

    def give_up(
        self, carried: PlanUnderway, why: str, blocked: Sequence[str] = (), *, strict: bool = False
    ) -> None:
        """The plan can't be carried out; ``blocked`` are uids of victims that do not go.

        ``strict``: the next ones may violate no budget.
        """

    def evicted(self, carried: PlanUnderway, pod: Pod) -> None:
        """The server agreed to evict a victim."""

    def stranded(self, carried: PlanUnderway) -> Sequence[Pod]:
        """Victims that the end of a plan leaves behind of gangs which can't do without those that went."""

    def leads(self) -> bool:
        """Whether this process certainly leads."""

    def try_again(self) -> None:
        """All that waits may be placed by now."""

    def all_leave(self, carried: PlanUnderway) -> None:
        """No more evictions are to be sent."""

    async def rest(self, seconds: float) -> bool:
        """Waits; False when the process stops meanwhile."""


class VictimEvictions:
    """Evicts the victims of all plans of one scheduler."""

    def __init__(
        self,
        engine: Engine,
        transport: Transport,
        say: Say,
        meters: PreemptionMeters,
        control: PlanControl,
    ) -> None:
        self._engine = engine
        self._state = engine.state
        self._transport = transport
        self._say = say
        self._meters = meters
        self._control = control
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def clear(self, carried: PlanUnderway) -> None:
        """Evicts the victims, and waits until the plan comes to its end."""
        attempts = Backoff(_PACE)
        answers = _Answers()
        refused: set[str] = set()
        while await self._control.may_go_on(carried):
            left = self._to_evict(carried)
            if not left:
                break
            if await self._ask(answers, left):
                attempts = Backoff(_PACE)
            over = time.time() > answers.since + self._control.deadline
            there = await self._still_there(left) if over else None
            if carried.waited and not self._needed(carried, left):
                await self._rest(carried, attempts.next())
                continue
            waits = await self._evict(carried, left, refused)
            if carried.over:
                return
            if waits is not None and there:
                # The server answers, and this was the last time that it is asked.
                blocked = tuple(pod.uid for pod in there if pod.uid in refused)
                why = _not_allowed(len(blocked), len(there))
                self._control.give_up(carried, why, blocked, strict=bool(blocked))
                return
            if waits is not None:
                carried.waited = True
                await self._rest(carried, attempts.next(waits))
        self._control.all_leave(carried)
        await self._until_gone(carried)

    async def clear_stranded(self, carried: PlanUnderway) -> None:
        """Evicts the victims that the end of the plan leaves behind, as long as the deadline of a plan."""
        attempts = Backoff(_PACE)
        ends = time.monotonic() + self._control.deadline
        while time.monotonic() < ends and (left := self._control.stranded(carried)):
            waits = await asyncio.gather(*(self._evict_stranded(carried, pod) for pod in left))
            if not await self._control.rest(attempts.next(max(waits))):
                return

    async def _evict_stranded(self, carried: PlanUnderway, pod: Pod) -> float:
        """Seconds to wait at least before it is asked again."""
        async with self._slots:
            overrule = self._state.budgets.overrules(pod)
            verdict, error = await evict(self._transport, pod, overrule=overrule, wanted=self._control.leads)
        self._meters.evicted(verdict)
        if verdict in (EvictionVerdict.AGREED, EvictionVerdict.GONE):
            carried.agreed.add(pod.uid)
            if verdict is EvictionVerdict.AGREED:
                self._control.evicted(carried, pod)
            return 0.0
        return self._not_evicted(carried, pod, error)

    async def _rest(self, carried: PlanUnderway, seconds: float) -> None:
        """Waits, as long as the plan is in force."""
        ends = time.monotonic() + seconds
        while not carried.over and (left := ends - time.monotonic()) > 0:
            if not await self._control.rest(min(left, _LOOK)):
                return

    def _needed(self, carried: PlanUnderway, left: Sequence[Pod]) -> bool:
        """Whether more victims must go; a plan whose room was taken is given up."""
        match self._engine.preemption_needs(carried.plan, {pod.uid for pod in left}):
            case PlanState.LOST:
                self._control.give_up(carried, "its room was taken by others")
            case PlanState.NEEDED:
                return True
            case _:
                pass
        return False

    async def _evict(self, carried: PlanUnderway, left: Sequence[Pod], refused: set[str]) -> float | None:
        """Asks once for each victim that is left; seconds to wait at least before the next time, else None.

        Those that a budget covers are asked for first, without effect, then one by one.
        """
        budget_of = list(map(self._state.budgets.covering, left))
        covered = [pod for pod, budget in zip(left, budget_of, strict=True) if budget != NONE]
        for only_ask in (True, False):
            for pod in covered:
                waits = await self._evict_one(carried, pod, refused, only_ask=only_ask)
                if waits is not None or carried.over:
                    return waits
        free = [pod for pod, budget in zip(left, budget_of, strict=True) if budget == NONE]
        found = await asyncio.gather(*(self._evict_one(carried, pod, refused) for pod in free))
        return max((one for one in found if one is not None), default=None)

    async def _evict_one(
        self, carried: PlanUnderway, pod: Pod, refused: set[str], *, only_ask: bool = False
    ) -> float | None:
        """Seconds to wait at least before it is asked again; None if that is not necessary."""
        async with self._slots:
            if not await self._control.may_go_on(carried) or not self._to_go(carried, pod.uid):
                return None
            verdict, error = await evict(
                self._transport,
                pod,
                only_ask=only_ask,
                overrule=self._state.budgets.overrules(pod),
                wanted=lambda: self._control.in_force(carried),
            )
        if not (only_ask and verdict is EvictionVerdict.AGREED):
            self._meters.evicted(verdict)
        refused.discard(pod.uid)
        match verdict:
            case EvictionVerdict.AGREED if only_ask:
                return None
            case EvictionVerdict.NEVER if only_ask and error is not None and error.code == _BAD_REQUEST:
                return None  # A webhook knows no dry runs.
            case EvictionVerdict.AGREED | EvictionVerdict.GONE:
                if verdict is EvictionVerdict.AGREED or pod.uid in carried.doubtful:
                    self._control.evicted(carried, pod)
                carried.agreed.add(pod.uid)
                return None
            case EvictionVerdict.NEVER:
                why = f"an eviction was refused: {error and error.reason}"
                self._control.give_up(carried, why, (pod.uid,))
                return None
            case EvictionVerdict.BUDGET:
                refused.add(pod.uid)
            case EvictionVerdict.LATER:
                if error is not None and not error.unsent and not only_ask:
                    carried.doubtful.add(pod.uid)
        return self._not_evicted(carried, pod, error)

    def _not_evicted(self, carried: PlanUnderway, pod: Pod, error: ApiError | None) -> float:
        """It is said; seconds to wait at least before it is asked again."""
        self._say("not evicted", warning=True, item=carried.plan.preemptor, pod=pod.key, error=error)
        return (error and error.retry_after) or 0.0

    async def _until_gone(self, carried: PlanUnderway) -> None:
        """Gives the plan up where victims do not end in time, or the preemptor does not start then."""
        #: Victims can end as long as the server is there.
        answers = _Answers()
        #: Seconds for which its room was looked at and was not taken, and whether that was so before.
        idle, tried = 0.0, False
        while await self._control.may_go_on(carried):
            left = self._left(carried)
            if left:
                idle, tried = 0.0, False
                await self._ask(answers, left)
                since = answers.since
                ends = max(since, *(pod.deleted_by or since for pod in left)) + self._control.deadline
                over = time.time() > ends and not answers.due
                there = await self._still_there(left) if over else None
                if there:
                    uids = tuple(pod.uid for pod in there)
                    why = f"{plural(len(there), 'victim')} did not end in time"
                    self._control.give_up(carried, why, uids)
                    return
            elif idle <= self._control.deadline:
                idle += _LOOK
            elif not tried and self._engine.preemption_needs(carried.plan, ()) is PlanState.ENOUGH:
                idle, tried = 0.0, True
                self._control.try_again()
            else:
                self._control.give_up(carried, "its victims are gone, and it did not start in time")
                return
            await self._control.rest(_LOOK)

    def _left(self, carried: PlanUnderway) -> list[Pod]:
        """The victims that are still there. It is noted which of them the server has agreed to evict."""
        pods = self._state.pods
        left = [pod for one in carried.plan.victims if (pod := pods.get(one.uid)) is not None]
        for pod in left:
            if pod.terminating and pod.uid in carried.doubtful - carried.agreed:
                carried.agreed.add(pod.uid)
                self._control.evicted(carried, pod)
        return left

    async def _ask(self, answers: _Answers, pods: Sequence[Pod]) -> bool:
        """Asks the server for the first of the pods, if it is time to; whether it is back after an outage."""
        return answers.due and answers.note(answered=await self._still_there(pods[:1]) is not None)

    async def _still_there(self, pods: Sequence[Pod]) -> list[Pod] | None:
        """Those of the pods that the server has; None where it does not answer.

        While it is away no watch says that a pod has ended, and other victims would go for nothing.
        """
        found = await asyncio.gather(*(is_there(self._transport, pod) for pod in pods))
        return None if None in found else [pod for pod, there in zip(pods, found, strict=True) if there]

    def _to_evict(self, carried: PlanUnderway) -> list[Pod]:
        """Victims that are still to be evicted."""
        return [pod for one in carried.plan.victims if (pod := self._to_go(carried, one.uid)) is not None]

    def _to_go(self, carried: PlanUnderway, uid: str) -> Pod | None:
        pod = self._state.pods.get(uid)
        return None if pod is None or pod.terminating or uid in carried.agreed else pod


def _not_allowed(by_budget: int, left: int) -> str:
    if by_budget:
        return f"a PodDisruptionBudget does not allow {plural(by_budget, 'eviction')}"
    return f"{plural(left, 'victim')} could not be evicted in time"
