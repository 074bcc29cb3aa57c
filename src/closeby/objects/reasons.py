"""Why something was refused: the one vocabulary of reasons, and the records that carry them."""

from enum import StrEnum

from msgspec import Struct


class Reason(StrEnum):
    """A stable token that tools may match on; the sentence beside it is for people."""

    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    HOST_PORT_CONFLICT = "HostPortConflict"
    #: There is room, but it is kept for a gang that has waited long and goes before.
    NODE_RESERVED = "NodeReserved"
    BANDWIDTH_RISK = "BandwidthRisk"
    NETWORK_COST_TOO_HIGH = "NetworkCostTooHigh"
    GANG_INCOMPLETE = "GangIncomplete"
    GANG_DOES_NOT_FIT = "GangDoesNotFit"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    TOPOLOGY_LEVEL_NOT_FOUND = "TopologyLevelNotFound"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    SEARCH_BUDGET_EXHAUSTED = "SearchBudgetExhausted"
    UNSUPPORTED = "Unsupported"
    INVALID_SPEC = "InvalidSpec"
    #: Not a refusal: the priority that a group names counts only as far as its pods were admitted with it.
    PRIORITY_LIMITED = "PriorityLimited"
    #: Not a refusal: the pod asks to be left alone until its gates are removed (upstream's own token).
    SCHEDULING_GATED = "SchedulingGated"
    #: Not a refusal either: the operator lets closeby place no pods in that namespace.
    NAMESPACE_EXCLUDED = "NamespaceExcluded"
    #: Not a refusal either: a fault of closeby or of a plugin (upstream's own token).
    SCHEDULER_ERROR = "SchedulerError"


class Condition(Struct, frozen=True, kw_only=True):
    """What is wrong (or noteworthy) about one object: which object, which field, why, and what to do."""

    reason: Reason
    #: ``Kind/namespace/name`` or ``Kind/name``.
    object: str
    #: Path of the field, such as ``spec.levels[1].nodeLabel``; empty when the whole object is meant.
    field: str = ""
    message: str
    #: What the user can do about it; empty when there is nothing to do.
    remedy: str = ""
    #: True when the object (or the part named by ``field``) must not be scheduled while this stands.
    blocking: bool = False

    def sentence(self) -> str:
        """The message and its remedy as one line."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def located(self) -> str:
        """The sentence, after the field that it is about."""
        return f"{self.field}: {self.sentence()}" if self.field else self.sentence()
