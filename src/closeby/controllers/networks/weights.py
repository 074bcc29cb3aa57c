"""The costs of a network, calculated from latencies between its nodes.

A cost is a whole number of microseconds, at least 1, and the same in both directions: of two directions the
slower one counts, as it does for a caller that waits for an answer. Two zones of a region, and two regions,
are as far apart as the median of all measured pairs of their nodes: one bad link or one bad probe moves no
zone. Then everything is as far as the shortest path over what was measured, by the algorithm that the object
names. A pair of nodes that no such path joins counts as far as their zones do, else as their regions do; what
is still not known is left out, never made up.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from closeby.measurements.links import Latency
from closeby.objects.applications import LinkCost
from closeby.objects.labels import REGION, ZONE
from closeby.objects.nodes import Node
from closeby.topology.costs import ALGORITHMS, DIJKSTRA, shortest_paths

#: Beyond so many nodes the costs between them are not listed: there are too many for one object.
MOST_NODES: Final = 100
#: What all costs may take, in bytes: etcd refuses objects of more than 1.5 MiB.
LONGEST_LIST: Final = 1_000_000

#: A pair is reported if it was measured as so many times as far as the way over other nodes.
FAR_AROUND: Final = 2

#: Two places in alphabetical order.
Pair = tuple[str, str]
#: A region and a zone in it, either of which may be empty.
Zone = tuple[str, str]


class NetworkPlace(Struct, frozen=True):
    """Where a node is, by its labels; empty where they do not say."""

    region: str = ""
    zone: str = ""


class Detour(Struct, frozen=True):
    """Two nodes that were measured as much farther apart than the way over other nodes is, which counts."""

    one: str
    other: str
    measured: int
    counts: int


class NetworkWeights(Struct, frozen=True, kw_only=True):
    """What was calculated."""

    #: An entry of ``status.weights``.
    entry: Mapping[str, object]
    #: Nodes of which nothing was measured.
    unmeasured: tuple[str, ...] = ()
    #: Names in measurements that no node has.
    unknown_names: tuple[str, ...] = ()
    #: Which costs are left out, and why, as sentences.
    omitted: tuple[str, ...] = ()
    #: The longest first.
    detours: tuple[Detour, ...] = ()


def place_of(node: Node) -> NetworkPlace:
    """Where a node is."""
    return NetworkPlace(node.labels.get(REGION, ""), node.labels.get(ZONE, ""))


def weights_of(
    links: Iterable[Latency],
    nodes: Mapping[str, NetworkPlace],
    algorithm: str = "",
    *,
    longest: int = LONGEST_LIST,
) -> NetworkWeights | None:
    """The costs between ``nodes``; None if none of them was measured.

    Regions come first, then zones, then (up to ``MOST_NODES`` nodes) the nodes; what makes the entry longer
    than ``longest`` bytes is left out.
    """
    known, unknown_names = _between_nodes(links, nodes)
    if not known:
        return None
    name = algorithm if algorithm in ALGORITHMS else DIJKSTRA
    zones, regions = _medians(known, nodes)
    outline = _Outline(longest)
    across = {pair: cost for pair, cost in regions.items() if pair[0] != pair[1]}
    areas = (("regions", REGION, across), ("zones", ZONE, _by_name(zones)))
    listed = [
        {"topologyKey": key, "originList": origins}
        for kind, key, costs in areas
        if (origins := outline.fitting(kind, _origin_list(_closed(costs, name))))
    ]
    costs: Sequence[Mapping[str, object]] = ()
    paths = _closed(known, name)
    if len(nodes) <= MOST_NODES:
        filled = _filled(paths, zones, regions, nodes)
        costs = outline.fitting("nodes", _cost_list(_closed(filled, name), nodes))
    else:
        why = f"costs between nodes are listed up to {MOST_NODES:,} nodes, and there are {len(nodes):,}"
        outline.omitted.append(why)
    return NetworkWeights(
        entry={"algorithmName": name}
        | ({"costList": costs} if costs else {})
        | ({"topologyList": listed} if listed else {}),
        unmeasured=tuple(sorted(nodes.keys() - {end for pair in known for end in pair})),
        unknown_names=tuple(sorted(unknown_names)),
        omitted=tuple(outline.omitted),
        detours=_detours(known, paths),
    )


class _Outline:
    """Keeps the lists of one entry from getting too long together."""

    def __init__(self, longest: int) -> None:
        self._left = longest
        self.omitted: list[str] = []

    def fitting(self, kind: str, costs: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
        """``costs``, or nothing if there is no room for them."""
        size = len(msgspec.json.encode(costs))
        if size > self._left:
            self.omitted.append(
                f"costs between {kind} would take {size:,} bytes, and {self._left:,} are left"
            )
            return ()
        self._left -= size
        return costs


def _between_nodes(
    links: Iterable[Latency], nodes: Mapping[str, NetworkPlace]
) -> tuple[dict[Pair, int], set[str]]:
    """The slower direction of each measured pair, and the names that no node has."""
    # Some reporters put underscores in the places of dots.
    names = {name.replace(".", "_"): name for name in sorted(nodes)} | {name: name for name in nodes}
    found: dict[Pair, int] = {}
    unknown_names: set[str] = set()
    for link in links:
        origin, destination = names.get(link.origin), names.get(link.destination)
        if origin is None or destination is None:
            unknown_names.update({link.origin, link.destination} - names.keys())
        elif origin != destination:
            pair = _pair(origin, destination)
            found[pair] = max(found.get(pair, 0), _whole(link.microseconds))
    return found, unknown_names


def _medians(
    known: Mapping[Pair, int], nodes: Mapping[str, NetworkPlace]
) -> tuple[dict[tuple[Zone, Zone], int], dict[Pair, int]]:
    """Costs between the zones of one region (and inside each), and between regions (and inside each)."""
    zones: dict[tuple[Zone, Zone], list[int]] = {}
    regions: dict[Pair, list[int]] = {}
    for (one, other), cost in known.items():
        here, there = nodes[one], nodes[other]
        if here.region and there.region:
            regions.setdefault(_pair(here.region, there.region), []).append(cost)
        pair = _zones(here, there)
        if pair is not None:
            zones.setdefault(pair, []).append(cost)
    return (
        {pair: _whole(median(costs)) for pair, costs in zones.items()},
        {pair: _whole(median(costs)) for pair, costs in regions.items()},
    )


def _filled(
    known: Mapping[Pair, int],
    zones: Mapping[tuple[Zone, Zone], int],
    regions: Mapping[Pair, int],
    nodes: Mapping[str, NetworkPlace],
) -> dict[Pair, int]:
    """``known`` with the costs of zones, else of regions, for pairs that are not in it."""
    filled = dict(known)
    listed = sorted(nodes)
    for place, one in enumerate(listed):
        for other in listed[place + 1 :]:
            if (one, other) in filled:
                continue
            here, there = nodes[one], nodes[other]
            pair = _zones(here, there)
            cost = zones.get(pair) if pair is not None else None
            if cost is None and here.region and there.region:
                cost = regions.get(_pair(here.region, there.region))
            if cost is not None:
                filled[one, other] = cost
    return filled


def _detours(known: Mapping[Pair, int], paths: Mapping[Pair, int]) -> tuple[Detour, ...]:
    found = [
        Detour(one, other, measured, paths[one, other])
        for (one, other), measured in known.items()
        if measured > FAR_AROUND * paths[one, other]
    ]
    return tuple(sorted(found, key=_length, reverse=True))


def _length(detour: Detour) -> float:
    return detour.measured / detour.counts


def _zones(here: NetworkPlace, there: NetworkPlace) -> tuple[Zone, Zone] | None:
    """The two zones, if they are of one region (nodes without a region count as in one)."""
    if not here.zone or not there.zone or here.region != there.region:
        return None
    one, other = (here.region, here.zone), (there.region, there.zone)
    return (one, other) if one <= other else (other, one)


def _by_name(zones: Mapping[tuple[Zone, Zone], int]) -> dict[Pair, int]:
    """Costs between zones by their names alone, as they are written; where two regions have zones of the same
    names the greater cost counts."""
    found: dict[Pair, int] = {}
    for ((_, one), (_, other)), cost in zones.items():
        if one != other:
            pair = _pair(one, other)
            found[pair] = max(found.get(pair, 0), cost)
    return found


def _closed(known: Mapping[Pair, int], algorithm: str) -> dict[Pair, int]:
    """The shortest paths over ``known``, in alphabetical order."""
    links = [LinkCost(origin=one, destination=other, cost=cost) for (one, other), cost in known.items()]
    paths, _ = shortest_paths(links, ALGORITHMS[algorithm])
    names = list(paths.index)
    once = np.triu(np.ones(paths.costs.shape, dtype=np.bool_), 1)
    heads, tails = np.nonzero(once & ~np.isnan(paths.costs))
    found = {
        _pair(names[head], names[tail]): round(float(paths.costs[head, tail]))
        for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)
    }
    return dict(sorted(found.items()))


def _cost_list(
    costs: Mapping[Pair, int], nodes: Mapping[str, NetworkPlace]
) -> Sequence[Mapping[str, object]]:
    """The KEP's ``costList``."""
    return [
        {
            "origin": one,
            **_named("originZone", nodes[one].zone),
            "destination": other,
            **_named("destinationZone", nodes[other].zone),
            "cost": cost,
        }
        for (one, other), cost in costs.items()
    ]


def _named(field: str, value: str) -> dict[str, str]:
    return {field: value} if value else {}


def _origin_list(costs: Mapping[Pair, int]) -> Sequence[Mapping[str, object]]:
    """The published shape's ``originList``."""
    origins: dict[str, list[Mapping[str, object]]] = {}
    for (one, other), cost in costs.items():
        origins.setdefault(one, []).append({"destination": other, "networkCost": cost})
    return [{"origin": origin, "costList": listed} for origin, listed in origins.items()]


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one <= other else (other, one)


def _whole(microseconds: float) -> int:
    # 0 is what talk on one node costs.
    return max(1, round(microseconds))
