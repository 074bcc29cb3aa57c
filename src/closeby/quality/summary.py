"""The measures of one run in one record: what reports, comparisons and pictures show."""

from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Floats
from closeby.quality.delays import (
    Delay,
    PreemptionMeasures,
    SizeUnit,
    delays,
    lasting,
    preemption,
    size_unit,
    sizes,
    waits,
)
from closeby.quality.jobs import JobMeasures, Shapes, measure_jobs
from closeby.quality.model import DEFAULT_MODEL, Model
from closeby.quality.moments import (
    Fragmentation,
    Gaps,
    RunColumns,
    Window,
    during_of,
    fragmentation,
    gaps,
    goodput,
    held,
    submission_window,
    utilisation,
)
from closeby.quality.placements import fewest, known, level_names, placements
from closeby.quality.segments import SegmentMeasures, segment_measures


class LevelMeasures(Struct, frozen=True, kw_only=True, rename="camel"):
    """How jobs are over the domains of one level. None without jobs that ran."""

    #: Short name; ``hostname`` for single nodes.
    level: str
    #: Domains that a started job is in, mean.
    span: float | None
    #: Span over the fewest domains that could hold the job on an empty cluster: 1 is ideal. Mean and greatest
    #: over all started jobs, and the mean over jobs larger than a node, weighted by GPU-time.
    excess_span: float | None
    greatest_excess_span: float | None
    weighted_excess_span: float | None
    #: Of jobs of several pods: share of their pairs of pods that are in different domains, mean; edges of the
    #: ring of ranks that leave a domain, mean.
    cross_pairs: float | None
    ring_crossings: float | None
    #: Of jobs larger than a node: domains that a data- or pipeline-parallel group touches; the greatest of a
    #: job's groups, and their mean; mean over jobs.
    group_spread: float | None
    mean_group_spread: float | None
    #: Largest gang (of pods of one GPU) that one domain can hold, over all free GPUs; mean over the window.
    largest_gang: float | None
    #: Share of the free GPUs in domains that cannot hold a gang that is next (of those that wait, then of
    #: those to come); mean over the window.
    stranded: float | None
    #: How far above the fewest domains on what was free jobs were (0.1 is 10 %); a sample of small ones.
    span_gap: float | None


class Measures(Struct, frozen=True, kw_only=True, rename="camel"):
    """One run, summarised. Times are seconds, shares are between 0 and 1; None where it is unknown."""

    #: All jobs, those that started, and those that ended before the run stopped.
    jobs: int
    started: int
    ended: int
    #: What the sizes of jobs are counted in: pods where no job asks for GPUs.
    size_unit: SizeUnit
    #: All jobs first, then by size.
    delays: tuple[Delay, ...]
    #: Coarse to fine, single nodes last.
    levels: tuple[LevelMeasures, ...]
    #: From the first submission to the last; to the last end if all jobs came at once.
    window: Window
    #: From the first submission to the last end.
    makespan: float
    #: GPU-time that jobs held in the window, over what the cluster could have given; and the same with each
    #: job counted 1/slowdown, and without what was done in vain, as jobs were evicted.
    utilisation: float | None
    goodput: float | None
    #: Of jobs of several pods: tree edges between two pods, mean and greatest of a job, mean over jobs.
    mean_distance: float | None
    diameter: float | None
    #: Of jobs of several pods on several nodes: tree edges that the ring of ranks runs over, over the fewest
    #: that it could with another order of ranks; mean.
    ring_hops: float | None
    #: Of jobs of several GPUs: modelled seconds of an all-reduce while all nodes send, mean; and among the
    #: flows that were there.
    all_reduce: float | None
    contended_all_reduce: float | None
    #: Times that communication takes longer than on an ideal placement on an empty cluster, in both forms,
    #: and times that whole jobs do; mean over all started jobs, weighted by GPU-time.
    slowdown: float | None
    contended_slowdown: float | None
    job_slowdown: float | None
    #: How far above the least mean distance on what was free jobs were (0.1 is 10 %); a sample of small ones,
    #: and how many it has.
    distance_gap: float | None
    compared: int
    #: The constants of what was modelled.
    model: Model
    #: Only there where jobs have several priorities.
    preemption: PreemptionMeasures | UnsetType = UNSET
    #: Only there where jobs of several pods have segments; coarse to fine.
    segments: tuple[SegmentMeasures, ...] | UnsetType = UNSET


