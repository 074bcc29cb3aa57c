"""Measures of a run that hold at a moment: fragmentation, and how near placements came to the best possible.

Both need to know what was free then. They are worked out at moments spread evenly, not at all of them. The
best is exact for gangs of equal pods, by dynamic programming over the tree: the most pairs that ``k`` pods
inside a domain can have together follows from the same of its children.

Utilisation and goodput are shares of what the cluster could have given in a window that reaches from the
first submission to the last, so that it is the same for whatever schedules these jobs: who lets the last one
wait longer is not measured over a longer time, in which the cluster empties. What is late after it shows in
delays and makespan. Where all jobs are submitted at once that window is empty: it reaches to the last end
then.
"""

from itertools import pairwise
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.topology.tree import Tree


class Window(Struct, frozen=True):
    """From when to when, in virtual seconds."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        """Seconds."""
        return self.end - self.begin


def submission_window(submitted: Floats, ended: Floats, until: float) -> Window:
    """The time in which jobs arrive; arrays of shape (J,), nan where a job did not end."""
    if not len(submitted):
        return Window(0.0, 0.0)
    begin, end = float(submitted.min()), float(submitted.max())
    if end <= begin:
        end = float(np.where(np.isnan(ended), until, ended).max())
    return Window(begin, max(begin, end))


def held(started: Floats, ended: Floats, until: float, window: Window) -> Floats:
    """Seconds of the window for which each job ran; shape (J,)."""
    last = np.where(np.isnan(ended), until, ended)
    ran = np.minimum(last, window.end) - np.maximum(started, window.begin)
    found: Floats = np.maximum(np.nan_to_num(ran, nan=0.0), 0.0)
    return found


def utilisation(gpus: NDArray[Any], seconds: Floats, capacity: float, window: Window) -> float | None:
    """Allocated GPU-time over capacity; ``gpus`` of each whole job and ``seconds`` it ``held`` them, (J,).

    None where the cluster has no GPUs or the window no length.
    """
    given = capacity * window.length
    return float(gpus @ seconds) / given if given > 0 else None


def goodput(
    gpus: NDArray[Any], seconds: Floats, slowdown: Floats, capacity: float, window: Window
) -> float | None:
    """Utilisation in which each job counts 1/slowdown: what is held to wait for the network does no work.

    ``slowdown`` is that of whole jobs, shape (J,); nan (unknown) counts as 1. Never more than utilisation.
    """
    return utilisation(gpus / np.nan_to_num(slowdown, nan=1.0), seconds, capacity, window)


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


#: How many gangs count: from the head of the queue, then those that come next.
NEXT_GANGS: Final = 10


class Waiting(Struct, frozen=True, kw_only=True, eq=False):
    """The gangs that are to be placed next."""

    #: Pods of each, and GPUs of each of its pods; shape (G,).
    pods: NDArray[Any]
    gpus: NDArray[Any]
    #: Fewest domains of each level that could hold it on an empty cluster; shape (G, K).
    fewest: Floats


def largest_shares(tree: Tree, free: NDArray[Any], each: int = 1) -> Floats:
    """Largest gang that one domain of each level can hold now, over all that is free; shape (K,).

    The gang has pods of ``each`` GPUs (or whatever ``free`` counts; shape (slots,)), and is measured in these
    too. 1 is unfragmented; nan where nothing is free.
    """
    total = float(free[tree.slot_at].sum())
    if total <= 0:
        return np.full(tree.node_level + 1, np.nan)
    placeable = free // each * each
    return np.asarray([float(sums.max()) for sums in tree.sums_by_level(placeable[tree.slot_at])]) / total


def stranded_shares(tree: Tree, free: NDArray[Any], waiting: Waiting) -> Floats:
    """Share of the free GPUs that are in domains unable to host the gangs that come next; shape (K,).

    Mean over those of the gangs that an empty domain of the level could host; nan where there is none, or
    nothing is free.
    """
    levels = tree.node_level + 1
    total = float(free[tree.slot_at].sum())
    shares = np.full((len(waiting.pods), levels), np.nan)
    if total > 0:
        amounts = tree.sums_by_level(free[tree.slot_at])
        rooms = {
            each: tree.sums_by_level((free // max(each, 1))[tree.slot_at])
            for each in np.unique(waiting.gpus).tolist()
        }
        for gang, (pods, each) in enumerate(zip(waiting.pods.tolist(), waiting.gpus.tolist(), strict=True)):
            for level in range(levels):
                if waiting.fewest[gang, level] == 1 and each > 0:
                    unable = rooms[each][level] < pods
                    shares[gang, level] = float(amounts[level][unable].sum()) / total
    known = ~np.isnan(shares)
    counts = known.sum(axis=0)
    sums: Floats = np.where(known, shares, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def free_at(
    times: Floats, node_gpus: NDArray[Any], slots: Ints, taken: NDArray[Any], during: Floats
) -> Counts:
    """Free GPUs of each slot at each of the ascending times; shape (N, slots).

    ``slots``, ``taken`` (GPUs of each pod) and ``during`` (when each pod started and ended) tell of P pods;
    shapes (P,), (P,) and (P, 2). A pod holds its GPUs from its start until just before its end.
    """
    width = len(node_gpus)
    first = np.searchsorted(times, during[:, 0], side="left")
    last = np.searchsorted(times, during[:, 1], side="left")
    seen = first < last
    cells = np.concatenate([first[seen], last[seen]]) * width + np.concatenate([slots[seen], slots[seen]])
    changes = np.concatenate([taken[seen], -taken[seen]])
    grid = np.bincount(cells, weights=changes, minlength=(len(times) + 1) * width)
    used = np.cumsum(grid.reshape(len(times) + 1, width)[: len(times)], axis=0)
    free: Counts = np.maximum(node_gpus[None, :] - np.rint(used).astype(np.int64), 0)
    return free


#: Larger gangs, and more nodes with room, are not worked out.
MOST_PODS: Final = 64
MOST_NODES: Final = 4096


def least_spans(tree: Tree, room: NDArray[Any], pods: int) -> Floats | None:
    """Fewest domains of each level, each level for itself, that could hold a gang of equal pods; shape (K,).

    ``room`` says how many of its pods each slot can take; shape (slots,). None where they do not fit.
    """
    at = room[tree.slot_at]
    if at.sum() < pods or not tree.size:
        return None
    found = []
    for sums in tree.sums_by_level(at):
        filled = np.cumsum(np.sort(sums)[::-1])
        found.append(int(np.searchsorted(filled, pods)) + 1)
    return np.asarray(found, dtype=np.float64)


def least_mean_distance(tree: Tree, room: NDArray[Any], pods: int) -> float | None:
    """Least possible mean number of tree edges between two pods of a gang.

    None where the pods do not fit, are fewer than two, or where there are too many of them (``MOST_PODS``)
    or of nodes with room (``MOST_NODES``).
    """
    at = np.minimum(room[tree.slot_at], pods)
    if at.sum() < pods or not 2 <= pods <= MOST_PODS or np.count_nonzero(at) > MOST_NODES:
        return None
    together = _together(np.arange(pods + 1))
    inner = [at] if not tree.node_level else np.split(at, tree.bounds[-1][1:-1])
    best = [_filled(rooms, pods) for rooms in inner]
    for level in range(tree.node_level - 1, -1, -1):
        best = [one + together for one in best]
        children = pairwise(tree.children[level - 1].tolist()) if level else [(0, len(best))]
        best = [_merged(best[first:end]) for first, end in children]
    every = float(together[pods])
    return 2.0 * (every * (tree.node_level + 1) - float(best[0][pods])) / every


def _together(pods: NDArray[Any]) -> Floats:
    """Pairs of pods."""
    found: Floats = pods * (pods - 1) / 2.0
    return found


def _filled(rooms: NDArray[Any], pods: int) -> Floats:
    """Most pairs on one node that 0, 1, … pods on nodes with such rooms can have; shape (pods + 1,).

    Filling the roomiest first is best: pairs grow faster than pods. -inf where the pods do not fit.
    """
    largest = np.sort(rooms)[::-1]
    filled = np.concatenate(([0], np.cumsum(largest)))
    pairs = np.concatenate(([0.0], np.cumsum(_together(largest))))
    counts = np.arange(pods + 1)
    full = np.searchsorted(filled, counts, side="right") - 1
    found: Floats = pairs[full] + _together(counts - filled[full])
    return np.where(counts <= filled[-1], found, -np.inf)


def _merged(domains: list[Floats]) -> Floats:
    """Most pairs of 0, 1, … pods shared out among several domains; all of shape (pods + 1,)."""
    found = domains[0]
    size = len(found)
    for domain in domains[1:]:
        if not np.isfinite(domain[1:]).any():
            continue
        # Row k holds found[k], found[k - 1], … : what the others have while this domain takes 0, 1, …
        padded = np.concatenate([np.full(size - 1, -np.inf), found])
        others = np.lib.stride_tricks.sliding_window_view(padded, size)[:, ::-1]
        found = (others + domain).max(axis=1)
    return found
