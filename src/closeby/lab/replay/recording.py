"""Writes down what happens in a run over time, moment by moment, and makes its history of that."""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.lab.replay.history import NO_CUT_RUNS, NO_TIMES, CutRuns, History, Kept, Samples
from closeby.lab.workloads.jobs import Jobs
from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.moments import NO_OUTAGES, Outages
from closeby.quality.traffic import TrafficMeasures
from closeby.topology.tree import Tree


class Recorder:
    """The columns of one run. Jobs are identified by their numbers."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._sizes: list[int] = jobs.sizes.tolist()
        self.started = np.full(len(jobs), np.nan)
        self.ended = np.full(len(jobs), np.nan)
        #: Jobs in the order of their starts, and the slots of their pods one after another; which start is
        #: that of a job's last run.
        self._starts = array("q")
        self._slots = array("q")
        self._last: dict[int, int] = {}
        self._queued: list[float] = jobs.submitted.tolist()
        #: Of each run that was cut short: which start it was, and its figures.
        self._cut_starts = array("q")
        self._cut: list[tuple[int, int, int, float, float, float, float]] = []
        self.again = np.zeros(len(jobs))
        self._times = array("d")
        self._columns = (array("q"), array("q"), array("q"))
        self.busy = self.queued = self.queued_gpus = 0
        #: Job -> why it waits, as it was last said.
        self.refusals: dict[int, str] = {}
        self._impossible: list[int] = []
        #: Job, slots and beginning of the reservation that holds now, and those that have ended.
        self._keeps: tuple[int, tuple[int, ...], float] | None = None
        self._kept: list[Kept] = []
        #: How close the pods of each application were when all were placed.
        self.talk: dict[int, TrafficMeasures] = {}
        self.outages: Outages = NO_OUTAGES

    def arrives(self, job: int) -> None:
        """A job waits from now on."""
        self.queued += 1
        self.queued_gpus += self._sizes[job]

    def _leaves_queue(self, job: int) -> None:
        """A job that waited does not wait any more."""
        self.queued -= 1
        self.queued_gpus -= self._sizes[job]

    def refuses(self, job: int, why: str) -> None:
        """A job that is too large for the cluster does not even wait."""
        self._impossible.append(job)
        self.refusals[job] = why

    def starts(self, job: int, now: float, slots: Sequence[int]) -> None:
        """A job that waited has got its nodes: ``slots`` in the order of ranks."""
        self._leaves_queue(job)
        self.busy += self._sizes[job]
        self.started[job] = now
        self.refusals.pop(job, None)
        self._last[job] = len(self._starts)
        self._starts.append(job)
        self._slots.extend(slots)

    def ends(self, job: int, now: float) -> None:
        """A job has come to its end."""
        self.busy -= self._sizes[job]
        self.ended[job] = now

    def evicts(self, job: int, by: int, now: float, lost: float, failed: int = -1) -> None:
        """A job that ran was evicted, and waits again; ``lost`` seconds of its run were in vain.

        ``by`` is -1 where it was not for another job, but ``failed``, the slot of one of its nodes, did.
        """
        self.busy -= self._sizes[job]
        self._cut_starts.append(self._last.pop(job))
        self._cut.append((job, by, failed, self._queued[job], float(self.started[job]), now, lost))
        self.started[job] = np.nan
        self._queued[job] = now
        self.arrives(job)

    def reserves(self, job: int, now: float, slots: Iterable[int]) -> None:
        """From now on these nodes are kept free for a job, and no others."""
        self.releases(now, "other nodes are kept free")
        self._keeps = (job, tuple(sorted(slots)), now)

    def releases(self, now: float, why: str, reason: str = "") -> None:
        """Nothing is kept free any more."""
        if self._keeps is not None:
            job, slots, begin = self._keeps
            self._kept.append(Kept(job=job, slots=slots, begin=begin, end=now, why=why, reason=reason))
            self._keeps = None

    def sample(self, now: float) -> None:
        """The state after a moment; of one moment the last state counts."""
        values = (self.busy, self.queued, self.queued_gpus)
        if self._times and self._times[-1] == now:
            for column, value in zip(self._columns, values, strict=True):
                column[-1] = value
            return
        if self._times and all(
            column[-1] == value for column, value in zip(self._columns, values, strict=True)
        ):
            return
        self._times.append(now)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def history(
        self,
        *,
        policy: str,
        seed: int | None,
        tree: Tree,
        nodes: tuple[str, ...],
        room: tuple[Counts, Counts],
        until: float,
        segments: tuple[tuple[int, int], ...] = (),
    ) -> History:
        """All of it as one record; ``room`` has what jobs may use of each node: GPUs, and CPU."""
        offsets, slots, cut = self._places()
        self.releases(until, "")
        if not self._times:
            # The run was stopped before its first job came.
            self.sample(0.0)
        busy, queued, queued_gpus = (np.array(column, dtype=np.int64) for column in self._columns)
        times: Floats = np.array(self._times, dtype=np.float64)
        return History(
            jobs=self._jobs,
            policy=policy,
            seed=seed,
            tree=tree,
            nodes=nodes,
            node_gpus=room[0],
            node_cpu=room[1],
            started=self.started,
            ended=self.ended,
            offsets=offsets,
            slots=slots,
            until=until,
            samples=Samples(times=times, busy=busy, queued=queued, queued_gpus=queued_gpus),
            refusals=dict(sorted(self.refusals.items())),
            impossible=tuple(self._impossible),
            talk=self.talk,
            reservations=tuple(self._kept),
            cut=cut,
            again=self.again if self._cut else NO_TIMES,
            outages=self.outages,
            segments=segments,
        )

    def _places(self) -> tuple[Ints, Ints, CutRuns]:
        """Slots by job rather than by start, where each job's begin, and the runs that were cut short."""
        starts: NDArray[np.int64] = np.array(self._starts, dtype=np.int64)
        slots: Ints = np.array(self._slots, dtype=np.intp)
        pods = self._jobs.pods[starts]
        run = np.repeat(np.arange(len(starts)), pods)
        cut_starts: NDArray[np.int64] = np.array(self._cut_starts, dtype=np.int64)
        was_cut = np.zeros(len(starts), dtype=np.bool_)
        was_cut[cut_starts] = True
        last = ~was_cut
        held = np.zeros(len(self._jobs), dtype=np.intp)
        held[starts[last]] = pods[last]
        owner = starts[run]
        order = np.argsort(owner, kind="stable")
        order = order[last[run[order]]]
        return _ends(held), slots[order], self._cut_runs(cut_starts, pods, run, slots)

    def _cut_runs(
        self, cut_starts: NDArray[np.int64], pods: Counts, run: NDArray[np.int64], slots: Ints
    ) -> CutRuns:
        if not self._cut:
            return NO_CUT_RUNS
        job, by, failed, queued, started, ended, lost = map(np.asarray, zip(*self._cut, strict=True))
        position = np.full(len(pods), -1, dtype=np.int64)
        position[cut_starts] = np.arange(len(cut_starts))
        owner = position[run]
        order = np.argsort(owner, kind="stable")
        order = order[owner[order] >= 0]
        return CutRuns(
            job=job.astype(np.intp),
            by=by.astype(np.intp),
            failed=failed.astype(np.intp),
            queued=queued,
            started=started,
            ended=ended,
            lost=lost,
            offsets=_ends(pods[cut_starts]),
            slots=slots[order],
        )


def _ends(counts: NDArray[np.signedinteger]) -> Ints:
    """Where the rows of each begin, and where the last ends."""
    offsets = np.zeros(len(counts) + 1, dtype=np.intp)
    np.cumsum(counts, out=offsets[1:])
    return offsets
