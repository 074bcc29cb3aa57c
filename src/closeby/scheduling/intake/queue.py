"""The queue of work items: gangs and plain pods, in one total order that never changes under an item."""

import heapq
from collections.abc import Hashable

from closeby.scheduling.extension import QueuedItem, QueueSort


class WorkQueue:
    """Items that are ready, and items that wait for an event."""

    def __init__(self, order: QueueSort) -> None:
        self._order = order
        #: item key -> its fixed place in the order, until the item is gone.
        self._places: dict[str, tuple[Hashable, ...]] = {}
        #: Heap of (place, item key); may hold keys that are no longer ready.
        self._heap: list[tuple[tuple[Hashable, ...], str]] = []
        self._ready: set[str] = set()
        self._waiting: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Keys of the items that wait for an event, in the order they began to wait."""
        return tuple(self._waiting)

    def knows(self, key: str) -> bool:
        """Whether the item already has its place in the order."""
        return key in self._places

    def put(self, item: QueuedItem) -> None:
        """Make an item ready; its place is computed when it first appears."""
        if item.key not in self._places:
            self._places[item.key] = self._order.sort_key(item)
        self.wake(item.key)

    def wake(self, key: str) -> None:
        """Make a known item ready again."""
        self._waiting.pop(key, None)
        if key not in self._ready:
            self._ready.add(key)
            heapq.heappush(self._heap, (self._places[key], key))

    def pop(self) -> str | None:
        """Take the first ready item; None when there is none."""
        while self._heap:
            place, key = heapq.heappop(self._heap)
            # An item that was dropped and came again has a new place; the old one counts no more.
            if key in self._ready and self._places[key] == place:
                self._ready.remove(key)
                return key
        return None

    def park(self, key: str) -> None:
        """The item waits for an event."""
        self._waiting[key] = None

    def drop(self, key: str) -> None:
        """The item is gone (placed, or deleted)."""
        self._places.pop(key, None)
        self._ready.discard(key)
        self._waiting.pop(key, None)
