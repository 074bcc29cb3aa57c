"""A request that may be held back at the last moment: when its connection stands and it would be written.

Until then it may have waited for credentials or for a connection, or the process stood still.
"""

from collections.abc import Callable

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload


class Withholding(BytesPayload):
    """A body that is written, together with its headers, only if that is still wanted then."""

    def __init__(self, body: bytes, wanted: Callable[[], bool]) -> None:
        super().__init__(body)
        self._wanted = wanted
        self.withheld = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """As aiohttp asks for it, once the connection stands."""
        if not self._wanted():
            self.withheld = True
            raise ConnectionError("it is not wanted any more")
        await super().write_with_length(writer, content_length)
