"""The engine: events in, decisions out. It does no I/O, reads no clock, and is the only owner of its state.

The simulator, the command line, the tests and a live scheduler all drive this very object through ``handle``.
(After the state machine of dask.distributed's worker.)
"""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from msgspec.structs import replace

from closeby.applications.registry import Applications
from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools
from closeby.objects.groups import WORKLOAD
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.reading.decoding.preemption_requests import protection_request
from closeby.scheduling.environment import Environment
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    BudgetChanged,
    BudgetDeleted,
    CannotBind,
    Event,
    FlushUnschedulable,
    GroupChanged,
    GroupDeleted,
    News,
    NodeDeleted,
    NodeUpserted,
    PlacesEvent,
    PodDeleted,
    PodUpserted,
    PreemptionEvent,
    PriorityClassChanged,
    PriorityClassDeleted,
    Tick,
)
from closeby.scheduling.extension import Handle
from closeby.scheduling.fork import Fork
from closeby.scheduling.forked_cycle import ForkedCycle
from closeby.scheduling.intake.cluster_events import ClusterEvent
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import ExclusiveDomains, HeldNodes, Holds
from closeby.scheduling.outcomes import (
    Eviction,
    ItemKind,
    Leftover,
    Outcome,
    Output,
    Preemption,
    Reservation,
    Stories,
    StoryEntry,
    item_key,
)
from closeby.scheduling.placing.deciding import pre_enqueue
from closeby.scheduling.placing.exclusive import Exclusives
from closeby.scheduling.placing.placeholders import Placeholders
from closeby.scheduling.placing.rechecking import Invalidations, Recheck
from closeby.scheduling.placing.statement import Holdings, weighs_otherwise
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preemption.plans import PlanState
from closeby.scheduling.preemption.preemptor import preemptor_for
from closeby.scheduling.preemption.rule import Preemptible
from closeby.scheduling.profile import Profile
from closeby.scheduling.rounds.loop import Rounds
from closeby.scheduling.rounds.pending import PendingItems
from closeby.topology.registry import Topologies


