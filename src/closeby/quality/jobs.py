"""All measures of where jobs are, job by job: of a whole run at once, or of a single gang.

Most pairs of a training job's GPUs exchange nothing; what counts is how far the groups of data-parallel and
of pipeline-parallel ranks are torn apart ("Efficient Pre-Training of LLMs via Topology-Aware Communication
Alignment on More Than 9600 GPUs", Arnold, ByteDance, NeurIPS 2025): a group's spread is the number of domains
its members touch, and a job's the greatest of its groups'.
"""

from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.contention import JobRanks, alone_seconds, contended_seconds
from closeby.quality.model import (
    Model,
    all_reduce_seconds,
    job_slowdowns,
    least_ring_hops,
    ring_crossings,
    ring_hops,
    rings,
    slowdowns,
    tiers_climbed,
)
from closeby.quality.placements import Placements, by_level, excess_spans, per_job, spans

#: Pipeline stages by greatest number of GPUs, where it is unknown how a job is split: those of the models
#: that Narayanan et al. trained on so many GPUs ("Efficient Large-Scale Language Model Training on GPU
#: Clusters Using Megatron-LM", SC 2021, table 1; 2 stages at 512 GPUs, 4 at 1,024, 8 at 1,536, 16 at 1,920).
PIPELINE_STAGES: Final = ((256, 1), (512, 2), (1024, 4), (1536, 8), (1 << 62, 16))


class Layouts(Struct, frozen=True, kw_only=True, eq=False):
    """How the GPUs of each job are split: tp x pp x dp = pods x GPUs of a pod; all of shape (J,).

    Ranks count the tensor-parallel index fastest, then the data-parallel, then the pipeline stage, as
    Megatron-LM does. Tensor-parallel groups are inside a pod: tp divides its GPUs.
    """

    tensor: Counts
    pipeline: Counts
    data: Counts


class Spreads(Struct, frozen=True, kw_only=True, eq=False):
    """Domains that the communication groups of each job touch, by level; shape (J, K); nan without pods."""

    #: Over all data- and pipeline-parallel groups of the job.
    greatest: Floats
    mean: Floats


