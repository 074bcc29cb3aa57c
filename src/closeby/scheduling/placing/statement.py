"""Pods charged to nodes: in a cycle by a statement that can be undone exactly, else by the events."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from closeby.applications.registry import replica_of
from closeby.cluster.claims import ChosenVolume
from closeby.cluster.columns import Batch, Cluster
from closeby.objects.arrays import Ints
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Reserve, Undo
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.plugin_view import CycleState

#: A point in the log to which ``rollback`` can return.
Checkpoint = int
#: Whether all filters let a pod go to a slot, as the cluster and the cycle are now.
Allows = Callable[[CycleState, Pod, int], bool]
#: Frees what pods of an item hold whose decision failed; they wait for a node again.
GiveBack = Callable[[tuple[Pod, ...]], object]


class Statement:
    """One attempt's placements, in order."""

    def __init__(
        self, cluster: Cluster, listeners: Sequence[Reserve], state: CycleState, allows: Allows
    ) -> None:
        self._cluster = cluster
        self._listeners = listeners
        self._allows = allows
        #: The cycle that is placing; its ``placed`` follows this statement.
        self.state = state
        self._log: list[tuple[Batch, list[Undo]]] = []

    def checkpoint(self) -> Checkpoint:
        """The present point."""
        return len(self._log)

    def assume(self, pods: Sequence[Pod], slots: Ints) -> None:
        """Place pods of one spec; ``slots`` has shape (len(pods),). Nothing is placed if a plugin raises."""
        batch = Batch(pods[0].spec, tuple(pods), slots)
        placed = self._cluster.assume(batch)
        undos: list[Undo] = []
        try:
            self._announce(batch, undos)
        except Exception:
            _undo(undos)
            self._cluster.forget(batch)
            raise
        self.state.placed.extend(placed)
        self._log.append((batch, undos))

    def assume_one(self, pod: Pod, slot: int) -> None:
        """Place a single pod."""
        self.assume((pod,), np.asarray([slot], dtype=np.intp))

    def assume_again(self, batches: Iterable[Batch]) -> None:
        """Place what was placed so before and has been undone."""
        for batch in batches:
            self.assume(batch.pods, batch.slots)

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Undo everything after a checkpoint, newest first."""
        while len(self._log) > checkpoint:
            batch, undos = self._log.pop()
            _undo(undos)
            self._cluster.forget(batch)
            del self.state.placed[len(self.state.placed) - len(batch.pods) :]

    def discard(self) -> None:
        """Undo everything."""
        self.rollback(0)

    def commit(self) -> None:
        """Make the placements final: they can't be undone any more."""
        self._log.clear()

    def assume_where_allowed(self, wanted: Sequence[tuple[Pod, int]]) -> bool:
        """Place pods where all filters let them go to their slot, in any order; False if some stay without.

        A pod may be let in only once others are there: by affinity or spread among them.
        """
        left = list(wanted)
        before = len(left) + 1
        while len(left) < before:
            before, waiting, left = len(left), left, []
            for pod, slot in waiting:
                if self._allows(self.state, pod, slot):
                    self.assume_one(pod, slot)
                else:
                    left.append((pod, slot))
        return not left

    @property
    def slots(self) -> Ints:
        """The slots of all pods that are placed, in the order of the state's ``placed``."""
        columns = [batch.slots for batch, _ in self._log]
        return columns[0] if len(columns) == 1 else np.concatenate([np.zeros(0, dtype=np.intp), *columns])

    def since(self, checkpoint: Checkpoint) -> Iterator[Batch]:
        """The batches placed after a checkpoint, in order."""
        return (batch for batch, _ in self._log[checkpoint:])

    def _announce(self, batch: Batch, undos: list[Undo]) -> None:
        """Tells the plugins; what they note is added to ``undos`` at once."""
        for listener in self._listeners:
            if listener.idle or not listener.notes_any(batch.pods):
                continue
            for pod, slot in zip(batch.pods, batch.slots.tolist(), strict=True):
                undo = listener.pod_assumed(pod, slot)
                if undo is not None:
                    undos.append(undo)


def _undo(undos: Sequence[Undo]) -> None:
    for undo in reversed(undos):
        undo()


