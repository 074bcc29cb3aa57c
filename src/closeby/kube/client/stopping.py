"""The end of a long-running part, and pauses that it cuts short."""

import asyncio


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

    async def rest(self, seconds: float) -> bool:
        """Waits; False when the end comes meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return True
        return False
