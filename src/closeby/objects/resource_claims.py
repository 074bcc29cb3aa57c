"""A ResourceClaim as the scheduler sees it: whether devices are allocated for it, and where they are."""

from typing import Final

from msgspec import Struct

from closeby.objects.pods import NodeSelectorTerm

#: So many pods can share a claim.
MOST_CONSUMERS: Final = 256


class ResourceClaim(Struct, frozen=True, kw_only=True):
    """A claim for devices."""

    namespace: str
    name: str
    allocated: bool = False
    #: Nodes from which the allocated devices can be used, as alternatives; None where all can.
    nodes: tuple[NodeSelectorTerm, ...] | None = None
    #: uids of the pods (or names of other objects) that use it.
    reserved_for: tuple[str, ...] = ()
    terminating: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def serves(self, uid: str) -> bool:
        """Whether a pod may use what is allocated."""
        if not self.allocated or self.terminating:
            return False
        return uid in self.reserved_for or len(self.reserved_for) < MOST_CONSUMERS
