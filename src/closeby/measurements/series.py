"""Reads the series of an instant vector piece by piece, so that an answer is never in memory as a whole.

An answer of ``/api/v1/query`` is a small envelope around a long list. The list is cut between two of its
series wherever enough has come, and each slice is decoded by itself. A slice begins with a series, so it ends
with one if it can be decoded; one that ends inside of a string can't be.
"""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import msgspec

from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.prometheus import parse_series

#: Bytes that are decoded together. A slice in which no series ends is waited for until it is several times as
#: long, and then given up: no series is that long.
SLICE: Final = 1 << 18
_LONGEST_SLICE: Final = 1 << 20
_LIST: Final = re.compile(rb'"result"\s*:\s*\[')
_BOUNDARY: Final = re.compile(rb"\}\s*,\s*\{")
#: How much of the end of a slice is searched for a boundary, and how many boundaries are tried.
_SEARCHED: Final = 1 << 12
_TRIED: Final = 3

T = TypeVar("T")


class SeriesStream(Generic[T]):
    """One answer. ``feed`` it what comes, then call ``end``."""

    def __init__(self, source: str, shape: Any, take: Callable[[Sequence[T]], None]) -> None:
        """``source`` is for messages, ``shape`` the type of a tuple of series; ``take`` gets them."""
        self._source = source
        self._shape = shape
        self._decode = msgspec.json.Decoder(shape).decode
        self._take = take
        self._buffer = bytearray()
        #: What stands before the list, with its bracket; None while that has not come.
        self._envelope: bytes | None = None
        self._enough = SLICE

    def feed(self, chunk: bytes) -> Unavailable | None:
        """What came next; an error ends the reading."""
        self._buffer += chunk
        while len(self._buffer) >= self._enough:
            if self._envelope is None:
                self._open()
            if self._envelope is not None and self._cut():
                self._enough = SLICE
                continue
            self._enough = 2 * len(self._buffer)
            if self._enough > 2 * _LONGEST_SLICE:
                return Unavailable(f"{self._source} answers what Prometheus does not: a series without end")
        return None

    def end(self, status: str) -> Unavailable | None:
        """All has come; ``status`` is HTTP's, for messages."""
        rest = (self._envelope or b"") + self._buffer
        self._buffer = bytearray()
        found = parse_series(bytes(rest), self._source, status, self._shape)
        if isinstance(found, Unavailable):
            return found
        self._take(found)
        return None

    def _open(self) -> None:
        """Looks for where the list begins: there, and nowhere else, the answer can end after its bracket."""
        # All of them first: while the buffer is searched it can't change.
        for end in [one.end() for one in islice(_LIST.finditer(self._buffer), _TRIED)]:
            envelope = bytes(self._buffer[:end])
            if not isinstance(parse_series(envelope + b"]}}", "", "", self._shape), Unavailable):
                self._envelope = envelope
                del self._buffer[:end]
                return

    def _cut(self) -> bool:
        """Decodes what is there up to the last end of a series; False if none is found."""
        begin = max(0, len(self._buffer) - _SEARCHED)
        found = [one.start() + 1 for one in _BOUNDARY.finditer(self._buffer, begin)]
        for end in reversed(found[-_TRIED:]):
            try:
                series = self._decode(b"[" + self._buffer[:end] + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._take(series)
            del self._buffer[: self._buffer.index(b"{", end)]
            return True
        return False
