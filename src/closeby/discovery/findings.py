"""The description of a network, in one form for all sources."""

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from closeby.objects.reasons import Condition


class Link(Struct, frozen=True, kw_only=True):
    """All cables of one kind between two things of a network, by name; ``a`` is closer to the nodes."""

    a: str
    b: str
    cables: int = 1
    #: InfiniBand's words such as ``4x`` and ``HDR``; None where the source does not say.
    width: str | None = None
    speed: str | None = None
    #: Bits per second of all cables together.
    bandwidth: int | None = None


class LinkQuality(Struct, frozen=True, kw_only=True):
    """How a switch is reached from the rest of the network; None means unknown."""

    #: Nanoseconds.
    latency: int | None = None
    #: Bits per second.
    bandwidth: int | None = None
    #: Cables to the next coarser switches.
    uplinks: int | None = None


class FoundNode(Struct, frozen=True, kw_only=True):
    """One node: where it is, closest first.

    None where the source says nothing of a level, but of a coarser one; what it says nothing of beyond the
    last known level is left out, so a path may be shorter than the levels.
    """

    path: tuple[str | None, ...]
    labels: Mapping[str, str] = {}
    #: By switch.
    qos: Mapping[str, LinkQuality] = {}


class Plane(Struct, frozen=True, kw_only=True):
    """A part of a fabric that no cables between switches join to the rest."""

    #: That of a switch, which is the topmost one with the lowest GUID.
    name: str
    switches: int
    #: How many nodes have a cable to it.
    nodes: int
    #: Whether nodes are where it says.
    labels: bool
    #: Where it says that nodes are, closest first; only of one that nodes are not by.
    paths: Mapping[str, tuple[str | None, ...]] = {}


class BlockRow(Struct, frozen=True):
    """Slurm's base blocks in their order, those that only keep a place too."""

    names: tuple[str, ...]
    #: Nodes of a base block, then of each level of blocks taken together.
    sizes: tuple[int, ...]


class ScanFindings(Struct, frozen=True, kw_only=True):
    """All that a source describes (the JSON of ``closeby discover``)."""

    #: Closest first.
    levels: tuple[str, ...]
    nodes: Mapping[str, FoundNode]
    links: tuple[Link, ...] = ()
    #: Where the source knows of several; those that nodes are by first.
    planes: tuple[Plane, ...] = ()
    warnings: tuple[Condition, ...] = ()
    #: What Slurm's block plugin is configured with, where that is the source.
    blocks: BlockRow | UnsetType = UNSET
