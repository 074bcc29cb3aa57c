"""What happened in a run over time, in columns: measures, tables and pictures are made of this one record."""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.lab.workloads.jobs import Jobs
from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.delays import SizeUnit, size_unit
from closeby.quality.moments import RunColumns
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

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return len(self.slots)


class History(Struct, frozen=True, kw_only=True, eq=False):
    """One workload under one policy. With J jobs and P pods that were placed."""

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


class Recorder:
    """The columns of one run. Jobs are identified by their numbers."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._sizes: list[int] = jobs.sizes.tolist()
        self.started = np.full(len(jobs), np.nan)
        self.ended = np.full(len(jobs), np.nan)
        #: Jobs in the order of their starts, and the slots of their pods one after another.
        self._starts = array("q")
        self._slots = array("q")
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
        self._starts.append(job)
        self._slots.extend(slots)

    def ends(self, job: int, now: float) -> None:
        """A job has come to its end."""
        self.busy -= self._sizes[job]
        self.ended[job] = now

    def reserves(self, job: int, now: float, slots: Iterable[int]) -> None:
        """From now on these nodes are kept free for a job, and no others."""
        self.releases(now, "other nodes are kept free")
        self._keeps = (job, tuple(sorted(slots)), now)

    def releases(self, now: float, why: str) -> None:
        """Nothing is kept free any more."""
        if self._keeps is not None:
            job, slots, begin = self._keeps
            self._kept.append(Kept(job=job, slots=slots, begin=begin, end=now, why=why))
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
    ) -> History:
        """All of it as one record; ``room`` has what jobs may use of each node: GPUs, and CPU."""
        offsets, slots = self._places()
        self.releases(until, "")
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
        )

    def _places(self) -> tuple[Ints, Ints]:
        """Slots by job rather than by start, and where each job's begin."""
        starts: NDArray[np.int64] = np.array(self._starts, dtype=np.int64)
        slots: Ints = np.array(self._slots, dtype=np.intp)
        held = np.zeros(len(self._jobs), dtype=np.intp)
        held[starts] = self._jobs.pods[starts]
        owner = np.repeat(starts, self._jobs.pods[starts])
        offsets = np.zeros(len(self._jobs) + 1, dtype=np.intp)
        np.cumsum(held, out=offsets[1:])
        return offsets, slots[np.argsort(owner, kind="stable")]


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
    jobs, counted = history.jobs, history.counted
    # A job that does not count was never started, so that it has no slots to leave out.
    held = np.diff(history.offsets)[counted]
    return RunColumns(
        tree=history.tree,
        node_gpus=history.node_gpus,
        pods=jobs.pods[counted],
        gpus=jobs.gpus[counted],
        priorities=jobs.priorities[counted],
        submitted=jobs.submitted[counted],
        started=history.started[counted],
        ended=history.ended[counted],
        offsets=np.concatenate(([0], np.cumsum(held))).astype(np.intp),
        slots=history.slots,
        until=history.until,
    )
