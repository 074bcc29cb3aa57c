"""The virtual clock: what happens next, and when. Nothing ever waits; time jumps from moment to moment."""

import heapq
from math import inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Agenda:
    """Arrivals, which are known beforehand, and ends, which are known once a job has started."""

    def __init__(self, submitted: Floats) -> None:
        """``submitted``: when each job arrives, ascending; seconds."""
        self._submitted: list[float] = submitted.tolist()
        self._arrived = 0
        #: Heap of (end, job).
        self._ends: list[tuple[float, int]] = []

    def starts(self, job: int, until: float) -> None:
        """A job has started and runs until then."""
        heapq.heappush(self._ends, (until, job))

    def next(self) -> float:
        """The next moment at which a job arrives or ends; infinity when nothing is to come."""
        arrives = self._submitted[self._arrived] if self._arrived < len(self._submitted) else inf
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
            ended.append(heapq.heappop(self._ends)[1])
        return ended
