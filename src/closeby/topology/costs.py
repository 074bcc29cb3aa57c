"""The cost between nodes: from a NetworkTopology (network-aware scheduling KEP), or edges of a tree.

Costs are shortest paths on the undirected graph of the costs that were given. What is not given and no path
gives is unknown: NaN in the arrays here, never a number that stands for it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from closeby.objects.applications import LinkCost, NetworkTopology, WeightSet
from closeby.objects.arrays import Costs, Ints
from closeby.objects.labels import REGION, ZONE
from closeby.objects.reasons import Condition, invalid
from closeby.topology.labels import MISSING, LabelTable
from closeby.topology.tree import ROOT_LEVEL, Tree
from closeby.topology.uplinks import way

#: Two nodes of one zone, where zones or regions have costs.
SAME_ZONE: Final = 1.0
#: The set that counts where several are given and none is named.
USER_DEFINED: Final = "UserDefined"
DIJKSTRA: Final = "Dijkstra"
#: scipy's names of algorithms.
Method = Literal["D", "BF"]
#: The KEP's names for them.
ALGORITHMS: Final[Mapping[str, Method]] = {DIJKSTRA: "D", "BellmanFord": "BF"}
#: Examples named in a condition about many links.
_SHOWN: Final = 3


class Paths(Struct, frozen=True, kw_only=True, eq=False):
    """All-pairs shortest paths between named places."""

    index: dict[str, int]
    #: (places, places), symmetric, 0 on the diagonal, NaN where there is no path.
    costs: Costs

    @property
    def largest(self) -> float:
        """The greatest cost that is known."""
        known = self.costs[~np.isnan(self.costs)]
        return float(known.max()) if len(known) else 0.0


class NetworkCosts(Struct, frozen=True, kw_only=True, eq=False):
    """One weight set of a NetworkTopology, worked out."""

    nodes: Paths
    zones: Paths
    regions: Paths
    conditions: tuple[Condition, ...] = ()

    @property
    def by_zone(self) -> bool:
        """Whether zones or regions say anything."""
        return bool(self.zones.index or self.regions.index)

    @property
    def largest(self) -> float:
        """The greatest cost that is known between two nodes, wherever nodes may be."""
        least = SAME_ZONE if self.by_zone else 0.0
        return max(self.nodes.largest, self.zones.largest, self.regions.largest, least)


class Located(Struct, frozen=True, kw_only=True, eq=False):
    """The nodes of a cluster by location: nodes of one location are as far from all others."""

    #: Location of each slot, shape (capacity,).
    locations: Ints
    #: Cost between two different nodes by location, (locations, locations), NaN where it is not known.
    between: Costs


def choose(topology: NetworkTopology, name: str = "", algorithm: str = "") -> WeightSet | None:
    """The weight set of that name; without a name ``UserDefined``. None if there is none.

    The KEP calls its sets by the algorithm: where there is no ``UserDefined`` the one of ``algorithm`` counts
    (else of the one that the object names, else of Dijkstra's), else the first.
    """
    by_name = {one.name: one for one in topology.weight_sets}
    if name:
        return by_name.get(name)
    named = by_name.get(USER_DEFINED) or by_name.get(algorithm or topology.algorithm or DIJKSTRA)
    return named or next(iter(topology.weight_sets), None)


def network_costs(topology: NetworkTopology, weights: WeightSet, algorithm: str = "") -> NetworkCosts:
    """Work out a weight set by ``algorithm``, else by the one that the object names, else by Dijkstra's."""
    method = ALGORITHMS.get(algorithm or topology.algorithm, ALGORITHMS[DIJKSTRA])
    conditions: list[Condition] = []
    found = []
    for kind, links in (
        ("nodes", weights.node_costs),
        ("zones", weights.zone_costs),
        ("regions", weights.region_costs),
    ):
        paths, torn = shortest_paths(links, method)
        found.append(paths)
        if torn:
            conditions.append(_torn(topology, weights, kind, torn))
    nodes, zones, regions = found
    return NetworkCosts(nodes=nodes, zones=zones, regions=regions, conditions=tuple(conditions))


def shortest_paths(links: Sequence[LinkCost], method: Method = "D") -> tuple[Paths, list[tuple[str, str]]]:
    """All-pairs shortest paths, and the pairs whose two directions differ (the greater cost counts)."""
    # scipy takes longer to import than most runs take.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    index: dict[str, int] = {}
    costs: dict[tuple[int, int], dict[bool, float]] = {}
    names: dict[tuple[int, int], tuple[str, str]] = {}
    for link in links:
        head = index.setdefault(link.origin, len(index))
        tail = index.setdefault(link.destination, len(index))
        if head == tail:
            continue
        pair, forward = (min(head, tail), max(head, tail)), head < tail
        names.setdefault(pair, (link.origin, link.destination))
        directions = costs.setdefault(pair, {})
        directions[forward] = max(directions.get(forward, 0.0), float(link.cost))
    size = len(index)
    if not size:
        return Paths(index=index, costs=np.zeros((0, 0))), []
    pairs = np.asarray(list(costs), dtype=np.intp).reshape(-1, 2)
    weights = np.asarray([max(directions.values()) for directions in costs.values()])
    # Written in both directions, so that an edge of cost 0 is kept and no direction is cheaper.
    heads, tails = np.concatenate([pairs, pairs[:, ::-1]]).T
    graph = csr_array((np.concatenate([weights, weights]), (heads, tails)), shape=(size, size))
    found: Costs = shortest_path(graph, method=method, directed=True)
    found[np.isinf(found)] = np.nan
    torn = [names[pair] for pair, directions in costs.items() if len(set(directions.values())) > 1]
    return Paths(index=index, costs=found), torn


def locate(costs: NetworkCosts, names: Sequence[str | None], labels: LabelTable) -> Located:
    """Where the nodes of a cluster are, by slot; ``names`` holds None for free slots."""
    size = len(names)
    node = np.asarray([costs.nodes.index.get(name or "", -1) for name in names], dtype=np.intp)
    region, zone = (_codes(labels, key, size) for key in (REGION, ZONE))
    if not costs.by_zone:
        region, zone = np.zeros_like(region), np.zeros_like(zone)
    kinds, locations = np.unique(np.stack([node, region, zone]), axis=1, return_inverse=True)
    node, region, zone = kinds
    between = _by_labels(costs, region, zone, labels)
    known = np.flatnonzero(node >= 0)
    if len(known):
        direct = costs.nodes.costs[np.ix_(node[known], node[known])]
        block = between[np.ix_(known, known)]
        between[np.ix_(known, known)] = np.where(np.isnan(direct), block, direct)
    return Located(locations=locations.reshape(-1).astype(np.intp), between=between)


def _by_labels(costs: NetworkCosts, region: Ints, zone: Ints, labels: LabelTable) -> Costs:
    """Costs between locations by their zones and regions alone.

    Zone costs hold inside a region. Nodes without a region label count as in one unnamed region with each
    other, so that zones alone are enough.
    """
    size = len(region)
    between: Costs = np.full((size, size), np.nan)
    if not costs.by_zone:
        return between
    across = _looked_up(costs.regions, labels, REGION, region)
    inside = _looked_up(costs.zones, labels, ZONE, zone)
    np.copyto(inside, SAME_ZONE, where=(zone[:, None] == zone[None, :]) & (zone != MISSING)[:, None])
    same = region[:, None] == region[None, :]
    between[:] = np.where(same, inside, across)
    return between


def _looked_up(paths: Paths, labels: LabelTable, key: str, codes: Ints) -> Costs:
    """Path costs between the places that label codes stand for; NaN where a place has none."""
    values = labels.column(key).values
    place = np.asarray([paths.index.get(values[code] or "", -1) for code in codes.tolist()], dtype=np.intp)
    found: Costs = np.full((len(codes), len(codes)), np.nan)
    known = np.flatnonzero(place >= 0)
    found[np.ix_(known, known)] = paths.costs[np.ix_(place[known], place[known])]
    return found


def _codes(labels: LabelTable, key: str, size: int) -> Ints:
    codes = labels.column(key).codes[:size].astype(np.intp)
    return np.concatenate([codes, np.full(size - len(codes), MISSING, dtype=np.intp)])


def _torn(
    topology: NetworkTopology, weights: WeightSet, kind: str, pairs: Sequence[tuple[str, str]]
) -> Condition:
    shown = ", ".join(f"{one} and {other}" for one, other in pairs[:_SHOWN])
    more = f" and {len(pairs) - _SHOWN} more pairs" if len(pairs) > _SHOWN else ""
    return invalid(
        f"NetworkTopology/{topology.key}",
        f"weights {weights.name}",
        f"the costs of {kind} differ by direction: {shown}{more}",
        "the greater one counts for both",
    )


class EdgeCosts(Struct, frozen=True, eq=False):
    """Number of tree edges between nodes, degraded ones by their cost. With L groups of nodes.

    ``group_of`` has shape (slots,); slots that are not in the tree are in group 0, which means nothing.
    ``between`` has shape (L, L); its diagonal holds the edges between different nodes of one group.
    """

    group_of: Ints
    between: Costs


def edge_costs(tree: Tree | None, capacity: int) -> EdgeCosts:
    """Edges between nodes; without a tree different nodes are 1 apart. ``capacity`` is the number of slots.

    Nodes of one finest domain make a group. So do nodes that lack the same labels inside one domain: each
    is in a private domain there, so that they are as far from each other as any two of that kind.
    """
    group_of = np.zeros(capacity, dtype=np.intp)
    if tree is None or not tree.size:
        return EdgeCosts(group_of, np.ones((1, 1)))
    #: Level and index of the domain inside which each node lacks no label.
    meet = np.full(tree.size, ROOT_LEVEL, dtype=np.intp)
    owner = np.zeros(tree.size, dtype=np.intp)
    whole = np.ones(tree.size, dtype=np.bool_)
    for level, domain_at in enumerate(tree.domain_at):
        whole = whole & tree.labelled[level][domain_at]
        meet[whole] = level
        owner[whole] = domain_at[whole]
    _, first, groups = np.unique((meet + 1) * tree.size + owner, return_index=True, return_inverse=True)
    group_of[tree.slot_at] = groups
    shared = np.full((len(first), len(first)), ROOT_LEVEL, dtype=np.intp)
    for level, domain_at in enumerate(tree.domain_at):
        owners = domain_at[first]
        shared[owners[:, None] == owners[None, :]] = level
    np.fill_diagonal(shared, meet[first])
    ways = _ways(tree, first, shared)
    return EdgeCosts(group_of, ways + ways.T)


def _ways(tree: Tree, first: Ints, shared: Ints) -> Costs:
    """Edges from the first node of each group up to where it meets each other group; shape (L, L)."""
    if not tree.depths:
        return (tree.node_level - shared).astype(np.float64)
    ways: Costs = np.empty(shared.shape)
    for level in range(ROOT_LEVEL, tree.node_level + 1):
        meet = shared == level
        ways[meet] = np.broadcast_to(way(tree, first, level)[:, None], shared.shape)[meet]
    return ways
