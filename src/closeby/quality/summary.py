"""The measures of one run in one record: what reports, comparisons and pictures show."""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.quality.columns import RunColumns
from closeby.quality.delays import Delay, delays, sizes, waits
from closeby.quality.placements import Bools, Floats, level_names, placements
from closeby.quality.spans import excess_spans, fewest, spans
from closeby.quality.utilisation import Window, busy_window, goodput, held, utilisation


class LevelMeasures(Struct, frozen=True, kw_only=True):
    """How jobs lie over the domains of one level. None where no job tells."""

    #: Short name; ``hostname`` for single nodes.
    level: str
    #: Domains that a started job lies in, mean.
    span: float | None
    #: Span over the fewest domains that could hold the job on an empty cluster: 1 is ideal. Mean and greatest
    #: over all started jobs, and the mean over jobs larger than a node, weighted by GPU-time.
    excess_span: float | None
    greatest_excess_span: float | None
    weighted_excess_span: float | None


class Measures(Struct, frozen=True, kw_only=True):
    """One run, summarised. Times are seconds, shares lie between 0 and 1; None where nothing tells."""

    #: All jobs, those that started, and those that ended before the run stopped.
    jobs: int
    started: int
    ended: int
    #: All jobs first, then by size in GPUs.
    delays: tuple[Delay, ...]
    #: Coarse to fine, single nodes last.
    levels: tuple[LevelMeasures, ...]
    #: From the first submission until the last job left the queue.
    window: Window
    #: From the first submission to the last end.
    makespan: float
    #: GPU-time that jobs held in the window, over what the cluster could have given; and the same with each
    #: job counted 1/slowdown.
    utilisation: float | None
    goodput: float | None


def summarise(columns: RunColumns, *, unconstrained: Floats | None = None) -> Measures:
    """All measures of a run.

    ``unconstrained`` is what the same jobs waited in the same run (same seed) without topology constraints,
    in seconds, shape (J,), as ``waits_of`` tells it; without it the wait caused by topology is unknown.
    """
    run = columns
    size = sizes(run.pods, run.gpus)
    window = busy_window(run.submitted, run.started, run.ended, run.until)
    seconds = held(run.started, run.ended, run.until, window)
    job_gpus = run.pods * run.gpus
    capacity = float(run.node_gpus[run.tree.slot_at].sum())
    slowdown = np.ones(len(size))
    return Measures(
        jobs=len(size),
        started=int(np.count_nonzero(~np.isnan(run.started))),
        ended=int(np.count_nonzero(~np.isnan(run.ended))),
        delays=delays(size, waits_of(run), np.isnan(run.started), unconstrained),
        levels=_levels(run, weights=size * _ran(run)),
        window=window,
        makespan=_makespan(run),
        utilisation=utilisation(job_gpus, seconds, capacity, window),
        goodput=goodput(job_gpus, seconds, slowdown, capacity, window),
    )


def waits_of(columns: RunColumns) -> Floats:
    """What each job of a run waited, in seconds; shape (J,)."""
    return waits(columns.submitted, columns.started, columns.until)


def _ran(run: RunColumns) -> Floats:
    """Seconds for which each job ran before the run stopped."""
    return held(run.started, run.ended, run.until, Window(-np.inf, np.inf))


def _makespan(run: RunColumns) -> float:
    if not len(run.submitted):
        return 0.0
    return float(np.where(np.isnan(run.ended), run.until, run.ended).max() - run.submitted.min())


def _levels(run: RunColumns, weights: Floats) -> tuple[LevelMeasures, ...]:
    found = placements(run.tree, run.offsets, run.slots)
    span = spans(found)
    least = fewest(run.tree, run.node_gpus, run.pods, run.gpus)
    excess = excess_spans(span, least)
    placed = span[:, -1] > 0
    large = placed & (least[:, -1] > 1)
    return tuple(
        LevelMeasures(
            level=name,
            span=mean(span[:, level], placed),
            excess_span=mean(excess[:, level], placed),
            greatest_excess_span=greatest(excess[:, level], placed),
            weighted_excess_span=mean(excess[:, level], large, weights),
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
