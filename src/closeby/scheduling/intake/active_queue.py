"""The active part of the scheduling queue: in order, but that no namespace takes the turns of the others."""

from bisect import insort
from collections.abc import Hashable, Iterable, Iterator
from typing import Final

from closeby.scheduling.outcomes import namespace_of

#: An item's place in the order of the queue.
SortKey = tuple[Hashable, ...]
#: An item with its sort key.
Entry = tuple[SortKey, str]

#: More items than this that came since the last one was taken are sorted in together.
FEW: Final = 8
#: Items that were taken and are still in the list.
TAKEN: Final = 1024
#: Steps in vain, or of one decision, after which a namespace is throttled. For what it takes then the others
#: get as much.
ALLOWANCE: Final = 20_000


class _Ordered:
    """Entries of which the least is taken first: a sorted list, since most come in order and many at once."""

    __slots__ = ("_first", "_new", "_sorted")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._sorted = sorted(entries)
        #: The place of the least one; those before it were taken.
        self._first = 0
        #: Those that came since.
        self._new: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._new) or self._first < len(self._sorted)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._sorted[self._first :]
        yield from self._new

    def push(self, entry: Entry) -> None:
        self._new.append(entry)

    def least(self) -> Entry:
        if self._new:
            self._settle()
        return self._sorted[self._first]

    def pop(self) -> Entry | None:
        if self._new:
            self._settle()
        if self._first == len(self._sorted):
            return None
        least = self._sorted[self._first]
        self._first += 1
        if self._first > TAKEN and 2 * self._first > len(self._sorted):
            del self._sorted[: self._first]
            self._first = 0
        return least

    def _settle(self) -> None:
        if len(self._new) > FEW:
            del self._sorted[: self._first]
            self._first = 0
            self._sorted += self._new
            self._sorted.sort()
        else:
            for entry in self._new:
                insort(self._sorted, entry, lo=self._first)
        self._new.clear()


class ActiveQueue:
    """The active items. It may also hold items that are no longer active; the caller skips these."""

    def __init__(self) -> None:
        self._ordinary = _Ordered()
        #: The items of throttled namespaces, by namespace.
        self._throttled: dict[str, _Ordered] = {}
        #: By namespace: steps of decisions that placed nothing, since nothing was active.
        self._used: dict[str, int] = {}
        #: Steps that throttled namespaces may use before the others; below 0 it is the others' turn.
        self._credit = 0

    def push(self, place: SortKey, key: str) -> None:
        """Add an active item."""
        items = self._throttled.get(namespace_of(key), self._ordinary) if self._throttled else self._ordinary
        items.push((place, key))

    def pop(self) -> Entry | None:
        """Take the next item; None when there is none."""
        if not self._throttled:
            return self._ordinary.pop()
        for namespace in [one for one, items in self._throttled.items() if not items]:
            del self._throttled[namespace], self._used[namespace]
        if self._throttled and (self._credit >= 0 or not self._ordinary):
            return self._throttled[min(self._throttled, key=self._turn)].pop()
        return self._ordinary.pop()

    def charge(self, key: str, steps: int, *, in_vain: bool) -> None:
        """A decision about an item took so many steps; ``in_vain``: it placed nothing."""
        namespace = namespace_of(key)
        was_throttled = namespace in self._throttled
        if in_vain or steps >= ALLOWANCE or was_throttled:
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

    def settle(self) -> None:
        """Nothing is active: no namespace is throttled any more."""
        self._throttled.clear()
        self._used.clear()
        self._credit = 0

    def __iter__(self) -> Iterator[Entry]:
        """All entries, in no order."""
        yield from self._ordinary
        for items in self._throttled.values():
            yield from items

    def _turn(self, namespace: str) -> tuple[int, Entry]:
        return self._used[namespace], self._throttled[namespace].least()

    def _throttle(self, namespace: str) -> None:
        """Throttle a namespace: its items get a list of their own, after the namespaces throttled before."""
        mine = _Ordered(one for one in self._ordinary if namespace_of(one[1]) == namespace)
        self._ordinary = _Ordered(one for one in self._ordinary if namespace_of(one[1]) != namespace)
        others = [self._used[one] for one in self._throttled]
        self._used[namespace] = max(self._used[namespace], min(others, default=0))
        self._throttled[namespace] = mine