class Engine:
    """All state of one scheduler."""

    def __init__(
        self,
        build_profile: Callable[[Handle], Profile],
        *,
        explain: bool | Collection[str] = False,
        explain_everything: bool = False,
        backoff: bool = True,
        reserve_after: float = 0.0,
        contain_faults: bool = False,
    ) -> None:
        """``explain`` records candidates, scores and refusals with every outcome, at a cost.

        A collection names the gangs, applications and plain pods (``namespace/name``) for which that is done.
        ``backoff``: an item that was
        refused backs off before it is tried again, if ticks tell the time; a virtual clock does without.
        ``reserve_after``: seconds after which the first gang that does not fit keeps nodes free; 0 for never.
        ``contain_faults``: an exception while an item is decided refuses that item and no other; without it
        is raised, and the state is then undefined, as it is in any case after one while events are taken in.
        """
        self.cluster = Cluster()
        self.topologies = Topologies(self.cluster.labels, self.cluster.names)
        self.applications = Applications()
        self.state = SchedulingState(self.applications)
        handle = self._handle = Handle(self.cluster, self.topologies, self.state.group_of, self.applications)
        holds = Holds()
        profile = build_profile(handle)
        held = HeldNodes(holds, handle), ExclusiveDomains(holds, handle)
        profile = replace(profile, filters=(*profile.filters, *held))
        self.profile = profile
        self.state.priorities.trust(profile.trust_group_priority)
        self.state.trust_exclusive = profile.trust_exclusive
        self._exclusives = Exclusives(
            self.cluster, self.topologies, self.state, close_by_default=profile.close_by_default
        )
        self._tools = tools = Tools(
            self.cluster,
            self.topologies,
            self.profile,
            explain=explain,
            explain_everything=explain_everything,
            holds=holds,
            exclusives=self._exclusives,
        )
        self.diagnosis = tools.diagnosis
        self._holdings = Holdings(self.cluster, self.state, profile.reserves)
        self._invalidations = Invalidations()
        #: Whether decisions in progress still hold.
        self.recheck = Recheck(tools, self.state, self._holdings, self._invalidations)
        self.stories = Stories(self.state.remembers)
        self._stimulus = 0
        #: What the tick in hand says of the time; None between ticks.
        self._wall: float | None = None
        self.placeholders = Placeholders(
            tools, self.state, self._holdings, self._pod_upserted, self._pod_removed
        )
        #: The placeholders, once there is any use for them.
        self._holding: list[Placeholders] = []
        give_back = self._holdings.give_back if contain_faults else None
        self._pending = PendingItems(
            tools,
            self.state,
            ForkedCycle(tools, self.state, self._holdings, handle),
            backoff=backoff,
            reserve_after=reserve_after,
            contain_faults=contain_faults,
        )
        self._rounds = Rounds(tools, self.state, self._pending, self._tell, give_back)
        self._environment = Environment(
            tools, self.state, self._invalidations, self._pending, self.placeholders.invalidate_claims
        )

    def preempt(self, whose: Preemptible) -> None:
        """From now on items preempt such pods by the profile's rule; outcomes name whom the caller evicts."""
        preemptor = preemptor_for(self._tools, self.state, self._holdings, self._handle, whose)
        if preemptor is not None:
            self._pending.preempt(preemptor)

    # The only mutator

    def handle(self, *events: Event) -> list[Output]:
        """Take in events, in order. Only a ``Tick`` makes the engine decide."""
        outputs: list[Output] = []
        for event in events:
            self._stimulus += 1
            try:
                if isinstance(event, Tick):
                    self._wall = event.wall
                    if event.now is not None:
                        self._environment.passed(event.now)
                    for holding in self._holding:
                        holding.review()
                    self._rounds.decide(outputs, event)
                    for holding in self._holding:
                        holding.take_nodes(outputs)
                    if self._pending.reservations is not None:
                        self._pending.reservations.tick_ended()
                else:
                    self._wall = None
                    self._take(event)
            except Exception as error:
                error.add_note(f"This came of {event!r:.500}")
                raise
        return outputs

    def _take(self, event: News) -> None:
        match event:
            case PodUpserted(pod):
                self._pod_upserted(pod)
            case NodeUpserted(node):
                self._node_upserted(node)
            case NodeDeleted(name):
                self._node_deleted(name)
            case PodDeleted(uid):
                self._pod_removed(uid, "deleted")
            case GroupChanged() | GroupDeleted():
                self._group_event(event)
            case _ if isinstance(event, PlacesEvent):
                self._hold_places()
                self.placeholders.take(event)
            case PriorityClassChanged() | PriorityClassDeleted() | BudgetChanged() | BudgetDeleted():
                if self.state.take(event):
                    self._pending.note_victims()
            case _ if isinstance(event, PreemptionEvent):
                self._pending.note_preemption(event)
            case FlushUnschedulable():
                self._pending.flush_unschedulable()
            case BindFailed() | BindingsWithdrawn() | CannotBind():
                self._bindings_ended(event)
            case _:
                self._environment.take(event)

    # Reading

    @property
    def unschedulable(self) -> tuple[str, ...]:
        """Keys of the work items that were refused, and wait for an event or back off."""
        return self._pending.queue.unschedulable

    @property
    def backing_off(self) -> tuple[str, ...]:
        """Keys of the work items whose event came during their backoff."""
        return self._pending.queue.backing_off

    @property
    def next_backoff_end(self) -> float | None:
        """When the first backoff of an item, or of a node for a claim, ends, by the clock of the ticks."""
        ends = (self._pending.queue.next_backoff_end, self.cluster.volumes.refused.next_end)
        return min((one for one in ends if one is not None), default=None)

    @property
    def exclusive_nodes(self) -> Bools | None:
        """The nodes in domains that gangs have for themselves from all others, (slots,); None for none."""
        return self._exclusives.nodes()

    @property
    def reservation(self) -> Reservation | None:
        """The nodes that are kept free now, and for whom."""
        reservations = self._pending.reservations
        return None if reservations is None else reservations.current

    def reservation_of(self, key: str) -> Reservation | None:
        """What is reserved for a gang, or was until as much had idled there as may."""
        reservations = self._pending.reservations
        return None if reservations is None else reservations.of(key)

    @property
    def preemptions(self) -> tuple[Preemption, ...]:
        """The plans in force: victims leave, or have left, and nodes are kept free."""
        return () if self._pending.preemptor is None else self._pending.preemptor.plans

    @property
    def next_preemption(self) -> float | None:
        """When the next item that waits may preempt (``preemptionDelay``, or what keeps it for a while).

        In seconds of ``Tick.wall`` (of ``Tick.now`` without). The first tick of that time tries it.
        """
        return None if self._pending.preemptor is None else self._pending.preemptor.next_deadline

    @property
    def next_relaxation(self) -> float | None:
        """When the next requirement of a gang falls that counts for a time only (``relaxAfter``).

        In seconds of ``Tick.wall`` (of ``Tick.now`` without). The first tick of that time tries the gang.
        """
        return self.state.relaxing.next

    def evictions_of(self, owner: str) -> tuple[Eviction, ...]:
        """What was evicted of a gang (``namespace/name``) or owner in the last day, oldest first."""
        return () if self._pending.preemptor is None else self._pending.preemptor.evictions_of(owner)

    def preemption_needs(self, plan: Preemption, spared: Collection[str]) -> PlanState:
        """Whether a plan still needs the end of victims that may be spared (uids); it is tried and undone."""
        preemptor = self._pending.preemptor
        return PlanState.ENDED if preemptor is None else preemptor.needs(plan, spared)

    def story(self, key: str, kinds: Iterable[ItemKind] = ItemKind) -> tuple[StoryEntry, ...]:
        """All that was decided about a pod, gang or application (``namespace/name``), oldest first."""
        entries = (entry for kind in kinds for entry in self.stories.of(item_key(kind, key)))
        return tuple(sorted(entries, key=attrgetter("stimulus")))

    def outcome(self, key: str) -> Outcome | None:
        """The newest decision about one pod, gang or application."""
        return next((entry.outcome for entry in reversed(self.story(key)) if entry.outcome is not None), None)

    def fork(self) -> Fork:
        """Tries what would be decided if something were different. Take in no event until it is closed."""
        return Fork(self._tools.for_fork(), self.state, self._holdings, self._handle)

    def validate_state(self) -> None:
        """Assert every invariant across the indices."""
        self.state.validate(self.cluster)
        self._pending.validate()

    # Events

    def _hold_places(self) -> None:
        """From now on places are held for pods to come, and pods of Workloads are known by them."""
        if not self._holding:
            self._holding.append(self.placeholders)
            self._tools.places = self.placeholders.for_pods

    def _pod_upserted(self, pod: Pod) -> None:
        if WORKLOAD in pod.annotations:
            self._hold_places()
        before = self.state.pods.get(pod.uid)
        if pod.finished:
            self._pod_finished(pod, known=before is not None)
            return
        on = pod.node_name
        was_on: str | None = None
        rank: int | None = None
        binding_refused = pod.uid in self.state.binding_refused
        if before is not None:
            self._note_change(before, pod)
            was_on = self._holdings.release(pod.uid)
            rank = self.state.rank(before)
            self.state.remove(pod.uid)
            if self.state.item_key(before) != self.state.item_key(pod):
                rank = None
                self._pending.requeue_or_forget(self.state.item_key(before))
            if on is None and before.node_name is None:
                on = was_on  # Its binding is on the way: until that fails it keeps its node.
            if binding_refused:
                self.state.binding_refused.add(pod.uid)
        if on is None:
            self._wait(pod)
            return
        self.state.add(pod, placed=True, rank=rank)
        self._holdings.settle_on(pod, on)
        key = self.state.item_key(pod)
        leaves = pod.terminating and before is not None and not before.terminating
        other = was_on != on or before is None or weighs_otherwise(before, pod)
        if other or leaves:
            self._invalidate(pod, on)
        if not self.state.waits(key):
            self._pending.drop(key)
        elif was_on != on or leaves:
            self._pending.requeue(key)
        if before is not None and was_on is not None and other:
            self._pending.note_room((before,))
        self._note_placed(before or pod, pod, on, news=other or leaves)

    def _note_change(self, before: Pod, pod: Pod) -> None:
        """A pod changes, which may be bound now."""
        if pod.node_name is not None and before.node_name is None:
            for plugin in self.profile.post_binds:
                plugin.post_bind(pod, pod.node_name)
        for holding in self._holding:
            holding.changed(before, pod)

    def _note_placed(self, before: Pod, pod: Pod, on: str, *, news: bool) -> None:
        """Others may have to be near a pod that has its node, or away from what it was before."""
        for holding in self._holding:
            holding.took(pod, on)
        if pod.node_name is not None:
            self._accept(pod, "is bound")
        asked = [protection_request(one.annotations, one.labels) for one in (before, pod)]
        if asked[0] != asked[1]:
            self._pending.note_victims()
        if (news or before.labels != pod.labels) and self.cluster.population.active:
            self._pending.note_event(ClusterEvent.PLACED | ClusterEvent.CAPACITY)

    def _pod_finished(self, pod: Pod, known: bool) -> None:
        if known:
            self._pod_removed(pod.uid, "finished")
        self.state.finish(pod)
        if pod.group is not None:
            self._pending.requeue(self.state.item_key(pod))

    def _wait(self, pod: Pod) -> None:
        key = self.state.item_key(pod)
        if pod.terminating:
            self._tell(key, f"{pod.key} is being deleted")
            self._pending.requeue_or_forget(key)
            return
        self.state.add(pod, placed=False)
        self.cluster.population.expect(pod)
        if (refusal := pre_enqueue(self._tools, pod)) is not None:
            self.state.gated[pod.uid] = refusal
        self._pending.requeue(key)

    def _invalidate(self, pod: Pod, node_name: str = "") -> None:
        """Others did something to a pod, and to what that node holds: decisions of before may not hold."""
        if (slot := self.cluster.slot(node_name)) is not None:
            self._invalidations.node(slot)
        self._invalidations.gang(self.state.item_key(pod))

    def _pod_removed(self, uid: str, why: str) -> None:
        if uid not in self.state.pods:
            self.state.forget_finished(uid)
            return
        freed = self._holdings.release(uid)
        pod = self.state.remove(uid)
        if pod is None:
            return
        self._invalidate(pod)
        self._accept(pod, why)
        self._tell(self.state.item_key(pod), f"{pod.key} {why}")
        self._pending.requeue_or_forget(self.state.item_key(pod))
        self._pending.note_pod_gone(uid)
        for holding in self._holding:
            holding.left(pod, freed)
        if freed is not None:
            self._pending.note_room((pod,))

    def _node_upserted(self, node: Node) -> None:
        slot = self.cluster.slot(node.name)
        before = None if slot is None else self.cluster.node_at(slot)
        slot = self.cluster.add_node(node)
        self._invalidations.node(slot)
        for holding in self._holding:
            holding.invalidate_node(slot)
        for pod in self._holdings.node_arrived(node.name, slot):
            self._invalidate(pod)
            if pod.group is not None:
                self._pending.requeue(self.state.item_key(pod))
        if before is not None and replace(before, images=node.images, annotations=node.annotations) == node:
            self._pending.note_event(ClusterEvent.CAPACITY)
        else:
            self._pending.note_room()

    def _node_deleted(self, name: str) -> None:
        if (slot := self.cluster.slot(name)) is None:
            return
        self._invalidations.node(slot)
        for holding in self._holding:
            holding.invalidate_node(slot)
        for pod in self._holdings.node_left(name, slot):
            self._invalidate(pod)
        self._pending.note_event(ClusterEvent.CAPACITY)

    def _bindings_ended(self, failure: BindFailed | BindingsWithdrawn | CannotBind) -> None:
        if isinstance(failure, CannotBind):
            self._cannot_bind(failure)
            return
        if isinstance(failure, BindingsWithdrawn):
            self._withdrawn(failure)
            return
        pod = self.state.pods.get(failure.uid)
        if pod is None or pod.node_name is not None:  # Gone, or bound after all.
            return
        freed = self._holdings.release(pod.uid)
        for holding in self._holding:
            holding.left(pod, freed)
        self._invalidate(pod)
        key = self.state.item_key(pod)
        self._tell(key, f"binding of {pod.key} failed: {failure.why}")
        if failure.final:
            self.state.remove(pod.uid)
            self._pending.requeue_or_forget(key)
        else:
            self.state.binding_refused.add(pod.uid)
            self.state.add(pod, placed=False)
            self._pending.requeue(key)
        self._pending.note_room((pod,))

    def _cannot_bind(self, event: CannotBind) -> None:
        pods = [pod for uid in event.uids if (pod := self.state.pods.get(uid)) and pod.node_name is None]
        if pods:
            left = [Leftover(pod, event.reason, event.why) for pod in pods]
            entry = StoryEntry(self._stimulus, f"not bound: {event.why}", None, self._wall)
            self.stories.refuse(self.state.item_key(pods[0]), left, entry)

    def _accept(self, pod: Pod, what: str) -> None:
        """A pod is bound or gone, of which it may have been said that it can't be bound."""
        if pod.uid in self.stories.refused:
            entry = StoryEntry(self._stimulus, f"{pod.key} {what}", None, self._wall)
            self.stories.accept(self.state.item_key(pod), pod.uid, entry)

    def _withdrawn(self, event: BindingsWithdrawn) -> None:
        pods = [pod for uid in event.uids if (pod := self.state.pods.get(uid)) and pod.node_name is None]
        for pod, node in self._holdings.give_back(pods):
            for holding in self._holding:
                holding.left(pod, node)
        for key in dict.fromkeys(self.state.item_key(pod) for pod in pods):
            self._tell(key, f"bindings withdrawn: {event.why}")
            self._pending.requeue(key)
        if pods:
            self._pending.note_room(pods)

    def _group_event(self, event: GroupChanged | GroupDeleted) -> None:
        match event:
            case GroupChanged(group):
                before = self.state.groups.get(group.key)
                group = self.state.put_group(group)
                if before is not None and replace(before, plan=group.plan, ranks=group.ranks) == group:
                    return
                self._note_gang(group.key)
                if before is None:
                    self._pending.requeue_at_new_place(group.key)
                else:
                    self._invalidations.gang(group.key)
                    self._pending.requeue(group.key)
            case GroupDeleted(key):
                self._note_gang(key)
                self.state.drop_group(key)
                self._invalidations.gang(key)
                self._pending.requeue(key)

    def _note_gang(self, key: str) -> None:
        """The object of a gang changed: its priority, or what of it is evicted together, may be another."""
        if self.state.placed(key) or any(plan.item == key for plan in self.preemptions):
            self._pending.note_victims()

    def _tell(self, key: str, what: str, outcome: Outcome | None = None) -> None:
        self.stories.tell(key, StoryEntry(self._stimulus, what, outcome, self._wall))
