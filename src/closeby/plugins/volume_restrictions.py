"""VolumeRestrictions: disks that pods name themselves, and claims that are for one pod at a time."""

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
    """Upstream's plugin of that name.

    Two pods on one node may share a disk of their own spec if both only read it; one of AWS they never share.
    A claim with ReadWriteOncePod is used by one pod in the whole cluster.
    """

    name = "VolumeRestrictions"
    shares_by_spec = True
    reads = ("spec.claims", "spec.inline_disks")
    reason = Reason.VOLUME_IN_USE

    def class_key(self, pod: Pod) -> Hashable:
        if not pod.spec.claims:
            return pod.spec.inline_disks
        needs = self.handle.cluster.volumes.needs(pod)
        return pod.spec.inline_disks, tuple((one.in_use, one.exclusive and one.shared) for one in needs)

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.inline_disks or pod.spec.claims)

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        disks = pod.spec.inline_disks
        room = np.full(len(nodes), UNLIMITED if all(one.shared for one in disks) else 1, dtype=np.int64)
        if disks:
            room[nodes.taken(disks)] = 0
        needs = self.handle.cluster.volumes.needs(pod) if pod.spec.claims else ()
        if any(one.exclusive and one.shared for one in needs):
            room = np.minimum(room, 1)
        if any(one.in_use for one in needs):
            room[:] = 0
        return room

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        cluster = self.handle.cluster
        for place, need in enumerate(cluster.volumes.needs(pod)):
            if need.in_use:
                claim = cluster.volumes.claim_key(pod, place)
                message = f"claim {claim} is for one pod at a time (ReadWriteOncePod) and another one uses it"
                return Rejection(Reason.VOLUME_IN_USE, message)
        used = [
            _describe(one) for one in pod.spec.inline_disks if cluster.ports_and_disks.taken(slot, (one,))
        ]
        noun = "disk" if len(used) == 1 else "disks"
        return Rejection(Reason.VOLUME_IN_USE, f"{noun} {some(used)} in use by another pod on the node")


def _describe(disk: InlineDisk) -> str:
    return f"{disk.name} ({disk.kind})"