def usual_layouts(pods: NDArray[Any], gpus: NDArray[Any]) -> Layouts:
    """Layouts of jobs for which the split is unknown.

    Tensor-parallel inside a pod, and pipeline stages by size (``PIPELINE_STAGES``), halved until they divide
    the pods. All arrays have shape (J,).
    """
    tensor = np.maximum(gpus, 1).astype(np.int64)
    limits = np.asarray([most for most, _ in PIPELINE_STAGES])
    stages = np.asarray([count for _, count in PIPELINE_STAGES], dtype=np.int64)
    wanted = stages[np.searchsorted(limits, pods * tensor)]
    pipeline = np.gcd(wanted, pods.astype(np.int64))
    return Layouts(tensor=tensor, pipeline=pipeline, data=pods.astype(np.int64) // np.maximum(pipeline, 1))


def group_spreads(found: Placements, layouts: Layouts) -> Spreads:
    """Spread of the data- and pipeline-parallel groups of each job.

    Raises ValueError for a layout that does not share out a job's pods evenly.
    """
    blocks = layouts.pipeline * layouts.data
    pods = found.pods
    if ((pods > 0) & (blocks % np.maximum(pods, 1) != 0)).any():
        raise ValueError("pipeline stages x data-parallel ranks must be a multiple of a job's pods")
    times = np.where(pods > 0, blocks // np.maximum(pods, 1), 0)
    job = np.repeat(found.job, times[found.job])
    positions = np.repeat(found.positions, times[found.job])
    begins = np.cumsum(np.append(0, pods * times))[:-1]
    index = np.arange(len(job)) - begins[job]
    data = np.maximum(layouts.data[job], 1)
    # Data-parallel groups share a stage; pipeline-parallel groups share the place inside their stage.
    groups = np.concatenate([index // data, layouts.pipeline[job] + index % data])
    return _spreads(found, np.concatenate([job, job]), groups, np.concatenate([positions, positions]))


def _spreads(found: Placements, job: Ints, groups: Ints, positions: Ints) -> Spreads:
    """Distinct owners of each (job, group), then the greatest and the mean of each job."""
    if not len(job):
        blank = np.full((found.jobs, found.levels), np.nan)
        return Spreads(greatest=blank, mean=blank)
    order = np.lexsort((positions, groups, job))
    job, groups, positions = job[order], groups[order], positions[order]
    begins = np.ones(len(job), dtype=np.bool_)
    begins[1:] = (job[1:] != job[:-1]) | (groups[1:] != groups[:-1])
    firsts = np.flatnonzero(begins)
    owner = job[firsts]
    of_job = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    present = owner[of_job]
    greatest, means = [], []
    for level in range(found.levels):
        domains = found.owners(level, positions)
        other = begins.copy()
        other[1:] |= domains[1:] != domains[:-1]
        touched = np.add.reduceat(other.astype(np.int64), firsts)
        most, mean = np.full(found.jobs, np.nan), np.full(found.jobs, np.nan)
        most[present] = np.maximum.reduceat(touched, of_job)
        counts = np.diff(np.append(of_job, len(firsts)))
        mean[present] = np.add.reduceat(touched, of_job) / counts
        greatest.append(most)
        means.append(mean)
    return Spreads(greatest=by_level(greatest), mean=by_level(means))


def pairs(found: Placements) -> Counts:
    """Pairs of pods of each job, n(n - 1)/2; shape (J,)."""
    pods = found.pods
    return pods * (pods - 1) // 2


def cross_pairs(found: Placements) -> Counts:
    """Pairs of pods that are in different domains of a level, for each job and level; shape (J, K)."""
    every = pairs(found)
    columns = []
    for level in range(found.levels):
        runs = found.runs(level)
        together = np.diff(np.append(runs, len(found.ascending))).astype(np.float64)
        same = per_job(found, found.job[runs], together * (together - 1) / 2)
        columns.append(every - np.rint(same).astype(np.int64))
    return by_level(columns)


def mean_distances(crossing: Counts, every: Counts) -> Floats:
    """Mean number of tree edges between two pods of a job, from its crossing pairs; shape (J,).

    Two nodes are two edges apart for each level on which they are in different domains. nan for a job of
    fewer than two pods.
    """
    known = np.where(every > 0, every, np.nan)
    found: Floats = 2.0 * crossing.sum(axis=1) / known
    return found


def diameters(span: Counts) -> Counts:
    """The greatest number of tree edges between two pods of a job, from its spans; shape (J,).

    Two edges for each level on which the job uses several domains.
    """
    found: Counts = 2 * np.count_nonzero(span > 1, axis=1)
    return found


class JobMeasures(Struct, frozen=True, kw_only=True, eq=False):
    """Measures of J jobs, K levels (coarse to fine, single nodes last). Jobs without pods have 0 or nan."""

    #: Distinct domains used, and over the fewest that could hold the job when empty; shapes (J, K).
    span: Counts
    excess_span: Floats
    #: Pairs of pods in different domains, shape (J, K), and all pairs, shape (J,).
    cross_pairs: Counts
    pairs: Counts
    #: Tree edges between two pods: mean (nan for fewer than two pods) and greatest; shape (J,).
    mean_distance: Floats
    diameter: Counts
    #: Ring edges that leave a domain, shape (J, K); tree edges that the ring runs over, and the fewest in
    #: another order of ranks, shape (J,).
    ring_crossings: Counts
    ring_hops: Counts
    least_ring_hops: Counts
    #: Domains that data- and pipeline-parallel groups touch.
    spreads: Spreads
    #: Modelled seconds of an all-reduce while all nodes send: here, and on an ideal placement; shape (J,).
    all_reduce: Floats
    ideal_all_reduce: Floats
    #: Here among the flows that were there.
    contended_all_reduce: Floats
    #: Here over ideal, for communication (both forms) and for the job as a whole; at least 1; shape (J,).
    slowdown: Floats
    contended_slowdown: Floats
    job_slowdown: Floats


class Shapes(Struct, frozen=True, kw_only=True, eq=False):
    """What J jobs are made of."""

    #: Ranks of a job, and the fewest GPUs that one of its pods has; a pod without GPUs counts as one of each.
    ranks: Counts
    links: Counts
    #: Fewest domains of each level that could hold the job on an empty cluster; shape (J, K).
    fewest: Floats
    #: When each job started and ended; shape (J, 2).
    during: Floats


def measure_jobs(found: Placements, shapes: Shapes, node_gpus: NDArray[Any], model: Model) -> JobMeasures:
    """Measure jobs where they are; ``node_gpus`` has shape (slots,)."""
    span, crossing, every = spans(found), cross_pairs(found), pairs(found)
    ring = rings(found)
    crossings = ring_crossings(found, ring)
    ranks_of_jobs = JobRanks(ranks=shapes.ranks, links=shapes.links, climbed=tiers_climbed(span))
    placed = span[:, -1] > 0
    # Nodes may hold more than they have, such as those that shrank: so few do it, then.
    fewest = np.where(placed[:, None], np.minimum(shapes.fewest, span), shapes.fewest)
    at_best = JobRanks(ranks=shapes.ranks, links=shapes.links, climbed=tiers_climbed(fewest))
    here = _seconds(model, ranks_of_jobs, found.levels, placed)
    ideal = _seconds(model, at_best, found.levels, placed & ~np.isnan(fewest).any(axis=1))
    contended = np.where(
        placed, contended_seconds(model, found, ring, ranks_of_jobs, node_gpus, shapes.during), np.nan
    )
    alone = np.where(np.isnan(ideal), np.nan, alone_seconds(model, at_best, found.levels))
    slowdown = slowdowns(here, ideal)
    return JobMeasures(
        span=span,
        excess_span=excess_spans(span, fewest),
        cross_pairs=crossing,
        pairs=every,
        mean_distance=mean_distances(crossing, every),
        diameter=diameters(span),
        ring_crossings=crossings,
        ring_hops=ring_hops(crossings),
        least_ring_hops=least_ring_hops(span),
        spreads=group_spreads(found, usual_layouts(found.pods, shapes.links)),
        all_reduce=here,
        ideal_all_reduce=ideal,
        contended_all_reduce=contended,
        slowdown=slowdown,
        contended_slowdown=slowdowns(contended, alone),
        job_slowdown=job_slowdowns(model, slowdown),
    )


def _seconds(model: Model, ranks_of_jobs: JobRanks, levels: int, known: NDArray[np.bool_]) -> Floats:
    return np.where(
        known,
        all_reduce_seconds(model, ranks_of_jobs.ranks, ranks_of_jobs.links, ranks_of_jobs.climbed, levels),
        np.nan,
    )
