"""NodePorts: a host port is given once per node."""

from collections.abc import Hashable

import numpy as np

from closeby.objects.arrays import Counts
from closeby.objects.bounds import some
from closeby.objects.pods import HostPort, Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Capacity
from closeby.scheduling.plugin_view import CycleState, Nodes


class NodePorts(Capacity):
    """Upstream's plugin of that name. Of pods that claim the same port at most one fits on a node."""

    name = "NodePorts"
    shares_by_spec = True
    reads = ("spec.host_ports",)
    reason = Reason.HOST_PORT_CONFLICT

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.host_ports

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.host_ports)

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        room = np.ones(len(nodes), dtype=np.int64)
        room[nodes.taken(pod.spec.host_ports)] = 0
        return room

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        cluster = self.handle.cluster
        taken = [
            _describe(port) for port in pod.spec.host_ports if cluster.ports_and_disks.taken(slot, (port,))
        ]
        noun = "host port" if len(taken) == 1 else "host ports"
        return Rejection(Reason.HOST_PORT_CONFLICT, f"{noun} {some(taken)} already taken")


def _describe(port: HostPort) -> str:
    where = "" if port.host_ip == "0.0.0.0" else f" on {port.host_ip}"
    return f"{port.port}/{port.protocol}{where}"
