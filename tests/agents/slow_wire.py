"""A wire between two network interfaces on which frames take their time, for kernels without netem.

Run as a program it makes both interfaces (TAP devices, which are there as long as it runs), says so, and then
hands each frame that goes into the one out of the other. Each line that it reads is the delay of a frame from
then on, in milliseconds.
"""

import contextlib
import fcntl
import heapq
import itertools
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TUN: Final = Path("/dev/net/tun")
#: ``linux/if_tun.h``
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 0x0002
_IFF_NO_PI: Final = 0x1000
#: Bytes: more than a frame has.
_FRAME: Final = 65_536
_READY: Final = "there"


class SlowWire:
    """A wire at work. Closed, its interfaces are gone."""

    def __init__(self, first: str, second: str) -> None:
        """``first`` and ``second`` are the names of its ends.

        Raises:
            OSError: interfaces can't be made here.
        """
        command = [sys.executable, __file__, first, second]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline().strip() != _READY:
            said = self._process.stderr.read().strip()
            self.close()
            raise OSError(said.rpartition("\n")[2])

    def delay(self, milliseconds: float) -> None:
        """What a frame takes from now on, one way."""
        assert self._process.stdin is not None
        print(milliseconds, file=self._process.stdin, flush=True)

    def close(self) -> None:
        """Cuts it."""
        self._process.kill()
        self._process.communicate()


def _end(name: str) -> int:
    """Makes an interface; frames are read from and written to the descriptor."""
    end = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return end


def _carry(first: int, second: int, orders: int) -> None:
    """Until there are no orders any more."""
    opposite = {first: second, second: first}
    delay = 0.0
    order = itertools.count()
    on_the_way: list[tuple[float, int, int, bytes]] = []
    while True:
        wait = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None
        ready, _, _ = select.select([first, second, orders], [], [], wait)
        for source in ready:
            if source == orders:
                lines = os.read(orders, _FRAME).split()
                if not lines:
                    return
                delay = float(lines[-1]) / 1000
            else:
                frame = os.read(source, _FRAME)
                heapq.heappush(on_the_way, (time.monotonic() + delay, next(order), opposite[source], frame))
        for end, frame in _arrived(on_the_way):
            # An end that is not up, or whose queue is full, loses the frame, as a wire would.
            with contextlib.suppress(OSError):
                os.write(end, frame)


def _arrived(on_the_way: list[tuple[float, int, int, bytes]]) -> Iterator[tuple[int, bytes]]:
    while on_the_way and on_the_way[0][0] <= time.monotonic():
        _, _, end, frame = heapq.heappop(on_the_way)
        yield end, frame


if __name__ == "__main__":
    ends = _end(sys.argv[1]), _end(sys.argv[2])
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    _carry(*ends, sys.stdin.fileno())
