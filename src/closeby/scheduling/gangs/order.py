"""In which order the parts of a gang are placed, and which of them can get in each other's way by that."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.judging.classes import ClassTable
from closeby.topology.constraints import Levels
from closeby.topology.tree import ROOT_LEVEL, Tree


def hardest_first(part: Part) -> list[Part]:
    """A part's children: finer requirements before coarser, then more pods, then by name.

    What is placed later then only needs sums of room.
    """
    return sorted(part.children, key=_hardness)


def entangled(part: Part, table: ClassTable) -> Mapping[str, Sequence[Tree]]:
    """Leaves for which it matters to a later one which nodes of their domain they take.

    For these, one way per domain is not all there is to try. Where pods are equal and each leaf is placed
    before all coarser ones, only the room that is left in the domains counts, so that there are none.
    Returns the trees in which nodes are to be told apart, by name of the leaf.
    """
    leaves = list(_in_order(part, None))
    trees = {levels.tree.name: levels.tree for _, levels in leaves if levels is not None}
    classes = {id(share.pod_class) for leaf, _ in leaves for share in table.shares(leaf.core)}
    mixed = len(classes) > 1 or len({tree.name for tree in _required_trees(part)}) > 1
    found: dict[str, Sequence[Tree]] = {}
    finest_later = ROOT_LEVEL
    for index, (leaf, levels) in enumerate(reversed(leaves)):
        level = ROOT_LEVEL if levels is None or levels.required is None else levels.required
        if leaf.core and index and (mixed or level < finest_later):
            found[leaf.name] = tuple(trees.values())
        finest_later = max(finest_later, level)
    return found


def with_preferences_required(part: Part) -> Part | None:
    """The part with every preferred level of its subgroups required; None where that changes nothing.

    What can be placed so has no subgroup in a coarser domain than it needs. Placed one after another, an
    earlier one might take the very domain that a later one prefers.
    """
    if not part.children:
        return None
    asked = _tightened(part)
    return None if asked is part else asked


def _tightened(part: Part) -> Part:
    children = tuple(_tightened(child) for child in part.children)
    levels = part.levels
    if levels is not None and levels.preferred is not None and not levels.by_default:
        levels = replace(levels, required=levels.preferred, preferred=None)
    if levels is part.levels and all(new is old for new, old in zip(children, part.children, strict=True)):
        return part
    return replace(part, levels=levels, children=children)


def _in_order(part: Part, inherited: Levels | None) -> Iterator[tuple[Part, Levels | None]]:
    """The leaves in the order in which they are placed, each with the nearest requirement on it."""
    own = part.levels if part.levels is not None and part.levels.required is not None else inherited
    if not part.children:
        yield part, own
    for child in hardest_first(part):
        yield from _in_order(child, own)


def _required_trees(part: Part) -> Iterator[Tree]:
    if part.levels is not None and part.levels.required is not None:
        yield part.levels.tree
    for child in part.children:
        yield from _required_trees(child)


def _hardness(part: Part) -> tuple[int, int, str]:
    return -_finest(part), -sum(len(leaf.core) for leaf in part.leaves()), part.name


def _finest(part: Part) -> int:
    level = ROOT_LEVEL if part.levels is None or part.levels.required is None else part.levels.required
    return max([level, *(_finest(child) for child in part.children)])
