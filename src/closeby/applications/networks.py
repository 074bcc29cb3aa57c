"""Whose NetworkTopologies count, and which of them says what the calls of an application cost.

Costs decide where everybody's pods may go. So on a live cluster only the operator's count: those in a few
namespaces. An option lets a NetworkTopology of any other namespace count for the AppGroups beside it.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from closeby.objects.applications import NetworkTopology, WeightSet
from closeby.objects.bounds import some
from closeby.topology.costs import choose

#: Where cluster operators keep what is theirs.
SYSTEM_NAMESPACE: Final = "kube-system"
#: Nodes, zones and regions that a NetworkTopology may name to count for the AppGroups beside it: all pairs of
#: them are worked out, which for a namespace's own object must stay cheap.
MOST_PLACES: Final = 512


class Counts(StrEnum):
    """For whom a NetworkTopology counts; a stable token."""

    EVERYWHERE = "Counted"
    BESIDE = "CountsInItsNamespace"
    NOT_HERE = "NamespaceNotCounted"
    TOO_LARGE = "TooManyPlaces"


class NetworkScope(Struct, frozen=True):
    """Whose NetworkTopologies count."""

    #: Namespaces whose NetworkTopologies count for all AppGroups; None: all namespaces, as in files.
    namespaces: frozenset[str] | None = None
    #: Whether those of other namespaces count for the AppGroups beside them.
    beside: bool = False

    def is_operators(self, namespace: str) -> bool:
        """Whether the NetworkTopologies of a namespace are the operator's: they count for all AppGroups."""
        return self.namespaces is None or namespace in self.namespaces

    def counts(self, network: NetworkTopology) -> Counts:
        """For whom a NetworkTopology counts."""
        if self.is_operators(network.namespace):
            return Counts.EVERYWHERE
        if not self.beside:
            return Counts.NOT_HERE
        return Counts.TOO_LARGE if _too_large(network) else Counts.BESIDE

    def remedy(self, counts: Counts) -> str:
        """What can be done where a NetworkTopology does not count."""
        if counts is Counts.TOO_LARGE:
            return f"name at most {MOST_PLACES} nodes, zones or regions"
        named = some(sorted(self.namespaces or ()))
        return f"those of {named} count; the operator adds namespaces by networkTopologyNamespaces"


class Judged(Struct, frozen=True):
    """A NetworkTopology, and for whom it counts."""

    network: NetworkTopology
    counts: Counts


#: As in files.
ALL_NAMESPACES: Final = NetworkScope()


def live_scope(configured: Iterable[str], own: str | None, *, beside: bool = False) -> NetworkScope:
    """On a cluster: kube-system, the namespace of closeby's ``own`` pod, and what the configuration names.

    ``own`` is None where closeby runs as no pod.
    """
    names = {SYSTEM_NAMESPACE, *configured} | ({own} if own else set())
    return NetworkScope(frozenset(names), beside)


class NetworkWish(Struct, frozen=True):
    """Which costs the operator asks for; empty where the configuration does not say."""

    #: ``name`` or ``namespace/name``.
    network: str = ""
    #: Name of a weight set.
    weights: str = ""
    algorithm: str = ""


class Lack(StrEnum):
    """Why the costs of an application are unknown; a stable token."""

    NONE_COUNTS = "NoNetworkTopology"
    NOT_FOUND = "NetworkTopologyNotFound"
    AMBIGUOUS = "NetworkTopologyAmbiguous"
    NO_WEIGHTS = "WeightsNotFound"


#: What follows where costs are unknown.
WITHOUT_COSTS: Final = "the distance in the topology counts"
#: The same for a call with a greatest cost.
WITHOUT_LIMITS: Final = "maxNetworkCost needs costs: without them only one node is near enough"


class Choice(Struct, frozen=True):
    """The NetworkTopology by which an application is placed, or why there is none."""

    network: NetworkTopology | None = None
    weights: WeightSet | None = None
    lack: Lack | None = None
    #: What is lacking, and what to do about it; names nothing of another tenant's.
    message: str = ""
    remedy: str = ""


def choose_network(networks: Iterable[Judged], scope: NetworkScope, wish: NetworkWish) -> Choice:
    """What counts for the AppGroups of one namespace.

    ``networks``: those usable ones that count for all AppGroups, and those that are in that namespace.

    Of those that count beside the AppGroups one with costs goes before the operator's.
    """
    by_counts: dict[Counts, list[NetworkTopology]] = {counts: [] for counts in Counts}
    for one in networks:
        by_counts[one.counts].append(one.network)
    beside = [one for one in by_counts[Counts.BESIDE] if one.weight_sets]
    everywhere = by_counts[Counts.EVERYWHERE]
    for candidates in (beside, everywhere):
        if found := _named(candidates, wish.network):
            return _chosen(found, wish)
    ignored = [*by_counts[Counts.NOT_HERE], *by_counts[Counts.TOO_LARGE]]
    return _lacking(everywhere, ignored, scope, wish)


def _named(candidates: Sequence[NetworkTopology], name: str) -> Sequence[NetworkTopology]:
    if name:
        return [one for one in candidates if name in (one.name, one.key)]
    # One that is still empty is not a choice.
    return [one for one in candidates if one.weight_sets] if len(candidates) > 1 else candidates


def _chosen(found: Sequence[NetworkTopology], wish: NetworkWish) -> Choice:
    if len(found) > 1:
        which = f"are called {wish.network}" if wish.network else "count, and none is named"
        return Choice(
            lack=Lack.AMBIGUOUS,
            message=f"{len(found)} NetworkTopologies {which}: {_keys(found)}",
            remedy="name one of them as namespace/name by networkTopologyName of NetworkMinCost",
        )
    [network] = found
    weights = choose(network, wish.weights, wish.algorithm)
    if weights is None:
        names = some([one.name for one in network.weight_sets]) or "none"
        return Choice(
            network,
            lack=Lack.NO_WEIGHTS,
            message=f"NetworkTopology {network.key} has no costs {wish.weights or 'yet'}; it has: {names}",
            remedy="see its conditions, or name another set by weightsName of NetworkMinCost",
        )
    return Choice(network, weights)


def _lacking(
    everywhere: Sequence[NetworkTopology],
    ignored: Sequence[NetworkTopology],
    scope: NetworkScope,
    wish: NetworkWish,
) -> Choice:
    """Nothing was found; ``ignored`` are in the namespace of the AppGroup."""
    if wish.network:
        lack = Lack.NOT_FOUND
        message = f"no NetworkTopology that counts is called {wish.network}; there are: {_keys(everywhere)}"
    elif everywhere:
        lack = Lack.NO_WEIGHTS
        message = f"no NetworkTopology has costs yet: {_keys(everywhere)}"
    else:
        lack, message = Lack.NONE_COUNTS, "there is no NetworkTopology that counts"
    if ignored:
        message += f"; not looked at: {_keys(ignored)}"
    if scope.namespaces is None:
        remedy = "add one"
    else:
        remedy = f"create one in {SYSTEM_NAMESPACE}; {scope.remedy(Counts.NOT_HERE)}"
    return Choice(lack=lack, message=message, remedy=remedy)


def _too_large(network: NetworkTopology) -> bool:
    places: set[str] = set()
    for one in network.weight_sets:
        for link in (*one.node_costs, *one.zone_costs, *one.region_costs):
            places.update((link.origin, link.destination))
            if len(places) > MOST_PLACES:
                return True
    return False


def _keys(networks: Sequence[NetworkTopology]) -> str:
    return some([one.key for one in networks]) or "none"
