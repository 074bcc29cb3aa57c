"""The network cost between places: NetworkTopology of the network-aware scheduling KEP.

Costs between nodes (the KEP's status) and between zones and regions (as published) are one record here.
"""

from msgspec import Struct

from closeby.objects.reasons import Condition


class LinkCost(Struct, frozen=True, kw_only=True):
    """The cost from one node, zone or region to another, as written."""

    origin: str
    destination: str
    #: 0 or more.
    cost: int
    #: Bits per second; None when not given.
    bandwidth_capacity: int | None = None
    bandwidth_allocated: int | None = None


class WeightSet(Struct, frozen=True, kw_only=True):
    """One set of costs, such as ``UserDefined``. A set may name costs of several kinds."""

    name: str
    node_costs: tuple[LinkCost, ...] = ()
    zone_costs: tuple[LinkCost, ...] = ()
    region_costs: tuple[LinkCost, ...] = ()


class NetworkTopology(Struct, frozen=True, kw_only=True):
    """The costs of one network."""

    namespace: str
    name: str
    uid: str = ""
    #: ``Dijkstra`` or ``BellmanFord`` as written; empty when not given.
    algorithm: str = ""
    weight_sets: tuple[WeightSet, ...] = ()
    source: str = ""
    #: What its reader found wrong; with a blocking one the object is not used.
    conditions: tuple[Condition, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def usable(self) -> bool:
        """Whether nothing is so wrong with it that it can't be used."""
        return not any(condition.blocking for condition in self.conditions)
