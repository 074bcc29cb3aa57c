"""How far nodes are apart for applications, and what their traffic costs given where replicas are."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.applications.networks import Choice, NetworkWish, choose_network
from closeby.applications.registry import Application, Applications, Edge
from closeby.cluster.columns import Cluster
from closeby.objects.applications import NetworkTopology, WeightSet
from closeby.objects.arrays import Bools, Costs, Ints
from closeby.topology.costs import Located, NetworkCosts, locate, network_costs
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT_LEVEL, Tree

#: Locations of a tree, whose distances are worked out for all pairs.
MOST_LOCATIONS: Final = 1024
#: Replicas of one workload: how many are on each slot.
Replicas = Mapping[int, int]
_NONE: Replicas = {}


class Network(Struct, frozen=True, kw_only=True, eq=False):
    """The distances of a cluster's nodes, with a number for unknown ones."""

    #: Location of each slot, (capacity,).
    locations: Ints
    #: Cost between different nodes by location, (L, L); ``unknown`` marks what was filled in.
    between: Costs
    unknown: Bools

    def over(self, limit: float) -> Costs:
        """1 where two different nodes are farther from each other than a limit, by location; (L, L)."""
        return ((self.between > limit) | self.unknown).astype(np.float64)


class EdgeCost(Struct, frozen=True, kw_only=True):
    """What one edge costs now."""

    edge: Edge
    #: Pairs of placed replicas, and what their traffic costs, the edge's weight counted.
    pairs: int
    cost: float
    #: Pairs of which the cost is not known (the substitute is in ``cost``), and pairs beyond the limit.
    unknown: int
    over: int


def network_of(located: Located, unknown_cost: float) -> Network:
    """The distances of located nodes; ``unknown_cost`` stands for each that is not known."""
    unknown = np.isnan(located.between)
    return Network(
        locations=located.locations, between=np.where(unknown, unknown_cost, located.between), unknown=unknown
    )


def network_in(tree: Tree, capacity: int) -> Network:
    """The distances of nodes in a tree, in edges, degraded ones by their cost. No cost is known of any.

    Nodes of one finest domain are one location; where there are more of these than ``MOST_LOCATIONS``, those
    of a coarser level are.
    """
    level = tree.node_level - 1 if tree.size else ROOT_LEVEL
    while level > ROOT_LEVEL and tree.count(level) > MOST_LOCATIONS:
        level -= 1
    owners = tree.owners_of_slots(np.arange(min(capacity, len(tree.position_of))), level)
    locations = np.zeros(capacity, dtype=np.intp)
    # A slot without a node is the place of no pod.
    locations[: len(owners)] = np.maximum(owners, 0)
    count = max(tree.count(level), 1)
    shared, own = np.zeros((count, count)), np.zeros(count)
    for upper in range(level + 1):
        domains = tree.domain_at[upper][tree.bounds[level][:-1]]
        own = tree.depths[upper][domains] if tree.depths else np.full(count, upper + 1.0)
        shared = np.where(domains[:, None] == domains, own[:, None], shared)
    below = float(tree.node_level - level)
    return Network(
        locations=locations,
        between=own[:, None] + own - 2.0 * shared + 2.0 * below,
        unknown=np.ones((count, count), dtype=np.bool_),
    )


def around(network: Network, by_location: Costs, replicas: Replicas) -> Costs:
    """What each slot has to do with some replicas: the sum of ``by_location`` over them; shape (capacity,).

    A replica on the slot itself counts as nothing. ``by_location`` has shape (L, L).
    """
    slots = np.fromiter(replicas.keys(), dtype=np.intp, count=len(replicas))
    counts = np.fromiter(replicas.values(), dtype=np.float64, count=len(replicas))
    homes = network.locations[slots]
    total = counts @ by_location[homes]
    found: Costs = total[network.locations]
    # The slots of one workload's replicas are distinct, so that this subtracts from each once.
    found[slots] -= counts * by_location[homes, homes]
    return found


def pulled(network: Network, peers: Sequence[tuple[float, Replicas]]) -> Costs:
    """What each slot has to do with the replicas of some workloads; shape (capacity,).

    Each workload comes with the weight of its edge, and has at least one replica. A replica on the slot
    itself counts as nothing. Replicas are added up before they are weighed, which is exact for whole costs.
    """
    slots = np.asarray([slot for _, replicas in peers for slot in replicas], dtype=np.intp)
    counts = np.asarray([count for _, replicas in peers for count in replicas.values()], dtype=np.float64)
    starts = np.cumsum([0, *(len(replicas) for _, replicas in peers[:-1])])
    weights = np.asarray([weight for weight, _ in peers], dtype=np.float64)

    def weighed(cost: Costs) -> Costs:
        found: Costs = np.add.reduceat(counts[:, None] * cost, starts, axis=0)
        summed: Costs = (weights[:, None] * found).sum(axis=0)
        return summed

    own = np.unique(slots)
    between = network.between[network.locations[slots]]
    found = weighed(between)[network.locations]
    apart = between[:, network.locations[own]]
    apart[slots[:, None] == own] = 0.0
    found[own] = weighed(apart)
    return found


