"""Notices that the process stood still: what it knows is as old as that, and the cluster must be read again.

A process is stopped, frozen with its container, or waits for a processor. Then others have gone on: what it
had decided is asked about by what it knew before, unless it reads the cluster first. The check is made at the
moment of sending, so that not even the first request after a standstill is sent.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds without a sign of life of the event loop after which the cluster is read again.
LIMIT: Final = 2.0
#: Seconds between two signs of life.
_EVERY: Final = 0.25
#: Goes on while the machine sleeps, where there is such a clock.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Heartbeat:
    """The signs of life of one event loop."""

    def __init__(self, limit: float, stood_still: Callable[[float], None]) -> None:
        """``stood_still`` is called with the seconds of each standstill; ``read`` is to follow."""
        self._limit = limit
        self._stood_still = stood_still
        self._at = _now()
        self._informed = asyncio.Event()
        self._informed.set()

    async def run(self) -> None:
        """Gives signs of life until it is cancelled."""
        self._at = _now()  # Nothing was known before.
        while True:
            self.look()
            await asyncio.sleep(_EVERY)

    def look(self) -> bool:
        """Whether what is known may be relied upon; also a sign of life."""
        now = _now()
        gap, self._at = now - self._at, now
        if gap > self._limit:
            self._informed.clear()
            self._stood_still(gap)
        return self._informed.is_set()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around taking in what was received: the processor time that it takes is no standstill."""
        self.look()
        began = time.thread_time()
        yield
        self._at = min(self._at + time.thread_time() - began, _now())

    def read(self) -> None:
        """The cluster was read again, and what was read is taken in."""
        self._informed.set()

    async def until_informed(self) -> None:
        """Returns once nothing is left to be read again."""
        await self._informed.wait()


def _now() -> float:
    return time.clock_gettime(_CLOCK)
