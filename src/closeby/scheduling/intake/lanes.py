"""Which ready item is next: the first in the queue's order, unless its namespace must let others go first.

Decisions that place nothing cost the others time. A namespace that used up an allowance of steps on such
decisions stands back: the other namespaces' items go first until they have used as many steps, then it has
its turn, and so by turns. Inside a namespace the order is always kept, and where no steps are charged
everywhere.
"""

import heapq
from collections.abc import Iterator

from closeby.scheduling.intake.keys import namespace_of
from closeby.scheduling.intake.shapes import Place, Placed


class Lanes:
    """Heaps of ready items. They may hold some that are no longer ready: whoever takes one looks at that."""

    def __init__(self) -> None:
        self._front: list[Placed] = []
        #: By namespace that stands back: its items.
        self._back: dict[str, list[Placed]] = {}
        #: By namespace: steps used on decisions that placed nothing, since it had nothing ready or parked.
        self._used: dict[str, int] = {}
        #: Steps that those who stand back may use before the others go on; below 0 it is the others' turn.
        self._credit = 0

    def push(self, place: Place, key: str) -> None:
        """An item is ready."""
        heap = self._back.get(namespace_of(key), self._front) if self._back else self._front
        heapq.heappush(heap, (place, key))

    def pop(self) -> Placed | None:
        """Take the next item; None when there is none."""
        if not self._back:
            return heapq.heappop(self._front) if self._front else None
        for namespace in [one for one, heap in self._back.items() if not heap]:
            del self._back[namespace], self._used[namespace]
        if self._back and (self._credit >= 0 or not self._front):
            return heapq.heappop(self._back[min(self._back, key=self._turn)])
        return heapq.heappop(self._front) if self._front else None

    def charge(self, key: str, steps: int, allowance: int, *, in_vain: bool) -> None:
        """A decision about an item took so many steps; ``in_vain``: it placed nothing (yet)."""
        namespace = namespace_of(key)
        stood_back = namespace in self._back
        if in_vain or stood_back:
            self._used[namespace] = self._used.get(namespace, 0) + steps
            if self._used[namespace] >= allowance and not stood_back:
                self._stand_back(namespace)
        if namespace in self._back:
            # However long they were alone, the others need not make up for it.
            self._credit = max(self._credit - steps, -allowance)
        elif self._back:
            self._credit = min(self._credit + steps, 0)
        if not self._back:
            self._credit = 0

    def settle(self) -> None:
        """Nothing is ready or parked: all begin anew."""
        self._back.clear()
        self._used.clear()
        self._credit = 0

    def __iter__(self) -> Iterator[Placed]:
        """All entries, in no order."""
        yield from self._front
        for heap in self._back.values():
            yield from heap

    def _turn(self, namespace: str) -> tuple[int, Placed]:
        return self._used[namespace], self._back[namespace][0]

    def _stand_back(self, namespace: str) -> None:
        """Its items go to a lane of their own, behind the namespaces that have stood back for long."""
        mine = [one for one in self._front if namespace_of(one[1]) == namespace]
        self._front = [one for one in self._front if namespace_of(one[1]) != namespace]
        heapq.heapify(mine)
        heapq.heapify(self._front)
        others = [self._used[one] for one in self._back]
        self._used[namespace] = max(self._used[namespace], min(others, default=0))
        self._back[namespace] = mine
