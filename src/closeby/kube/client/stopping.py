"""The end of a long-running part, and pauses that it cuts short."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

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
