"""One thing that might be different, and what would become of a gang or pod then."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

DomainPath = tuple[str | None, ...]
#: What would have to be written, by field.
Fields = Mapping[str, str | int | None]


class Kind(StrEnum):
    """What a counterfactual is about."""

    #: It asks for less.
    RELAXED = "relaxed"
    #: Something that runs comes to its end.
    ENDED = "ended"
    #: How much is missing where it nearly fits, and what stands in the way there.
    SHORT = "short"
    #: Others go before it, because of priority or age.
    BEHIND = "behind"


class JobEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that runs: ``podgroup/namespace/name``, ``job/namespace/name`` or ``pod/namespace/name``."""

    name: str
    #: How many of its pods hold a node.
    pods: int
    #: When the last of these pods will be done (RFC 3339); null when that is not known.
    ends_by: str | None = None


class WhereEntry(Struct, frozen=True, kw_only=True):
    """A place: the tightest domain that holds all pods, and the distinct domains used by level."""

    #: The topology in which the place is given.
    topology: str | None = None
    #: Short name of the level of `domain`; null when only the whole cluster holds them.
    level: str | None = None
    #: Its path of label values.
    domain: DomainPath = ()
    #: Distinct domains used, by short level name.
    span: Mapping[str, int] = {}
    #: At most a few of them.
    nodes: tuple[str, ...] = ()


def lack_entry(lack: Mapping[str, int]) -> dict[str, float]:
    """Amounts that are missing as ``ShortEntry.resources`` has them: cpu in cores, not thousandths."""
    return {name: amount / 1000 if name == "cpu" else amount for name, amount in lack.items()}


class ShortEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How short the domain is that comes closest."""

    #: Short name of its level; null for the whole cluster.
    level: str | None
    #: Its path of label values.
    domain: DomainPath
    #: Pods that fit there.
    fits: int
    #: Pods that have to fit there.
    needed: int
    #: Pods that are too many.
    pods: int
    #: How many empty nodes of the domain would take them; null when that is not known.
    nodes: int | None
    #: What is asked for in all beyond what is free on nodes that may be used; only resources that lack.
    resources: Mapping[str, float]
    #: How many domains of its level would hold all of them if everything that may go had gone; null for an
    #: application.
    could_hold: int | None
    #: Pods (``namespace/name``) without which it fits there; empty where none were found.
    in_the_way: tuple[str, ...]


class TalkEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the talk of an application costs, and its pairs of replicas beyond their limit: now, and then."""

    #: What it costs now.
    here: int | float
    #: What it would cost then.
    there: int | float
    #: Pairs beyond their limit now.
    over_here: int
    #: Pairs beyond their limit then.
    over_there: int


class AheadEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """An item that goes before another one."""

    #: ``podgroup/namespace/name``, ``appgroup/namespace/name`` or ``pod/namespace/name``.
    name: str
    #: Its priority.
    priority: int
    #: The PriorityClass that gives it; empty where none is known.
    priority_class: str
    #: Whether it waits too; else it was placed before.
    waits: bool
    #: The nodes that it got, or would get first.
    nodes: tuple[str, ...]


class Counterfactual(Struct, frozen=True, kw_only=True, rename="camel"):
    """One answer. Only what concerns its kind is there besides the first three."""

    kind: Kind
    #: Whether it would get its nodes then (all pods of an application that wait); the engine was asked,
    #: nothing is guessed.
    fits: bool
    #: All of this for people.
    sentence: str
    #: What would have to be written instead, by field of the PodGroup, AppGroup or pod.
    change: Fields | UnsetType = UNSET
    #: The command that makes that change, where it is one of nodes.
    command: str | UnsetType = UNSET
    #: Those that go before it: placed before it, or first to take what becomes free.
    ahead: tuple[AheadEntry, ...] | UnsetType = UNSET
    #: What would have to be gone.
    jobs: tuple[JobEntry, ...] | UnsetType = UNSET
    #: False where the trials were used up before everything was tried.
    complete: bool | UnsetType = UNSET
    #: Where it would be.
    where: WhereEntry | UnsetType = UNSET
    #: How short the domain is that comes closest.
    short: ShortEntry | UnsetType = UNSET
    #: Of an application, or of a gang's members beyond its minimum: the pods (``namespace/name``) that get a
    #: node then, or another one.
    pods: tuple[str, ...] | UnsetType = UNSET
    #: Of an application: what its traffic costs, and would cost.
    talk: TalkEntry | UnsetType = UNSET
