"""What lies between two domains: the switch of the layer at which they meet, and its quality."""

from collections.abc import Mapping

from closeby.topology.quality import UNKNOWN, Quality
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

#: Quality per switch, named by its node label and its name.
SwitchQuality = Mapping[tuple[str, str], Quality]


def meeting_domain(tree: Tree, one: Domain, other: Domain) -> Domain:
    """The finest domain that holds both; the coarser of the two where it holds the other."""
    level = min(one.level, other.level)
    while tree.ancestor(one, level) != tree.ancestor(other, level):
        level -= 1
    return tree.ancestor(one, level)


def quality_between(tree: Tree, quality: SwitchQuality, one: Domain, other: Domain) -> Quality:
    """The quality of the switch at which two domains meet (Topograph label standard: per network layer).

    Nothing is known where they meet at the root only, which no label names, or where nothing was said about
    the switch. A single node has no switch between itself and itself, so nothing is known there either.
    """
    meeting = meeting_domain(tree, one, other)
    if meeting.level in (ROOT_LEVEL, tree.node_level):
        return UNKNOWN
    switch = tree.values[meeting.level][meeting.index]
    return (
        UNKNOWN if switch is None else quality.get((tree.levels[meeting.level].node_label, switch), UNKNOWN)
    )


def latency_between(tree: Tree, quality: SwitchQuality, one: Domain, other: Domain) -> int | None:
    """Latency in nanoseconds at the layer where two domains meet; None when unknown."""
    return quality_between(tree, quality, one, other).latency


def bandwidth_between(tree: Tree, quality: SwitchQuality, one: Domain, other: Domain) -> int | None:
    """Bandwidth in bits per second at the layer where two domains meet; None when unknown."""
    return quality_between(tree, quality, one, other).bandwidth