class Holdings:
    """Charges pods to nodes, and releases them, as events tell."""

    def __init__(self, cluster: Cluster, state: SchedulingState, reserves: Sequence[Reserve]) -> None:
        self._cluster = cluster
        self._state = state
        self._reserves = tuple(reserves)
        #: What was chosen for the claims of the pod that was released last: it may be held again.
        self._chosen: tuple[ChosenVolume, ...] = ()

    def settle_on(self, pod: Pod, node_name: str) -> None:
        """The pod holds a node, which may not be there (yet)."""
        slot = self._cluster.slot(node_name)
        if slot is None:
            self._state.add_on_unknown_node(pod, node_name)
        else:
            self.hold(pod, slot)

    def hold(self, pod: Pod, slot: int) -> None:
        """Charge the pod to a slot."""
        self._cluster.place_pod(pod, slot)
        if self._chosen and pod.spec.claims:
            self._cluster.volumes.choose_again(self._chosen)
        for plugin in self._reserves:
            plugin.pod_assumed(pod, slot)

    def release(self, uid: str) -> str | None:
        """Free what a pod holds; returns the name of its node, None if it held none."""
        pod = self._state.pods.get(uid)
        self._chosen = self._cluster.volumes.chosen(pod) if pod is not None and pod.spec.claims else ()
        slot = self._cluster.forget_pod(uid)
        if slot is None:
            return self._state.leave_unknown_node(uid)
        for plugin in self._reserves:
            plugin.pod_forgotten(self._state.pods[uid], slot)
        return self._cluster.names[slot]

    def holds(self, uid: str) -> bool:
        """Whether a pod holds a node, which may be unknown."""
        return self._cluster.placement(uid) is not None or self._state.is_on_unknown_node(uid)

    def lift(self, pod: Pod) -> Undo:
        """Free what a pod holds; returns how to put it back exactly, with what plugins had noted."""
        volumes = self._cluster.volumes
        chosen = volumes.chosen(pod) if pod.spec.claims else ()
        slot = self._cluster.forget_pod(pod.uid)
        if slot is None:
            name = self._state.leave_unknown_node(pod.uid)
            return _nothing if name is None else partial(self._state.add_on_unknown_node, pod, name)
        notes = [undo for plugin in self._reserves if (undo := plugin.pod_forgotten(pod, slot)) is not None]

        def put_back() -> None:
            self._cluster.place_pod(pod, slot)
            volumes.choose_again(chosen)
            _undo(notes)

        return put_back

    def node_arrived(self, node_name: str, slot: int) -> tuple[Pod, ...]:
        """Pods that held a node before it was known are charged to it; returns them."""
        found = tuple(self._state.on_unknown_nodes.get(node_name, {}).values())
        for pod in found:
            self._state.leave_unknown_node(pod.uid)
            self.hold(pod, slot)
        return found

    def node_left(self, node_name: str, slot: int) -> tuple[Pod, ...]:
        """Takes the node out; the pods on it, which are returned, hold a node that is not there."""
        lost = self._cluster.remove_node(node_name)
        for pod in lost:
            for plugin in self._reserves:
                plugin.pod_forgotten(pod, slot)
            self._state.add_on_unknown_node(pod, node_name)
        return lost

    def give_back(self, pods: Iterable[Pod]) -> list[tuple[Pod, str | None]]:
        """These pods were not to be placed after all: they wait again. Returns those that held a node."""
        freed: list[tuple[Pod, str | None]] = []
        for pod in pods:
            if self.holds(pod.uid):
                freed.append((pod, self.release(pod.uid)))
                self._state.add(pod, placed=False)
        return freed


def running_members(cluster: Cluster, state: SchedulingState, key: str) -> tuple[tuple[Pod, int], ...]:
    """The members of a gang that hold a node which is there, with its slot."""
    placed = ((pod, cluster.placement(pod.uid)) for pod in state.placed(key))
    return tuple((pod, slot) for pod, slot in placed if slot is not None)


def _nothing() -> None:
    """What a pod that held nothing gets back."""


def weighs_otherwise(before: Pod, pod: Pod) -> bool:
    """Whether a pod that stays on its node takes other room, or other limits go with it, than before."""
    return before.spec != pod.spec or replica_of(before) != replica_of(pod)
