"""How far a long reading is, for who waits for it at a terminal."""

import time
from collections.abc import Callable
from typing import Final, TextIO

#: Seconds until the first message, and between two of them.
_LONG: Final = 0.5
_EVERY: Final = 0.1


class Progress:
    """One line on a terminal that says how far a long reading is; nothing anywhere else."""

    def __init__(self, stream: TextIO | None, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``what`` is being done; ``stream`` is None where standard error is closed."""
        self._stream = stream if stream is not None and stream.isatty() else None
        self._what = what
        self._clock = clock
        self._next = clock() + _LONG
        self._shown = False

    def tell(self, objects: int) -> None:
        """So many were read."""
        now = self._clock()
        if self._stream is None or now < self._next:
            return
        self._next, self._shown = now + _EVERY, True
        self._stream.write(f"\r{self._what}: {objects:,} objects")
        self._stream.flush()

    def clear(self) -> None:
        """The line is gone."""
        if self._stream is not None and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
