"""What a scheduler wrote in the status of a pod or gang: conditions, its last decision, a reservation."""

from msgspec import Struct


class Recorded(Struct, frozen=True, kw_only=True):
    """One entry of ``status.conditions``, and whose it is (``Kind/namespace/name``)."""

    object: str
    type: str
    status: str
    reason: str
    message: str
    #: ``lastTransitionTime``; empty when it is not set.
    since: str


class DecisionStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``status.lastDecision`` of a PodGroup: what the scheduler decided last, and since when it does."""

    #: RFC 3339.
    time: str
    #: Why the gang, or some of its members, wait: a reason token; None when all of them got a node.
    reason: str | None = None
    message: str = ""


class ReservationStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``status.reservation`` of a PodGroup: the nodes that the scheduler keeps free for the gang."""

    #: How many they are.
    nodes: int
    #: The tightest domain that holds them: its topology, its level (None: the whole cluster) and its path.
    topology: str = ""
    level: str | None = None
    domain: tuple[str, ...] = ()
    #: Since when nodes are kept: RFC 3339, or ``second 600`` of a clock without a date.
    since: str
    #: Pods of the gang without room on these nodes when they were chosen.
    missing: int = 0

    @property
    def where(self) -> str:
        """Such as ``16 nodes of zone-a/rack-1``."""
        place = "/".join(value or "-" for value in self.domain)
        return f"{self.nodes} node{'' if self.nodes == 1 else 's'} of {place or 'the cluster'}"

    @property
    def are(self) -> str:
        """The verb that agrees with the number of nodes."""
        return "is" if self.nodes == 1 else "are"

    def sentence(self) -> str:
        """For the gang."""
        return f"{self.where} {self.are} reserved for it since {self.since}"


class SchedulerStatus(Struct, frozen=True, kw_only=True):
    """What schedulers wrote about a pod or gang; empty where nothing stands or an older version wrote it."""

    conditions: tuple[Recorded, ...] = ()
    last_decision: DecisionStatus | None = None
    reservation: ReservationStatus | None = None
