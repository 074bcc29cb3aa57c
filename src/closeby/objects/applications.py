"""Applications whose workloads call each other: AppGroup of the network-aware scheduling KEP."""

from typing import Final

from msgspec import Struct

from closeby.objects.reasons import Condition

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


class AppGroup(Struct, frozen=True, kw_only=True):
    """The dependency graph of an application."""

    namespace: str
    name: str
    uid: str = ""
    workloads: tuple[AppWorkload, ...] = ()
    #: Name of the sort as written; empty when not given.
    algorithm: str = ""
    #: How many pods the application has; None when not given.
    num_members: int | None = None
    created: float | None = None
    #: API version it was written in.
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
