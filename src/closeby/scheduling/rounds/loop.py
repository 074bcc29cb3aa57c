"""The loop of a round: items are taken from the queue and decided one by one, until the round's limit."""

from math import inf

from closeby.scheduling.events import Tick
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Output
from closeby.scheduling.placing.places_for_pods import HeldForPods
from closeby.scheduling.placing.statement import GiveBack
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.rounds.attempts import Attempts
from closeby.scheduling.rounds.outcome_handling import OutcomeHandler, Tell, TickTime
from closeby.scheduling.rounds.pending import PendingItems
from closeby.scheduling.rounds.refusing_alike import RefusedAlike


class Rounds:
    """Decides about the items that are pending, when asked."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        pending: PendingItems,
        tell: Tell,
        stand_ins: HeldForPods,
        give_back: GiveBack | None,
    ) -> None:
        """Pods take the places that ``stand_ins`` hold for them.

        With ``give_back`` a fault while an item is decided refuses that item; without it is raised.
        """
        self._state = state
        self._tell = tell
        self._pending = pending
        self._attempts = Attempts(tools, state, pending, stand_ins, give_back)
        self._alike = RefusedAlike(state, pending, self._attempts, tell)
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
                if not pending.queue_helped_by_placed(time.moment):
                    return
                continue
            if not self._state.waits(key):
                pending.drop(key)
                continue
            if refusals.kept and (before := self._alike.before(key)) is not None:
                most = inf if tick.limit is None else tick.limit - taken
                taken += self._alike.refuse(before, outputs, key, tick.steps, most)
                continue
            taken += 1
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

    def _decide_item(self, outputs: list[Output], key: str, limit: int | None, time: TickTime) -> None:
        self._pending.refusals.begin()
        if key in self._state.relaxing.written and time.clock is not None:
            self._relax(key, time.clock)
        attempted = self._attempts.run(key, limit)
        if self._attempts.gave_places_up():
            self._outcomes.room_came(time.moment)
        self._outcomes.handle(outputs, key, attempted.result, attempted.steps, time)
        if limit is not None:
            in_vain = not attempted.result.decision.bindings
            self._pending.queue.charge(key, attempted.all_steps, in_vain=in_vain)

    def _relax(self, key: str, clock: float) -> None:
        """What a gang requires for a time only may count no more."""
        if self._state.relax(key, clock):
            self._tell(key, "what it requires for a time only has changed", None)
