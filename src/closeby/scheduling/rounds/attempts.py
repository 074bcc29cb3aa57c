"""One attempt at one item: its scheduling cycle, within a limit of steps, and the plan to preempt."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.process import Contained
from closeby.objects.reasons import Reason
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Decision, NoPreemption, Preemption, failed
from closeby.scheduling.placing.deciding import CycleResult, Decider
from closeby.scheduling.placing.statement import GiveBack
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preemption.preemptor import Preemptor, plans_of
from closeby.scheduling.rounds.pending import PendingItems
from closeby.scheduling.solving.program import Program


class Attempted(NamedTuple):
    """What an attempt came to."""

    result: CycleResult
    #: Those of the cycle.
    steps: int
    #: With those of the search for victims, which count for whose turn it is, and not for the backoff, which
    #: no victim that leaves ends.
    all_steps: int
    #: What was not decided of it.
    undecided: Program | None


class Attempts:
    """Runs the cycles, each with what its item must keep off."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        pending: PendingItems,
        give_back: GiveBack | None,
    ) -> None:
        """With ``give_back`` a fault while an item is decided refuses that item; without it is raised."""
        self._tools = tools
        self._state = state
        self._pending = pending
        self._give_back = give_back
        self._decider = Decider(tools, state)

    def has_places(self, key: str) -> bool:
        """Whether places are held for pods of this item."""
        places = self._tools.places
        return places is not None and places.concerns(self._state.turn(key).pods)

    def gave_places_up(self) -> bool:
        """Whether the last cycle left places free that were held for the pods of its item."""
        return self._decider.gave_places_up()

    def run(self, key: str, limit: int | None) -> Attempted:
        """Run the cycle of an item, which searches no more after ``limit`` steps (None: no limit)."""
        holds, pending = self._tools.holds, self._pending
        # A pod that has a place may take it, whatever is held there since.
        passes = self.has_places(key)
        holds.off = () if passes else pending.off(key)
        result = self._cycle(key, inf if limit is None else limit)
        steps, trials = self._tools.steps, 0
        if pending.preemptor is not None:
            holds.off = () if passes else pending.off(key, preempts=True)
            result, trials = self._preempted(pending.preemptor, key, result)
        holds.off = ()
        waits = result.decision.outcome.reason is Reason.SEARCH_BUDGET_EXHAUSTED
        return Attempted(result, steps.taken, steps.taken + trials, steps.undecided if waits else None)

    def _cycle(self, key: str, limit: float) -> CycleResult:
        turn = self._state.turn(key)
        self._tools.begin(len(turn.pods), limit)
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

    def _preempted(self, preemptor: Preemptor, key: str, result: CycleResult) -> tuple[CycleResult, int]:
        """What was decided, with the plans for what was refused, and the steps that these took."""
        before = preemptor.steps
        if result.decision.fault is None:
            result = self._with_plans(preemptor, key, result)
        return result, preemptor.steps - before

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


def _with(said: Sequence[Preemption | NoPreemption], decision: Decision) -> Decision:
    """A decision, with the plans for what it refuses, or why there are none."""
    if not said:
        return decision
    why, outcome = next((one for one in said if isinstance(one, NoPreemption)), None), decision.outcome
    if why is not None and why.budgets:
        outcome = replace(outcome, message="; ".join(filter(None, (outcome.message, why.budgets))))
    explained = why if why is not None and why.why else None
    return Decision(replace(outcome, preemptions=plans_of(said), no_preemption=explained), decision.fault)
