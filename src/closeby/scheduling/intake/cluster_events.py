"""Which cluster event may help which unschedulable items: queueing hints and equivalence classes.

After an event only the first item of a class is tried, and the next one as long as there is room. So the cost
of a tick grows with the number of classes, not of items.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import Flag, auto
from typing import Final

from closeby.objects.reasons import Reason, ReasonToken
from closeby.scheduling.judging.needs import Need


class ClusterEvent(Flag):
    """What changed in the cluster. A change of an item's own pods or gang requeues it in any case."""

    #: A node was added, changed or deleted, or a pod left its node.
    CAPACITY = auto()
    #: A topology was added, changed or deleted.
    TOPOLOGY = auto()
    #: The graph of an application or the costs of a network were added, changed or deleted.
    NETWORK = auto()
    #: A namespace, Service or workload changed which pods a selector selects.
    SELECTION = auto()
    #: A pod was placed, or changed its labels: others may have to be near it.
    PLACED = auto()
    #: New values of measurements that a plugin uses.
    MEASUREMENT = auto()
    #: A claim of the item, or what its claims can be bound to, was added, changed or deleted.
    VOLUME = auto()
    #: What nodes say of their CSI drivers, or have attached, was added, changed or deleted.
    ATTACHMENT = auto()
    #: Other pods may be evicted than before: a gang's priority or disruption mode changed, a
    #: PodDisruptionBudget, or what a pod says of its own protection.
    VICTIMS = auto()


NO_EVENT: Final = ClusterEvent(0)
ANY_EVENT: Final = ~NO_EVENT

#: Events that may cure these reasons. Any event may cure a reason that is not listed.
_HINTS: Final[Mapping[ReasonToken, ClusterEvent]] = {
    Reason.SCHEDULING_GATED: NO_EVENT,
    Reason.NAMESPACE_EXCLUDED: NO_EVENT,
    Reason.APP_GROUP_NOT_FOUND: NO_EVENT,
    Reason.UNSUPPORTED: NO_EVENT,
    Reason.CLAIM_NOT_FOUND: ClusterEvent.VOLUME,
    Reason.VOLUME_NOT_BINDABLE: ClusterEvent.VOLUME | ClusterEvent.CAPACITY,
    Reason.VOLUME_ZONE_MISMATCH: ClusterEvent.VOLUME | ClusterEvent.CAPACITY,
    Reason.VOLUME_IN_USE: ClusterEvent.VOLUME | ClusterEvent.CAPACITY,
    Reason.VOLUME_LIMIT_REACHED: ClusterEvent.VOLUME | ClusterEvent.CAPACITY | ClusterEvent.ATTACHMENT,
    Reason.INSUFFICIENT_RESOURCES: ANY_EVENT & ~(ClusterEvent.VOLUME | ClusterEvent.ATTACHMENT),
    # New members requeue the gang itself; without its topology it waits for that first.
    Reason.GANG_INCOMPLETE: ClusterEvent.TOPOLOGY,
    Reason.TOPOLOGY_NOT_FOUND: ClusterEvent.TOPOLOGY,
    Reason.TOPOLOGY_LEVEL_NOT_FOUND: ClusterEvent.TOPOLOGY,
    Reason.INVALID_SPEC: ClusterEvent.TOPOLOGY | ClusterEvent.NETWORK,
}


def queueing_hints(reasons: Iterable[ReasonToken]) -> ClusterEvent:
    """The events that may help an item which waits for these reasons."""
    found = NO_EVENT
    for reason in reasons:
        found |= _HINTS.get(reason, ANY_EVENT)
    return found


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
