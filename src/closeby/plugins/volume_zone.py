"""VolumeZone: a node must be in the zone and region that the labels of a pod's volumes name."""

from collections.abc import Hashable

from closeby.objects.arrays import Bools
from closeby.objects.bounds import some
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter
from closeby.scheduling.plugin_view import CycleState, Nodes


class VolumeZone(Filter):
    """Upstream's plugin of that name. A node that names neither zone nor region passes."""

    name = "VolumeZone"
    shares_by_spec = True
    reads = ("spec.claims",)
    reason = Reason.VOLUME_ZONE_MISMATCH

    def class_key(self, pod: Pod) -> Hashable:
        needs = self.handle.cluster.volumes.needs(pod) if pod.spec.claims else ()
        return tuple(need.zones for need in needs if need.zones)

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.claims)

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        volumes = self.handle.cluster.volumes
        answer = nodes.all(True)
        for need in volumes.needs(pod):
            if need.zones:
                answer &= volumes.in_zones(need)[nodes.index]
        return answer

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        cluster = self.handle.cluster
        node = cluster.node_at(slot)
        for place, need in enumerate(cluster.volumes.needs(pod)):
            if need.zones and not cluster.volumes.in_zones(need)[slot]:
                claim = cluster.volumes.claim_key(pod, place)
                wanted = some([f"{key}={'|'.join(values)}" for key, values in need.zones])
                have = some([f"{key}={node.labels.get(key, '')}" for key, _ in need.zones])
                message = f"the volume of claim {claim} is in {wanted}, the node has {have}"
                return Rejection(Reason.VOLUME_ZONE_MISMATCH, message)
        raise AssertionError("the node is in the zone of each volume")
