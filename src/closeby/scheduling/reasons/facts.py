"""Why a pod or a gang finds no place, as facts: what lacks, how much of it, and where. See ``wording``."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from closeby.objects.reasons import ReasonToken


class ResourceLack(Struct, frozen=True, kw_only=True):
    """One resource that some pods lack."""

    resource: str
    #: Of how many pods, by all of them, and by one of them at the most.
    pods: int
    asked: int
    each: int
    #: Free on nodes that the pods may use, on so many nodes, and on one of them at the most.
    free: int = 0
    nodes: int = 0
    largest: int = 0
    #: How many of the pods that is enough for, node by node.
    fits: int = 0
    #: Free on nodes that they may not use, on so many nodes.
    barred: int = 0
    barred_nodes: int = 0
    #: Whether any node has some of it, and if not, what nodes have instead: the nearest names first.
    offered: bool = True
    known: tuple[str, ...] = ()


class Unlabelled(Struct, frozen=True, kw_only=True):
    """Nodes that carry no label which a constraint or a pod asks for."""

    label: str
    #: What the label would have to be; None where any value may do.
    value: str | None = None
    #: How many there are, and whether that is every node.
    nodes: int
    every: bool
    #: The first of them, in natural order.
    names: tuple[str, ...] = ()


class UnknownValue(Struct, frozen=True, kw_only=True):
    """The values of a label that a pod asks for, of which no node has one."""

    label: str
    asked: tuple[str, ...]
    #: The value that was probably meant; None where none is spelt nearly so.
    nearest: str | None
    #: Values that nodes have.
    known: tuple[str, ...]


class Example(Struct, frozen=True):
    """Why one node does not take a pod, as its plugin says."""

    node: str
    reason: ReasonToken
    message: str


class ShortOf(StrEnum):
    """What a shortfall is about."""

    #: No node takes a pod, or none of some nodes.
    NODES = "nodes"
    #: Nodes do not take a pod because of its volumes.
    VOLUMES = "volumes"
    #: Equal pods have not enough room in the whole cluster.
    CLUSTER = "cluster"
    #: It lacks nothing but nodes that are held for others.
    HELD = "held"
    #: The pods fit one by one, but not beside each other.
    TOGETHER = "together"
    #: Only so many members find a place.
    MEMBERS = "members"
    #: Members name one claim for one pod at a time.
    CLAIM = "claim"
    #: The search ended for its budget.
    SEARCH = "search"
    #: No domain of a level holds all pods of a gang or of a subgroup.
    DOMAIN = "domain"
    #: Each subgroup, or each segment, finds a domain, but not all of them do.
    SUBGROUPS = "subgroups"
    SEGMENTS = "segments"
    #: Only some segments find a domain; ``segment`` is the first of the others.
    SEGMENT = "segment"
    #: No domain holds the largest of segments that differ.
    LARGEST = "largest"
    #: The domains that may be used do not hold all segments.
    LIMIT = "limit"
    #: Members of a segment find no room in the domain of the others of it, which run.
    RUNNING = "running"


class Shortfall(Struct, frozen=True, kw_only=True):
    """Why a pod or a gang waits. Only what concerns its kind is there besides the first three."""

    what: ShortOf
    reason: ReasonToken
    #: Resources that lack, the scarcest first.
    lacks: tuple[ResourceLack, ...] = ()
    #: A label that nodes lack, or values of one that none has.
    unlabelled: Unlabelled | None = None
    unknown: UnknownValue | None = None
    #: Nodes that take none of the pods, by reason, with examples.
    blocked_by: Mapping[ReasonToken, int] = {}
    examples: tuple[Example, ...] = ()
    #: Names of the pods that find no place, and the subgroup whose they are.
    pods: tuple[str, ...] = ()
    part: str = ""
    #: How many pods (or segments) find room, of how many.
    fits: int = 0
    wanted: int = 0
    #: How the pods constrain each other.
    among: tuple[str, ...] = ()
    #: Whether there is room in the cluster, whatever the topology; false where that is not known.
    room: bool = False
    topology: str = ""
    #: The level that is required, and the coarser level of which all must be in one domain.
    level: str = ""
    inside: str = ""
    #: The roomiest domain of the level, or the one in which others run.
    domain: tuple[str | None, ...] | None = None
    #: Pods that it holds, None where that is not known of unequal ones; and whole segments.
    holds: int | None = None
    segments: int = 0
    #: Whether others of the gang run, beside whom they have to be.
    running: bool = False
    #: The segment, the pods of each, and those of each inside them.
    segment: int = 0
    size: int = 0
    inner: int = 0
    #: Whether each has a domain for itself, and domains that are not free of others.
    alone: bool = False
    occupied: int = 0
    #: Domains that may be used at the most.
    limit: int = 0
    #: Nodes that are held for others, and for whom, for people.
    nodes: int = 0
    holders: str = ""
    claim: str = ""
    #: What lacks in that domain, or for the first member that finds no node.
    there: "Shortfall | None" = None