def within(network: Network, slots: Ints, limits: Costs) -> Bools:
    """Whether each slot is within its limit of each of some replicas, or is theirs; shape (capacity,)."""
    own = np.unique(slots)
    homes = network.locations[slots]
    beyond = (network.between[homes] > limits[:, None]) | network.unknown[homes]
    near = ~np.asarray(beyond.any(axis=0))
    found: Bools = near[network.locations]
    broken = beyond[:, network.locations[own]] & (slots[:, None] != own)
    found[own] = ~broken.any(axis=0)
    return found


def reached(limits: Costs, network: Network) -> Costs:
    """Limits rounded down to distances that occur.

    As many limits as distances are left then, however many different ones an AppGroup has.
    """
    distances = np.union1d(network.between, [0.0])
    found: Costs = distances[np.searchsorted(distances, np.maximum(limits, 0.0), side="right") - 1]
    return np.where(np.isinf(limits), np.inf, found)


def edge_costs(
    network: Network, application: Application, replicas: Mapping[str, Replicas]
) -> tuple[EdgeCost, ...]:
    """What each edge costs; ``replicas`` maps workloads to where their placed replicas are."""
    return tuple(
        _edge_cost(network, edge, replicas.get(edge.caller, _NONE), replicas.get(edge.callee, _NONE))
        for edge in application.edges
    )


def _edge_cost(network: Network, edge: Edge, callers: Replicas, callees: Replicas) -> EdgeCost:
    if not callers or not callees:
        return EdgeCost(edge=edge, pairs=0, cost=0.0, unknown=0, over=0)
    own = edge.caller == edge.callee
    share = 0.5 if own else 1.0
    slots = np.fromiter(callers.keys(), dtype=np.intp, count=len(callers))
    counts = np.fromiter(callers.values(), dtype=np.float64, count=len(callers))

    def summed(by_location: Costs) -> float:
        return float(counts @ around(network, by_location, callees)[slots]) * share

    total = sum(callers.values())
    limit = np.inf if edge.limit is None else float(edge.limit)
    return EdgeCost(
        edge=edge,
        pairs=total * (total - 1) // 2 if own else total * sum(callees.values()),
        cost=edge.weight * summed(network.between),
        unknown=round(summed(network.unknown.astype(np.float64))),
        over=0 if edge.limit is None else round(summed(network.over(limit))),
    )


class _Known:
    """The costs of one weight set, and the distances of the nodes at one cursor of their changes."""

    def __init__(self, network: NetworkTopology, weights: WeightSet, costs: NetworkCosts) -> None:
        self.network = network
        self.weights = weights
        self.costs = costs
        self.distances: tuple[int, Network] | None = None


class Distances:
    """Owner of what was worked out of the NetworkTopologies that count; follows every change.

    Where none counts, nodes are as far from each other as in the tree of the topology that counts.
    """

    def __init__(
        self,
        applications: Applications,
        cluster: Cluster,
        topologies: Topologies,
        wish: NetworkWish,
        unknown_cost: float | None,
    ) -> None:
        """``unknown_cost`` stands for what is unknown; None: the greatest known cost + 1."""
        self._applications = applications
        self._cluster = cluster
        self._topologies = topologies
        self._wish = wish
        self._unknown_cost = unknown_cost
        self._version = -1
        #: By namespace, for one version of the networks.
        self._choices: dict[str, Choice] = {}
        #: By key of the NetworkTopology.
        self._known: dict[str, _Known] = {}
        self._in_tree: tuple[Tree, Network] | None = None

    def choice(self, namespace: str) -> Choice:
        """The NetworkTopology that counts for the AppGroups of a namespace; "": for those of most."""
        applications = self._applications
        if self._version != applications.networks_version:
            self._version = applications.networks_version
            self._choices.clear()
            self._known = {key: one for key, one in self._known.items() if applications.has(one.network)}
        found = self._choices.get(namespace)
        if found is None:
            judged = applications.networks_for(namespace)
            found = self._choices[namespace] = choose_network(judged, applications.scope, self._wish)
        return found

    def costs(self, namespace: str) -> NetworkCosts | None:
        """What is known of the network; None where nothing counts."""
        known = self._worked_out(namespace)
        return None if known is None else known.costs

    def network(self, namespace: str) -> Network:
        """The distances of the nodes as they are now: costs, else those in the tree, which are no costs."""
        known = self._worked_out(namespace)
        if known is None:
            return self._tree_distances()
        cluster, cursor = self._cluster, self._cluster.node_changes.cursor
        if known.distances is None or known.distances[0] != cursor:
            unknown = known.costs.largest + 1 if self._unknown_cost is None else self._unknown_cost
            located = locate(known.costs, cluster.names, cluster.labels)
            known.distances = cursor, network_of(located, unknown)
        return known.distances[1]

    @property
    def tree(self) -> Tree:
        """The tree whose distances count where there are no costs."""
        return self._topologies.only_tree() or self._topologies.flat()

    def _tree_distances(self) -> Network:
        tree = self.tree
        if self._in_tree is None or self._in_tree[0] is not tree:
            self._in_tree = tree, network_in(tree, len(self._cluster.names))
        return self._in_tree[1]

    def _worked_out(self, namespace: str) -> _Known | None:
        choice = self.choice(namespace)
        network, weights = choice.network, choice.weights
        if network is None or weights is None:
            return None
        known = self._known.get(network.key)
        if known is None or known.network is not network or known.weights is not weights:
            costs = network_costs(network, weights, self._wish.algorithm)
            known = self._known[network.key] = _Known(network, weights, costs)
        return known
