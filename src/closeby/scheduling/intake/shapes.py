"""Items that wait for the same room, in the order of the queue: what may help the first may help the rest.

When something happens that may help, only the first of them is tried, and the next one after it as long as
there is room for it. So a tick costs as much as there are kinds of items that wait, not as there are items.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator

from closeby.scheduling.intake.cures import Stir
from closeby.scheduling.judging.needs import Need

#: An item's place in the queue's order.
Place = tuple[Hashable, ...]
#: An item with its place.
Placed = tuple[Place, str]


class Shape:
    """Waiting items of equal need; one whose need nobody knows, or is met in vain, is a shape of its own."""

    __slots__ = (
        "_members",
        "all_due",
        "cure",
        "due",
        "exhausted_until",
        "key",
        "need",
        "refusals",
        "rests_until",
        "tried",
    )

    def __init__(self, key: Hashable, need: Need | None, cure: Stir) -> None:
        self.key = key
        self.need = need
        #: What may help them.
        self.cure = cure
        #: Those that are not being tried, by place.
        self._members: list[Placed] = []
        #: The one that is being tried.
        self.tried: str | None = None
        #: Refusals in a row, and until when they rest.
        self.refusals = 0
        self.rests_until = 0.0
        #: Until when they rest from the cost of their last decision, whatever happens.
        self.exhausted_until = 0.0
        #: Something may have helped meanwhile: the first, or everyone, is tried when their rest is over.
        self.due = False
        self.all_due = False

    def __bool__(self) -> bool:
        return bool(self._members) or self.tried is not None

    def __iter__(self) -> Iterator[str]:
        """Keys of the items that are not being tried, in order."""
        return (key for _, key in self._members)

    def add(self, place: Place, key: str) -> None:
        """An item waits."""
        insort(self._members, (place, key))

    def remove(self, place: Place, key: str) -> None:
        """An item waits no more."""
        del self._members[bisect_left(self._members, (place, key))]

    def first(self) -> str | None:
        """The first of those that are not being tried."""
        return self._members[0][1] if self._members else None

    def validate(self) -> None:
        """Assert that the items are in order, each once."""
        assert self, "a shape is kept without an item"
        assert all(one < other for one, other in zip(self._members, self._members[1:], strict=False)), (
            "items of one shape are out of order"
        )
        assert not self.all_due or self.due, "a shape is due for everyone, but not due"
