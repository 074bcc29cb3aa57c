"""The active part of the scheduling queue: in order, but that no namespace takes the turns of the others."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from closeby.scheduling.outcomes import namespace_of

#: An item's place in the order of the queue.
SortKey = tuple[Hashable, ...]
#: An item with its sort key.
Entry = tuple[SortKey, str]

#: Steps that placed nothing, or of one decision, after which a namespace is throttled. For what it takes then
#: the others get as much.
ALLOWANCE: Final = 20_000


class ActiveQueue:
    """The active items. It may also hold items that are no longer active; the caller skips these."""

    def __init__(self) -> None:
        self._ordinary: list[Entry] = []
        #: The items of throttled namespaces, by namespace.
        self._throttled: dict[str, list[Entry]] = {}
        #: By namespace: steps of decisions that placed nothing, since nothing was active.
        self._used: dict[str, int] = {}
        #: Steps that throttled namespaces may use before the others; below 0 it is the others' turn.
        self._credit = 0

    def push(self, place: SortKey, key: str) -> None:
        """Add an active item."""
        items = self._throttled.get(namespace_of(key), self._ordinary) if self._throttled else self._ordinary
        heappush(items, (place, key))

    def pop(self) -> Entry | None:
        """Take the next item; None when there is none, and all namespaces start over."""
        for namespace in [one for one, items in self._throttled.items() if not items]:
            del self._throttled[namespace], self._used[namespace]
        items = self._ordinary
        if self._throttled and (self._credit >= 0 or not items):
            items = self._throttled[min(self._throttled, key=self._turn)]
        if items:
            return heappop(items)
        self._used.clear()
        self._credit = 0
        return None

    def charge(self, key: str, steps: int, *, placed: bool) -> None:
        """A decision about an item took so many steps, and ``placed`` something."""
        namespace = namespace_of(key)
        was_throttled = namespace in self._throttled
        if not placed or steps >= ALLOWANCE or was_throttled:
            self._used[namespace] = self._used.get(namespace, 0) + steps
            if self._used[namespace] >= ALLOWANCE and not was_throttled:
                self._throttle(namespace)
        if namespace in self._throttled:
            # Bounded: however long they were alone, the others need not make up for all of it.
            self._credit = max(self._credit - steps, -max(steps, ALLOWANCE))
        elif self._throttled:
            self._credit = min(self._credit + steps, 0)
        if not self._throttled:
            self._credit = 0

    def __iter__(self) -> Iterator[Entry]:
        """All entries, in no order."""
        yield from self._ordinary
        for items in self._throttled.values():
            yield from items

    def _turn(self, namespace: str) -> tuple[int, Entry]:
        return self._used[namespace], self._throttled[namespace][0]

    def _throttle(self, namespace: str) -> None:
        """Throttle a namespace: its items get a heap of their own, after the namespaces throttled before."""
        mine = [one for one in self._ordinary if namespace_of(one[1]) == namespace]
        self._ordinary = [one for one in self._ordinary if namespace_of(one[1]) != namespace]
        heapify(mine)
        heapify(self._ordinary)
        others = [self._used[one] for one in self._throttled]
        self._used[namespace] = max(self._used[namespace], min(others, default=0))
        self._throttled[namespace] = mine
