"""A topology as declared: an ordered list of node labels."""

from msgspec import Struct

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
