"""What happened in a run over time, in columns: measures, tables and pictures are made of this one record."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.workloads.jobs import Jobs
from closeby.quality.delays import SizeUnit, size_unit
from closeby.quality.talk import TalkMeasures
from closeby.topology.tree import Tree

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Counts = NDArray[np.int64]


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
    #: How close the pods of each application lay when all were placed, by index.
    talk: dict[int, TalkMeasures] = {}
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
        """Where the pods of a job lay, in the order of their ranks."""
        return self.slots[self.offsets[job] : self.offsets[job + 1]]
