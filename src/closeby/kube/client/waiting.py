"""How long-running parts wait: between attempts, until the end has come, and for work that blocks."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from msgspec import Struct

from closeby.objects.process import Contained


class RequestPace(Struct, frozen=True):
    """Seconds: the first wait is about ``first``, each further one twice as long, none beyond ``longest``."""

    first: float = 0.1
    longest: float = 10.0


class Backoff:
    """Counts failures in a row and says how long to wait after each."""

    def __init__(self, pace: RequestPace, chance: random.Random | None = None) -> None:
        self._pace = pace
        self._chance = chance or random.Random()
        self.failures = 0

    def next(self, at_least: float | None = None) -> float:
        """Seconds to wait after one more failure: half to all of the step, or what the server asked for.

        A wait that the server asked for (``Retry-After``) is lengthened by up to a quarter, so that clients
        which got the same answer do not come back together.
        """
        step = min(self._pace.longest, self._pace.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        wait = step * self._chance.uniform(0.5, 1.0)
        if at_least is not None:
            wait = max(wait, at_least * self._chance.uniform(1.0, 1.25))
        return wait

    def reset(self) -> None:
        """Things went well."""
        self.failures = 0


T = TypeVar("T")


class Stopping:
    """Set once, when the end has come."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether the end has come."""
        return self._event.is_set()

    def set(self) -> None:
        """The end has come."""
        self._event.set()

    async def unless(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for ``work``, or for the end."""
        await unless(self._event, work)

    async def rest(self, seconds: float) -> bool:
        """Waits; False when the end comes meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return True
        return False


async def unless(
    end: asyncio.Event, work: Callable[[], Awaitable[T]], within: float | None = None
) -> T | None:
    """What ``work`` returns, or None if ``end`` is set (or ``within`` seconds are over) before."""
    doing = asyncio.ensure_future(work())
    ending = asyncio.ensure_future(end.wait())
    try:
        await asyncio.wait([doing, ending], timeout=within, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, ending):
            task.cancel()


async def in_thread(name: str, work: Callable[[], T]) -> T:
    """What ``work`` returns, called in a thread of its own; raises what it raises.

    For what may hang. The few threads of ``asyncio.to_thread`` would be taken from others who need one, and
    the end of the process would wait for them; a caller that is cancelled does not wait for this one.
    """
    answer: Future[T] = Future()
    # From now on it can't be cancelled: the thread has somewhere to put its answer.
    answer.set_running_or_notify_cancel()

    def run() -> None:
        found = Contained()
        try:
            with found:
                answer.set_result(work())
        finally:
            if not answer.done():
                answer.set_exception(found.error or RuntimeError(f"{name} has ended its thread"))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(answer)
