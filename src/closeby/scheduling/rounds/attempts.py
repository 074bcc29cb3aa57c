"""One attempt at one item: its scheduling cycle, within the steps of a turn, and the plan to preempt."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.process import Contained
from closeby.objects.reasons import Reason
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Decision, Outcome, failed, kind_of, name_of
from closeby.scheduling.placing.deciding import CycleResult, Decider
from closeby.scheduling.placing.exclusive import Exclusives
from closeby.scheduling.placing.places_for_pods import HeldForPods
from closeby.scheduling.placing.statement import GiveBack
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preempting.preemptor import Preemptor, plans_of
from closeby.scheduling.preempting.records import NoPreemption, Preemption
from closeby.scheduling.rounds.pending import PendingItems
from closeby.scheduling.rounds.suspending import RESTARTS, SearchProgress


class Attempts:
    """Runs the cycles, with the nodes masked that an item must keep off."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        pending: PendingItems,
        stand_ins: HeldForPods,
        give_back: GiveBack | None,
    ) -> None:
        """With ``give_back`` a fault while an item is decided refuses that item; without it is raised."""
        self._tools = tools
        self._state = state
        self._pending = pending
        self._stand_ins = stand_ins
        self._give_back = give_back
        self._exclusives = Exclusives(tools, state)
        self._decider = Decider(tools, state, stand_ins)

    @property
    def some_have_places(self) -> bool:
        """Whether places are held for any pods."""
        return self._stand_ins.any

    def has_places(self, key: str) -> bool:
        """Whether places are held for pods of this item."""
        return self._stand_ins.any and self._stand_ins.concerns(self._state.turn(key).pods)

    def gave_places_up(self) -> bool:
        """Whether the last cycle left places free that were held for the pods of its item."""
        return self._decider.gave_places_up()

    def run(self, key: str, allowance: int | None) -> SearchProgress[CycleResult]:
        """Start or resume the cycle of an item, for at most ``allowance`` steps (None: to its end).

        Where it is not suspended it has a result.
        """
        reserved, pending = self._tools.reserved, self._pending
        # A pod that has a place may take it, whatever was reserved there since.
        has_places = self.has_places(key)
        kept = not has_places and pending.reservations.keeps_from(key)
        reserved.applies = kept and not pending.reservations.backfills(key)
        if pending.preemptor is not None and not has_places:
            pending.preemptor.keep_off(key, pending.queue.priority(key))
        if self._state.exclusive and not has_places:
            self._exclusives.keep_off(key)
        ground = self._tools.cluster.structure, reserved.key
        done = pending.suspensions.run(key, partial(self._cycle, key), allowance, ground)
        # Nothing is evicted from reserved nodes for what only fills the time until they are needed.
        reserved.applies = kept
        done = self._preempted(key, done)
        reserved.applies = False
        if reserved.owned is not None:
            self._exclusives.release()
        if done.result is None and not done.suspended:
            done = done._replace(result=self._changed_too_often(key))
        return done

    def _cycle(self, key: str) -> CycleResult:
        turn = self._state.turn(key)
        self._tools.begin(len(turn.pods))
        decided = self._decide(key, turn.pods)
        return decided._replace(behind=True) if turn.behind else decided

    def _decide(self, key: str, waiting: tuple[Pod, ...]) -> CycleResult:
        if self._give_back is None:
            return self._decider.decide(key, waiting)
        with Contained() as deciding:
            return self._decider.decide(key, waiting)
        assert deciding.error is not None
        self._give_back(waiting)
        return CycleResult(failed(key, waiting, deciding.error))

    def _preempted(self, key: str, done: SearchProgress[CycleResult]) -> SearchProgress[CycleResult]:
        """What was decided, with the plans for what was refused."""
        preemptor = self._pending.preemptor
        if preemptor is None:
            return done
        if done.result is not None and not done.suspended and done.result.decision.fault is None:
            before = preemptor.steps
            result = self._with_plans(preemptor, key, done.result)
            # They count for whose turn it is, and not for the backoff, which no victim that leaves ends.
            done = done._replace(result=result, steps=done.steps + preemptor.steps - before)
        preemptor.release()
        return done

    def _with_plans(self, preemptor: Preemptor, key: str, result: CycleResult) -> CycleResult:
        """The same, with the plans for what was refused; a fault in looking for victims refuses the item."""
        outcome = result.decision.outcome
        if self._give_back is None:
            return result._replace(decision=_with(preemptor.attempt(key, outcome), result.decision))
        with Contained() as looking:
            return result._replace(decision=_with(preemptor.attempt(key, outcome), result.decision))
        assert looking.error is not None
        waiting = (*outcome.refused, *(one.pod for one in outcome.left))
        self._give_back(waiting)  # What a trial has placed.
        if outcome.bindings:
            return result._replace(decision=Decision(outcome, looking.error))
        return result._replace(decision=failed(key, waiting, looking.error), need=None)

    def _changed_too_often(self, key: str) -> CycleResult:
        outcome = Outcome(
            key=name_of(key),
            kind=kind_of(key),
            refused=self._state.turn(key).pods,
            reason=Reason.SEARCH_BUDGET_EXHAUSTED,
            message=f"the cluster changed {RESTARTS + 1} times during a long search; it is tried again later",
        )
        return CycleResult(Decision(outcome))


def _with(said: Sequence[Preemption | NoPreemption], decision: Decision) -> Decision:
    """A decision, with the plans for what it refuses, or why there are none."""
    if not said:
        return decision
    why, outcome = next((one for one in said if isinstance(one, NoPreemption)), None), decision.outcome
    if why is not None and why.budgets:
        outcome = replace(outcome, message="; ".join(filter(None, (outcome.message, why.budgets))))
    explained = why if why is not None and why.why else None
    return Decision(replace(outcome, preemptions=plans_of(said), no_preemption=explained), decision.fault)
