"""The engine: events in, decisions out. It does no I/O, reads no clock, and is the only owner of its state.

The simulator, the command line, the tests and a live scheduler all drive this very object through ``handle``.
(After the state machine of dask.distributed's worker.)
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.books import Books, item_key
from closeby.scheduling.diagnosis import Diagnosis
from closeby.scheduling.events import (
    BindFailed,
    Event,
    GroupChanged,
    GroupRemoved,
    NodeAdded,
    NodeRemoved,
    PodAdded,
    PodRemoved,
    PriorityClassChanged,
    Tick,
    TopologyChanged,
    TopologyRemoved,
)
from closeby.scheduling.extension import Handle
from closeby.scheduling.gang_cycle import place_gang
from closeby.scheduling.gangs import constraints_of, missing, roster, unassigned
from closeby.scheduling.outcomes import Assignment, Bind, Decision, Leftover, Outcome, Report, Retry
from closeby.scheduling.places import place_of, ranks
from closeby.scheduling.pod_cycle import place_pod
from closeby.scheduling.profiles import Profile
from closeby.scheduling.queue import WorkQueue
from closeby.scheduling.tools import Attempt, Tools
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree

Ints = NDArray[np.intp]


_NO_LABELS: Mapping[str, str] = {}


class StoryEntry(Struct, frozen=True):
    """One thing that happened to a pod or gang; ``stimulus`` counts the events handled so far."""

    stimulus: int
    what: str
    outcome: Outcome | None = None


class Engine:
    """All state of one scheduler."""

    def __init__(
        self,
        build_profile: Callable[[Handle], Profile],
        *,
        explain: bool = False,
        explain_everything: bool = False,
    ) -> None:
        """``explain`` records candidates, scores and refusals with every outcome, at a cost."""
        self.cluster = Cluster()
        self.topologies = Topologies(self.cluster.labels, self.cluster.names)
        self.books = Books()
        self.profile = build_profile(Handle(self.cluster, self.topologies, self.books.group_of))
        self._queue = WorkQueue(self.profile.queue_sort)
        self._tools = Tools(
            self.cluster,
            self.topologies,
            self.profile,
            explain=explain,
            explain_everything=explain_everything,
        )
        self._close_by_default = any(plugin.close_by_default for plugin in self.profile.generators)
        self._stories: dict[str, list[StoryEntry]] = {}
        self._stimulus = 0
        self._order = 0
        #: Items that something is new about since the last tick, in the order it was heard.
        self._news: dict[str, None] = {}

    # The only mutator

    def handle(self, *events: Event) -> list[Decision]:
        """Take events in, in order; decisions are made on a ``Tick`` only."""
        decisions: list[Decision] = []
        for event in events:
            self._stimulus += 1
            match event:
                case PodAdded(pod):
                    self._pod_added(pod)
                case NodeAdded(node):
                    self._node_added(node)
                case NodeRemoved(name):
                    self._node_removed(name)
                case PodRemoved(uid):
                    self._pod_removed(uid, "deleted")
                case GroupChanged(group):
                    self.books.groups[group.key] = group
                    self._consider(group.key)
                case GroupRemoved(key):
                    self.books.groups.pop(key, None)
                    self._consider(key)
                case TopologyChanged(topology, ignored):
                    self.topologies.declare(topology, ignored)
                    self._wake()
                case TopologyRemoved(name):
                    self.topologies.withdraw(name)
                    self._wake()
                case PriorityClassChanged(priority_class):
                    self.books.set_priority_class(priority_class)
                case BindFailed(uid, why, final):
                    self._bind_failed(uid, why, final)
                case Tick(_, limit):
                    self._decide(decisions, limit)
        return decisions

    # Reading

    @property
    def diagnosis(self) -> Diagnosis:
        """Questions about the present state."""
        return self._tools.diagnosis

    @property
    def waiting(self) -> tuple[str, ...]:
        """Keys of the work items that wait for an event."""
        return self._queue.waiting

    def story(self, key: str) -> tuple[StoryEntry, ...]:
        """All that was decided about one pod or gang (``namespace/name``), oldest first."""
        return (*self._stories.get(key, ()), *self._stories.get(f"pod/{key}", ()))

    def outcome(self, key: str) -> Outcome | None:
        """The newest decision about one pod or gang."""
        return next((entry.outcome for entry in reversed(self.story(key)) if entry.outcome is not None), None)

    def validate_state(self) -> None:
        """Assert every invariant across the indices."""
        usage = np.zeros_like(self.cluster.requested)
        for pod, slot in self.cluster.placed_pods():
            demand = self.cluster.demand(pod.spec)
            for row, amount in zip(demand.rows, demand.amounts, strict=True):
                usage[row, slot] += amount
            assert self.cluster.nodes[slot] is not None, f"{pod.key} holds a slot without a node"
            known = self.books.pods.get(pod.uid)
            assert known is not None, f"{pod.key} is placed but unknown"
        assert (usage == self.cluster.requested).all(), "columns do not equal the sum of the pods on them"
        for key, members in self.books.members.items():
            assert not (members.waiting.keys() & members.placed.keys()), f"{key} counts a member twice"
            for uid in members.placed:
                homeless = any(uid in pods for pods in self.books.homeless.values())
                assert homeless or self.cluster.placement(uid) is not None, f"{uid} of {key} holds nothing"
            for uid in members.waiting:
                assert self.cluster.placement(uid) is None, f"{uid} of {key} waits and holds a node"
        for key in self.books.waiting_pods:
            assert key in self._news or self._queue.knows(key), f"{key} waits but is not queued"

    # Events

    def _pod_added(self, pod: Pod) -> None:
        before = self.books.pods.get(pod.uid)
        if pod.finished:
            if before is not None:
                self._pod_removed(pod.uid, "finished")
            return
        if before is not None:
            if pod.node_name is not None and before.node_name is None:
                for plugin in self.profile.post_binds:
                    plugin.post_bind(pod, pod.node_name)
            self._release(pod.uid)
            self.books.remove(pod.uid)
        if pod.node_name is None:
            self.books.add(pod, placed=False)
            refusal = self._kept_out(pod)
            if refusal is not None:
                self.books.held[pod.uid] = refusal
            self._consider(item_key(pod))
            return
        self.books.add(pod, placed=True)
        slot = self.cluster.slot(pod.node_name)
        if slot is None:
            self.books.homeless.setdefault(pod.node_name, {})[pod.uid] = pod
        else:
            self._hold(pod, slot)
        key = item_key(pod)
        if not self.books.waiting(key):
            self._queue.drop(key)

    def _hold(self, pod: Pod, slot: int) -> None:
        self.cluster.place_pod(pod, slot)
        for plugin in self.profile.reserves:
            plugin.pod_assumed(pod, slot)

    def _release(self, uid: str) -> bool:
        pod = self.books.pods[uid]
        if pod.node_name is not None:
            self.books.homeless.get(pod.node_name, {}).pop(uid, None)
        slot = self.cluster.forget_pod(uid)
        if slot is None:
            return False
        for plugin in self.profile.reserves:
            plugin.pod_forgotten(pod, slot)
        return True

    def _pod_removed(self, uid: str, why: str) -> None:
        if uid not in self.books.pods:
            return
        freed = self._release(uid)
        pod = self.books.remove(uid)
        if pod is None:
            return
        self._tell(item_key(pod), f"{pod.key} {why}")
        if not self.books.waiting(item_key(pod)):
            self._queue.drop(item_key(pod))
        if freed:
            self._wake()

    def _node_added(self, node: Node) -> None:
        slot = self.cluster.add_node(node)
        for pod in self.books.homeless.pop(node.name, {}).values():
            self._hold(pod, slot)
        self._wake()

    def _node_removed(self, name: str) -> None:
        slot = self.cluster.slot(name)
        if slot is None:
            return
        for pod in self.cluster.remove_node(name):
            for plugin in self.profile.reserves:
                plugin.pod_forgotten(pod, slot)
            self.books.homeless.setdefault(name, {})[pod.uid] = pod
        self._wake()

    def _bind_failed(self, uid: str, why: str, final: bool) -> None:
        pod = self.books.pods.get(uid)
        if pod is None:
            return
        self._release(uid)
        self._tell(item_key(pod), f"binding of {pod.key} failed: {why}")
        if final:
            self.books.remove(uid)
        else:
            self.books.add(pod, placed=False)
            self._consider(item_key(pod))
        self._wake()

    def _consider(self, key: str) -> None:
        """Something of a work item is new: it is queued at the next tick, when all news is in."""
        self._news[key] = None

    def _queue_news(self) -> None:
        for key in self._news:
            if self._queue.knows(key):
                self._queue.wake(key)
                continue
            item = self.books.item(key)
            if item is not None:
                self._queue.put(item)
        self._news.clear()

    def _wake(self) -> None:
        for key in self._queue.waiting:
            self._queue.wake(key)

    # Decisions

    def _decide(self, decisions: list[Decision], limit: int | None) -> None:
        self._queue_news()
        taken = 0
        while limit is None or taken < limit:
            key = self._queue.pop()
            if key is None:
                return
            taken += 1
            waiting = self.books.waiting(key)
            if not waiting:
                self._queue.drop(key)
                continue
            outcome = self._attempt(key, waiting, decisions)
            self._tell(key, "decided", outcome)
            decisions.append(Report(outcome))
            if outcome.refused or outcome.left:
                self._queue.park(key)
                decisions.append(Retry(key))
            else:
                self._queue.drop(key)

    def _attempt(self, key: str, waiting: tuple[Pod, ...], decisions: list[Decision]) -> Outcome:
        refused: list[Leftover] = []
        ready = waiting
        if self.books.held:
            held = {pod.uid: self.books.held[pod.uid] for pod in waiting if pod.uid in self.books.held}
            refused = [
                Leftover(pod, held[pod.uid].reason, held[pod.uid].sentence())
                for pod in waiting
                if pod.uid in held
            ]
            ready = tuple(pod for pod in waiting if pod.uid not in held)
        if waiting[0].group is None:
            attempt = place_pod(self._tools, waiting[0]) if ready else Attempt()
            return self._settle(key, ready, refused, attempt, (), decisions)
        return self._attempt_gang(key, ready, refused, decisions)

    def _attempt_gang(
        self, key: str, ready: tuple[Pod, ...], refused: list[Leftover], decisions: list[Decision]
    ) -> Outcome:
        group = self.books.groups.get(key)
        running = self._running(key)
        refusal: Condition | None = None
        conditions: tuple[Condition, ...] = ()
        attempt = Attempt()
        if group is None:
            refusal = _gang_refusal(
                key, Reason.GANG_INCOMPLETE, f"PodGroup {key} does not exist", "create it"
            )
        else:
            members = roster(group, ready, running)
            constraints = constraints_of(group, self.topologies, self._close_by_default)
            conditions = (*group.conditions, *constraints.conditions, *unassigned(group, ready))
            refusal = next((condition for condition in conditions if condition.blocking), None)
            unsupported = [entry for entry in refused if entry.reason is Reason.UNSUPPORTED]
            if refusal is None and unsupported:
                refusal = _gang_refusal(key, Reason.UNSUPPORTED, unsupported[0].message)
            lack = missing(group, members)
            if refusal is None and lack is not None:
                refusal = _gang_refusal(key, Reason.GANG_INCOMPLETE, lack)
            if refusal is None and ready:
                attempt = place_gang(self._tools, group, ready, members, constraints)
        if refusal is not None:
            attempt = Attempt(refusal=refusal)
        return self._settle(key, ready, refused, attempt, conditions, decisions)

    def _running(self, key: str) -> list[tuple[Pod, int]]:
        running = []
        for pod in self.books.placed(key):
            slot = self.cluster.placement(pod.uid)
            if slot is not None:
                running.append((pod, slot))
        return running

    def _kept_out(self, pod: Pod) -> Condition | None:
        if pod.spec.unsupported:
            return Condition(
                reason=Reason.UNSUPPORTED,
                object=f"Pod/{pod.key}",
                field=pod.spec.unsupported[0],
                message=f"closeby does not know this hard constraint yet: {', '.join(pod.spec.unsupported)}",
                remedy="remove it or leave the pod to another scheduler",
                blocking=True,
            )
        for plugin in self.profile.pre_enqueue:
            refusal = plugin.pre_enqueue(pod)
            if refusal is not None:
                return refusal
        return None

    def _settle(
        self,
        key: str,
        ready: tuple[Pod, ...],
        refused: list[Leftover],
        attempt: Attempt,
        conditions: tuple[Condition, ...],
        decisions: list[Decision],
    ) -> Outcome:
        """Write an attempt into the books and say it as one outcome."""
        is_gang = not key.startswith("pod/")
        left = [*refused, *(Leftover(pod, reason, text) for pod, reason, text in attempt.leftover)]
        reason, message = None, None
        if attempt.refusal is not None:
            reason, message = attempt.refusal.reason, attempt.refusal.sentence()
        elif refused and not is_gang:  # A gated or unsupported plain pod is its own refusal.
            reason, message = refused[0].reason, refused[0].message
        tree = attempt.tree
        running = self._running(key) if is_gang else []
        assigned = self._assign(key, attempt, running, decisions)
        members = [*running, *attempt.placed] if is_gang else []
        return Outcome(
            key=key.removeprefix("pod/"),
            is_gang=is_gang,
            assigned=assigned,
            refused=() if attempt.refusal is None else ready,
            left=tuple(left),
            reason=reason,
            message=message,
            place=place_of(tree, members) if tree is not None and members else None,
            domains=attempt.domains,
            conditions=conditions,
            explanations=attempt.explanations,
        )

    def _assign(
        self,
        key: str,
        attempt: Attempt,
        running: list[tuple[Pod, int]],
        decisions: list[Decision],
    ) -> tuple[Assignment, ...]:
        placed = attempt.placed
        if not placed:
            return ()
        is_gang = not key.startswith("pod/")
        rank_of: Mapping[str, int | None] = {placed[0][0].uid: None}
        path: tuple[str | None, ...] = ()
        if is_gang:
            rank_of = ranks(attempt.tree or self.topologies.flat(), running, placed)
            path = _path(attempt.tree, placed)
        names = [self.cluster.node_at(slot).name for _, slot in placed]
        labels: list[Mapping[str, str]] = [_NO_LABELS] * len(placed)
        for plugin in self.profile.pre_binds:
            labels = [
                {**before, **plugin.pre_bind(pod, slot)}
                for before, (pod, slot) in zip(labels, placed, strict=True)
            ]
        self.books.settle(key, [pod for pod, _ in placed])
        order, self._order = self._order, self._order + len(placed)
        assigned = []
        for (pod, _), node, extra in zip(placed, names, labels, strict=True):
            rank = rank_of[pod.uid]
            assigned.append(Assignment(pod, node, order, rank))
            binder = self._binder(pod, node) if self.profile.binds else None
            decisions.append(Bind(pod=pod, node=node, rank=rank, domain=path, labels=extra, binder=binder))
            order += 1
        return tuple(assigned)

    def _binder(self, pod: Pod, node: str) -> str | None:
        return next((plugin.name for plugin in self.profile.binds if plugin.bind(pod, node)), None)

    def _tell(self, key: str, what: str, outcome: Outcome | None = None) -> None:
        self._stories.setdefault(key, []).append(StoryEntry(self._stimulus, what, outcome))


def _path(tree: Tree | None, placed: Iterable[tuple[Pod, int]]) -> tuple[str | None, ...]:
    if tree is None:
        return ()
    slots = np.asarray([slot for _, slot in placed], dtype=np.intp)
    return tree.path(tree.tightest(tree.position_of[slots]))


def _gang_refusal(key: str, reason: Reason, message: str, remedy: str = "") -> Condition:
    return Condition(reason=reason, object=f"PodGroup/{key}", message=message, remedy=remedy, blocking=True)
