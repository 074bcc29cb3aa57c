"""The sockets of one client, so that none of them outlives it."""

import asyncio
import contextlib
import socket
from typing import Final

import aiohttp

#: Seconds to let the event loop close what was shut down.
_PATIENCE: Final = 2.0
_LOOK_EVERY: Final = 0.002


class Sockets:
    """Makes sockets for a connector and remembers those that are open.

    A request that was given up leaves its connection waiting for the server's farewell, which a server that
    hangs never sends.
    """

    def __init__(self) -> None:
        self._made: list[socket.socket] = []

    def make(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """A socket for an address."""
        made = socket.socket(*address[:3])
        made.setblocking(False)
        self._made = [*self._left(), made]
        return made

    async def close(self) -> None:
        """Shuts down what is still open, and waits until the event loop has noticed."""
        end = asyncio.get_running_loop().time() + _PATIENCE
        while (left := self._left()) and asyncio.get_running_loop().time() < end:
            for one in left:
                # One that the server has reset is not connected any more.
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(_LOOK_EVERY)

    def _left(self) -> list[socket.socket]:
        return [one for one in self._made if one.fileno() != -1]
