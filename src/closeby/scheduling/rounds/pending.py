"""The items that wait: what changed of them since the last tick, and the events that may help them."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from closeby.objects.pods import Pod
from closeby.scheduling.events import (
    EvictionsRestored,
    PreemptionEvent,
    PreemptionGivenUp,
    PreemptionRestored,
    VictimEvicted,
)
from closeby.scheduling.forked_cycle import ForkedCycle
from closeby.scheduling.intake.cluster_events import ANY_EVENT, NO_EVENT, ClusterEvent
from closeby.scheduling.intake.queue import EVERYWHERE, SchedulingQueue
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import Comer, Hold, KeepsNodes
from closeby.scheduling.judging.needs import Need, need_of_pod
from closeby.scheduling.outcomes import PreemptionEnded, namespace_of
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preemption.preemptor import Preemptor
from closeby.scheduling.reserving.choosing import Chooser
from closeby.scheduling.reserving.reservations import Moment, Reservations
from closeby.scheduling.rounds.refusals import SharedRefusals

#: Of items that need the same so many are asked whether they may backfill, the first in the queue: as Slurm's
#: ``bf_max_job_test`` (500 of all by default), it bounds what a long queue costs each time that a pod ends.
MAX_BACKFILL_TESTS: Final = 100


class PendingItems:
    """The owner of all that is kept about an item until it is placed or gone.

    That is its place in the queue, its reservation and its plan of preemption.
    """

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        trial: ForkedCycle,
        *,
        backoff: bool,
        reserve_after: float,
        contain_faults: bool,
    ) -> None:
        """``backoff`` and ``reserve_after`` as the engine takes them.

        A fault while nodes to keep free are looked for ends that if it is to be contained; else it is raised.
        """
        self._tools = tools
        self._state = state
        self._backoff = backoff
        #: Makes plans for what is refused; None: nothing is preempted.
        self.preemptor: Preemptor | None = None
        self.queue = SchedulingQueue(tools.profile.queue_sort, self._lacks, self._not_kept_off)
        self.refusals = SharedRefusals(tools)
        #: Who keeps nodes for whom, besides gangs with domains for themselves.
        self._holders: list[KeepsNodes] = []
        #: Keeps nodes for gangs that have waited long; None: for none.
        self.reservations: Reservations | None = None
        if reserve_after:
            chooser = Chooser(tools, trial)
            self.reservations = Reservations(
                reserve_after, tools, state, self.queue, chooser, contain_faults=contain_faults
            )
            self._holders.append(self.reservations)
        #: The labels that selectors went by when the queue last sorted them into classes.
        self._label_keys_version = 0

    # What changed of an item

    def requeue(self, key: str) -> None:
        """A work item changed: the next tick queues it, when all events are known."""
        if self._state.waits(key):
            self.queue.note_changed(key)
            if self.reservations is not None:
                self.reservations.renewed(key)

    def requeue_or_forget(self, key: str) -> None:
        """A work item may have lost a pod: what still waits of it is queued, if anything does."""
        if self._state.waits(key):
            self.requeue(key)
        else:
            self.drop(key)

    def requeue_at_new_place(self, key: str) -> None:
        """A gang's object was added: it may give the gang another place in the order."""
        if key in self.queue:
            self.drop(key)
        self.requeue(key)

    def try_now(self, key: str | None) -> None:
        """The next tick tries an item, however long it would back off (None: there is none)."""
        if key is not None and self._state.waits(key):
            self.queue.note_changed(key)

    # What may help items

    def note_event(self, event: ClusterEvent) -> None:
        """A cluster event: the next tick queues the items that it may help."""
        self.queue.note(event)
        if event & ~(ClusterEvent.CAPACITY | ClusterEvent.PLACED | ClusterEvent.VICTIMS):
            self._invalidate_reservation()

    def note_room(self, pods: Iterable[Pod] | None = None) -> None:
        """Pods left their nodes, or take less there; None: a node came, or takes other pods than before."""
        self.note_event(ClusterEvent.CAPACITY)
        if self.preemptor is not None:
            self.preemptor.note_room(pods)

    def note_placed(self) -> None:
        """Pods were placed in this round, and others may have to be near them."""
        if self._tools.cluster.population.active:
            self.queue.note(ClusterEvent.PLACED)

    def note_victims(self) -> None:
        """Other pods may be evicted than before: what found no victims may find some, and plans may end."""
        if self.preemptor is not None:
            ended = self.preemptor.priorities_changed()
            for key in ended:
                self.try_now(key)
            self.refusals.forget()
            self.note_event(ClusterEvent.VICTIMS | (ClusterEvent.CAPACITY if ended else NO_EVENT))

    def note_app_group_change(self, namespace: str) -> None:
        """An AppGroup changed, or a NetworkTopology that counts beside it alone.

        It concerns the items of its namespace only, so only those are tried again.
        """
        self.queue.note(ClusterEvent.NETWORK, f"{namespace}/")

    def note_owner_change(self, namespace: str) -> None:
        """A Service or workload selects other pods: default spread goes by that, of pods beside it alone."""
        self.queue.note(ClusterEvent.SELECTION, f"{namespace}/")
        self._invalidate_reservation(namespace)

    def note_storage_event(self, event: ClusterEvent, keys: Iterable[str] | None) -> None:
        """Something about volumes changed, which concerns the items of these keys (None: all)."""
        self._tools.rooms.forget()
        for scope in (EVERYWHERE,) if keys is None else keys:
            self.queue.note(event, scope)

    def note_preemption(self, event: PreemptionEvent) -> None:
        """What the caller says of a plan."""
        if self.preemptor is None:
            return
        match event:
            case PreemptionRestored(plan, counted):
                self.preemptor.restore(plan, counted)
            case EvictionsRestored(owner, evictions):
                self.preemptor.restore_evictions(owner, evictions)
            case PreemptionGivenUp(plan, why, blocked, strict):
                self.try_now(self.preemptor.give_up(plan, why, blocked, strict=strict))
                self.note_event(ClusterEvent.CAPACITY)
            case VictimEvicted(plan, uid, when):
                self.preemptor.evicted(plan, uid, when)

    def note_pod_gone(self, uid: str) -> None:
        """A pod ended: the preemptor that waited for it alone is tried, however long it would back off."""
        if self.reservations is not None:
            self.reservations.pod_gone(uid)
        if self.preemptor is not None:
            self.try_now(self.preemptor.gone(uid))

    def take_ended_plans(self, decided: str | None = None) -> list[PreemptionEnded]:
        """The plans of preemption that ended since the last call; the items that lost theirs are queued.

        ``decided`` is the item that is decided now: it has looked for another plan already.
        """
        ended = [] if self.preemptor is None else self.preemptor.take_ended()
        if any(one.why for one in ended):
            # Nodes that were not cleared may be cleared by others, and victims that stay may go for others.
            self.refusals.forget()
            self.note_event(ClusterEvent.CAPACITY | ClusterEvent.VICTIMS)
        for one in ended:
            if one.why and one.plan.item != decided and self._state.waits(one.plan.item):
                self.put(one.plan.item)
        return ended

    def flush_unschedulable(self) -> None:
        """Every unschedulable item is tried again at the next tick, in case a helpful event was missed."""
        self.note_event(ANY_EVENT)

    # What a round asks

    def queue_changes(self, moment: Moment | None) -> None:
        """Queue what changed since the last tick, what an event may help, and what backed off long enough."""
        now = self.backoff_from(moment)
        for key in self.queue.take_changed():
            self.put(key, now)
        # Without backoff each pod that leaves would cost an attempt at whatever waits for more room.
        hint = None if self.preemptor is None or now is None else self.preemptor.take_hint()
        self.queue.begin(now, hint)

    def queue_backfill(self, moment: Moment | None) -> None:
        """Reserved nodes are kept free for longer: queue what has ended by then."""
        self.queue.move_helped(self._any_backfills, ClusterEvent.CAPACITY, self.backoff_from(moment))

    def notice_label_keys(self, moment: Moment | None) -> None:
        """Selectors may tell pods apart that waited for the same."""
        population = self._tools.cluster.population
        version, before = population.label_keys_version, self._label_keys_version
        if version == before:
            return
        self._label_keys_version = version
        keys = population.new_keys(before)
        if keys is None or any(not keys.isdisjoint(pod.labels) for pod in self._state.all_waiting()):
            self.queue.divide(self._need_now, self.backoff_from(moment))

    def backoff_from(self, moment: Moment | None) -> float | None:
        """The time from which backoff counts; None where nothing backs off."""
        return moment.now if moment is not None and self._backoff else None

    def put(self, key: str, now: float | None = None) -> None:
        """Queue an item, at a new place if its priority has changed."""
        item = self._state.item(key)
        if item is None:
            return
        if key in self.queue and not self.queue.is_in_place(item):
            self.drop(key)
        late = 0.0
        if key not in self.queue and now is not None and self.preemptor is not None:
            late = self.preemptor.backoff(key)
        self.queue.add(item, now, late)

    def drop(self, key: str) -> None:
        """Take an item out of the queue, with all that is kept about it."""
        self.queue.delete(key)
        if self.reservations is not None:
            self.reservations.gone(key)
        if (
            self.preemptor is not None
            and not self._state.waits(key)
            and self.preemptor.finish(key, "nothing of it waits any more")
        ):
            self.note_event(ClusterEvent.CAPACITY)

    def off(self, key: str, *, preempts: bool = False) -> tuple[Hold, ...]:
        """The nodes that an item must keep off, when it is placed or (``preempts``) looks for victims."""
        holders, exclusives = self._holders, self._tools.exclusives
        if self._state.exclusive and exclusives is not None:
            holders = [*holders, exclusives]
        comer = Comer(key, self.queue.priority(key), preempts)
        return tuple([hold for one in holders if (hold := one.off(comer)) is not None])

    @property
    def reserves(self) -> bool:
        """Whether nodes are kept for a gang that has waited long."""
        return self.reservations is not None and self.reservations.current is not None

    def preempt(self, preemptor: Preemptor) -> None:
        """From now on plans are made for what is refused."""
        self.preemptor = preemptor
        self._holders.insert(0, preemptor)

    def validate(self) -> None:
        """Assert every invariant of what waits."""
        assert not self._tools.holds.off, "an item that is not judged any more must keep off nodes"
        if self.reservations is not None:
            self.reservations.validate()
        if self.preemptor is not None:
            self.preemptor.validate()
        settled = self._label_keys_version == self._tools.cluster.population.label_keys_version
        self.queue.validate(self._state.item_keys(), settled)

    def _need_now(self, key: str) -> Need | None:
        """What a plain pod that waits needs; None where that takes an attempt."""
        pod = self._state.waiting_pods.get(key)
        return None if pod is None else need_of_pod(self._tools.table, pod)

    def _lacks(self, need: Need, key: str) -> bool:
        reserved = self._reserved_from(key)
        return self._tools.rooms.lack(need, () if reserved is None else (reserved,))

    def _any_backfills(self, keys: Iterable[str]) -> bool:
        return any(map(self.backfills, islice(keys, MAX_BACKFILL_TESTS)))

    def backfills(self, key: str) -> bool:
        """Whether all that waits of an item will have ended before the nodes that are reserved are needed."""
        return self.reservations is not None and self.reservations.backfills(key)

    def _invalidate_reservation(self, namespace: str | None = None) -> None:
        """What was worked out for gangs that keep nodes, or for that of a namespace, may be wrong."""
        if self.reservations is not None:
            kept = self.reservations.current
            if namespace is None or (kept is not None and namespace_of(kept.key) == namespace):
                self.reservations.doubt()

    def _not_kept_off(self, need: Need, keys: Iterable[str]) -> str | None:
        reserved = self.reservations
        if reserved is None or not reserved.some_may_backfill or self._tools.rooms.lack(need):
            return None
        first = islice(keys, MAX_BACKFILL_TESTS)
        return next((key for key in first if self._reserved_from(key) is None), None)

    def _reserved_from(self, key: str) -> Hold | None:
        """The reserved nodes, where an item must keep off them."""
        if self.reservations is None:
            return None
        return self.reservations.off(Comer(key, self.queue.priority(key)))
