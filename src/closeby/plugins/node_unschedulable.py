"""NodeUnschedulable: cordoned nodes take no new pods, and neither do nodes that are not ready."""

from collections.abc import Hashable
from typing import NamedTuple

from msgspec import Struct

from closeby.objects.arrays import Bools
from closeby.objects.nodes import NO_SCHEDULE, Node, Taint, tolerated
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Handle
from closeby.scheduling.plugin_view import CycleState, NodeColumn, Nodes

#: The taint that the node controller puts on cordoned nodes; who tolerates it may go there.
CORDON = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


class _Health(NamedTuple):
    ready: bool
    cordoned: bool


class NodeUnschedulable(Filter):
    """Upstream's plugin of that name; besides, a node whose Ready condition is not True is not used."""

    name = "NodeUnschedulable"
    shares_by_spec = True
    reason = Reason.NODE_UNSCHEDULABLE

    def __init__(self, arguments: Struct, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._health = NodeColumn(handle.cluster, _health)

    def class_key(self, pod: Pod) -> Hashable:
        return tolerated(pod.spec.tolerations, CORDON)

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        anyway = tolerated(pod.spec.tolerations, CORDON)
        return self._health.flags(nodes, lambda health: health.ready and (anyway or not health.cordoned))

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        health = _health(self.handle.cluster.node_at(slot))
        troubles = []
        if not health.ready:
            troubles.append("not ready")
        if health.cordoned and not tolerated(pod.spec.tolerations, CORDON):
            troubles.append("cordoned (spec.unschedulable)")
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"the node is {' and '.join(troubles)}")


def _health(node: Node) -> _Health:
    return _Health(node.ready, node.unschedulable)
