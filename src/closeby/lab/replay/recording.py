"""Writes a run down as it happens: numbers appended to columns, from which the history is made at the end."""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.lab.replay.history import Counts, Floats, History, Ints, Kept, Samples
from closeby.lab.workloads.jobs import Jobs
from closeby.quality.talk import TalkMeasures
from closeby.topology.tree import Tree


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
        #: How close the pods of each application lay when all were placed.
        self.talk: dict[int, TalkMeasures] = {}

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
