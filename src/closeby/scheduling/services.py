"""Services that plugins offer to others: what traffic between pods costs, and what is measured."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from closeby.applications.registry import Application
from closeby.applications.traffic import EdgeCost, Replicas
from closeby.objects.arrays import Bools, Ints, Scores
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition
from closeby.scheduling.extension import Plugin
from closeby.scheduling.plugin_view import CycleState


class Traffic(Struct, frozen=True, kw_only=True, eq=False):
    """What traffic costs between pods, by kind of pod and by location of node.

    Two pods on one node cost nothing. With P pods of K kinds and L locations.
    """

    #: Kind of each pod, shape (P,).
    kinds: Ints
    #: Location of each slot, shape (capacity,). Nodes of one location are as far from all others.
    locations: Ints
    #: Cost between different nodes, by location; shape (L, L), symmetric, finite.
    between: Scores
    #: Traffic between two kinds; shape (K, K), symmetric.
    weights: Scores
    #: Greatest cost allowed between pods of two kinds; shape (K, K), symmetric, inf without a limit.
    limits: Scores
    #: Where the cost is not known, so that it exceeds every limit; shape (L, L).
    unknown: Bools
    #: Cost of a pod of each kind on each slot because of pods placed before; shape (K, capacity).
    #: inf where a limit forbids the slot.
    standing: Scores


class TrafficCost(Plugin):
    """Knows what traffic between pods costs, so that they can be placed as a whole."""

    def traffic(self, state: CycleState, pods: tuple[Pod, ...]) -> Traffic | None:
        """The costs among pods that have no node yet; None when there is no traffic."""
        raise NotImplementedError

    def forbids_moves(self, state: CycleState) -> bool:
        """Whether pods must stay where scores put them: moves that save traffic would undo the scores."""
        return False


class DependencyCost(TrafficCost):
    """Knows what the dependencies of an application cost; explanations, measures and what-ifs ask it."""

    def edges(
        self, application: Application, replicas: Mapping[str, Replicas]
    ) -> tuple[EdgeCost, ...] | None:
        """The cost of each dependency with the workloads' pods at ``replicas``; None without a network."""
        raise NotImplementedError

    def knows_costs(self, application: Application) -> bool:
        """Whether ``edges`` are costs; else they are distances in the tree."""
        return True

    def unknown_costs(self, application: Application) -> Iterable[Condition]:
        """Why the costs of an application are unknown; nothing where they are known."""
        return ()


class Reading(Struct, frozen=True, kw_only=True, eq=False):
    """What a source gave; ``values`` mean something to the plugin alone."""

    values: object
    #: When it was measured, seconds since the epoch; None when the source does not say.
    measured: float | None = None
    #: The source answers, but knows of nothing.
    empty: bool = False


class Source(Struct, frozen=True, kw_only=True, eq=False):
    """Where a plugin's measurements come from (times in seconds)."""

    #: For messages and metrics: an address without secrets, or a file's name.
    name: str
    #: The plugin's argument that names it.
    argument: str
    #: May block for as long as its own timeouts say. Returns a sentence when nothing can be read.
    read: Callable[[], Reading | str]
    #: Between two readings.
    every: float
    #: Measurements older than this are not used any more.
    max_age: float
    #: What the plugin does without measurements.
    fallback: str = ""
    #: Warnings about how it is read, such as that the server's identity is not verified.
    warnings: tuple[str, ...] = ()


class Measurements(Struct, frozen=True, kw_only=True, eq=False):
    """What is known now."""

    #: None: nothing is known, or not any more.
    reading: Reading | None = None
    #: Seconds since it was measured, when it was read; None when that is not known.
    age: float | None = None
    #: Why there is nothing newer; empty while all is well.
    trouble: str = ""


class Measured(Plugin):
    """Decides by values that are measured outside of the cluster's objects."""

    @property
    def source(self) -> Source | None:
        """Where to read; None when nothing is measured."""
        raise NotImplementedError

    def take(self, measurements: Measurements) -> bool:
        """From now on this is known. True when answers given before may be others now."""
        raise NotImplementedError

    @property
    def measured_nodes(self) -> int:
        """Nodes of which something is known."""
        raise NotImplementedError
