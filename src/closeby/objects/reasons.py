"""Why something was refused, or what is wrong with it: the vocabulary of reasons, and records with them."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from closeby.objects.bounds import MESSAGE, line

#: Bytes of each text of a condition. The name of an object has its kind, its namespace and a name in it.
_BOUNDS: Final = {"object": 640, "field": 512, "message": MESSAGE, "remedy": MESSAGE}
#: Errors that are reported of one object; the rest is counted.
MOST_CONDITIONS: Final = 20


class Reason(StrEnum):
    """A stable token that tools may match on; the sentence beside it is for people."""

    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    HOST_PORT_CONFLICT = "HostPortConflict"
    VOLUME_IN_USE = "VolumeInUse"
    VOLUME_NOT_BINDABLE = "VolumeNotBindable"
    VOLUME_ZONE_MISMATCH = "VolumeZoneMismatch"
    VOLUME_LIMIT_REACHED = "VolumeLimitReached"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    #: Other pods must be near, or must not be.
    POD_AFFINITY_MISMATCH = "PodAffinityMismatch"
    POD_ANTI_AFFINITY_CONFLICT = "PodAntiAffinityConflict"
    TOPOLOGY_SPREAD_VIOLATION = "TopologySpreadViolation"
    #: There is room, but it is kept for a gang that has waited long and goes before.
    NODE_RESERVED = "NodeReserved"
    #: There is room, but in domains that other gangs have for themselves.
    DOMAIN_EXCLUSIVE = "DomainExclusive"
    #: Not a refusal: nodes were kept for a gang until what idled there was as much as may idle.
    RESERVATION_BUDGET_SPENT = "ReservationBudgetSpent"
    BANDWIDTH_RISK = "BandwidthRisk"
    NETWORK_COST_TOO_HIGH = "NetworkCostTooHigh"
    #: A pod waits for the AppGroup that it names, or was placed without it.
    APP_GROUP_NOT_FOUND = "AppGroupNotFound"
    #: Not refusals: of an AppGroup, and of a NetworkTopology that is not the operator's.
    NETWORK_COST_UNKNOWN = "NetworkCostUnknown"
    NETWORK_TOPOLOGY_NOT_COUNTED = "NetworkTopologyNotCounted"
    GANG_INCOMPLETE = "GangIncomplete"
    GANG_DOES_NOT_FIT = "GangDoesNotFit"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    TOPOLOGY_LEVEL_NOT_FOUND = "TopologyLevelNotFound"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    SEARCH_BUDGET_EXHAUSTED = "SearchBudgetExhausted"
    UNSUPPORTED = "Unsupported"
    INVALID_SPEC = "InvalidSpec"
    #: It has a node, and the API server refuses a write without which it can't be bound there.
    BINDING_REFUSED = "BindingRefused"
    #: Not a refusal: the priority that a group names counts only as far as its pods were admitted with it.
    PRIORITY_LIMITED = "PriorityLimited"
    #: Not a refusal: the pod asks to be left alone until its gates are removed (upstream's own token).
    SCHEDULING_GATED = "SchedulingGated"
    #: Not a refusal either: the operator lets closeby place no pods in that namespace.
    NAMESPACE_EXCLUDED = "NamespaceExcluded"
    #: Not a refusal either: a fault of closeby or of a plugin (upstream's own token).
    SCHEDULER_ERROR = "SchedulerError"
    #: The refusal of a plugin that gives no reason of its own; the rejection names the plugin.
    REFUSED_BY_PLUGIN = "RefusedByPlugin"


#: A ``Reason``, or the token of a plugin that does not come with closeby.
ReasonToken: TypeAlias = str

#: What Kubernetes takes as the reason of a condition and of an Event.
_TOKEN: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_]{0,126}[A-Za-z0-9])?")


def check_token(reason: ReasonToken) -> None:
    """Raises a ValueError unless Kubernetes takes this as a reason."""
    if type(reason) is not Reason and _TOKEN.fullmatch(reason) is None:
        raise ValueError(f"a reason must be one word such as RackTooNoisy, not {reason!r}")


def _cut(record: Struct, **most: int) -> None:
    """Make each of these texts of a record one printable line of at most so many bytes."""
    for name, size in most.items():
        text = getattr(record, name)
        bounded = line(text, size)
        if bounded is not text:
            force_setattr(record, name, bounded)


class Rejection(Struct, frozen=True, gc=False):
    """Why one pod may not go to one node."""

    #: Of the common vocabulary, or a token of the plugin's own.
    reason: ReasonToken
    #: For people: one line of bounded length.
    message: str
    #: Name of the plugin that refuses; the engine fills it in.
    plugin: str = ""

    def __post_init__(self) -> None:
        """Checks the token and cuts the message."""
        check_token(self.reason)
        _cut(self, message=MESSAGE)


class Condition(Struct, frozen=True, kw_only=True):
    """What is wrong or noteworthy about one object."""

    # Each text is one printable line of bounded length, whatever the object holds.

    reason: ReasonToken
    #: `Kind/namespace/name`, or `Kind/name` of an object without a namespace.
    object: str
    #: Path of the field; empty when the whole object is meant.
    field: str = ""
    message: str
    #: What the user can do about it; empty when there is nothing to do.
    remedy: str = ""
    #: True when it keeps something from being scheduled.
    blocking: bool = False

    def __post_init__(self) -> None:
        """Checks the reason and cuts the texts."""
        check_token(self.reason)
        _cut(self, **_BOUNDS)

    def sentence(self) -> str:
        """The message and its remedy as one line."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def whole_sentence(self) -> str:
        """The sentence by itself: the field is its subject where the message begins with the verb.

        What is wrong with a value stands after its field, unless the message names that.
        """
        if not self.field:
            return self.sentence()
        if self.message.startswith(("is ", "names ", "asks ")):
            return f"{self.field} {self.sentence()}"
        unnamed = self.reason == Reason.INVALID_SPEC and _last_name(self.field) not in self.message
        return self.located() if unnamed else self.sentence()

    def located(self) -> str:
        """The sentence, after the field that it is about."""
        return f"{self.field}: {self.sentence()}" if self.field else self.sentence()


