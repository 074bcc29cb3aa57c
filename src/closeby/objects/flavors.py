"""Kueue's objects, as far as they say where pods may go: flavors and the queues that lead to them."""

from msgspec import Struct

from closeby.objects.pods import Toleration


class ResourceFlavor(Struct, frozen=True, kw_only=True):
    """``node_labels`` (sorted) select the flavor's nodes; ``topology_name`` names their Topology."""

    name: str
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None


class ClusterQueue(Struct, frozen=True, kw_only=True):
    """``flavors`` in their declared order, without repeats."""

    name: str
    flavors: tuple[str, ...] = ()


class LocalQueue(Struct, frozen=True, kw_only=True):
    """A namespace's way into a cluster queue."""

    namespace: str
    name: str
    cluster_queue: str
