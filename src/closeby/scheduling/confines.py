"""Where a part of a gang must stay: what every PlacementGenerate plugin has to keep to."""

import numpy as np

from closeby.scheduling.extension import Candidate, PartView
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree


def confines(part: PartView, tree: Tree) -> tuple[Domain, ...]:
    """Domains in which the part may lie as a whole and has room, the tightest first.

    Those of the required level, beside the members that already run; all that the part may use where no level
    is required.
    """
    outer = part.domain_in(tree)
    levels = part.levels
    level = outer.level if levels is None or levels.required is None else levels.required
    if level <= outer.level:
        return (outer,) if _room(part, tree, outer) >= part.needed else ()
    first, end = tree.within(outer, level)
    room = part.room(tree, level)[first:end]
    usable = (room >= part.needed) & tree.labelled[level][first:end]
    if part.anchors:
        owners = tree.owners_of_slots(part.anchors, level)
        usable &= (owners == owners[0]).all() & (np.arange(first, end) == owners[0])
    found = np.flatnonzero(usable)
    order = found[np.argsort(room[found], kind="stable")]
    return tuple(Domain(level, first + index) for index in order.tolist())


def wherever_allowed(part: PartView) -> list[Candidate] | None:
    """For plugins that mind no topology: the domains of a level that is required, else anywhere (None)."""
    if part.levels is None or part.levels.required is None:
        return None
    tree = part.levels.tree
    return [Candidate(slots=tree.slots_in(domain)) for domain in confines(part, tree)]


def _room(part: PartView, tree: Tree, domain: Domain) -> int:
    return int(part.room(tree, domain.level)[0 if domain.level == ROOT_LEVEL else domain.index])
