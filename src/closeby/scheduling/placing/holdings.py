"""What pods hold outside of a scheduling cycle: capacity on their node, and what plugins note about it."""

from collections.abc import Iterable, Sequence

from closeby.applications.registry import replica_of
from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Reserve
from closeby.scheduling.intake.scheduling_state import SchedulingState


class Holdings:
    """Charges pods to nodes, and releases them, as events tell."""

    def __init__(self, cluster: Cluster, state: SchedulingState, reserves: Sequence[Reserve]) -> None:
        self._cluster = cluster
        self._state = state
        self._reserves = tuple(reserves)

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
        for plugin in self._reserves:
            plugin.pod_assumed(pod, slot)

    def release(self, uid: str) -> str | None:
        """Free what a pod holds; returns the name of its node, None if it held none."""
        slot = self._cluster.forget_pod(uid)
        if slot is None:
            return self._state.leave_unknown_node(uid)
        for plugin in self._reserves:
            plugin.pod_forgotten(self._state.pods[uid], slot)
        return self._cluster.names[slot]

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

    def give_back(self, pods: Iterable[Pod]) -> None:
        """These pods were not to be placed after all: they wait again."""
        for pod in pods:
            if self._cluster.placement(pod.uid) is not None or self._state.is_on_unknown_node(pod.uid):
                self.release(pod.uid)
                self._state.add(pod, placed=False)


def weighs_otherwise(before: Pod, pod: Pod) -> bool:
    """Whether a pod that stays on its node takes other room, or other limits go with it, than before."""
    return before.spec != pod.spec or replica_of(before) != replica_of(pod)
