"""How well a gang could have been on what is free and what it holds: the optimality gap of single gangs."""

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.cluster.resources import taking_pods
from closeby.objects.arrays import Counts
from closeby.quality.gangs import Members, members_in
from closeby.quality.optimum import least_mean_distance, least_spans
from closeby.topology.tree import Tree


class BestPlace(Struct, frozen=True, kw_only=True):
    """The best that was possible for a gang with all others where they are."""

    #: Fewest domains, each level for itself, coarse to fine, single nodes last.
    span: tuple[int, ...]
    #: Least mean number of tree edges between two pods; None for one pod, and where too much would have to be
    #: searched (``optimum.MOST_PODS``, ``optimum.MOST_NODES``).
    mean_distance: float | None


def best_place(cluster: Cluster, tree: Tree, members: Members) -> BestPlace | None:
    """The best place for a gang of equal pods that is placed; None for unequal ones, and for no pods.

    Amounts of resources count, and that a node takes pods; not what else keeps a pod from a node.
    """
    inside = members_in(tree, members)
    if len({cluster.demand(pod.spec) for pod, _ in inside}) != 1:
        return None
    demand = cluster.demand(inside[0][0].spec)
    free = [
        cluster.free(row, slice(None)) // amount
        for row, amount in zip(demand.rows, demand.amounts, strict=True)
        if amount > 0
    ]
    room: Counts = np.where(taking_pods(cluster), np.min(free, axis=0), 0)
    np.add.at(room, [slot for _, slot in inside], 1)
    spans = least_spans(tree, room, len(inside))
    if spans is None:
        return None
    return BestPlace(
        span=tuple(int(one) for one in spans), mean_distance=least_mean_distance(tree, room, len(inside))
    )
