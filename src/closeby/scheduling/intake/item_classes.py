"""Equivalence classes of unschedulable items: what they need, and until when they back off.

After an event only the first item of a class is tried, and the next one as long as there is room. So the cost
of a tick grows with the number of classes, not of items.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Final

from closeby.scheduling.intake.active_queue import Entry, SortKey
from closeby.scheduling.intake.cluster_events import ClusterEvent
from closeby.scheduling.judging.needs import Need

#: Backoff of an item after its first refusal, and at most (seconds); it doubles with each refusal.
INITIAL_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 10.0
#: Least backoff, in seconds, for each step of a decision that left something of the item waiting, and the
#: most for one decision. A step is about a microsecond, so that is about ten times as long as the decision.
BACKOFF_PER_STEP: Final = 1e-5
MAX_BACKOFF_BY_COST: Final = 60.0
#: Decisions with fewer steps are cheap: their items back off no longer than others.
CHEAP_STEPS: Final = 20_000
#: Events whose effect shows in the room of the nodes, so that it can be compared with what an item needs.
_SEEN: Final = ClusterEvent.CAPACITY | ClusterEvent.PLACED | ClusterEvent.SELECTION | ClusterEvent.MEASUREMENT
#: The same for items that need a place for any of their pods; for them network limits count too.
_SEEN_BY_POD: Final = _SEEN | ClusterEvent.NETWORK


class ItemClass:
    """Unschedulable items with the same need. An item whose need is unknown is alone in its class."""

    __slots__ = (
        "_members",
        "backoff_until",
        "cost_backoff_until",
        "hints",
        "in_backoff",
        "key",
        "may_preempt",
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
        #: The first item is tried also while what it needs is not free: it may find victims now.
        self.may_preempt = False

    def __bool__(self) -> bool:
        return bool(self._members) or self.trying is not None

    def __iter__(self) -> Iterator[str]:
        """Keys of the items that are not being tried, in order."""
        return (key for _, key in self._members)

    @property
    def seen_in_room(self) -> ClusterEvent:
        """The events whose effect shows in the room that the items need, so that it can be compared."""
        if self.need is None:
            return _SEEN
        if self.need.some:
            return _SEEN_BY_POD
        # What its pods need beside each other was worked out with the namespaces as they were.
        return _SEEN & ~ClusterEvent.SELECTION if self.need.by_namespaces else _SEEN

    def refused(self, now: float, steps: int) -> None:
        """An item of the class was refused, after so many steps: all of them back off from now on."""
        # The exponent is bounded, so that many refusals overflow nothing.
        backoff = min(INITIAL_BACKOFF * 2.0 ** min(self.refusals, 16), MAX_BACKOFF)
        self.refusals += 1
        by_cost = min(steps * BACKOFF_PER_STEP, MAX_BACKOFF_BY_COST) if steps >= CHEAP_STEPS else 0.0
        self.cost_backoff_until = now + by_cost
        self.backoff_until = max(now + backoff, self.cost_backoff_until)

    def reset_backoff(self) -> None:
        """The tried item does not wait with the others any more: they back off from the beginning again."""
        self.refusals = 0
        self.backoff_until = self.cost_backoff_until = 0.0

    def add(self, place: SortKey, key: str) -> None:
        """Add an item."""
        entry, members = (place, key), self._members
        if members and members[-1] < entry:  # Items are mostly refused in order.
            members.append(entry)
        else:
            insort(members, entry)

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
