"""What traffic between pods costs: the extension points by which a plugin offers it.

Code that needs a cost asks the profile for a plugin with the capability, never for a certain plugin.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from closeby.applications.registry import Application
from closeby.applications.talk import EdgeCost, Replicas
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition
from closeby.scheduling.extension import Bools, Ints, Plugin, Scores
from closeby.scheduling.state import CycleState


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

    def unknown_costs(self, application: Application) -> Iterable[Condition]:
        """Why the costs of an application are unknown; nothing where they are known."""
        return ()
