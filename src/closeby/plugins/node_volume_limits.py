"""NodeVolumeLimits: a node attaches only so many volumes of each CSI driver."""

from collections.abc import Hashable

from closeby.objects.arrays import Counts
from closeby.objects.bounds import sentences
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Capacity
from closeby.scheduling.plugin_view import CycleState, Nodes


class NodeVolumeLimits(Capacity):
    """Upstream's plugin of that name: the limits are those that the node's CSINode gives.

    A volume counts once, however many pods use it, also where only a VolumeAttachment says that it is there.
    So do disks that specs of pods name themselves and that a CSI driver attaches now.
    """

    name = "NodeVolumeLimits"
    shares_by_spec = True
    reads = ("spec.claims", "spec.attached_disks")
    reason = Reason.VOLUME_LIMIT_REACHED

    def class_key(self, pod: Pod) -> Hashable:
        needs = self.handle.cluster.volumes.needs(pod) if pod.spec.claims else ()
        claimed = tuple((need.driver, need.known) for need in needs if need.driver)
        return claimed, pod.spec.attached_disks

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.claims or pod.spec.attached_disks)

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        index = nodes.index
        return self.handle.cluster.volumes.attachable(pod, None if isinstance(index, slice) else index)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        over = [
            f"{one.driver} attaches {one.limit} volumes to the node, {one.attached} are attached, "
            f"the pod brings {one.new} more"
            for one in self.handle.cluster.volumes.brought(pod, slot)
            if one.new and one.attached + one.new > one.limit
        ]
        return Rejection(Reason.VOLUME_LIMIT_REACHED, sentences(over))
