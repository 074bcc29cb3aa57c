"""One thing that might be different, and what would become of a gang or pod then."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

DomainPath = tuple[str | None, ...]


class Kind(StrEnum):
    """What a counterfactual is about."""

    #: It asks for less.
    RELAXED = "relaxed"
    #: Something that runs comes to its end.
    ENDED = "ended"
    #: How much is missing where it nearly fits, and what stands in the way there.
    SHORT = "short"
    #: The place it would have if the one it has were not there.
    RUNNER_UP = "runnerUp"
    #: Pods of an application that hold a node look for one again.
    ANEW = "anew"


class JobEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that runs: ``podgroup/namespace/name``, ``job/namespace/name`` or ``pod/namespace/name``."""

    name: str
    #: How many of its pods hold a node.
    pods: int
    #: When the last of these pods will be done (RFC 3339); null when that is not known.
    ends_by: str | None = None


class WhereEntry(Struct, frozen=True, kw_only=True):
    """A place: the tightest domain that holds all pods, and the distinct domains used by level."""

    topology: str | None = None
    level: str | None = None
    domain: DomainPath = ()
    span: Mapping[str, int] = {}
    #: At most a few of them.
    nodes: tuple[str, ...] = ()


def lack_entry(lack: Mapping[str, int]) -> dict[str, float]:
    """Amounts that are missing as ``ShortEntry.resources`` has them: cpu in cores, not thousandths."""
    return {name: amount / 1000 if name == "cpu" else amount for name, amount in lack.items()}


class ShortEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How short the domain is that comes closest."""

    level: str | None
    domain: DomainPath
    fits: int
    needed: int
    #: Pods that are too many, and how many empty nodes of the domain would take them.
    pods: int
    nodes: int | None
    #: What is asked for in all beyond what is free on nodes that may be used; only resources that lack.
    resources: Mapping[str, float]
    #: Pods (``namespace/name``) without which it fits there; empty where none were found.
    in_the_way: tuple[str, ...]


class DistanceEntry(Struct, frozen=True, kw_only=True):
    """Mean number of edges between two pods, degraded links by their cost, in the place it has and there."""

    here: float
    there: float


class TalkEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the talk of an application costs, and its pairs of replicas beyond their limit: now, and then."""

    here: int | float
    there: int | float
    over_here: int
    over_there: int


class Counterfactual(Struct, frozen=True, kw_only=True, rename="camel"):
    """One answer. Only what concerns its kind is there besides the first three."""

    kind: Kind
    #: Whether it would get its nodes then (all pods of an application that wait); the engine was asked,
    #: nothing is guessed.
    fits: bool
    sentence: str
    #: What would have to be written instead, by field of the PodGroup, AppGroup or pod.
    change: Mapping[str, str | int | None] | UnsetType = UNSET
    #: What would have to be gone.
    jobs: tuple[JobEntry, ...] | UnsetType = UNSET
    #: False where the trials were used up before everything was tried.
    complete: bool | UnsetType = UNSET
    where: WhereEntry | UnsetType = UNSET
    short: ShortEntry | UnsetType = UNSET
    distance: DistanceEntry | UnsetType = UNSET
    #: Of an application: the pods (``namespace/name``) that get a node then, or another one.
    pods: tuple[str, ...] | UnsetType = UNSET
    #: Of an application: the pods that would have to be deleted and made again, for that.
    anew: tuple[str, ...] | UnsetType = UNSET
    talk: TalkEntry | UnsetType = UNSET
