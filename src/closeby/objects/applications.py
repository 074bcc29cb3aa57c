"""AppGroup and NetworkTopology of the network-aware scheduling KEP: who calls whom, and at what cost.

Costs between nodes (the KEP's status) and between zones and regions (as published) are one record here.
"""

from typing import Final

from msgspec import Struct

from closeby.objects.reasons import Condition
from closeby.objects.selectors import Named

#: Pod labels that name the AppGroup, and the workload in it.
APP_GROUP_LABEL: Final = "appgroup.diktyo.x-k8s.io"
WORKLOAD_LABEL: Final = "appgroup.diktyo.x-k8s.io.workload"


class Dependency(Struct, frozen=True, kw_only=True):
    """One workload needs another."""

    #: What ``AppWorkload.name`` is for the other; one that no workload has is a leaf of the graph.
    workload: str
    #: The traffic over this edge; its cost counts that many times.
    weight: float = 1.0
    #: Bits per second; None when not given.
    min_bandwidth: int | None = None
    #: Greatest network cost between any two replicas of the two; None means no limit.
    max_network_cost: int | None = None


class AppWorkload(Struct, frozen=True, kw_only=True):
    """One workload of an application, in the order in which the object lists them."""

    #: What pods carry in ``WORKLOAD_LABEL`` (or are called): ``name`` in the KEP, ``selector`` as published.
    name: str
    dependencies: tuple[Dependency, ...] = ()


class CustomObject(Named, frozen=True, kw_only=True):
    """A custom resource of the KEP."""

    uid: str = ""
    #: API version it was written in.
    source: str = ""
    #: What its reader found wrong; with a blocking one the object is not used.
    conditions: tuple[Condition, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether nothing is so wrong with it that it can't be used."""
        return not any(condition.blocking for condition in self.conditions)


class AppGroup(CustomObject, frozen=True, kw_only=True):
    """The dependency graph of an application."""

    workloads: tuple[AppWorkload, ...] = ()
    #: Name of the sort as written; empty when not given.
    algorithm: str = ""
    #: How many pods the application has; None when not given.
    num_members: int | None = None
    created: float | None = None


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


class NetworkTopology(CustomObject, frozen=True, kw_only=True):
    """The costs of one network."""

    #: ``Dijkstra`` or ``BellmanFord`` as written; empty when not given.
    algorithm: str = ""
    weight_sets: tuple[WeightSet, ...] = ()
