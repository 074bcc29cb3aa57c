"""Topologies as declared, and Kueue's flavors and queues that lead to them."""

from msgspec import Struct

from closeby.objects.pods import Toleration
from closeby.objects.reasons import Condition


class TopologyLevel(Struct, frozen=True):
    """One level; ``alias`` is an optional friendly name that constraints may use."""

    node_label: str
    alias: str | None = None


class Topology(Struct, frozen=True, kw_only=True):
    """Levels from coarse to fine (Topology of ``kueue.x-k8s.io``, ``kai.scheduler`` or ``closeby.dev``)."""

    name: str
    levels: tuple[TopologyLevel, ...]
    source: str = ""
    #: A blocking condition disables this topology alone.
    conditions: tuple[Condition, ...] = ()


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
