"""The queue of work items: gangs and plain pods, in one total order that never changes under an item."""

import heapq
from collections.abc import Hashable
from typing import Final

from closeby.scheduling.extension import QueuedItem, QueueSort
from closeby.scheduling.intake.cures import ANYTHING, Stir

#: Rest of an item after its first refusal, and at most (seconds); it doubles from refusal to refusal.
FIRST_REST: Final = 1.0
LONGEST_REST: Final = 10.0

#: An item's place: those whose start was begun go before all others, then comes the QueueSort's key.
_Place = tuple[Hashable, ...]


class WorkQueue:
    """Items that are ready, items that wait for an event, and items that had theirs but rest for a while."""

    def __init__(self, order: QueueSort) -> None:
        self._order = order
        #: item key -> its fixed place in the order, until the item is gone.
        self._places: dict[str, _Place] = {}
        #: Heap of (place, item key); may hold keys that are no longer ready.
        self._heap: list[tuple[_Place, str]] = []
        self._ready: set[str] = set()
        #: item key -> what may help it.
        self._waiting: dict[str, Stir] = {}
        #: item key -> its refusals in a row, and until when it rests.
        self._refusals: dict[str, tuple[int, float]] = {}
        #: Heap of (end of rest, item key): what something happened for that may help, but which still rests.
        self._resting: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Keys of the items that wait for an event, in the order they began to wait."""
        return tuple(self._waiting)

    @property
    def next_due(self) -> float | None:
        """When the first item that rests becomes ready; None when none rests."""
        return self._resting[0][0] if self._resting else None

    @property
    def resting(self) -> tuple[str, ...]:
        """Keys of the items that something may have helped, but which rest still."""
        return tuple(key for _, key in self._resting if key in self._waiting)

    def knows(self, key: str) -> bool:
        """Whether the item already has its place in the order."""
        return key in self._places

    def put(self, item: QueuedItem) -> None:
        """Make an item ready; its place is computed when it first appears."""
        if item.key not in self._places:
            self._places[item.key] = (not item.begun, *self._order.sort_key(item))
        self.wake(item.key)

    def wake(self, key: str) -> None:
        """Make a known item ready again: there is news of its own."""
        self._waiting.pop(key, None)
        if key not in self._ready:
            self._ready.add(key)
            heapq.heappush(self._heap, (self._places[key], key))

    def stir(self, stir: Stir, now: float | None) -> None:
        """Make ready what this may help; what still rests becomes so when its rest is over."""
        for key in [key for key, cure in self._waiting.items() if cure & stir]:
            rests_until = self._refusals.get(key, (0, 0.0))[1]
            if now is None or rests_until <= now:
                self.wake(key)
            else:
                self._waiting[key] = Stir(0)
                heapq.heappush(self._resting, (rests_until, key))

    def rise(self, now: float) -> None:
        """Make ready what has rested long enough."""
        while self._resting and self._resting[0][0] <= now:
            _, key = heapq.heappop(self._resting)
            if key in self._waiting:
                self.wake(key)

    def pop(self) -> str | None:
        """Take the first ready item; None when there is none."""
        while self._heap:
            place, key = heapq.heappop(self._heap)
            # An item that was dropped and came again has a new place; the old one counts no more.
            if key in self._ready and self._places[key] == place:
                self._ready.remove(key)
                return key
        return None

    def park(self, key: str, cure: Stir = ANYTHING, now: float | None = None) -> None:
        """The item was refused at ``now``: it waits for an event that may help it."""
        self._waiting[key] = cure
        if now is not None:
            refusals = self._refusals.get(key, (0, 0.0))[0]
            # A rest that would be longer than the longest needs no exact power of two.
            rest = min(FIRST_REST * 2.0 ** min(refusals, 16), LONGEST_REST)
            self._refusals[key] = refusals + 1, now + rest

    def drop(self, key: str) -> None:
        """The item is gone (placed, or deleted)."""
        self._places.pop(key, None)
        self._ready.discard(key)
        self._waiting.pop(key, None)
        self._refusals.pop(key, None)
