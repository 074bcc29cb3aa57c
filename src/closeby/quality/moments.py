"""Measures of a run that hold at a moment: fragmentation, and how near placements came to the best possible.

Both need to know what was free then. They are worked out at moments spread evenly, not at all of them.
"""

from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.fragmentation import (
    NEXT_GANGS,
    Waiting,
    free_at,
    largest_shares,
    stranded_shares,
)
from closeby.quality.optimum import MOST_PODS, least_mean_distance, least_spans
from closeby.quality.utilisation import Window
from closeby.topology.tree import Tree

_NONE: Ints = np.zeros(0, dtype=np.intp)


class Outages(Struct, frozen=True, kw_only=True, eq=False):
    """Times in which nodes were out of order: their slots, and from when to when; all of shape (F,)."""

    slots: Ints
    begin: Floats
    end: Floats

    def mean(self, amounts: Counts, begin: float, end: float) -> float:
        """What the nodes that were out of order have of something, mean over a time; ``amounts`` by slot."""
        if end <= begin or not len(self.slots):
            return 0.0
        seconds = np.clip(np.minimum(self.end, end) - np.maximum(self.begin, begin), 0.0, None)
        return float(amounts[self.slots] @ seconds) / (end - begin)


NO_OUTAGES: Final = Outages(slots=_NONE, begin=np.zeros(0), end=np.zeros(0))


class RunColumns(Struct, frozen=True, kw_only=True, eq=False):
    """J jobs on a cluster, simulated or real. A job is a gang of equal pods that start and end together.

    Jobs may be evicted and run again. Then the rows are the last runs of all jobs, and after them the runs
    that were cut short; ``submitted`` is when the job began to wait for that run. J is the number of rows.
    """

    #: The topology in which places are judged, and the GPUs of each of its slots; shape (slots,).
    tree: Tree
    node_gpus: Counts
    #: Pods of each job, and GPUs of each of its pods; shape (J,).
    pods: NDArray[Any]
    gpus: NDArray[Any]
    #: Higher goes first; shape (J,).
    priorities: NDArray[Any]
    #: Seconds at which each job was submitted, started and ended; nan where it did not; shape (J,).
    submitted: Floats
    started: Floats
    ended: Floats
    #: Slots of the pods in the order of their ranks; job ``i`` has ``slots[offsets[i]:offsets[i + 1]]``,
    #: which is empty if it never started. Shapes (J + 1,) and (P,).
    offsets: Ints
    slots: Ints
    #: When the run stopped, in seconds.
    until: float
    #: Whose runs the last rows are, by row; without evictions there are none of them.
    evicted: Ints = _NONE
    #: Seconds of each row in which nothing was done that lasts; shape (J,), or empty where that is never so.
    lost: Floats = np.zeros(0)
    #: When which nodes were out of order; they count as having nothing then.
    outages: Outages = NO_OUTAGES
    #: The segments of jobs of several pods, coarse to fine: level of the tree, and pods of each segment.
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def jobs(self) -> int:
        """How many jobs there are; their last runs are the first rows."""
        return len(self.pods) - len(self.evicted)

    @property
    def came(self) -> Floats:
        """When each job was submitted, by job."""
        came = self.submitted[: self.jobs].copy()
        np.minimum.at(came, self.evicted, self.submitted[self.jobs :])
        return came

    def by_job(self, values: Floats) -> Floats:
        """Sums over all runs of each job."""
        found = values[: self.jobs].copy()
        np.add.at(found, self.evicted, values[self.jobs :])
        return found


#: Moments at which fragmentation is looked at, and cells of the table of what was free then, at most.
MOMENTS: Final = 200
_CELLS: Final = 1 << 24
#: Jobs whose place is compared with the best one, at most.
COMPARED: Final = 50


class Fragmentation(Struct, frozen=True, kw_only=True, eq=False):
    """By level, mean over moments; shape (K,); nan without a known moment."""

    #: Largest gang of pods of one GPU that a domain can hold, over all free GPUs.
    largest: Floats
    #: Share of the free GPUs in domains that cannot hold the gangs that are next.
    stranded: Floats


class Gaps(Struct, frozen=True, kw_only=True, eq=False):
    """How far above the best possible jobs were, on what was free when they started: 0.1 is 10 %."""

    #: Jobs that were compared.
    jobs: int
    #: Mean gap of the span by level, shape (K,), and of the mean distance; nan without jobs.
    span: Floats
    distance: float


def during_of(run: RunColumns) -> Floats:
    """When each job started and ended (or the run stopped); nan if it never started; shape (J, 2)."""
    ended = np.where(np.isnan(run.ended), run.until, run.ended)
    return np.stack([run.started, np.where(np.isnan(run.started), np.nan, ended)], axis=1)


