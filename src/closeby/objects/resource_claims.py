"""A ResourceClaim as the scheduler sees it: whether devices are allocated for it, and where they are."""

from collections.abc import Container, Iterable
from itertools import islice
from typing import Final

from msgspec import Struct

from closeby.objects.pods import NodeSelectorTerm, Pod

#: So many pods can share a claim.
MOST_CONSUMERS: Final = 256


class ResourceClaim(Struct, frozen=True, kw_only=True):
    """A claim for devices."""

    namespace: str
    name: str
    allocated: bool = False
    #: Nodes from which the allocated devices can be used, as alternatives; None where all can.
    nodes: tuple[NodeSelectorTerm, ...] | None = None
    #: uids of the pods (or names of other objects) that use it, and names of the upstream PodGroups.
    reserved_for: frozenset[str] = frozenset()
    reserved_for_groups: tuple[str, ...] = ()
    terminating: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def usable(self) -> bool:
        """Whether pods may use it, as far as there are places."""
        return self.allocated and not self.terminating

    def reserves(self, pod: Pod) -> bool:
        """Whether it is reserved for a pod, or for the pod's PodGroup."""
        return pod.uid in self.reserved_for or pod.group in self.reserved_for_groups

    def serves(self, pod: Pod, places: Container[str]) -> bool:
        """Whether a pod may use it; ``places`` are uids of pods for which it can still be reserved."""
        return self.usable and (self.reserves(pod) or pod.uid in places)

    def places(self, pods: Iterable[Pod]) -> frozenset[str]:
        """uids of those of its pods that have the places left, and for which it is not reserved yet.

        The API server and a controller reserve it for each pod that has its node. So the places are first of
        the pods with a node, then of those that wait, in this order.
        """
        left = MOST_CONSUMERS - len(self.reserved_for) - len(self.reserved_for_groups)
        unreserved = (pod.uid for pod in pods if not self.reserves(pod))
        return frozenset(islice(unreserved, max(left, 0)))
