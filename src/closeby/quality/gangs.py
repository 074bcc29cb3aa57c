"""The measures of placed gangs, as reports and metrics tell them: the same live and simulated."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.columns import EVERYTHING, Cluster, Demand
from closeby.objects.arrays import Counts, Floats
from closeby.objects.nodes import is_gpu
from closeby.objects.pods import Pod, PodSpec
from closeby.quality.jobs import JobMeasures, Shapes, measure_jobs
from closeby.quality.model import DEFAULT_MODEL, Model
from closeby.quality.placements import (
    Placements,
    domains_needed,
    known,
    level_names,
    most_held,
    placements,
    spans,
)
from closeby.topology.tree import Tree

#: Members of a gang with the slots they are on, in the order of their ranks.
Members = Sequence[tuple[Pod, int]]


class GangMeasures(Struct, frozen=True, kw_only=True):
    """One gang. What has one value a level goes from coarse to fine, single nodes last; None is unknown."""

    #: Short names; ``hostname`` for single nodes.
    levels: tuple[str, ...]
    #: Members that were measured, and their GPUs; a pod without any counts as one.
    pods: int
    ranks: int
    #: Distinct domains used, and over the fewest that could hold the gang on an empty cluster.
    span: tuple[int, ...]
    excess_span: tuple[float | None, ...]
    #: Pairs of pods in different domains, and all pairs.
    cross_pairs: tuple[int, ...]
    pairs: int
    #: Tree edges between two pods: mean (None for fewer than two pods) and greatest.
    mean_distance: float | None
    diameter: int
    #: Edges of the ring of ranks that leave a domain; tree edges it runs over; the fewest in another order.
    ring_crossings: tuple[int, ...]
    ring_hops: int
    least_ring_hops: int
    #: Domains that data- and pipeline-parallel groups touch: the greatest, and the mean over the groups.
    group_spread: tuple[float, ...]
    mean_group_spread: tuple[float, ...]
    #: Modelled seconds of an all-reduce: while all nodes send, among the gangs measured together, and on an
    #: ideal placement.
    all_reduce: float
    contended_all_reduce: float
    ideal_all_reduce: float | None
    #: Times that communication takes longer than ideally, and times that the job does; at least 1.
    slowdown: float | None
    job_slowdown: float | None


class GangGauge:
    """Measures gangs on one cluster."""

    def __init__(self, cluster: Cluster, model: Model = DEFAULT_MODEL) -> None:
        self.model = model
        self._cluster = cluster
        self._empty = EmptyCluster(cluster)

    def measure(self, tree: Tree, gangs: Sequence[Members]) -> list[GangMeasures | None]:
        """Measure gangs that are in one tree at the same time; None for one without members in it.

        Members on nodes outside the tree are left out.
        """
        inside = [members_in(tree, gang) for gang in gangs]
        placed = [members for members in inside if members]
        if not placed:
            return [None for _ in inside]
        offsets = np.asarray([0, *accumulate(len(members) for members in placed)], dtype=np.intp)
        slots = np.asarray([slot for members in placed for _, slot in members], dtype=np.intp)
        each = [[max(1, gpus_of(pod.spec)) for pod, _ in members] for members in placed]
        shapes = Shapes(
            ranks=np.asarray([sum(gpus) for gpus in each]),
            links=np.asarray([min(gpus) for gpus in each]),
            fewest=np.stack([self._empty.fewest(tree, [pod for pod, _ in members]) for members in placed]),
            during=np.tile([0.0, 1.0], (len(placed), 1)),
        )
        where = placements(tree, offsets, slots)
        found = _inside(where, measure_jobs(where, shapes, node_gpus(self._cluster), self.model))
        measured = iter(
            [
                _gang(found, job, level_names(tree), len(members), int(shapes.ranks[job]))
                for job, members in enumerate(placed)
            ]
        )
        return [next(measured) if members else None for members in inside]


def _inside(where: Placements, found: JobMeasures) -> JobMeasures:
    """The measures, with nodes outside of the topology in no domain: how far it is to them is not known."""
    span, carried = spans(where, labelled=True), np.asarray(where.tree.carried)
    outside = span < found.span
    unknown = outside[:, carried].any(axis=1) & (span[:, -1] > 1)
    return replace(
        found,
        span=span,
        excess_span=np.where(outside, np.nan, found.excess_span),
        slowdown=np.where(unknown, np.nan, found.slowdown),
        job_slowdown=np.where(unknown, np.nan, found.job_slowdown),
    )


def members_in(tree: Tree, members: Members) -> Members:
    """The members on nodes of a tree."""
    slots = np.asarray([slot for _, slot in members], dtype=np.intp)
    known = slots < len(tree.position_of)
    known[known] = tree.position_of[slots[known]] < tree.size
    return [member for member, there in zip(members, known.tolist(), strict=True) if there]


def _gang(found: JobMeasures, job: int, levels: tuple[str, ...], pods: int, ranks: int) -> GangMeasures:
    distance = float(found.mean_distance[job])
    return GangMeasures(
        levels=levels,
        pods=pods,
        ranks=ranks,
        span=tuple(found.span[job].tolist()),
        excess_span=tuple(known(one) for one in found.excess_span[job].tolist()),
        cross_pairs=tuple(found.cross_pairs[job].tolist()),
        pairs=int(found.pairs[job]),
        mean_distance=known(distance),
        diameter=int(found.diameter[job]),
        ring_crossings=tuple(found.ring_crossings[job].tolist()),
        ring_hops=int(found.ring_hops[job]),
        least_ring_hops=int(found.least_ring_hops[job]),
        group_spread=tuple(found.spreads.greatest[job].tolist()),
        mean_group_spread=tuple(found.spreads.mean[job].tolist()),
        all_reduce=float(found.all_reduce[job]),
        contended_all_reduce=float(found.contended_all_reduce[job]),
        ideal_all_reduce=known(float(found.ideal_all_reduce[job])),
        slowdown=known(float(found.slowdown[job])),
        job_slowdown=known(float(found.job_slowdown[job])),
    )


_REMEMBERED: Final = 256


class EmptyCluster:
    """A cluster as if no pod were on it. Keeps what it worked out until a Node changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = -1
        #: (tree, demand) -> the most pods that a domain of each level holds.
        self._most: dict[tuple[int, Demand], tuple[Tree, Floats]] = {}

    def fewest(self, tree: Tree, pods: Sequence[Pod]) -> Floats:
        """Fewest domains of each level that could hold these pods; shape (K,); nan where one fits nowhere.

        For equal pods that is ceil(pods / most pods that one domain holds). For others it is the greatest of
        what each kind of pods needs for itself and what each resource needs in sum: a lower bound. Only
        amounts of resources count, not what else may keep a pod from a node.
        """
        kinds: Counter[Demand] = Counter()
        for spec, count in Counter(pod.spec for pod in pods).items():
            kinds[self._cluster.demand(spec)] += count
        needs = [
            domains_needed(np.asarray(float(count)), self._held(tree, kind)) for kind, count in kinds.items()
        ]
        if len(kinds) > 1:
            totals: Counter[int] = Counter()
            for kind, count in kinds.items():
                for row, amount in zip(kind.rows, kind.amounts, strict=True):
                    totals[row] += amount * count
            needs += [
                domains_needed(np.asarray(float(total)), self._held(tree, Demand((row,), (1,), ())))
                for row, total in totals.items()
            ]
        least: Floats = np.maximum.reduce(needs)
        return least

    def _held(self, tree: Tree, wanted: Demand) -> Floats:
        """The most pods of a demand that one domain of each level holds; shape (K,)."""
        if self._seen != self._cluster.node_changes.cursor:
            self._most.clear()
            self._seen = self._cluster.node_changes.cursor
        known = self._most.get((id(tree), wanted))
        if known is not None and known[0] is tree:
            return known[1]
        if len(self._most) >= _REMEMBERED:
            self._most.clear()
        most = most_held(tree, self._cluster.room(wanted, without=EVERYTHING))
        self._most[id(tree), wanted] = tree, most
        return most


@lru_cache(maxsize=1024)
def gpus_of(spec: PodSpec) -> int:
    """GPUs that a pod asks for."""
    return sum(amount for resource, amount in spec.requests if is_gpu(resource))


def node_gpus(cluster: Cluster) -> Counts:
    """GPUs of each slot; shape (slots,)."""
    rows = [row for resource, row in cluster.row_of.items() if is_gpu(resource)]
    found: Counts = cluster.allocatable[rows].sum(axis=0)
    return found
