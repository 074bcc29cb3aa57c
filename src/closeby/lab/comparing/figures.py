"""Which figures of a run are compared, and their paired differences between two policies."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from scipy.special import stdtrit

from closeby.lab.workloads.jobs import JobClass
from closeby.quality.delays import Delay, PreemptionMeasures
from closeby.quality.summary import LevelMeasures, Measures
from closeby.quality.traffic import RunTraffic


class Unit(StrEnum):
    """How a figure is written."""

    SECONDS = "seconds"
    #: Between 0 and 1.
    SHARE = "share"
    RATIO = "ratio"
    #: A count or an amount, of what the title says.
    NUMBER = "number"


class ComparedFigure(NamedTuple):
    """One figure of a run."""

    #: Name for tools, such as ``excessSpan.leaf``.
    name: str
    #: Heading of its column, and of the table that it belongs to.
    title: str
    section: str
    unit: Unit
    more_is_better: bool


#: Figures of a run by name; None where the run does not tell.
Figures = dict[str, float | None]

WAITING: Final = "Waiting"
PRIORITIES: Final = "Waiting, by priority"
EVICTIONS: Final = "Evictions"
PLACES: Final = "Where jobs ran"
RANKS: Final = "Pods and ranks of a job"
SEGMENTS: Final = "Segments"
ROOM: Final = "What was left free"
GAPS: Final = "Above the best on what was free"
USE: Final = "Use of the GPUs"
NETWORK: Final = "Slowdown of communication and of jobs, modelled"
ALL_REDUCE: Final = "An all-reduce, modelled"
TALK: Final = "Network cost between pods"
PAIRS: Final = "Pairs of dependent pods"


def figures_of(
    measures: Measures, classes: Sequence[JobClass] = ()
) -> tuple[tuple[ComparedFigure, float | None], ...]:
    """The figures of one run; runs on one cluster have the same ones in the same order.

    ``classes`` are those of priority that the jobs of some run have.
    """
    return (
        *_waiting(measures),
        *(_priorities(measures, classes) if len(classes) > 1 else ()),
        *_places(measures),
        *_segments(measures),
        *_ranks(measures),
        *_gaps(measures),
        *_room(measures),
        *_use(measures),
        *_network(measures),
    )


def figures_of_applications(
    measures: Measures, talk: RunTraffic
) -> tuple[tuple[ComparedFigure, float | None], ...]:
    """The figures of one run of applications; those of GPUs and of gangs have no sense there."""
    return (*_waiting_applications(measures), *_talk(talk))


def _waiting_applications(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    started = measures.started / measures.jobs if measures.jobs else None
    every = measures.delays[0]
    yield ComparedFigure("delay", "mean delay", WAITING, Unit.SECONDS, False), every.mean
    yield ComparedFigure("delay.p99", "p99 delay", WAITING, Unit.SECONDS, False), every.p99
    yield ComparedFigure("started", "started", WAITING, Unit.SHARE, True), started
    yield ComparedFigure("makespan", "makespan", WAITING, Unit.SECONDS, False), measures.makespan


def _talk(talk: RunTraffic) -> Iterator[tuple[ComparedFigure, float | None]]:
    yield ComparedFigure("talkCost", "cost, of an application", TALK, Unit.RATIO, False), talk.cost
    yield ComparedFigure("talkCost.pair", "cost, of a pair", TALK, Unit.RATIO, False), talk.cost_per_pair
    yield ComparedFigure("overLimit", "pairs, beyond their limit", TALK, Unit.SHARE, False), talk.over
    yield ComparedFigure("sameNode", "on one node", PAIRS, Unit.SHARE, True), talk.same_node
    yield ComparedFigure("sameZone", "in one zone", PAIRS, Unit.SHARE, True), talk.same_zone
    yield ComparedFigure("sameRegion", "in one region", PAIRS, Unit.SHARE, True), talk.same_region


def _waiting(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    by_size = {delay.size: delay for delay in measures.delays}
    unit = f"{measures.size_unit}s"
    columns: tuple[tuple[str, str, str, Callable[[Delay], float | None]], ...] = (
        ("delay", "mean delay", "all", lambda delay: delay.mean),
        ("delay.p99", "p99 delay", "all", lambda delay: delay.p99),
        ("delay.9-64", f"mean, 9-64 {unit}", "9-64", lambda delay: delay.mean),
        ("delay.>64", f"mean, >64 {unit}", ">64", lambda delay: delay.mean),
    )
    for name, title, size, value in columns:
        yield ComparedFigure(name, title, WAITING, Unit.SECONDS, False), value(by_size[size])
    topology = ComparedFigure("delay.topology", "mean, for topology", WAITING, Unit.SECONDS, False)
    yield topology, by_size["all"].topology


def _priorities(
    measures: Measures, classes: Sequence[JobClass]
) -> Iterator[tuple[ComparedFigure, float | None]]:
    found = measures.preemption if isinstance(measures.preemption, PreemptionMeasures) else None
    known = {} if found is None else {one.priority: one for one in found.priorities}
    for one in classes:
        mine, suffix = known.get(one.priority), f"priority.{one.priority}"
        mean = ComparedFigure(f"delay.{suffix}", f"mean, {one.name}", PRIORITIES, Unit.SECONDS, False)
        yield mean, None if mine is None else mine.mean
        late = ComparedFigure(f"delay.p99.{suffix}", f"p99, {one.name}", PRIORITIES, Unit.SECONDS, False)
        yield late, None if mine is None else mine.p99
    amounts: tuple[tuple[str, str, Callable[[PreemptionMeasures], float]], ...] = (
        ("evictions", "evictions", lambda one: one.evictions),
        ("evictedJobs", "jobs evicted", lambda one: one.evicted_jobs),
        ("gangEvictions", "of gangs", lambda one: one.gang_evictions),
        ("mostEvictions", "most, of one job", lambda one: one.most_evictions),
        ("lostGpuHours", "lost, GPU-hours", lambda one: one.lost_gpu_hours),
    )
    for name, title, value in amounts:
        figure = ComparedFigure(name, title, EVICTIONS, Unit.NUMBER, False)
        yield figure, None if found is None else float(value(found))


def _places(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    # Single nodes come last: a job of whole nodes can't use more of them than it must.
    for level in reversed(measures.levels[:-1]):
        yield _of_level(level, "excessSpan", "excess span", PLACES), level.weighted_excess_span
    for level in measures.levels[-2:-1]:
        yield _of_level(level, "groupSpread", "group spread", PLACES), level.group_spread


def _segments(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    layers = measures.segments if isinstance(measures.segments, tuple) else ()
    for one in reversed(layers):
        span = ComparedFigure(f"segmentSpan.{one.level}", f"span, {one.level}", SEGMENTS, Unit.RATIO, False)
        yield span, one.span
        split = ComparedFigure(
            f"segmentSplit.{one.level}", f"split, {one.level}", SEGMENTS, Unit.SHARE, False
        )
        yield split, one.split


def _ranks(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    for level in measures.levels[-2:-1]:
        yield _of_level(level, "crossPairs", "cross pairs", RANKS, Unit.SHARE), level.cross_pairs
        yield _of_level(level, "ringCrossings", "ring crossings", RANKS), level.ring_crossings
    yield ComparedFigure("ringHops", "ring hops, of least", RANKS, Unit.RATIO, False), measures.ring_hops
    yield ComparedFigure("meanDistance", "distance, edges", RANKS, Unit.RATIO, False), measures.mean_distance


def _gaps(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    for level in reversed(measures.levels[:-1]):
        yield _of_level(level, "spanGap", "span", GAPS, Unit.SHARE), level.span_gap
    yield ComparedFigure("distanceGap", "distance", GAPS, Unit.SHARE, False), measures.distance_gap


def _room(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    for level in measures.levels[-2:-1]:
        largest = _of_level(level, "largestGang", "largest gang", ROOM, Unit.SHARE, more_is_better=True)
        yield largest, level.largest_gang
    for level in reversed(measures.levels[:-1]):
        yield _of_level(level, "stranded", "stranded", ROOM, Unit.SHARE), level.stranded


def _of_level(
    level: LevelMeasures,
    name: str,
    title: str,
    section: str,
    unit: Unit = Unit.RATIO,
    *,
    more_is_better: bool = False,
) -> ComparedFigure:
    return ComparedFigure(f"{name}.{level.level}", f"{title}, {level.level}", section, unit, more_is_better)


def _use(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    ended = measures.ended / measures.jobs if measures.jobs else None
    yield ComparedFigure("ended", "jobs that ended", USE, Unit.SHARE, True), ended
    yield ComparedFigure("utilisation", "utilisation", USE, Unit.SHARE, True), measures.utilisation
    yield ComparedFigure("goodput", "goodput", USE, Unit.SHARE, True), measures.goodput
    yield ComparedFigure("makespan", "makespan", USE, Unit.SECONDS, False), measures.makespan


def _network(measures: Measures) -> Iterator[tuple[ComparedFigure, float | None]]:
    contended, slowdown = measures.contended_all_reduce, measures.contended_slowdown
    yield ComparedFigure("allReduce", "if all send", ALL_REDUCE, Unit.SECONDS, False), measures.all_reduce
    yield ComparedFigure("allReduce.contended", "as they sent", ALL_REDUCE, Unit.SECONDS, False), contended
    yield ComparedFigure("slowdown", "slowdown, if all send", NETWORK, Unit.RATIO, False), measures.slowdown
    yield ComparedFigure("slowdown.contended", "slowdown, as they sent", NETWORK, Unit.RATIO, False), slowdown
    yield (
        ComparedFigure("slowdown.job", "slowdown, whole jobs", NETWORK, Unit.RATIO, False),
        measures.job_slowdown,
    )


CONFIDENCE: Final = 0.95
#: Of the larger of two figures: what sums in another order may differ by is not a difference.
_ROUNDING: Final = 1e-12


class Paired(Struct, frozen=True, kw_only=True):
    """How one policy's figure differs from the reference's. None where nothing tells."""

    #: Over the seeds for which it is known, and how many those are.
    mean: float | None
    known: int
    #: Policy less reference, mean over the seeds for which both are known; how many those are.
    difference: float | None
    seeds: int
    #: The interval; None with fewer than two seeds.
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired(values: Sequence[float | None], reference: Sequence[float | None]) -> Paired:
    """Compare two policies by their figures for the same seeds, in the same order."""
    known = [value for value in values if value is not None]
    pairs = [
        (one, other)
        for one, other in zip(values, reference, strict=True)
        if one is not None and other is not None
    ]
    mean = float(np.mean(known)) if known else None
    if not pairs:
        return Paired(mean=mean, known=len(known), difference=None, seeds=0, low=None, high=None)
    differences = np.array([_difference(one, other) for one, other in pairs])
    centre, count = float(differences.mean()), len(pairs)
    if count < 2:
        return Paired(mean=mean, known=len(known), difference=centre, seeds=count, low=None, high=None)
    error = float(differences.std(ddof=1)) / count**0.5
    half = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * error
    low, high = centre - half, centre + half
    return Paired(mean=mean, known=len(known), difference=centre, seeds=count, low=low, high=high)


def _difference(one: float, other: float) -> float:
    difference = one - other
    return difference if abs(difference) > _ROUNDING * max(abs(one), abs(other)) else 0.0
