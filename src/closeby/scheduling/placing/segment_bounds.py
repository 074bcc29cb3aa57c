"""How many segments of unequal pods fit in the domains of a tree at the most.

A segment needs room for its pods of each kind, and the sum of what they ask for. No domain holds more
segments than it has room for by any of these, so that too few of them mean a certain no, without any search.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import Pod
from closeby.scheduling.gangs.parts import NodeSet, Part, scoped_counts
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.sums import Sums
from closeby.scheduling.solving.best_fit import UnequalPods
from closeby.scheduling.solving.program import Verdict
from closeby.scheduling.steps import SOLVER, Budget, Steps
from closeby.topology.tree import Domain, Tree

#: Of so many kinds of domains, and of no more segments in one, mixtures of pods are looked at.
FEW: Final = 256
MANY: Final = 64
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

    def __init__(
        self,
        tree: Tree,
        level: int,
        size: int,
        most: Callable[[int], Counts],
        closer: Callable[[Counts], Counts],
    ) -> None:
        """``most``: segments by domain of a level; ``closer`` says of the segments' own if it is fewer."""
        self.tree = tree
        self._level = level
        self._size = size
        self._most = most
        self._closer: Callable[[Counts], Counts] | None = closer
        self._of: dict[int, Counts] = {}

    def of(self, level: int) -> Counts:
        """By domain of a level, as ``DomainCounts.of``."""
        found = self._of.get(level)
        if found is None:
            if level >= self._level:
                found = self._most(level) * self._size
            else:
                found = self.tree.sums(level, self.of(self._level), of=self._level)
            self._of[level] = found
        return found

    def inside(self, domain: Domain) -> int:
        """In one domain."""
        return int(self.of(domain.level)[domain.index])

    def limit(self, domain: Domain, segments: int) -> None:
        """No more than so many segments fit in a domain of their level, or of a finer one."""
        of = self.of(domain.level)
        of[domain.index] = min(int(of[domain.index]), segments * self._size)
        self._forget_sums()

    @property
    def close(self) -> bool:
        """Whether mixtures of pods were judged."""
        return self._closer is None

    def look_closer(self) -> None:
        """Judge mixtures of pods too, which takes as long as all the rest, or longer."""
        if self._closer is not None:
            own = self.of(self._level)
            np.minimum(own, self._closer(own // self._size) * self._size, out=own)
            self._closer = None
            self._forget_sums()

    def _forget_sums(self) -> None:
        self._of = {level: figures for level, figures in self._of.items() if level >= self._level}


def least_kind(part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentKind | None:
    """What each whole segment consists of at the least; None where nothing is known of them."""
    found = _segments(part, layering, demand)
    if found is None or not found.whole.any():
        return None
    return _kind(layering, demand, found, found.counts[found.whole].min(axis=0))


def greatest_kind(part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentKind | None:
    """What any segment consists of at the most; None where they differ by more than a few pods.

    Where there is room for such segments there is room for those of the part.
    """
    found = _segments(part, layering, demand)
    if found is None or len(found.whole) < 2:
        return None
    most = found.counts.max(axis=0)
    size = layering.layers[-1].size
    if int(most.sum()) > size + size // _ONE_OF:
        return None
    return _kind(layering, demand, found, most)


class _Segments(Struct, frozen=True, eq=False):
    #: (segments, classes)
    counts: Ints
    #: (segments,)
    whole: Bools


def _segments(part: Part, layering: Layering, demand: Sequence[Share]) -> _Segments | None:
    """The segments of the finest layer in order; None where segments differ in size, or some members run.

    Only the last one of a layer may be smaller. Where members have done their work others may be, too.
    """
    if any(layer.counts for layer in layering.layers) or len(part.anchors):
        return None
    ids = layering.ids(part.numbers[: len(part.core)])
    for layer, segments in zip(layering.layers, ids, strict=True):
        if (np.unique(segments, return_counts=True)[1][:-1] != layer.size).any():
            return None
    _, own = np.unique(ids[-1], return_inverse=True)
    whole = np.bincount(own) == layering.layers[-1].size
    counts = np.zeros((len(whole), len(demand)), dtype=np.intp)
    np.add.at(counts, (own, classes_of(part.core, demand)), 1)
    return _Segments(counts, whole)


def _kind(layering: Layering, demand: Sequence[Share], found: _Segments, counts: Ints) -> SegmentKind:
    shares = tuple((share, int(count)) for share, count in zip(demand, counts, strict=True) if count)
    alike = bool(found.whole.all() and (found.counts == found.counts[0]).all())
    return SegmentKind(size=layering.layers[-1].size, shares=shares, alike=alike)


def classes_of(pods: Sequence[Pod], demand: Sequence[Share]) -> Ints:
    """The class of each pod, by its place in the demand."""
    class_of = {pod.uid: at for at, share in enumerate(demand) for pod in share.pods}
    return np.asarray([class_of[pod.uid] for pod in pods])


def most_segments(
    cluster: Cluster,
    table: ClassTable,
    kind: SegmentKind,
    tree: Tree,
    level: int,
    inside: NodeSet,
) -> SegmentCounts:
    """Pods in whole segments that fit in the domains of a level at the most, as if they were counted."""
    segment = [Share(share.pod_class, share.pods[:number]) for share, number in kind.shares]
    sums = Sums(cluster, table)

    def most(level: int) -> Counts:
        return (
            sums.sets(segment, tree, level, inside) if segment else np.full(tree.count(level), MOST_SEGMENTS)
        )

    def closer(found: Counts) -> Counts:
        if not segment or not len(found) or level == tree.node_level:
            return found  # On a single node sums are exact.
        ends = tree.bounds[level]
        room = [
            scoped_counts(table, share.pod_class, tree, inside, cluster.capacity).of(tree.node_level)
            for share in segment
        ]
        return _by_mixtures(cluster, kind, tree.slot_at, ends, found, np.stack(room))

    return SegmentCounts(tree, level, kind.size, most, closer)


def _by_mixtures(
    cluster: Cluster, kind: SegmentKind, slots: Ints, ends: Ints, found: Counts, room: Counts
) -> Counts:
    """Fewer where mixtures of pods show that so many segments don't fit beside each other.

    That is not looked at where domains are of too many kinds, or it takes too many steps.
    """
    needs = [(cluster.demand(share.pod_class.pod.spec), number) for share, number in kind.shares]
    free = np.stack([cluster.free(row, slots) for row in UnequalPods(needs).rows])
    first_of_kind, kinds = _kinds_of_domains(np.concatenate([free, room]), ends)
    if len(first_of_kind) > FEW:
        return found
    bounds: dict[int, UnequalPods] = {}
    budget = Budget(Steps(SOLVER))

    def exceeded(number: int, nodes: slice) -> bool:
        if number not in bounds:
            bounds[number] = UnequalPods([(demand, count * number) for demand, count in needs])
        beside = bounds[number]
        usable = beside.binding(free[:, nodes], room[:, nodes])
        return beside.decide(usable, room[:, nodes], budget).verdict is Verdict.INFEASIBLE

    most = found[first_of_kind]
    for at, domain in enumerate(first_of_kind.tolist()):
        if not 0 < most[at] <= MANY:
            continue
        nodes, low, high = slice(ends[domain], ends[domain + 1]), 0, int(most[at])
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if exceeded(middle, nodes) else (middle, high)
        most[at] = low
    fewer: Counts = np.minimum(found, most[kinds])
    return fewer


def _kinds_of_domains(figures: Counts, ends: Ints) -> tuple[Ints, Ints]:
    """Domains whose nodes have the same figures, in any order, are of one kind.

    ``figures``: of each node, (F, n). Returns the first domain of each kind, and the kind of each domain.
    Kinds differ in sums of 64 bits of mixed figures, of which two are not equal by chance.
    """
    mixed = np.zeros(figures.shape[1], dtype=np.uint64)
    for row in figures:
        # The steps of splitmix64 (Steele, Lea and Flood 2014).
        mixed = (mixed ^ row.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    # A domain has at least one node. Of other numbers of nodes the sums differ as well.
    sums = np.add.reduceat(mixed, ends[:-1])
    _, first, kinds = np.unique(sums, return_index=True, return_inverse=True)
    return first, kinds
