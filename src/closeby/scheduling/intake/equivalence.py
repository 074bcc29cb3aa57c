"""Equivalence classes of unschedulable items: what may help the first of a class may help the others.

After an event only the first item of a class is tried, and the next one as long as there is room. So the cost
of a tick grows with the number of classes, not of items.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator

from closeby.scheduling.intake.cluster_events import ClusterEvent
from closeby.scheduling.judging.needs import Need

#: An item's place in the order of the queue.
SortKey = tuple[Hashable, ...]
#: An item with its sort key.
Entry = tuple[SortKey, str]


class EquivalenceClass:
    """Unschedulable items with the same need. An item whose need is unknown is alone in its class."""

    __slots__ = (
        "_members",
        "backoff_until",
        "cost_backoff_until",
        "hints",
        "in_backoff",
        "key",
        "need",
        "refusals",
        "retry_all",
        "trying",
    )

    def __init__(self, key: Hashable, need: Need | None, hints: ClusterEvent) -> None:
        self.key = key
        self.need = need
        #: The events that may help them.
        self.hints = hints
        #: The items that are not being tried, in order.
        self._members: list[Entry] = []
        #: The one that is being tried.
        self.trying: str | None = None
        #: Refusals in a row, and the end of the backoff.
        self.refusals = 0
        self.backoff_until = 0.0
        #: The end of the backoff after a long search, which no event shortens.
        self.cost_backoff_until = 0.0
        #: Their event came: the first item, or all of them, are tried when the backoff ends.
        self.in_backoff = False
        self.retry_all = False

    def __bool__(self) -> bool:
        return bool(self._members) or self.trying is not None

    def __iter__(self) -> Iterator[str]:
        """Keys of the items that are not being tried, in order."""
        return (key for _, key in self._members)

    def add(self, place: SortKey, key: str) -> None:
        """Add an item."""
        insort(self._members, (place, key))

    def remove(self, place: SortKey, key: str) -> None:
        """Remove an item."""
        del self._members[bisect_left(self._members, (place, key))]

    def first(self) -> str | None:
        """The first item that is not being tried."""
        return self._members[0][1] if self._members else None

    def validate(self) -> None:
        """Assert that the items are in order, each once."""
        assert self, "a class without items is kept"
        assert all(one < other for one, other in zip(self._members, self._members[1:], strict=False)), (
            "items of a class are out of order"
        )
        assert not self.retry_all or self.in_backoff, (
            "all items of a class are to be tried, but it is not in backoff"
        )
