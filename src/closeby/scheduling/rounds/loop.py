"""The loop of a round: items are taken from the queue and decided one by one, until the round's limit."""

from closeby.objects.pods import Pod
from closeby.scheduling.events import Tick
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import PLAIN, Decision, Outcome, Output, Undecided
from closeby.scheduling.placing.statement import GiveBack
from closeby.scheduling.placing.tools import DECISION, POD, Tools
from closeby.scheduling.rounds.attempts import Attempts
from closeby.scheduling.rounds.outcome_handling import OutcomeHandler, Tell, TickTime
from closeby.scheduling.rounds.pending import PendingItems


class Rounds:
    """Decides about the items that are pending, when asked."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        pending: PendingItems,
        tell: Tell,
        give_back: GiveBack | None,
    ) -> None:
        """With ``give_back`` a fault while an item is decided refuses that item; without it is raised."""
        self._state = state
        self._tell = tell
        self._pending = pending
        self._attempts = Attempts(tools, state, pending, give_back)
        self._outcomes = OutcomeHandler(tools, state, pending, tell)

    def decide(self, outputs: list[Output], tick: Tick) -> None:
        """Decide about the active items in the order of the queue, and append the decisions."""
        pending, refusals, time = self._pending, self._pending.refusals, TickTime.of(tick)
        self._begin(outputs, time)
        if refusals.kept:
            refusals.forget_outdated()
        taken = 0
        while tick.limit is None or taken < tick.limit:
            pending.notice_label_keys(time.moment)
            key = pending.queue.pop()
            if key is None:
                if not pending.queue.move_helped_by_placed(pending.backoff_from(time.moment)):
                    return
                continue
            if not self._state.waits(key):
                pending.drop(key)
                continue
            taken += 1
            if refusals.kept and self._refuse_alike(outputs, key, limited=tick.steps is not None):
                continue
            self._decide_item(outputs, key, tick.steps, time)
            if refusals.kept:
                refusals.forget_outdated()

    def _begin(self, outputs: list[Output], time: TickTime) -> None:
        """Queue what is due by the time, and what changed since the last tick."""
        pending = self._pending
        if self._state.relaxing.written and time.clock is not None:
            for late in self._state.relaxing.due(time.clock):
                pending.requeue(late)
        if pending.preemptor is not None:
            pending.preemptor.begin(time.clock)
            outputs += pending.take_ended_plans()
            for due in pending.preemptor.take_due():
                pending.try_now(due)
        pending.notice_label_keys(time.moment)
        pending.queue_changes(time.moment)
        self._outcomes.review_reservations(outputs, time.moment)

    def _refuse_alike(self, outputs: list[Output], key: str, *, limited: bool) -> bool:
        """Refuse a plain pod like one that was refused before, since when nothing has changed."""
        pending, pod = self._pending, self._state.waiting_pods.get(key)
        if pod is None or pod.uid in self._state.gated or pending.reserves:
            return False
        before = pending.refusals.like(pod)
        if before is None or self._may_preempt(before.outcome, pod) or self._attempts.has_places(key):
            return False
        if not pending.queue.add_like(key, before.key):
            return False
        outcome = before.shared.of_pod(key.removeprefix(PLAIN), pod)
        outputs.append(Decision(outcome))
        self._tell(key, "decided", outcome)
        if limited:
            pending.queue.charge(key, DECISION + POD, placed=False)
        return True

    def _may_preempt(self, before: Outcome, pod: Pod) -> bool:
        """Whether a pod that is like one refused before may find victims."""
        preemptor = self._pending.preemptor
        if preemptor is None:
            return False
        return bool(before.preemptions) or not preemptor.refuses_alike(before.refused[0], pod)

    def _decide_item(self, outputs: list[Output], key: str, limit: int | None, time: TickTime) -> None:
        if key in self._state.waiting_pods:
            self._pending.refusals.begin()
        if key in self._state.relaxing.written and time.clock is not None:
            self._relax(key, time.clock)
        attempted = self._attempts.run(key, limit)
        if self._attempts.gave_places_up():
            self._outcomes.room_came(time.moment)
        self._outcomes.handle(outputs, key, attempted.result, attempted.steps, time)
        if limit is not None:
            if attempted.undecided is not None:
                outputs.append(Undecided(key, attempted.undecided))
            placed = bool(attempted.result.decision.bindings)
            self._pending.queue.charge(key, attempted.all_steps, placed=placed)

    def _relax(self, key: str, clock: float) -> None:
        """What a gang requires for a time only may count no more."""
        if self._state.relax(key, clock):
            self._tell(key, "what it requires for a time only has changed", None)
