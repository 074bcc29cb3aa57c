"""A fork: what the engine would decide if something were different, tried in place and undone exactly.

Nothing is copied, so that a fork costs what its decisions cost, however large the cluster is. It changes the
state, the cluster and the plugins' notes of its engine, decides with a queue of its own, and takes everything
back, newest first. Until ``close`` the engine must take in no event.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType

from msgspec import Struct

from closeby.objects.applications import AppGroup
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, gang_key
from closeby.scheduling.events import Tick
from closeby.scheduling.extension import Handle
from closeby.scheduling.forked_cycle import ForkedCycle
from closeby.scheduling.intake.cluster_events import ClusterEvent
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Outcome, Output, item_key, namespace_of, outcomes_of
from closeby.scheduling.placing.deciding import pre_enqueue
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import HeldForPods, Tools
from closeby.scheduling.rounds.loop import Rounds
from closeby.scheduling.rounds.pending import PendingItems

#: A point in the log to which ``undo`` can return.
Mark = int


class Change(Struct, frozen=True, kw_only=True):
    """What is different. Pods that wait come as they are to wait."""

    groups: tuple[PodGroup, ...] = ()
    #: Pods that are gone, whether they run or wait.
    gone: tuple[Pod, ...] = ()
    #: Pods that wait, instead of those of the same uid.
    waiting: tuple[Pod, ...] = ()
    #: Nodes that are there, or as they would be.
    nodes: tuple[Node, ...] = ()
    #: Applications that are there, as they would have to be written.
    applications: tuple[AppGroup, ...] = ()


class Fork:
    """Changes and decisions on top of an engine's state, in a log that is undone newest first."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        holdings: Holdings,
        handle: Handle,
    ) -> None:
        self._tools = tools
        self._state = state
        self._holdings = holdings
        #: Other pods and nodes for the moment, as for what would be if all that ends had ended.
        self.trial = ForkedCycle(tools, state, holdings, handle)
        self._pending = PendingItems(
            tools, state, self.trial, backoff=False, reserve_after=0.0, contain_faults=False
        )
        if tools.places is not None:
            tools.places = _PlacesTried(tools.places, self._vacate)
        self._rounds = Rounds(tools, state, self._pending, _no_story, None)
        #: How to undo each step, and the work item that it concerns.
        self._log: list[tuple[Callable[[], object], str | None]] = []
        for key in state.item_keys():
            self._pending.requeue(key)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Undo everything: the engine is as it was before the fork."""
        self.undo(0)

    def mark(self) -> Mark:
        """The present point."""
        return len(self._log)

    def undo(self, mark: Mark) -> None:
        """Undo everything after a mark, newest first."""
        touched: dict[str, None] = {}
        freed = len(self._log) > mark
        while len(self._log) > mark:
            undo, key = self._log.pop()
            undo()
            if key is not None:
                touched[key] = None
        for key in touched:
            self._pending.requeue_or_forget(key)
        if freed:
            self._pending.note_event(ClusterEvent.CAPACITY)

    def decide(self) -> list[Outcome]:
        """Every decision, in the order of the queue, until nothing more is placed."""
        outcomes: list[Outcome] = []
        placed = True
        while placed:
            outputs: list[Output] = []
            self._rounds.decide(outputs, Tick())
            decided = outcomes_of(outputs)
            placed = False
            for outcome in decided:
                if outcome.bindings:
                    placed = True
                    pods = [one.pod for one in outcome.bindings]
                    self._did(partial(self._holdings.give_back, pods), item_key(outcome.kind, outcome.key))
            outcomes += decided
        return outcomes

    def apply(self, change: Change) -> None:
        """Apply a change; ``decide`` says what comes of it."""
        pods = self._state.pods
        changed = dict.fromkeys(pod.uid for pod in (*change.gone, *change.waiting))
        out = [pods[uid] for uid in changed if uid in pods]
        self._keep_members((*out, *change.waiting))
        for pod in out:
            self._take_out(pod)
        for node in change.nodes:
            self._put_node(node)
        for group in change.groups:
            self._put_group(group)
        for application in change.applications:
            self._put_application(application)
        for pod in change.waiting:
            self._add_waiting(pod)

    # Steps

    def _vacate(self, uid: str) -> str | None:
        """Takes a placeholder pod away; the node that it held."""
        pod, slot = self._state.pods.get(uid), self._tools.cluster.placement(uid)
        if pod is None or slot is None:
            return None
        self._keep_members((pod,))
        self._take_out(pod)
        return self._tools.cluster.names[slot]

    def _did(self, undo: Callable[[], object], key: str | None = None) -> None:
        self._log.append((undo, key))

    def _keep_members(self, pods: Iterable[Pod]) -> None:
        """A gang's members count in the order in which they came: its record is put back as it was."""
        members = self._state.members
        for key in dict.fromkeys(gang_key(pod) for pod in pods if pod.group is not None):
            if key in members:
                self._did(partial(members.__setitem__, key, members[key].copy()))
            else:
                self._did(partial(members.pop, key, None))

    def _take_out(self, pod: Pod) -> None:
        state, uid = self._state, pod.uid
        key, gate, refused = state.item_key(pod), state.gated.get(uid), uid in state.binding_refused
        held = self._holdings.holds(uid)
        give_back = self._holdings.lift(pod)
        state.remove(uid)

        def undo() -> None:
            state.add(pod, placed=held)
            give_back()
            if gate is not None:
                state.gated[uid] = gate
            if refused:
                state.binding_refused.add(uid)

        self._did(undo, key)
        self._pending.requeue_or_forget(key)
        if held:
            self._pending.note_event(ClusterEvent.CAPACITY)

    def _add_waiting(self, pod: Pod) -> None:
        self._state.add(pod, placed=False)
        refusal = pre_enqueue(self._tools, pod)
        if refusal is not None:
            self._state.gated[pod.uid] = refusal
        key = self._state.item_key(pod)
        self._did(partial(self._state.remove, pod.uid), key)
        self._pending.requeue_or_forget(key)

    def _put_node(self, node: Node) -> None:
        cluster, before = self._tools.cluster, self._tools.cluster.slot(node.name)
        if before is None:
            slot = cluster.add_node(node)
            self._holdings.node_arrived(node.name, slot)
            self._did(partial(self._holdings.node_left, node.name, slot))
        else:
            self._did(partial(cluster.add_node, cluster.node_at(before)))
            cluster.add_node(node)
        self._pending.note_event(ClusterEvent.CAPACITY)

    def _put_group(self, group: PodGroup) -> None:
        groups, key = self._state.groups, group.key
        before = groups.get(key)
        self._did(
            partial(groups.pop, key) if before is None else partial(groups.__setitem__, key, before), key
        )
        groups[key] = group
        self._pending.requeue_or_forget(key)

    def _put_application(self, application: AppGroup) -> None:
        applications, key = self._state.applications, application.key
        before = applications.get(key)
        put_back = partial(applications.withdraw, key)
        if before is not None:
            put_back = partial(applications.declare, before.group)
        self._did(partial(self._regroup, key, put_back))
        self._regroup(key, partial(applications.declare, application))

    def _regroup(self, app_key: str, change: Callable[[], None]) -> None:
        for key in self._state.regroup(app_key, change):
            self._pending.requeue_or_forget(key)
        self._pending.note_app_group_change(namespace_of(app_key))


class _PlacesTried:
    """The places that are held for pods to come, as a fork gives them to pods that came."""

    def __init__(self, places: HeldForPods, vacate: Callable[[str], str | None]) -> None:
        """``vacate`` takes away a placeholder (by uid), and returns its node."""
        self.any = places.any
        self.concerns = places.concerns
        self.of = places.of
        self.must_have_place = places.must_have_place
        self.siblings = places.siblings
        self._vacate = vacate

    def vacate(self, places: Mapping[str, str]) -> dict[str, str]:
        """Takes placeholder pods off their nodes until the fork is undone."""
        nodes = {uid: self._vacate(placeholder) for uid, placeholder in places.items()}
        return {uid: node for uid, node in nodes.items() if node is not None}

    def placed(self, pods: Iterable[Pod]) -> None:
        """Pods got nodes; the fork is undone, so that need not be noted."""


def _no_story(key: str, what: str, outcome: Outcome | None) -> None:
    """The story of an item is about what happened."""
