"""A ResourceClaim as the scheduler sees it: whether devices are allocated for it, and where they are."""

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
    reserved_for: tuple[str, ...] = ()
    reserved_for_groups: tuple[str, ...] = ()
    terminating: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def reserves(self, pod: Pod) -> bool:
        """Whether it is reserved for a pod, or for the pod's PodGroup."""
        return pod.uid in self.reserved_for or pod.group in self.reserved_for_groups

    def serves(self, pod: Pod, ahead: int = 0) -> bool:
        """Whether a pod may use what is allocated; ``ahead``: pods that come first without a reservation."""
        if not self.allocated or self.terminating:
            return False
        consumers = len(self.reserved_for) + len(self.reserved_for_groups) + ahead
        return consumers < MOST_CONSUMERS or self.reserves(pod)
