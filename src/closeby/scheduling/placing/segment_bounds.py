"""How many segments of unequal pods fit in the domains of a tree at the most.

A segment needs room for its pods of each kind, and the sum of what they ask for. No domain holds more
segments than it has room for by any of these, so that too few of them mean a certain no, without any search.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Bools, Counts, Ints
from closeby.scheduling.gangs.parts import NodeSet, Part, scoped_counts
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.pace import Pace
from closeby.scheduling.placing.bounds import Bounds
from closeby.scheduling.placing.sums import Sums
from closeby.topology.tree import Domain, Tree

#: Of so many domains, and of no more segments in one, mixtures of pods are looked at too.
FEW: Final = 256
MANY: Final = 64
#: Steps for mixtures in all domains together, and for each to look at it.
MOST_STEPS: Final = 200_000
_PER_DOMAIN: Final = 10
#: Of so many pods of a segment one need not be in all segments: the first one may have a launcher.
_ONE_OF: Final = 8
#: Of segments of which nothing is known: more than any gang has.
MOST_SEGMENTS: Final = 1 << 20


class SegmentKind(Struct, frozen=True, eq=False):
    """What a segment of the finest layer consists of."""

    size: int
    #: Of each class, its share of the part and its pods in a segment.
    shares: tuple[tuple[Share, int], ...]
    #: Whether all segments are of this kind.
    alike: bool


class SegmentCounts:
    """Pods in whole like segments that fit in the domains of a tree at the most, as if they were counted.

    A level finer than that of the segments counts what is in one of its domains each.
    """

    def __init__(self, tree: Tree, level: int, size: int, most: Callable[[int], Counts]) -> None:
        """``most``: segments by domain of a level."""
        self.tree = tree
        self._level = level
        self._size = size
        self._most = most
        self._of: dict[int, Counts] = {}

    def of(self, level: int) -> Counts:
        """By domain of a level, as ``DomainCounts.of``."""
        found = self._of.get(level)
        if found is None:
            if level >= self._level:
                found = self._most(level) * self._size
            else:
                starts, own = self.tree.first_inside(level, self._level), self.of(self._level)
                found = np.add.reduceat(own, starts) if len(starts) else np.zeros(0, dtype=np.int64)
            self._of[level] = found
        return found

    def inside(self, domain: Domain) -> int:
        """In one domain."""
        return int(self.of(domain.level)[domain.index])

    def limit(self, domain: Domain, segments: int) -> None:
        """No more than so many segments fit in a domain of their level, or of a finer one."""
        of = self.of(domain.level)
        of[domain.index] = min(int(of[domain.index]), segments * self._size)
        if domain.level == self._level:
            self._of = {level: figures for level, figures in self._of.items() if level >= self._level}


def least_kind(part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentKind | None:
    """What each whole segment consists of at the least; None where nothing is known of them."""
    found = _segments(part, layering, demand)
    if found is None or not found.whole.any():
        return None
    counts = found.counts[found.whole]
    return _kind(layering, demand, counts.min(axis=0), alike=bool(found.whole.all()) and _equal(counts))


def greatest_kind(part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentKind | None:
    """What any segment consists of at the most; None where they differ by more than a few pods.

    Only the last one may be smaller. Where there is room for such segments there is room for those of the
    part.
    """
    found = _segments(part, layering, demand)
    if found is None or len(found.whole) < 2 or not found.whole[:-1].all():
        return None
    most = found.counts.max(axis=0)
    size = layering.layers[-1].size
    if int(most.sum()) > size + size // _ONE_OF:
        return None
    return _kind(layering, demand, most, alike=bool(found.whole.all()) and _equal(found.counts))


class _Segments(Struct, frozen=True, eq=False):
    #: (segments, classes)
    counts: Ints
    #: (segments,)
    whole: Bools


def _segments(part: Part, layering: Layering, demand: Sequence[Share]) -> _Segments | None:
    """The segments of the finest layer in order; None where segments differ in size, or some members run."""
    if any(layer.counts for layer in layering.layers) or len(part.anchors):
        return None
    ids = layering.ids(part.numbers[: len(part.core)])[-1]
    _, own = np.unique(ids, return_inverse=True)
    whole = np.bincount(own) == layering.layers[-1].size
    class_of = {pod.uid: at for at, share in enumerate(demand) for pod in share.pods}
    kinds = np.asarray([class_of[pod.uid] for pod in part.core])
    counts = np.zeros((len(whole), len(demand)), dtype=np.intp)
    np.add.at(counts, (own, kinds), 1)
    return _Segments(counts, whole)


def _kind(layering: Layering, demand: Sequence[Share], counts: Ints, *, alike: bool) -> SegmentKind:
    shares = tuple((share, int(count)) for share, count in zip(demand, counts, strict=True) if count)
    return SegmentKind(size=layering.layers[-1].size, shares=shares, alike=alike)


def _equal(counts: Ints) -> bool:
    return bool((counts == counts[0]).all())


def most_segments(
    cluster: Cluster,
    table: ClassTable,
    kind: SegmentKind,
    tree: Tree,
    level: int,
    inside: NodeSet,
    pace: Pace,
) -> SegmentCounts:
    """Pods in whole segments that fit in the domains of a level at the most, as if they were counted.

    ``pace`` counts the steps; the decision may be suspended in between.
    """
    segment = [Share(share.pod_class, share.pods[:number]) for share, number in kind.shares]
    sums = Sums(cluster, table, pace)

    def most(level: int) -> Counts:
        if not segment:
            return np.full(tree.count(level), MOST_SEGMENTS)
        found = sums.sets(segment, tree, level, inside)
        if len(found) > FEW:
            return found
        ends = np.arange(tree.size + 1) if level == tree.node_level else tree.bounds[level]
        room = [
            scoped_counts(table, share.pod_class, tree, inside, cluster.capacity).of(tree.node_level)
            for share in segment
        ]
        return _by_mixtures(cluster, kind, tree.slot_at, ends, found, np.stack(room), pace)

    return SegmentCounts(tree, level, kind.size, most)


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
