"""Rounds of decisions: changed items and items that an event may help are queued, and decided one by one."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from math import inf

from msgspec.structs import replace

from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Condition, Reason
from closeby.objects.unexpected import Contained, brief
from closeby.scheduling.events import (
    EvictionsRestored,
    PreemptionEvent,
    PreemptionGivenUp,
    PreemptionRestored,
    Tick,
    VictimEvicted,
)
from closeby.scheduling.extension import Handle
from closeby.scheduling.intake.cluster_events import ANY_EVENT, NO_EVENT, ClusterEvent, queueing_hints
from closeby.scheduling.intake.queue import SchedulingQueue
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.diagnosis import OF_VOLUMES
from closeby.scheduling.judging.needs import Need, need_of_pod
from closeby.scheduling.outcomes import (
    PLAIN,
    Decision,
    ItemKind,
    Outcome,
    Output,
    Released,
    Suspended,
    kind_of,
    name_of,
)
from closeby.scheduling.placing.deciding import CycleResult, Decider
from closeby.scheduling.placing.exclusive import Exclusives
from closeby.scheduling.placing.stand_ins import HeldForPods
from closeby.scheduling.placing.tools import DECISION, POD, Tools
from closeby.scheduling.preempting.preemptor import Preemptor, plans_of
from closeby.scheduling.preempting.records import NoPreemption
from closeby.scheduling.refusals import Refused, SharedRefusals
from closeby.scheduling.reserving.choosing import Chooser
from closeby.scheduling.reserving.hypothetical import HypotheticalCluster
from closeby.scheduling.reserving.reservations import Moment, Reservations
from closeby.scheduling.suspending import RESTARTS, SearchProgress, Suspensions

#: Adds to the story of an item what happened, with the outcome if it was decided.
Tell = Callable[[str, str, Outcome | None], None]
#: Frees what pods of an item hold whose decision failed; they wait for a node again.
GiveBack = Callable[[tuple[Pod, ...]], object]


class Rounds:
    """Owns what is to be decided, and when."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        handle: Handle,
        tell: Tell,
        *,
        backoff: bool,
        reserve_after: float,
        give_back: GiveBack | None,
    ) -> None:
        """``backoff`` and ``reserve_after`` as the engine takes them.

        With ``give_back`` a fault while an item is decided refuses that item; without it is raised.
        """
        self._tools = tools
        self._state = state
        self._tell = tell
        self._backoff = backoff
        self._give_back = give_back
        #: Makes plans for what is refused; None: nothing is preempted.
        self.preemptor: Preemptor | None = None
        self.exclusives = Exclusives(tools, state)
        self._decider = Decider(tools, state)
        self.suspensions: Suspensions[CycleResult] = Suspensions(tools.pace, tools.cluster)
        self.queue = SchedulingQueue(tools.profile.queue_sort, self._lacks)
        chooser = Chooser(tools, HypotheticalCluster(tools, state, handle))
        self.reservations = Reservations(reserve_after, tools, state, self.queue, chooser)
        #: Items that changed since the last tick, in order.
        self.changed: dict[str, None] = {}
        #: Cluster events since the last tick.
        self._events = NO_EVENT
        #: Items whose claims, or what these can be bound to, changed since the last tick, in order.
        self._volumes_of: dict[str, None] = {}
        #: Namespaces of which AppGroups changed since the last tick.
        self._changed_applications: set[str] = set()
        self._refusals = SharedRefusals(tools)
        #: The stamp of the class table when the cycle that runs began.
        self._begun_at: tuple[int, ...] = ()
        #: The labels that selectors went by when the queue last sorted them into classes.
        self._label_keys_version = 0
        #: The time by the clock of the ticks; None between those that tell none.
        self._clock: float | None = None
        self._by_date = False

    def hold_places(self, stand_ins: HeldForPods) -> None:
        """From now on pods take the places that are held for them."""
        self._decider.stand_ins = stand_ins

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        """Why a pod may not enter the queue yet; None when it may."""
        return self._decider.pre_enqueue(pod)

    def requeue(self, key: str) -> None:
        """A work item changed: the next tick queues it, when all events are known."""
        if self._state.waits(key):
            self.suspensions.cancel(key)
            self.changed[key] = None
            self.reservations.renewed(key)

    def requeue_or_forget(self, key: str) -> None:
        """A work item may have lost a pod: what still waits of it is queued, if anything does."""
        if self._state.waits(key):
            self.requeue(key)
        else:
            self.forget(key)

    def requeue_at_new_place(self, key: str) -> None:
        """A gang's object was added: it may give the gang another place in the order."""
        if self.queue.knows(key):
            self._drop(key)
        self.requeue(key)

    def note_event(self, event: ClusterEvent) -> None:
        """A cluster event: the next tick queues the items that it may help."""
        self._events |= event
        self.suspensions.note_event(event)
        if event & ~(ClusterEvent.CAPACITY | ClusterEvent.PLACED | ClusterEvent.VICTIMS):
            # What a suspended search has worked out, from costs for instance, is outdated.
            self.suspensions.cancel_all()
            self.reservations.doubt()

    def note_victims(self) -> None:
        """Other pods may be evicted than before, so that what found no victims may find some."""
        if self.preemptor is not None:
            self._refusals.forget()
            self.note_event(ClusterEvent.VICTIMS)

    def flush_unschedulable(self) -> None:
        """Every unschedulable item is tried again at the next tick, in case a helpful event was missed.

        Suspended searches continue: nothing is known to have changed.
        """
        self._events |= ANY_EVENT
        self.suspensions.note_event(ANY_EVENT)
        self.reservations.doubt()

    def note_app_group_change(self, namespace: str) -> None:
        """An AppGroup changed. It concerns the items of its namespace only, so only those are tried again."""
        self._changed_applications.add(namespace)
        self.suspensions.cancel_all(namespace)

    def note_storage_event(self, event: ClusterEvent, keys: Iterable[str] | None) -> None:
        """Something about volumes changed, which concerns the items of these keys (None: all)."""
        self._tools.rooms.forget()
        if keys is None:
            self._events |= event
            self.suspensions.cancel_all()
            return
        for key in keys:
            self._volumes_of[key] = None
            self.suspensions.cancel(key)

    def forget(self, key: str) -> None:
        """No pod of an item waits any more."""
        self._drop(key)
        self.changed.pop(key, None)

    def decide(self, outputs: list[Output], tick: Tick) -> None:
        """Decide about the active items in the order of the queue, and append the decisions."""
        moment = None if tick.now is None else Moment(tick.now, tick.wall)
        self._clock, self._by_date = tick.now if tick.wall is None else tick.wall, tick.wall is not None
        if self._state.relaxing.written and self._clock is not None:
            for late in self._state.relaxing.due(self._clock):
                self.requeue(late)
        if self.preemptor is not None:
            self.preemptor.begin(self._clock)
            outputs += self.preemptor.take_ended()
            for due in self.preemptor.take_due():
                self._try_now(due)
        self._notice_label_keys(moment)
        self._queue_changes(tick.now)
        self._review(outputs, moment)
        if self._refusals.kept:
            self._refusals.forget_outdated()
        taken = 0
        while tick.limit is None or taken < tick.limit:
            self._notice_label_keys(moment)
            key = self.queue.pop()
            if key is None:
                if not self._events & ClusterEvent.PLACED:
                    return
                # What was placed in this tick may be what others have to be near.
                self._events &= ~ClusterEvent.PLACED
                self.queue.move_to_active_or_backoff(ClusterEvent.PLACED, self._backoff_from(moment))
                continue
            if not self._state.waits(key):
                self._drop(key)
                continue
            if self._refusals.kept and (before := self._refused_alike(key)) is not None:
                most = inf if tick.limit is None else tick.limit - taken
                taken += self._refuse_like(before, outputs, key, tick, most)
                continue
            taken += 1
            self._begun_at = self._tools.table.stamp
            self._decide_item(outputs, key, moment, tick.steps)
            if self._refusals.kept:
                self._refusals.forget_outdated()
            if self.queue.suspended(key):
                return

    def validate(self) -> None:
        """Assert every invariant of what is to be decided."""
        self.reservations.validate()
        if self.preemptor is not None:
            self.preemptor.validate()
        settled = self._label_keys_version == self._tools.cluster.population.label_keys_version
        self.queue.validate(settled and not self._events and not self._changed_applications)
        for key in self.suspensions.keys:
            assert self.queue.suspended(key), f"{key} is suspended but not queued to be resumed"
        for key in self._state.item_keys():
            assert key in self.changed or self.queue.knows(key), f"{key} waits but is not queued"

    def _decide_item(
        self, outputs: list[Output], key: str, moment: Moment | None, allowance: int | None
    ) -> None:
        if key in self._state.relaxing.written and self._clock is not None:
            self._relax(key, self._clock)
        reserved = self._tools.reserved
        # A pod that has a place may take it, whatever was reserved there since.
        has_places = self._has_places(key)
        reserved.applies = not has_places and self.reservations.excludes(key)
        if self.preemptor is not None and not has_places:
            self.preemptor.keep_off(key, self.queue.priority(key))
        if self._state.exclusive and not has_places:
            self.exclusives.keep_off(key)
        ground = self._tools.cluster.structure, reserved.key
        done = self.suspensions.run(key, partial(self._decided, key), allowance, ground)
        done = self._preempted(key, done)
        reserved.applies = False
        if reserved.owned is not None:
            self.exclusives.release()
        if done.suspended:
            self.queue.suspend(key)
            outputs.append(Suspended(key, done.steps))
        else:
            self._carry_out(outputs, key, moment, done)
        if allowance is not None:
            placed = done.result is not None and bool(done.result.decision.bindings)
            self.queue.charge(key, done.steps, allowance, in_vain=not placed)

    def _relax(self, key: str, clock: float) -> None:
        """What a gang requires for a time only may count no more."""
        if self._state.relax(key, clock):
            self.suspensions.cancel(key)
            self._tell(key, "what it requires for a time only has changed", None)

    def _until(self, key: str, outcome: Outcome) -> Outcome:
        """What was decided, with the requirement that falls next."""
        if self._clock is None:
            return outcome
        coming = self._state.relaxing.coming(key, self._clock, wall=self._by_date)
        if coming is None:
            return outcome
        return replace(outcome, message=f"{outcome.message}; {coming.sentence()}", relaxation=coming)

    def _has_places(self, key: str) -> bool:
        stand_ins = self._decider.stand_ins
        return stand_ins is not None and stand_ins.any and stand_ins.concerns(self._state.turn(key).pods)

    def _refused_alike(self, key: str) -> Refused | None:
        """The refusal of a plain pod like this one, since when nothing has changed; None if there is none."""
        pod = self._state.waiting_pods.get(key)
        if pod is None or pod.uid in self._state.gated or self.reservations.current is not None:
            return None
        before = self._refusals.like(pod)
        if before is None or not self._nobody_makes_room(before.outcome, pod) or self._has_places(key):
            return None
        return before if self.queue.add_like(key, before.key) else None

    def _refuse_like(
        self, before: Refused, outputs: list[Output], first: str, tick: Tick, most: float
    ) -> int:
        """Refuse a plain pod like one before it, and at ``most`` so many with those like it that come next.

        Returns how many they are. Nothing changes meanwhile.
        """
        waiting, gated, kind_of = self._state.waiting_pods, self._state.gated, self._refusals.kind_of
        kind, stand_ins = kind_of(waiting[first]), self._decider.stand_ins
        some_have_places = stand_ins is not None and stand_ins.any
        #: Where pods of one spec are of one kind: the spec.
        spec = kind if isinstance(kind, PodSpec) else None

        def alike(key: str) -> bool:
            pod = waiting.get(key)
            if pod is None or (gated and pod.uid in gated):
                return False
            if pod.spec is not spec and (kind_of(pod) if spec is None else pod.spec) != kind:
                return False
            if some_have_places and self._has_places(key):
                return False
            return self.preemptor is None or self._nobody_makes_room(before.outcome, pod)

        refused = 0
        for key in chain((first,), self.queue.take_like(before.key, alike)):
            refused += 1
            outcome = before.shared.of_pod(key.removeprefix(PLAIN), waiting[key])
            outputs.append(Decision(outcome))
            self._tell(key, "decided", outcome)
            if tick.steps is not None:
                self.queue.charge(key, DECISION + POD, tick.steps, in_vain=True)
            if refused >= most:
                break
        return refused

    def _nobody_makes_room(self, before: Outcome, pod: Pod) -> bool:
        """Whether a pod that is like one refused before has no victims either."""
        if self.preemptor is None:
            return True
        return not before.preemptions and self.preemptor.refuses_alike(before.refused[0], pod)

    def _preempted(self, key: str, done: SearchProgress[CycleResult]) -> SearchProgress[CycleResult]:
        """What was decided, with the plans for what was refused."""
        preemptor = self.preemptor
        if preemptor is None:
            return done
        if done.result is not None and not done.suspended:
            outcome = done.result.decision.outcome
            said = preemptor.attempt(key, outcome) if done.result.decision.fault is None else ()
            if said:
                why = next((one for one in said if isinstance(one, NoPreemption)), None)
                outcome = replace(outcome, preemptions=plans_of(said), no_preemption=why)
                decision = replace(done.result.decision, outcome=outcome)
                done = done._replace(result=done.result._replace(decision=decision))
        preemptor.release()
        return done

    def preemption(self, event: PreemptionEvent) -> None:
        """What the caller says of a plan."""
        if self.preemptor is None:
            return
        match event:
            case PreemptionRestored(plan, counted):
                self.preemptor.restore(plan, counted)
            case EvictionsRestored(owner, evictions):
                self.preemptor.restore_evictions(owner, evictions)
            case PreemptionGivenUp(plan, why, blocked, strict):
                self._try_now(self.preemptor.give_up(plan, why, blocked, strict=strict))
                self.note_event(ClusterEvent.CAPACITY)
            case VictimEvicted(plan, uid, when):
                self.preemptor.evicted(plan, uid, when)

    def pod_gone(self, uid: str) -> None:
        """A pod ended: the preemptor that waited for it alone is tried, however long it would back off."""
        if self.preemptor is not None:
            self._try_now(self.preemptor.gone(uid))

    def _try_now(self, key: str | None) -> None:
        if key is not None and self._state.waits(key):
            self.changed[key] = None

    def _carry_out(
        self, outputs: list[Output], key: str, moment: Moment | None, done: SearchProgress[CycleResult]
    ) -> None:
        decided = self._changed_too_often(key) if done.result is None else done.result
        decision, need, behind = decided
        if self.preemptor is not None and self.preemptor.decided(key, decision.outcome):
            self.note_event(ClusterEvent.CAPACITY)
        outcome = self.reservations.mentioned(key, decision.outcome)
        if outcome.refused and key in self._state.relaxing.written:
            outcome = self._until(key, outcome)
        outputs.append(Decision(outcome, decision.fault))
        if self.preemptor is not None:
            outputs += self.preemptor.take_ended()
        self._tell(key, "decided", outcome)
        if decision.bindings and self._tools.cluster.population.active:
            self._events |= ClusterEvent.PLACED
        if behind and self._done_with(outcome):
            # The members of less priority take their turn where that stands in the queue.
            self._drop(key)
            self._put(key)
        elif outcome.refused or outcome.left:
            # What some pods of a gang lack says nothing of the others.
            whole = need if need is not None and (need.some or not outcome.left) else None
            now = self._backoff_from(moment)
            self.queue.add_unschedulable(key, self._hints(outcome), now, whole, done.total)
            if done.missed:
                self.queue.move_item_to_active_or_backoff(key, done.missed, now)
            self.reservations.decided(key, outcome, moment)
            if outcome.kind is ItemKind.POD and outcome.refused and need is not None and need.key is not None:
                self._refusals.note(key, outcome, self._begun_at)
        else:
            self._drop(key)
        if outcome.is_gang:
            self._review(outputs, moment)

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

    def _decided(self, key: str) -> CycleResult:
        turn = self._state.turn(key)
        self._tools.begin(len(turn.pods))
        decided = self._attempt(key, turn.pods)
        return decided._replace(behind=True) if turn.behind else decided

    def _attempt(self, key: str, waiting: tuple[Pod, ...]) -> CycleResult:
        if self._give_back is None:
            return self._decider.decide(key, waiting)
        with Contained() as deciding:
            return self._decider.decide(key, waiting)
        assert deciding.error is not None
        self._give_back(waiting)
        why = f"deciding about it ended in a fault of closeby or of a plugin: {brief(deciding.error)}"
        outcome = Outcome(
            key=name_of(key),
            kind=kind_of(key),
            refused=waiting,
            reason=Reason.SCHEDULER_ERROR,
            message=f"{why}; the scheduler's log has more",
        )
        return CycleResult(Decision(outcome, deciding.error))

    def _changed_too_often(self, key: str) -> CycleResult:
        outcome = Outcome(
            key=name_of(key),
            kind=kind_of(key),
            refused=self._state.turn(key).pods,
            reason=Reason.SEARCH_BUDGET_EXHAUSTED,
            message=f"the cluster changed {RESTARTS + 1} times during a long search; it is tried again later",
        )
        return CycleResult(Decision(outcome))

    def _queue_changes(self, now: float | None) -> None:
        for key in self.changed:
            self._put(key, now if self._backoff else None)
        self.changed.clear()
        self.queue.flush_backoff(inf if now is None else now)
        if self._events:
            self.queue.move_to_active_or_backoff(self._events, now if self._backoff else None)
            self._events = NO_EVENT
        for key in self._volumes_of:
            self.queue.move_item_to_active_or_backoff(
                key, ClusterEvent.VOLUME, now if self._backoff else None
            )
        self._volumes_of.clear()
        if self._changed_applications:
            self.queue.move_namespaces_to_active_or_backoff(
                self._changed_applications, ClusterEvent.NETWORK, now if self._backoff else None
            )
            self._changed_applications.clear()

    def _put(self, key: str, now: float | None = None) -> None:
        """Queue an item, at a new place if its priority has changed."""
        item, known = self._state.item(key), self.queue.knows(key)
        if item is None:
            if known:
                self.queue.activate(key)
            return
        if known and not self.queue.is_in_place(item):
            self._drop(key)
            known = False
        late = 0.0
        if not known and now is not None and self.preemptor is not None:
            late = self.preemptor.backoff(key)
        self.queue.add(item, now, late)

    def _notice_label_keys(self, moment: Moment | None) -> None:
        """Selectors may tell pods apart that waited for the same."""
        version = self._tools.cluster.population.label_keys_version
        if version != self._label_keys_version:
            self._label_keys_version = version
            self.queue.divide(self._need_now, self._backoff_from(moment))

    def _need_now(self, key: str) -> Need | None:
        """What a plain pod that waits needs; None where that takes an attempt."""
        pod = self._state.waiting_pods.get(key)
        return None if pod is None else need_of_pod(self._tools.table, pod)

    def _review(self, outputs: list[Output], moment: Moment | None) -> None:
        """Reserve or release nodes; then retry the items that had to keep off them."""
        before = self._tools.reserved.number
        for change in self.reservations.review(moment):
            outputs.append(change)
            kept = change.reservation
            if isinstance(change, Released):
                self._tell(kept.key, kept.released(change.why), None)
            else:
                self._tell(kept.key, kept.sentence(), None)
        if self._tools.reserved.number != before:
            self.queue.move_to_active_or_backoff(ClusterEvent.CAPACITY, self._backoff_from(moment))
            self.suspensions.note_event(ClusterEvent.CAPACITY)

    def _backoff_from(self, moment: Moment | None) -> float | None:
        """The time from which backoff counts; None where nothing backs off."""
        return moment.now if moment is not None and self._backoff else None

    def _lacks(self, need: Need, key: str) -> bool:
        return self._tools.rooms.lack(need, keep_off=self.reservations.excludes(key))

    def _drop(self, key: str) -> None:
        self.queue.delete(key)
        self.suspensions.forget(key)
        self.reservations.gone(key)
        if (
            self.preemptor is not None
            and not self._state.waits(key)
            and self.preemptor.finish(key, "nothing of it waits any more")
        ):
            self.note_event(ClusterEvent.CAPACITY)
