"""Which cluster event may help which unschedulable items: queueing hints."""

from collections.abc import Iterable, Mapping
from enum import Flag, auto
from typing import Final, NamedTuple

from closeby.objects.reasons import Reason, ReasonToken


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


class PreemptionHint(NamedTuple):
    """Of which priority unschedulable items may evict pods now that they could not when they were refused."""

    #: The lowest priority of a pod that holds a node: items of no more have no victims.
    above: int
    #: Items of more could have evicted all pods that have left since.
    up_to: float

    def helps(self, priority: int) -> bool:
        """Whether an item of this priority is worth another attempt, though what it needs is not free."""
        return self.above < priority <= self.up_to
