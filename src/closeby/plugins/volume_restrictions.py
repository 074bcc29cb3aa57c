"""VolumeRestrictions: a network disk that a pod names itself is attached to a node for one pod."""

from collections.abc import Hashable

import numpy as np

from closeby.cluster.columns import UNLIMITED
from closeby.objects.arrays import Counts
from closeby.objects.bounds import some
from closeby.objects.pods import InlineDisk, Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Capacity
from closeby.scheduling.plugin_view import CycleState, Nodes


class VolumeRestrictions(Capacity):
    """Upstream's plugin of that name, for disks in the pod's own spec.

    Two pods on one node may share a disk if both only read it; one of AWS they never share.
    """

    name = "VolumeRestrictions"
    shares_by_spec = True
    reason = Reason.VOLUME_IN_USE

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.inline_disks

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.inline_disks)

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        disks = pod.spec.inline_disks
        room = np.full(len(nodes), UNLIMITED if all(one.shared for one in disks) else 1, dtype=np.int64)
        room[nodes.taken(disks)] = 0
        return room

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        cluster = self.handle.cluster
        used = [_describe(one) for one in pod.spec.inline_disks if cluster.taken(slot, (one,))]
        noun = "disk" if len(used) == 1 else "disks"
        return Rejection(Reason.VOLUME_IN_USE, f"{noun} {some(used)} in use by another pod on the node")


def _describe(disk: InlineDisk) -> str:
    return f"{disk.name} ({disk.kind})"
