"""How many segments of unequal pods fit in the domains of a tree at the most.

A segment needs room for its pods of each kind, and the sum of what they ask for. No domain holds more
segments than it has room for by any of these, so that too few of them mean a certain no, without any search.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Counts, Ints
from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.pace import Pace
from closeby.scheduling.placing.bounds import Bounds
from closeby.scheduling.placing.sums import Sums
from closeby.topology.tree import Tree

#: Of so many domains, and of no more segments in one, mixtures of pods are looked at too.
FEW: Final = 256
MANY: Final = 64
#: Steps for mixtures in all domains together, and for each to look at it.
MOST_STEPS: Final = 200_000
_PER_DOMAIN: Final = 10
#: Of segments of which nothing is known: more than any gang has.
MOST_SEGMENTS: Final = 1 << 20


class SegmentKind(Struct, frozen=True, eq=False):
    """What each whole segment of the finest layer needs at the least."""

    size: int
    #: Of each class that all segments have pods of, its share of the part and its pods in a segment.
    shares: tuple[tuple[Share, int], ...]


def segment_kind(part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentKind | None:
    """The kind of a part's segments; None where nothing is known of them."""
    finest = layering.layers[-1]
    if any(layer.counts for layer in layering.layers) or len(part.anchors):
        return None
    members = len(part.core)
    ids = layering.ids(part.numbers[:members])[-1]
    _, own = np.unique(ids, return_inverse=True)
    whole = np.bincount(own) == finest.size
    if not whole.any():
        return None
    class_of = {pod.uid: at for at, share in enumerate(demand) for pod in share.pods}
    kinds = np.asarray([class_of[pod.uid] for pod in part.core])
    counts = np.zeros((len(whole), len(demand)), dtype=np.intp)
    np.add.at(counts, (own, kinds), 1)
    least = counts[whole].min(axis=0)
    shares = tuple((share, int(count)) for share, count in zip(demand, least, strict=True) if count)
    return SegmentKind(size=finest.size, shares=shares)


def most_segments(
    cluster: Cluster, table: ClassTable, kind: SegmentKind, tree: Tree, level: int, pace: Pace
) -> DomainCounts:
    """Pods in whole segments that fit in the domains of a level at the most, as if they were counted.

    ``pace`` counts the steps; the decision may be suspended in between.
    """
    shares, slots = kind.shares, tree.slot_at
    ends = np.arange(tree.size + 1) if level == tree.node_level else tree.bounds[level]
    if not shares:
        return _counted(cluster, tree, ends, np.full(tree.count(level), MOST_SEGMENTS * kind.size))
    room = np.stack([table.counts(one.pod_class, tree).of(tree.node_level) for one, _ in shares])
    usable = np.zeros(cluster.capacity, dtype=np.bool_)
    usable[slots] = (room > 0).any(axis=0)
    segment = [Share(share.pod_class, share.pods[:number]) for share, number in shares]
    found = Sums(cluster, table, pace).sets(segment, tree, level, usable)
    if len(found) <= FEW:
        found = _by_mixtures(cluster, kind, slots, ends, found, room, pace)
    return _counted(cluster, tree, ends, found * kind.size)


def _counted(cluster: Cluster, tree: Tree, ends: Ints, pods: Counts) -> DomainCounts:
    """Pods by domain as counts of a tree: those of each domain stand at its first node."""
    fits = np.zeros(cluster.capacity, dtype=np.int64)
    fits[tree.slot_at[ends[:-1]]] = pods
    return DomainCounts(tree, fits)


def _by_mixtures(
    cluster: Cluster, kind: SegmentKind, slots: Ints, ends: Ints, found: Counts, room: Counts, pace: Pace
) -> Counts:
    """Fewer where mixtures of pods show that so many segments don't fit beside each other.

    That is not looked at where it takes too many steps.
    """
    needs = [(cluster.demand(share.pod_class.pod.spec), number) for share, number in kind.shares]
    bounds: dict[int, Bounds] = {}
    known: dict[bytes, int] = {}

    def exceeded(number: int, free: Amounts, own: Counts) -> bool:
        if number not in bounds:
            bounds[number] = Bounds([(demand, count * number) for demand, count in needs], pace)
        return bounds[number].exceeded(free, own)

    fewer, began = found.copy(), pace.steps
    rows = Bounds(needs).rows
    for index, (first, end) in enumerate(pairwise(ends.tolist())):
        if not 0 < fewer[index] <= MANY:
            continue
        if pace.steps - began > MOST_STEPS:
            break
        pace.take(_PER_DOMAIN)
        free = np.stack([cluster.free(row, slots[first:end]) for row in rows])
        own = room[:, first:end]
        columns = np.concatenate([free, own])
        key = np.ascontiguousarray(columns[:, np.lexsort(columns)]).tobytes()
        if key not in known:
            low, high = 0, int(fewer[index])
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (low, middle - 1) if exceeded(middle, free, own) else (middle, high)
            known[key] = low
        fewer[index] = known[key]
    return fewer
