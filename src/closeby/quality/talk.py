"""How close the talk of an application is: its cost, its share inside nodes, zones and regions, its limits.

The cost is the sum over dependency edges and placed replica pairs of cost x weight (network-aware scheduling
KEP), as ``applications.talk`` works it out; a pair is one replica of the caller and one of the callee.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.applications.registry import Edge
from closeby.applications.talk import EdgeCost, Replicas
from closeby.topology.labels import MISSING, LabelTable
from closeby.topology.network_costs import REGION, ZONE


class TalkMeasures(Struct, frozen=True, kw_only=True):
    """One application. Shares are of the pairs of placed replicas that talk; None where there are none."""

    #: Sum over edges and pairs, weights counted; None where nobody knows what talk costs.
    cost: float | None
    pairs: int
    #: Nodes without the label are in no zone or region.
    same_node: float | None
    same_zone: float | None
    same_region: float | None
    #: Pairs farther apart than their edge allows.
    over: int


def talk_measures(
    edges: Sequence[Edge],
    replicas: Mapping[str, Replicas],
    labels: LabelTable,
    costs: Sequence[EdgeCost] | None = None,
) -> TalkMeasures:
    """Measure an application whose workloads' ``replicas`` are on these slots.

    ``costs`` is what each edge costs, where that is known.
    """
    zones, regions = labels.column(ZONE).codes, labels.column(REGION).codes
    nodes = np.arange(1, len(zones) + 1)
    pairs = sum(_pairs(edge, replicas) for edge in edges)

    def share(homes: NDArray[Any]) -> float | None:
        return sum(_together(edge, replicas, homes) for edge in edges) / pairs if pairs else None

    return TalkMeasures(
        cost=None if costs is None else sum(edge.cost for edge in costs),
        pairs=pairs,
        same_node=share(nodes),
        same_zone=share(zones),
        same_region=share(regions),
        over=0 if costs is None else sum(edge.over for edge in costs),
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
