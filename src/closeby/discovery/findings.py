"""What a source tells of a network, in one form whatever the source."""

from collections.abc import Mapping

from msgspec import Struct

from closeby.objects.reasons import Condition


class Link(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All cables between two things of a network taken together, by their names."""

    a: str
    b: str
    cables: int = 1
    #: InfiniBand's words such as ``4x`` and ``HDR``; None where the source does not say.
    width: str | None = None
    speed: str | None = None
    #: Bits per second of all cables together.
    bandwidth: int | None = None


class LinkQuality(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Towards one switch."""

    #: Nanoseconds.
    latency: int | None = None
    #: Bits per second.
    bandwidth: int | None = None


class FoundNode(Struct, frozen=True, kw_only=True):
    """One node: where it lies, closest first; None where the source says nothing of a level."""

    path: tuple[str | None, ...]
    labels: Mapping[str, str] = {}
    #: By switch.
    qos: Mapping[str, LinkQuality] = {}


class Findings(Struct, frozen=True, kw_only=True):
    """All that a source tells (the JSON of ``closeby discover``)."""

    #: Closest first.
    levels: tuple[str, ...]
    nodes: Mapping[str, FoundNode]
    links: tuple[Link, ...] = ()
    warnings: tuple[Condition, ...] = ()
