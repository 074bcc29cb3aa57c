"""NodeName: a pod that names its node goes there or nowhere."""

from collections.abc import Hashable

import numpy as np

from closeby.objects.arrays import Bools
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter
from closeby.scheduling.plugin_view import CycleState, Nodes


class NodeName(Filter):
    """``spec.nodeName`` as a filter (upstream's plugin of that name)."""

    name = "NodeName"
    shares_by_spec = True
    reads = ("node_name",)
    reason = Reason.NODE_AFFINITY_MISMATCH

    def class_key(self, pod: Pod) -> Hashable:
        return pod.node_name

    def concerns(self, pod: Pod) -> bool:
        return pod.node_name is not None

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        slot = None if pod.node_name is None else self.handle.cluster.slot(pod.node_name)
        return nodes.all(False) if slot is None else np.equal(nodes.slots, slot)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(Reason.NODE_AFFINITY_MISMATCH, f"the pod asks for node {pod.node_name}")
