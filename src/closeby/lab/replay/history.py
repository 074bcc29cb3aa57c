"""What happened in a run over time, in columns: measures, tables and pictures are made of this one record."""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.lab.workloads.jobs import Jobs
from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.delays import SizeUnit, size_unit, waits
from closeby.quality.moments import NO_OUTAGES, Outages, RunColumns
from closeby.quality.summary import Measures, summarise
from closeby.quality.traffic import TrafficMeasures
from closeby.topology.tree import Tree


class Samples(Struct, frozen=True, kw_only=True, eq=False):
    """The state after each moment at which something happened; T moments, all arrays of shape (T,).

    A value holds from its time until the next one.
    """

    #: Virtual seconds, ascending.
    times: Floats
    #: GPUs that jobs hold.
    busy: Counts
    #: Jobs that wait, and the GPUs they ask for.
    queued: Counts
    queued_gpus: Counts


NO_SAMPLES = Samples(
    times=np.zeros(0),
    busy=np.zeros(0, dtype=np.int64),
    queued=np.zeros(0, dtype=np.int64),
    queued_gpus=np.zeros(0, dtype=np.int64),
)


NO_CPU: Counts = np.zeros(0, dtype=np.int64)


class Kept(Struct, frozen=True, kw_only=True):
    """Nodes that were kept free for a job that had waited long, from when to when (virtual seconds)."""

    job: int
    #: The nodes' slots, ascending.
    slots: tuple[int, ...]
    begin: float
    end: float
    #: Why it ended; empty when the run did.
    why: str
    #: The token of that, where it has one.
    reason: str = ""

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return len(self.slots)


class CutRuns(Struct, frozen=True, kw_only=True, eq=False):
    """E runs of jobs that ended with an eviction or with a node that failed, in the order in which they did,
    with Q pods in all.
    """

    #: Whose run it was, and the job that got the room (-1: none, a node failed); shape (E,).
    job: Ints
    by: Ints
    #: The slot of the node that failed; -1 where another job got the room; shape (E,).
    failed: Ints
    #: Virtual seconds from which the job waited, at which this run started, and at which it was evicted;
    #: shape (E,).
    queued: Floats
    started: Floats
    ended: Floats
    #: Seconds of the run that are lost, as they were not on disk; shape (E,).
    lost: Floats
    #: As in a history; shapes (E + 1,) and (Q,).
    offsets: Ints
    slots: Ints

    def __len__(self) -> int:
        return len(self.job)


_NO_INDICES: Ints = np.zeros(0, dtype=np.intp)
NO_TIMES: Floats = np.zeros(0)
NO_CUT_RUNS = CutRuns(
    job=_NO_INDICES,
    by=_NO_INDICES,
    failed=_NO_INDICES,
    queued=NO_TIMES,
    started=NO_TIMES,
    ended=NO_TIMES,
    lost=NO_TIMES,
    offsets=np.zeros(1, dtype=np.intp),
    slots=_NO_INDICES,
)


