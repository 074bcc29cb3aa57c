"""What follows from an attempt: the decision is output, and the item leaves the queue or waits for events."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from closeby.scheduling.events import Tick
from closeby.scheduling.intake.cluster_events import ClusterEvent, queueing_hints
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Decision, ItemKind, Outcome, Output, Released
from closeby.scheduling.placing.deciding import CycleResult
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.reasons.nodes import OF_VOLUMES
from closeby.scheduling.reserving.reservations import Moment
from closeby.scheduling.rounds.pending import PendingItems

#: Adds to the story of an item what happened, with the outcome if it was decided.
Tell = Callable[[str, str, Outcome | None], None]


class TickTime(Struct, frozen=True):
    """What a tick says of the time; None where it says nothing."""

    moment: Moment | None
    #: By the clock of the pods' times: ``Tick.wall``, or ``Tick.now`` without.
    clock: float | None
    #: Whether that clock counts from the epoch.
    by_date: bool

    @classmethod
    def of(cls, tick: Tick) -> "TickTime":
        """The time of one tick."""
        moment = None if tick.now is None else Moment(tick.now, tick.wall)
        return cls(moment, tick.now if tick.wall is None else tick.wall, tick.wall is not None)


class OutcomeHandler:
    """Hands decisions on to the caller, the stories, the queue, the reservations and the preemptor."""

    def __init__(self, tools: Tools, state: SchedulingState, pending: PendingItems, tell: Tell) -> None:
        self._tools = tools
        self._state = state
        self._pending = pending
        self._tell = tell

    def handle(
        self, outputs: list[Output], key: str, result: CycleResult, steps: int, time: TickTime
    ) -> None:
        """An item was decided, in so many steps."""
        decision, need, behind = result
        pending, moment = self._pending, time.moment
        if pending.preemptor is not None and pending.preemptor.decided(key, decision.outcome):
            pending.note_event(ClusterEvent.CAPACITY)
        reservations, outcome = pending.reservations, decision.outcome
        if reservations is not None:
            outcome = reservations.mentioned(key, outcome)
        if outcome.refused and key in self._state.relaxing.written:
            outcome = self._until(key, outcome, time)
        outputs.append(Decision(outcome, decision.fault))
        outputs += pending.take_ended_plans(key)
        self._tell(key, "decided", outcome)
        in_the_way = False
        if decision.bindings:
            in_the_way = reservations is not None and reservations.placed(key, outcome, moment)
            pending.note_placed()
        if behind and self._done_with(outcome):
            # The members of less priority take their turn where that stands in the queue.
            pending.drop(key)
            pending.put(key)
        elif outcome.refused or outcome.left:
            # What some pods of a gang lack says nothing of the others.
            whole = need if need is not None and (need.some or not outcome.left) else None
            now = pending.backoff_from(moment)
            preempts = bool(outcome.preemptions)
            pending.queue.add_unschedulable(key, self._hints(outcome), now, whole, steps, preempts=preempts)
            self._tools.table.forget_pods()
            if decision.bindings and pending.backfills(key):
                # The others may have been kept off reserved nodes by those that were placed.
                pending.queue.move(ClusterEvent.CAPACITY, now, key)
            if reservations is not None:
                reservations.decided(key, outcome, moment)
            if outcome.kind is ItemKind.POD and outcome.refused and need is not None and need.key is not None:
                pending.refusals.note(key, outcome)
        else:
            pending.drop(key)
        if reservations is not None and (outcome.is_gang or in_the_way):
            self.review_reservations(outputs, moment)

    def review_reservations(self, outputs: list[Output], moment: Moment | None) -> None:
        """Reserve or release nodes; then retry the items that had to keep off them."""
        pending, before = self._pending, self._tools.holds.version
        reservations = pending.reservations
        if reservations is None:
            return
        for change in reservations.review(moment):
            outputs.append(change)
            if isinstance(change, Decision):
                self._tell(change.outcome.key, "decided", change.outcome)
                continue
            kept = change.reservation
            if isinstance(change, Released):
                self._tell(kept.key, kept.released(change.why), None)
            else:
                self._tell(kept.key, kept.sentence(), None)
        postponed = reservations.take_postponed()
        if self._tools.holds.version != before:
            self.room_came(moment)
        elif postponed:
            pending.queue_backfill(moment)

    def room_came(self, moment: Moment | None) -> None:
        """Nodes that were kept free, or held, are so no more: retry what waits for room."""
        pending = self._pending
        pending.queue.move(ClusterEvent.CAPACITY, pending.backoff_from(moment))

    def _until(self, key: str, outcome: Outcome, time: TickTime) -> Outcome:
        """What was decided, with the requirement that falls next."""
        if time.clock is None:
            return outcome
        coming = self._state.relaxing.coming(key, time.clock, wall=time.by_date)
        if coming is None:
            return outcome
        return replace(outcome, message=f"{outcome.message}; {coming.sentence()}", relaxation=coming)

    def _hints(self, outcome: Outcome) -> ClusterEvent:
        """The events that may help what waits."""
        table, refused, left = self._tools.table, outcome.refused, outcome.left
        waiting = table.one_of_each_spec((*refused, *(one.pod for one in left)) if left else refused)
        reasons = outcome.reasons
        if reasons & OF_VOLUMES:
            # Other nodes may lack something else, and the one that a volume is on may be among them.
            reasons |= self._tools.diagnosis.reasons_of_nodes(waiting)
        hints = queueing_hints(reasons)
        if hints & ClusterEvent.CAPACITY and any(pod.spec.claims for pod in waiting):
            # Whatever most nodes lack, others may lack volumes alone.
            hints |= ClusterEvent.VOLUME
        if self._tools.diagnosis.lacks_attachments(waiting):
            hints |= ClusterEvent.ATTACHMENT
        return hints if table.helped_by_pods(waiting) else hints & ~ClusterEvent.PLACED

    def _done_with(self, outcome: Outcome) -> bool:
        """Whether all pods that could be tried are placed."""
        return not outcome.refused and all(one.pod.uid in self._state.gated for one in outcome.left)