def _last_name(field: str) -> str:
    """The name at the end of a path: a key in brackets, or what follows the last dot."""
    if field.endswith('"]'):
        return field[:-2].rpartition('["')[2]
    return re.sub(r"\[\d+\]$", "", field.rpartition(".")[2])


def invalid(object: str, field: str, message: str, remedy: str = "", *, blocking: bool = False) -> Condition:
    """An ``InvalidSpec`` of one object."""
    return Condition(
        reason=Reason.INVALID_SPEC,
        object=object,
        field=field,
        message=message,
        remedy=remedy,
        blocking=blocking,
    )


def few(found: Iterable[Condition], most: int = MOST_CONDITIONS) -> tuple[Condition, ...]:
    """The first conditions about one object; one more counts the others, and blocks if one of them does."""
    conditions = tuple(found)
    if len(conditions) <= most:
        return conditions
    told, rest = conditions[: most - 1], conditions[most - 1 :]
    first = next((one for one in rest if one.blocking), rest[0])
    message = f"and {len(rest)} more of its values are wrong"
    return (*told, msgspec.structs.replace(first, message=message, remedy="correct the values named before"))


class Problem(Struct, frozen=True):
    """One problem: of a manifest, a configuration, a trace, a kubeconfig file, a server, or an agent's peer.

    Each text is one printable line of bounded length, whatever its author wrote.
    """

    message: str
    #: What the user can do about it; empty when there is nothing to do.
    remedy: str = ""
    #: Name of the file; empty when no file is to blame.
    file: str = ""
    #: Counted from 1; None when the whole file is meant.
    document: int | None = None
    #: Counted from 1; None when it stands nowhere in the file.
    line: int | None = None
    #: ``Kind/namespace/name`` as far as it could be read; empty otherwise.
    object: str = ""
    #: Path of the field, such as ``spec.containers[0].image``; empty when none is to blame.
    field: str = ""
    #: A stable token that tools may match on; empty where there is none.
    reason: str = ""

    def __post_init__(self) -> None:
        _cut(self, object=MESSAGE, field=MESSAGE, message=MESSAGE, remedy=MESSAGE)

    @property
    def place(self) -> str:
        """``file:line``, or ``file, document 2, line 7`` where a file has several documents."""
        if self.document is None:
            return self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.file}, document {self.document}" + ("" if self.line is None else f", line {self.line}")

    @property
    def where(self) -> str:
        """The place, the object and the field, as far as they are known."""
        return ": ".join(part for part in (self.place, self.object, self.field) if part)

    def sentence(self) -> str:
        """One line: ``where: message; remedy``."""
        sentence = f"{self.where}: {self.message}" if self.where else self.message
        return f"{sentence}; {self.remedy}" if self.remedy else sentence

    def __str__(self) -> str:
        """The sentence, after the reason if there is one."""
        return f"{self.reason}: {self.sentence()}" if self.reason else self.sentence()
