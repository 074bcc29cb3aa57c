"""A log of touched slots: a reader that keeps results per node recomputes only what changed."""

import numpy as np

from closeby.objects.arrays import Ints


class ChangeLog:
    """Append-only log of slot numbers; readers keep a cursor.

    The log forgets its older half when it grows past ``limit``; a reader that fell behind gets None.
    """

    def __init__(self, limit: int = 1 << 16) -> None:
        self._limit = limit
        self._entries: Ints = np.zeros(1024, dtype=np.intp)
        self._first = 0
        #: Position after the newest entry.
        self.cursor = 0

    def add(self, slots: Ints) -> None:
        """Note that these slots changed."""
        used = self.cursor - self._first
        if used + len(slots) > len(self._entries):
            self._make_room(used, len(slots))
            used = self.cursor - self._first
        self._entries[used : used + len(slots)] = slots
        self.cursor += len(slots)

    def add_one(self, slot: int) -> None:
        """Note that one slot changed."""
        used = self.cursor - self._first
        if used == len(self._entries):
            self._make_room(used, 1)
            used = self.cursor - self._first
        self._entries[used] = slot
        self.cursor += 1

    def since(self, cursor: int) -> Ints | None:
        """Slots touched since ``cursor`` (repeats possible); None when that was too long ago to tell."""
        if cursor < self._first:
            return None
        return self._entries[cursor - self._first : self.cursor - self._first]

    def _make_room(self, used: int, extra: int) -> None:
        keep = used if used + extra <= self._limit else used // 2
        size = len(self._entries)
        while size < keep + extra:
            size *= 2
        entries = np.zeros(size, dtype=np.intp)
        entries[:keep] = self._entries[used - keep : used]
        self._entries = entries
        self._first = self.cursor - keep