def fragmentation(run: RunColumns, fewest: Floats, window: Window) -> Fragmentation:
    """Fragmentation over the window of submissions; ``fewest`` as ``spans.fewest`` has it, shape (J, K)."""
    levels = run.tree.node_level + 1
    count = max(1, min(MOMENTS, _CELLS // max(len(run.node_gpus), 1))) if window.length > 0 else 0
    times = window.begin + (np.arange(count) + 0.5) / max(count, 1) * window.length
    free = _free(run, times)
    largest, stranded = np.full((2, count, levels), np.nan)
    coming = _Coming(run)
    for moment, time in enumerate(times.tolist()):
        gangs = coming.after(time)
        waiting = Waiting(pods=run.pods[gangs], gpus=run.gpus[gangs], fewest=fewest[gangs])
        largest[moment] = largest_shares(run.tree, free[moment])
        stranded[moment] = stranded_shares(run.tree, free[moment], waiting)
    return Fragmentation(largest=known_mean(largest), stranded=known_mean(stranded))


class _Coming:
    """The gangs (jobs of several pods) that are next at any time: those that wait, then those to come."""

    def __init__(self, run: RunColumns) -> None:
        gangs = np.flatnonzero(run.pods > 1)
        #: By submission, and in the order of the queue.
        self._by_time = gangs[np.argsort(run.submitted[gangs], kind="stable")]
        self._by_rank = gangs[np.lexsort((run.submitted[gangs], -run.priorities[gangs]))]
        self._times = run.submitted[self._by_time]
        self._came = run.submitted[self._by_rank]
        self._left = np.where(np.isnan(run.started), np.inf, run.started)[self._by_rank]

    def after(self, time: float) -> Ints:
        """Up to ``NEXT_GANGS`` of them."""
        waiting = self._by_rank[np.flatnonzero((self._came <= time) & (self._left > time))]
        first = int(np.searchsorted(self._times, time, side="right"))
        return np.concatenate([waiting[:NEXT_GANGS], self._by_time[first : first + NEXT_GANGS]])[:NEXT_GANGS]


def gaps(run: RunColumns, span: Counts, distance: Floats, fewest: Floats) -> Gaps:
    """Gaps of up to ``COMPARED`` jobs of several nodes and at most ``MOST_PODS`` pods, spread over the run.

    All else that ran when a job started stays where it was. ``span`` and ``fewest`` have shape (J, K),
    ``distance`` is the mean distance, shape (J,).
    """
    small = (run.pods <= MOST_PODS) & (run.gpus > 0) & (fewest[:, -1] > 1) & (span[:, -1] > 0)
    fitting = np.flatnonzero(small)
    if len(fitting) > COMPARED:
        fitting = fitting[np.linspace(0, len(fitting) - 1, COMPARED).astype(np.intp)]
    fitting = fitting[np.argsort(run.started[fitting], kind="stable")]
    spans, distances = [], []
    for job, free in zip(fitting.tolist(), _free(run, run.started[fitting]), strict=True):
        own = np.bincount(run.slots[run.offsets[job] : run.offsets[job + 1]], minlength=len(free))
        room, pods = free // int(run.gpus[job]), int(run.pods[job])
        # A job that ended as it started held nothing then: its room is free, or others took it at once.
        room = np.maximum(room, own) if run.ended[job] == run.started[job] else room + own
        best, nearest = least_spans(run.tree, room, pods), least_mean_distance(run.tree, room, pods)
        if best is not None and nearest:
            spans.append(span[job] / best - 1.0)
            distances.append(float(distance[job]) / nearest - 1.0)
    levels = run.tree.node_level + 1
    return Gaps(
        jobs=len(distances),
        span=np.mean(spans, axis=0) if spans else np.full(levels, np.nan),
        distance=float(np.mean(distances)) if distances else float("nan"),
    )


def _free(run: RunColumns, times: Floats) -> Counts:
    """Free GPUs at ascending times; shape (N, slots). What ran when the run stopped does not free its own."""
    job: Ints = np.repeat(np.arange(len(run.pods)), np.diff(run.offsets))
    ended = np.where(np.isnan(run.ended), np.inf, run.ended)
    during = np.stack([run.started, ended], axis=1)[job]
    out = run.outages
    return free_at(
        times,
        run.node_gpus,
        np.concatenate((run.slots, out.slots)),
        np.concatenate((run.gpus[job], run.node_gpus[out.slots])),
        np.concatenate((during, np.stack([out.begin, out.end], axis=1))),
    )


def known_mean(rows: Floats) -> Floats:
    """Mean of each column over the rows that know it; nan where none does."""
    known = ~np.isnan(rows)
    counts = known.sum(axis=0)
    sums: Floats = np.where(known, rows, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
