"""How close the traffic of an application is: its cost, its share inside nodes and zones, and its limits.

The cost is the sum over dependency edges and placed replica pairs of cost x weight (network-aware scheduling
KEP), as ``applications.traffic`` works it out; a pair is one replica of the caller and one of the callee.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.applications.registry import Edge
from closeby.applications.traffic import EdgeCost, Replicas
from closeby.objects.arrays import Floats
from closeby.objects.labels import REGION, ZONE
from closeby.topology.labels import MISSING, LabelTable


class TrafficMeasures(Struct, frozen=True, kw_only=True):
    """One application. Shares are of the pairs of placed replicas with traffic; None where there are none."""

    #: Sum over edges and pairs, weights counted; None where network costs are unknown.
    cost: float | None
    pairs: int
    #: Nodes without the label are in no zone or region.
    same_node: float | None
    same_zone: float | None
    same_region: float | None
    #: Pairs farther apart than their edge allows.
    over: int
    #: Pairs over edges that have such a limit.
    limited: int = 0


class RunTraffic(Struct, frozen=True, kw_only=True):
    """The applications of a run, each counted by how long it ran; None where that is unknown.

    All pods on one node cost 0. Applications that never had all their pods placed count in none of it.
    """

    #: What an application cost, and a pair of its pods with traffic.
    cost: float | None
    cost_per_pair: float | None
    #: Shares of the pairs.
    same_node: float | None
    same_zone: float | None
    same_region: float | None
    #: Share of the pairs with a limit that were farther apart than it.
    over: float | None


def run_traffic(found: Sequence[TrafficMeasures], seconds: Floats) -> RunTraffic:
    """The means over time of applications that ran for so many seconds each; shape (A,).

    A pair counts by the time it existed, so that large applications have more say in shares and in
    ``cost_per_pair`` than in ``cost``.
    """
    pairs = np.array([one.pairs for one in found], dtype=np.float64) * seconds
    costs = np.array([np.nan if one.cost is None else one.cost for one in found]) * seconds
    limited = float(np.array([one.limited for one in found], dtype=np.float64) @ seconds)
    over = float(np.array([one.over for one in found], dtype=np.float64) @ seconds)

    def share(values: Sequence[float | None]) -> float | None:
        known = np.array([value or 0.0 for value in values])
        return _ratio(float(known @ pairs), float(pairs.sum()))

    return RunTraffic(
        cost=_ratio(float(costs.sum()), float(seconds.sum())),
        cost_per_pair=_ratio(float(costs.sum()), float(pairs.sum())),
        same_node=share([one.same_node for one in found]),
        same_zone=share([one.same_zone for one in found]),
        same_region=share([one.same_region for one in found]),
        over=_ratio(over, limited),
    )


def _ratio(value: float, total: float) -> float | None:
    return value / total if total > 0 and not np.isnan(value) else None


def traffic_measures(
    edges: Sequence[Edge],
    replicas: Mapping[str, Replicas],
    labels: LabelTable,
    costs: Sequence[EdgeCost] | None = None,
) -> TrafficMeasures:
    """Measure an application whose workloads' ``replicas`` are on these slots.

    ``costs`` is what each edge costs, where that is known.
    """
    zones, regions = labels.column(ZONE).codes, labels.column(REGION).codes
    nodes = np.arange(1, len(zones) + 1)
    pairs = sum(_pairs(edge, replicas) for edge in edges)

    def share(homes: NDArray[Any]) -> float | None:
        return sum(_together(edge, replicas, homes) for edge in edges) / pairs if pairs else None

    return TrafficMeasures(
        cost=None if costs is None else sum(edge.cost for edge in costs),
        pairs=pairs,
        same_node=share(nodes),
        same_zone=share(zones),
        same_region=share(regions),
        over=0 if costs is None else sum(edge.over for edge in costs),
        limited=sum(_pairs(edge, replicas) for edge in edges if edge.limit is not None),
    )


def _pairs(edge: Edge, replicas: Mapping[str, Replicas]) -> int:
    """Pairs of placed replicas over one edge."""
    callers = sum(replicas.get(edge.caller, {}).values())
    if edge.caller == edge.callee:
        return callers * (callers - 1) // 2
    return callers * sum(replicas.get(edge.callee, {}).values())


def _together(edge: Edge, replicas: Mapping[str, Replicas], homes: NDArray[Any]) -> int:
    """Pairs over one edge that share a home; ``homes`` has shape (slots,), ``MISSING`` is none."""
    callers = _by_home(replicas.get(edge.caller, {}), homes)
    if edge.caller == edge.callee:
        return sum(count * (count - 1) // 2 for count in callers.values())
    callees = _by_home(replicas.get(edge.callee, {}), homes)
    return sum(count * callees.get(home, 0) for home, count in callers.items())


def _by_home(replicas: Replicas, homes: NDArray[Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for slot, count in replicas.items():
        home = int(homes[slot])
        if home != MISSING:
            found[home] = found.get(home, 0) + count
    return found
