"""Which unequal pods fit together in single domains, as segments must: by best fit, then by a program.

Answers are remembered by kind of domain: racks whose nodes have as much free are one. Sums of what is free,
and of the room for each kind of pods, say at once of how many domains there is no need to ask.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import MOST
from closeby.objects.arrays import Counts, Floats, Ints
from closeby.objects.pods import Pod
from closeby.scheduling.gangs.parts import NodeSet, Part, scoped_counts
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.sums import Sums
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.solving.best_fit import UnequalPods
from closeby.scheduling.solving.program import Verdict
from closeby.scheduling.steps import SOLVER, STEPS_OF_SOLVER, Budget
from closeby.topology.tree import Domain, Tree

#: Kinds of domains of which it is worked out exactly how many segments they hold, and how many at the most.
FEW: Final = 256
MANY: Final = 64
#: Questions until nothing more is worked out; steps for one, and of the solver for it at most and at least.
QUESTIONS: Final = 4_000
_QUESTION: Final = 200
_SOLVER: Final = 200
_PROGRAM: Final = 10
#: Of segments of which nothing is known: more than any gang has.
MOST_SEGMENTS: Final = 1 << 20


class DomainFits:
    """Answers for domains of one level, as things are when it is made."""

    def __init__(
        self, tools: Tools, demand: Sequence[Share], tree: Tree, level: int, inside: NodeSet
    ) -> None:
        """``demand``: pods of K kinds; questions are about some of each."""
        cluster, capacity = tools.cluster, tools.cluster.capacity
        counts = [scoped_counts(tools.table, share.pod_class, tree, inside, capacity) for share in demand]
        self._steps = tools.steps
        #: Steps that are left to the solver.
        self._solver = SOLVER
        self._demands = [cluster.demand(share.pod_class.pod.spec) for share in demand]
        every = UnequalPods([(one, 1) for one in self._demands])
        self._row_of = {row: place for place, row in enumerate(every.rows)}
        self._room = np.stack([one.of(tree.node_level) for one in counts])
        free = np.stack([cluster.free(row, tree.slot_at) for row in every.rows])
        # What is short on an overcommitted node is not taken from others.
        self._free = every.binding(np.maximum(free, 0), self._room)
        self._asked = np.zeros((len(demand), len(every.rows)), dtype=np.int64)
        for kind, one in enumerate(self._demands):
            self._asked[kind, [self._row_of[row] for row in one.rows]] = one.amounts
        self._ends = np.arange(tree.size + 1) if level == tree.node_level else tree.bounds[level]
        self._kinds: tuple[Ints, Ints] | None = None
        self._known: dict[tuple[int, bytes], Verdict] = {}
        self._pods: dict[bytes, UnequalPods] = {}
        held = np.concatenate([np.where(self._free < MOST, self._free, np.inf), self._room])
        #: What is free of each resource in each domain, and its room for each kind alone, (R + K, domains).
        self.held: Floats = np.add.reduceat(held, self._ends[:-1], axis=1)

    def asks(self, counts: Counts) -> Floats:
        """The same of so many pods of each kind, (R + K, ...) for ``counts`` of shape (..., K)."""
        asked: Floats = np.concatenate([counts @ self._asked, counts], axis=-1).T.astype(np.float64)
        return asked

    def fit(self, domain: int, counts: Counts, *, program: bool = False) -> Verdict:
        """Whether so many pods of each kind, (K,), fit in a domain; by a ``program`` if best fit fails."""
        key = int(self.kinds[1][domain]), counts.tobytes()
        known = self._known.get(key)
        if known is not None and (known is not Verdict.UNDECIDED or not program):
            return known
        if len(self._known) >= QUESTIONS or self._steps.over:
            return Verdict.UNDECIDED
        self._steps.take(_QUESTION)
        kinds, nodes = np.flatnonzero(counts), slice(self._ends[domain], self._ends[domain + 1])
        pods = self._pods.get(key[1])
        if pods is None:
            needs = [(self._demands[kind], int(counts[kind])) for kind in kinds.tolist()]
            pods = self._pods[key[1]] = UnequalPods(needs)
        free = self._free[[self._row_of[row] for row in pods.rows], nodes]
        # One question that is hard leaves steps to the others.
        budget = Budget()
        budget.solver = allowed = min(self._solver, _SOLVER) if program else 0
        verdict = self._known[key] = pods.decide(free, self._room[kinds, nodes], budget).verdict
        used = allowed - budget.solver
        if allowed and (used or verdict is not Verdict.FEASIBLE):
            self._solver -= used + _PROGRAM
            self._steps.take(STEPS_OF_SOLVER * used)
        return verdict

    def most(self, domain: int, segment: Counts, number: int) -> int:
        """Of so many equal segments how many a domain holds at the most; ``segment``: pods of each kind."""
        low, high = 0, number
        while low < high:
            middle = (low + high + 1) // 2
            if self.fit(domain, segment * middle, program=True) is Verdict.INFEASIBLE:
                high = middle - 1
            else:
                low = middle
        return low

    @property
    def kinds(self) -> tuple[Ints, Ints]:
        """The first domain of each kind, and the kind of each domain."""
        if self._kinds is None:
            self._kinds = _kinds_of_domains(np.concatenate([self._free, self._room]), self._ends)
        return self._kinds


class SegmentKind(Struct, frozen=True, eq=False):
    """What a segment of the finest layer consists of."""

    size: int
    #: Of each class, its share of the part and its pods in a segment.
    shares: tuple[tuple[Share, int], ...]

    @property
    def demand(self) -> list[Share]:
        """The pods of one such segment."""
        return [Share(share.pod_class, share.pods[:number]) for share, number in self.shares]


class SegmentCounts:
    """Pods in whole segments of one kind that fit in the domains of a tree at the most, as if counted.

    A level finer than that of the segments counts what is in one of its domains each.
    """

    def __init__(self, tools: Tools, kind: SegmentKind, tree: Tree, level: int, inside: NodeSet) -> None:
        self.tree = tree
        self._tools = tools
        self._kind = kind
        self._level = level
        self._inside = inside
        self._sums = Sums(tools.cluster, tools.table)
        self._of: dict[int, Counts] = {}

    def of(self, level: int) -> Counts:
        """By domain of a level, as ``DomainCounts.of``."""
        found = self._of.get(level)
        if found is None:
            if level < self._level:
                starts, own = self.tree.first_inside(level, self._level), self.of(self._level)
                found = np.add.reduceat(own, starts) if len(starts) else np.zeros(0, dtype=np.int64)
            elif not self._kind.shares:
                found = np.full(self.tree.count(level), MOST_SEGMENTS * self._kind.size)
            else:
                sets = self._sums.sets(self._kind.demand, self.tree, level, self._inside)
                found = sets * self._kind.size
            self._of[level] = found
        return found

    def inside(self, domain: Domain) -> int:
        """In one domain."""
        return int(self.of(domain.level)[domain.index])

    def settle(self) -> None:
        """Ask for each kind of domains whether fewer fit, where these are few; that takes longer."""
        if not self._kind.shares or self._level == self.tree.node_level:
            return  # On a single node sums are exact.
        fits = DomainFits(self._tools, self._kind.demand, self.tree, self._level, self._inside)
        segment = np.asarray([number for _, number in self._kind.shares], dtype=np.int64)
        first_of_kind, kinds = fits.kinds
        if len(first_of_kind) > FEW:
            return
        own = self.of(self._level)
        most = own[first_of_kind] // self._kind.size
        for at, domain in enumerate(first_of_kind.tolist()):
            if 0 < most[at] <= MANY:
                most[at] = fits.most(domain, segment, int(most[at]))
        np.minimum(own, most[kinds] * self._kind.size, out=own)
        self._of = {level: figures for level, figures in self._of.items() if level >= self._level}


def least_kind(part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentKind | None:
    """What each whole segment consists of at the least; None where nothing is known of them."""
    # Only the last segment of a layer may be smaller; where members have done their work others are, too.
    if any(layer.counts for layer in layering.layers) or len(part.anchors):
        return None
    ids = layering.ids(part.numbers[: len(part.core)])
    for layer, segments in zip(layering.layers, ids, strict=True):
        if (np.unique(segments, return_counts=True)[1][:-1] != layer.size).any():
            return None
    _, own = np.unique(ids[-1], return_inverse=True)
    whole = np.bincount(own) == layering.layers[-1].size
    if not whole.any():
        return None
    counts = np.zeros((len(whole), len(demand)), dtype=np.int64)
    np.add.at(counts, (own, classes_of(part.core, demand)), 1)
    least = zip(demand, counts[whole].min(axis=0).tolist(), strict=True)
    shares = tuple((share, count) for share, count in least if count)
    return SegmentKind(size=layering.layers[-1].size, shares=shares)


def classes_of(pods: Sequence[Pod], demand: Sequence[Share]) -> Ints:
    """The class of each pod, by its place in the demand."""
    class_of = {pod.uid: at for at, share in enumerate(demand) for pod in share.pods}
    return np.asarray([class_of[pod.uid] for pod in pods])


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