def summarise(
    columns: RunColumns, *, unconstrained: Floats | None = None, model: Model = DEFAULT_MODEL
) -> Measures:
    """All measures of a run.

    ``unconstrained`` is what the same jobs waited in the same run (same seed) without topology constraints,
    in seconds, shape (J,), as of ``waits_of``; without it the wait caused by topology is unknown.
    """
    run = columns
    jobs = run.jobs
    window = submission_window(run.came, run.ended[:jobs], run.until)
    seconds = held(run.started, run.ended, run.until, window)
    capacity = float(run.node_gpus[run.tree.slot_at].sum())
    capacity -= run.outages.mean(run.node_gpus, window.begin, window.end)
    size, job_gpus = sizes(run.pods, run.gpus), run.pods * run.gpus
    weights = size * held(run.started, run.ended, run.until, Window(-np.inf, np.inf))
    found = job_measures(run, model)
    least = fewest(run.tree, run.node_gpus, run.pods, run.gpus)
    gap = gaps(run, found.span, found.mean_distance, least)
    placed = found.span[:, -1] > 0
    several, ranks = placed & (found.pairs > 0), placed & (size > 1)
    unstarted, waited = np.isnan(run.started[:jobs]), run.by_job(waits_of(run))
    return Measures(
        jobs=jobs,
        started=int(np.count_nonzero(~unstarted)),
        ended=int(np.count_nonzero(~np.isnan(run.ended[:jobs]))),
        size_unit=size_unit(run.gpus),
        delays=delays(size[:jobs], waited, unstarted, unconstrained),
        preemption=preemption(run, waited, job_gpus),
        levels=_levels(run, found, least, weights, fragmentation(run, least, window), gap),
        window=window,
        makespan=_makespan(run),
        utilisation=utilisation(job_gpus, seconds, capacity, window),
        goodput=goodput(job_gpus, seconds * lasting(run), found.job_slowdown, capacity, window),
        mean_distance=mean(found.mean_distance, several),
        diameter=mean(found.diameter, several),
        ring_hops=mean(found.ring_hops / np.maximum(found.least_ring_hops, 1), found.least_ring_hops > 0),
        all_reduce=mean(found.all_reduce, ranks),
        contended_all_reduce=mean(found.contended_all_reduce, ranks),
        slowdown=mean(found.slowdown, placed, weights),
        contended_slowdown=mean(found.contended_slowdown, placed, weights),
        job_slowdown=mean(found.job_slowdown, placed, weights),
        distance_gap=known(gap.distance),
        compared=gap.jobs,
        model=model,
        segments=segment_measures(run) if run.segments else UNSET,
    )


def job_measures(columns: RunColumns, model: Model = DEFAULT_MODEL) -> JobMeasures:
    """Measures of placement of each job of a run."""
    run = columns
    shapes = Shapes(
        ranks=sizes(run.pods, run.gpus),
        links=np.maximum(run.gpus, 1).astype(np.int64),
        fewest=fewest(run.tree, run.node_gpus, run.pods, run.gpus),
        during=during_of(run),
    )
    return measure_jobs(placements(run.tree, run.offsets, run.slots), shapes, run.node_gpus, model)


def waits_of(columns: RunColumns) -> Floats:
    """What was waited for each run, in seconds; shape (J,)."""
    return waits(columns.submitted, columns.started, columns.until)


def _makespan(run: RunColumns) -> float:
    if not len(run.submitted):
        return 0.0
    return float(np.where(np.isnan(run.ended), run.until, run.ended).max() - run.submitted.min())


def _levels(
    run: RunColumns, found: JobMeasures, least: Floats, weights: Floats, free: Fragmentation, gap: Gaps
) -> tuple[LevelMeasures, ...]:
    placed = found.span[:, -1] > 0
    several, large = placed & (found.pairs > 0), placed & (least[:, -1] > 1)
    crossing = found.cross_pairs / np.maximum(found.pairs, 1)[:, None]
    return tuple(
        LevelMeasures(
            level=name,
            span=mean(found.span[:, level], placed),
            excess_span=mean(found.excess_span[:, level], placed),
            greatest_excess_span=greatest(found.excess_span[:, level], placed),
            weighted_excess_span=mean(found.excess_span[:, level], large, weights),
            cross_pairs=mean(crossing[:, level], several),
            ring_crossings=mean(found.ring_crossings[:, level], several),
            group_spread=mean(found.spreads.greatest[:, level], large),
            mean_group_spread=mean(found.spreads.mean[:, level], large),
            largest_gang=known(free.largest[level]),
            stranded=known(free.stranded[level]),
            span_gap=known(gap.span[level]),
        )
        for level, name in enumerate(level_names(run.tree))
    )


def mean(values: NDArray[Any], chosen: Bools, weights: Floats | None = None) -> float | None:
    """Mean of the chosen values that are known; None if there are none, or none of any weight."""
    known = chosen & ~np.isnan(values)
    heavy = known.astype(np.float64) if weights is None else np.where(known, weights, 0.0)
    total = float(heavy.sum())
    return float(heavy[known] @ values[known]) / total if total > 0 else None


def greatest(values: Floats, chosen: Bools) -> float | None:
    """The greatest of the chosen values that are known; None if there are none."""
    known = values[chosen & ~np.isnan(values)]
    return float(known.max()) if len(known) else None
