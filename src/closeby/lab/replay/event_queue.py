"""When jobs come, end or are cut short, and what a job that is evicted keeps of its work."""

import heapq
from math import inf

from msgspec import Struct

from closeby.lab.workloads.jobs import Jobs
from closeby.objects.arrays import Floats


class Checkpoints(Struct, frozen=True, kw_only=True):
    """How much of its work a job has on disk, and what it takes to go on from there. Seconds."""

    #: Work between two checkpoints. 30 minutes, as in Hu et al., "Characterization of Large Language Model
    #: Development in the Datacenter", NSDI 2024, section 6.1.
    every: float = 1_800.0
    #: What a job does again before it works, each time that it starts after an eviction.
    restart: float = 0.0


class EventQueue:
    """Arrivals, which are known beforehand, and ends, which are known once a job has started."""

    def __init__(self, submitted: Floats) -> None:
        """``submitted``: when each job arrives, ascending; seconds."""
        self._submitted: list[float] = submitted.tolist()
        self._arrived = 0
        #: Heap of (end, job, which of its runs); those of runs that were cut short are left in it.
        self._ends: list[tuple[float, int, int]] = []
        self._runs = [0] * len(submitted)

    def starts(self, job: int, until: float) -> None:
        """A job has started and runs until then, in seconds as ``submitted``."""
        heapq.heappush(self._ends, (until, job, self._runs[job]))

    def cuts(self, job: int) -> None:
        """A job that runs does not come to its end."""
        self._runs[job] += 1

    def next(self) -> float:
        """The next moment at which a job arrives or ends; infinity when nothing is to come."""
        arrives = self._submitted[self._arrived] if self._arrived < len(self._submitted) else inf
        while self._ends and self._ends[0][2] != self._runs[self._ends[0][1]]:
            heapq.heappop(self._ends)
        return min(arrives, self._ends[0][0]) if self._ends else arrives

    def arrivals(self, now: float) -> range:
        """The jobs that have arrived since the last call."""
        first = self._arrived
        while self._arrived < len(self._submitted) and self._submitted[self._arrived] <= now:
            self._arrived += 1
        return range(first, self._arrived)

    def ends(self, now: float) -> list[int]:
        """The jobs that have ended since the last call; by end, then by number."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            _, job, run = heapq.heappop(self._ends)
            if run == self._runs[job]:
                ended.append(job)
        return ended


class Work:
    """The work of each job that is still to be done, and what is on disk."""

    def __init__(self, jobs: Jobs, checkpoints: Checkpoints) -> None:
        self._every, self._restart = checkpoints.every, checkpoints.restart
        #: Seconds of work that were not on disk when the present run began.
        self._left: list[float] = jobs.durations.tolist()
        self._began = [0.0] * len(jobs)
        self._evicted = [False] * len(jobs)

    def starts(self, job: int, now: float) -> float:
        """A job starts; when it ends unless it is evicted."""
        self._began[job] = now
        return now + self.again(job) + self._left[job] if self._evicted[job] else now + self._left[job]

    def lasts(self, job: int) -> float:
        """Seconds of the next run of a job, or of the present one, unless it is evicted."""
        return self.again(job) + self._left[job]

    def again(self, job: int) -> float:
        """Seconds at the beginning of the present run in which the job does what it did before."""
        return self._restart if self._evicted[job] else 0.0

    def cut(self, job: int, now: float) -> float:
        """A job that runs is evicted; the seconds of this run that are lost."""
        kept = self._kept(job, now)
        self._left[job] -= kept
        self._evicted[job] = True
        return now - self._began[job] - kept

    def since(self, job: int, now: float) -> tuple[float, float | None]:
        """When the present run began, and when it wrote its last checkpoint; None for not yet."""
        kept, began = self._kept(job, now), self._began[job]
        return began, began + self.again(job) + kept if kept else None

    def _kept(self, job: int, now: float) -> float:
        """Seconds of work of the present run that are on disk."""
        worked = now - self._began[job] - self.again(job)
        return min(max(worked, 0.0) // self._every * self._every, self._left[job])
