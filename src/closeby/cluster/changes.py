"""Logs of touched slots and pods: a reader that keeps results of each recomputes only what changed."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from closeby.objects.arrays import Ints


class PodChanges:
    """uids of the pods that came, went or moved since its one reader looked; it notes none before that."""

    #: From so many on it forgets them: the reader looks at all pods then.
    LIMIT: Final = 1 << 16

    def __init__(self) -> None:
        self._uids: dict[str, None] | None = None

    def add(self, uids: Iterable[str]) -> None:
        if self._uids is not None:
            self._uids.update(dict.fromkeys(uids))
            if len(self._uids) > self.LIMIT:
                self._uids = None

    def take(self) -> dict[str, None] | None:
        """Those since the last call, some of which may be as before; None where that is not known."""
        uids, self._uids = self._uids, {}
        return uids


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
        used = self.cursor - self._first
        if used + len(slots) > len(self._entries):
            self._make_room(used, len(slots))
            used = self.cursor - self._first
        self._entries[used : used + len(slots)] = slots
        self.cursor += len(slots)

    def add_one(self, slot: int) -> None:
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