class History(Struct, frozen=True, kw_only=True, eq=False):
    """One workload under one policy. With J jobs and P pods that were placed.

    Of a job that was evicted this is its last run, which may not have begun; ``cut`` has those before.
    """

    jobs: Jobs
    #: Name of the configuration that was run, and the seed of the workload (None: a trace).
    policy: str
    seed: int | None
    #: The topology in which places are judged; its slots are those of ``nodes``.
    tree: Tree
    #: Names and GPUs of the nodes by slot, less the GPUs of pods that are no jobs of the workload and stay.
    nodes: tuple[str, ...]
    node_gpus: Counts
    #: Virtual seconds at which each job started and ended; nan where it did not; shape (J,).
    started: Floats
    ended: Floats
    #: Slots of the pods in the order of their ranks; job ``i`` has ``slots[offsets[i]:offsets[i + 1]]``,
    #: which is empty if it was never started. Shapes (J + 1,) and (P,).
    offsets: Ints
    slots: Ints
    #: When the run stopped, in virtual seconds.
    until: float
    samples: Samples
    #: Why each job that never started waits, by index.
    refusals: dict[int, str]
    #: Jobs that are too large for the cluster even when no other job runs: refused at once, never queued.
    impossible: tuple[int, ...] = ()
    #: CPU of the nodes by slot, less that of pods that are no jobs and stay, in thousandths of a core; empty
    #: where it is not asked for.
    node_cpu: Counts = NO_CPU
    #: How close the pods of each application were when all were placed, by index.
    talk: dict[int, TrafficMeasures] = {}
    #: Reservations in the order in which they were made.
    reservations: tuple[Kept, ...] = ()
    cut: CutRuns = NO_CUT_RUNS
    #: Seconds at the beginning of each job's last run in which it did what it had done before; (J,), or empty
    #: where that is nothing.
    again: Floats = NO_TIMES
    #: When which nodes were out of order.
    outages: Outages = NO_OUTAGES
    #: The segments of jobs of several pods, coarse to fine: level of the tree, and pods of each.
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Jobs that measures, tables and pictures count; shape (J,).

        Not those that the cluster could not hold even if no other job ran, nor those that were not submitted
        before the run was stopped.
        """
        counted = self.jobs.submitted <= self.until
        counted[list(self.impossible)] = False
        return counted

    @property
    def quiet_from(self) -> float:
        """When the last job had come and the queue was empty, in seconds; ``until`` if neither happened."""
        submitted = self.jobs.submitted[self.counted]
        ends = np.append(self.samples.times[1:], self.until)
        waits = ends[: len(self.samples.times)][self.samples.queued > 0]
        return float(max(submitted.max(initial=0.0), waits.max(initial=0.0)))

    @property
    def told_in_gpus(self) -> bool:
        """Whether use and queue are in GPUs: not where no job that counts asks for any."""
        return bool(self.node_gpus.any()) and size_unit(self.jobs.gpus[self.counted]) is SizeUnit.GPU

    def slots_of(self, job: int) -> Ints:
        """Where the pods of a job were, in the order of their ranks."""
        return self.slots[self.offsets[job] : self.offsets[job + 1]]

    @property
    def queued(self) -> Floats:
        """Since when each job waited for its last run; shape (J,)."""
        if not len(self.cut):
            return self.jobs.submitted
        queued = self.jobs.submitted.copy()
        np.maximum.at(queued, self.cut.job, self.cut.ended)
        return queued

    @property
    def waited(self) -> Floats:
        """What each job waited in all, before its start and after each eviction; seconds, shape (J,)."""
        waited = waits(self.queued, self.started, self.until)
        np.add.at(waited, self.cut.job, self.cut.started - self.cut.queued)
        return waited

    @property
    def evictions(self) -> Counts:
        """How often each job was evicted; shape (J,)."""
        return np.bincount(self.cut.job, minlength=len(self.jobs)).astype(np.int64)

    @property
    def lost(self) -> Floats:
        """Seconds that each job ran in vain, as it was evicted or went on from a checkpoint; shape (J,)."""
        lost = self.again.copy() if len(self.again) else np.zeros(len(self.jobs))
        np.add.at(lost, self.cut.job, self.cut.lost)
        return lost

    def each_run(self) -> "History":
        """A job for each run: first those of the jobs, then the runs that were cut short."""
        cut = self.cut
        if not len(cut):
            return self
        rows = np.concatenate((np.arange(len(self.jobs)), cut.job)).astype(np.intp)
        jobs = replace(self.jobs.take(rows), submitted=np.concatenate((self.queued, cut.queued)))
        again = self.again if len(self.again) else np.zeros(len(self.jobs))
        return replace(
            self,
            jobs=jobs,
            started=np.concatenate((self.started, cut.started)),
            ended=np.concatenate((self.ended, cut.ended)),
            offsets=np.concatenate((self.offsets, self.offsets[-1] + cut.offsets[1:])),
            slots=np.concatenate((self.slots, cut.slots)),
            again=np.concatenate((again, cut.lost)),
            cut=NO_CUT_RUNS,
        )


def measure(history: History, *, unconstrained: Floats | None = None) -> Measures:
    """All measures of the jobs of a run that count.

    ``unconstrained`` is what the same jobs waited in a run without topology constraints, shape (J,).
    """
    waited = None if unconstrained is None else unconstrained[history.counted]
    found = summarise(columns_of(history), unconstrained=waited)
    if not history.jobs.graphs:
        return found
    # Applications call each other; they know neither ranks nor all-reduces.
    return replace(
        found,
        ring_hops=None,
        all_reduce=None,
        contended_all_reduce=None,
        slowdown=None,
        contended_slowdown=None,
        job_slowdown=None,
    )


def columns_of(history: History) -> RunColumns:
    """The jobs that count, in the columns that measures are worked out from."""
    runs = history.each_run()
    jobs = runs.jobs
    # A job that was evicted counts.
    counted = np.concatenate((history.counted, np.ones(len(history.cut), dtype=np.bool_)))
    place = np.cumsum(history.counted) - 1
    # A job that does not count was never started, so that it has no slots to leave out.
    held = np.diff(runs.offsets)[counted]
    return RunColumns(
        tree=history.tree,
        node_gpus=history.node_gpus,
        pods=jobs.pods[counted],
        gpus=jobs.gpus[counted],
        priorities=jobs.priorities[counted],
        submitted=jobs.submitted[counted],
        started=runs.started[counted],
        ended=runs.ended[counted],
        offsets=np.concatenate(([0], np.cumsum(held))).astype(np.intp),
        slots=runs.slots,
        until=history.until,
        evicted=place[history.cut.job].astype(np.intp),
        lost=runs.again[counted] if len(runs.again) else NO_TIMES,
        outages=history.outages,
        segments=history.segments,
    )
