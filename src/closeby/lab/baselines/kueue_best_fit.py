"""kueue-best-fit: Kueue's topology-aware scheduling with its algorithm BestFit, preferred topology.

After ``tas_flavor_snapshot.go`` (``findLevelWithFitDomains``, ``updateCountsToMinimumGeneric``). Up: at the
level asked for, by default the finest, the domain that holds the gang with least room; if none does, the same
one level above, and at the top the fewest domains, largest first. Down: the children of all chosen domains
in one pool, largest first until the gang is covered, the last one as tight as can be. Of equal domains the
first by its label values. Nodes that lack a level's label are left out, as in Kueue.
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Counts, Ints
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Candidate, Handle, PartView, PlacementGenerate
from closeby.scheduling.plugin_helpers import confines
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.tree import Domain, Tree


class KueueArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``level``: the preferred level, by label, alias or short name; none: the finest."""

    level: str | None = None


class KueueBestFit(PlacementGenerate):
    """Proposes the nodes that Kueue would assign."""

    name: ClassVar[str] = "kueue-best-fit"
    Arguments = KueueArguments
    close_by_default = True

    def __init__(self, arguments: KueueArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._level = arguments.level

    def conditions(self) -> tuple[Condition, ...]:
        """Tells of a level that no topology has."""
        if self._level is None or self.handle.topologies.having_level(self._level):
            return ()
        return (_unknown(self._level),)

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """One set of nodes in the tightest domain that must hold the part, then in the next, ..."""
        levels = part.levels
        if levels is None:
            return None
        tree = levels.tree
        level = None if levels.by_default else levels.preferred
        if self._level is not None:
            level = tree.level_named(self._level)
        start = tree.node_level if level is None else level
        return (
            Candidate(slots=tree.slot_at[nodes])
            for outer in confines(part, tree)
            if len(nodes := _assigned(part, tree, outer, start))
        )


def _unknown(level: str) -> Condition:
    return Condition(
        reason=Reason.TOPOLOGY_LEVEL_NOT_FOUND,
        object="Plugin/kueue-best-fit",
        field="arguments.level",
        message=f"no topology has a level {level!r}",
        remedy="name a level by its label, alias or short name; until then the finest one is preferred",
    )


def _assigned(part: PartView, tree: Tree, outer: Domain, start: int) -> Ints:
    """Positions of the chosen nodes; none where those with all labels don't hold the part."""
    rooms = _rooms(part, tree, outer)
    if int(rooms[outer.level].sum()) < part.needed:
        return np.zeros(0, dtype=np.intp)
    level = max(start, outer.level)
    while level > outer.level and int(rooms[level].max(initial=0)) < part.needed:
        level -= 1
    chosen = _fewest(rooms[level], np.arange(len(rooms[level])), part.needed)
    while level < tree.node_level:
        chosen = _fewest(rooms[level + 1], _children(tree, outer, level, chosen), part.needed)
        level += 1
    first, _ = tree.span(outer)
    return np.sort(chosen) + first


def _rooms(part: PartView, tree: Tree, outer: Domain) -> dict[int, Counts]:
    """Room of the domains inside ``outer`` by level, of nodes that carry all labels."""
    first, end = tree.span(outer)
    nodes = part.room(tree, tree.node_level)[first:end] * tree.labelled[tree.node_level][first:end]
    for level in range(max(outer.level, 0), tree.node_level):
        nodes = nodes * tree.labelled[level][tree.domain_at[level][first:end]]
    rooms = {tree.node_level: nodes}
    for level in range(outer.level, tree.node_level):
        low, high = (0, 1) if level == outer.level else tree.within(outer, level)
        owners = _owners(tree, outer, level)
        rooms[level] = np.bincount(owners, weights=nodes, minlength=high - low).astype(np.int64)
    return rooms


def _owners(tree: Tree, outer: Domain, level: int) -> Ints:
    """The domain of each node inside ``outer`` at a level, counted from the first one there."""
    first, end = tree.span(outer)
    if level == outer.level:
        return np.zeros(end - first, dtype=np.intp)
    if level == tree.node_level:
        return np.arange(end - first)
    return tree.domain_at[level][first:end] - tree.within(outer, level)[0]


def _children(tree: Tree, outer: Domain, level: int, chosen: Ints) -> Ints:
    """Domains of the next level inside the chosen ones of ``level``."""
    inside = np.isin(_owners(tree, outer, level), chosen)
    return np.unique(_owners(tree, outer, level + 1)[inside])


def _fewest(room: Counts, domains: Ints, needed: int) -> Ints:
    """Domains that hold so many pods: the tightest that holds what is left, else the largest, and so on."""
    pool = domains[np.argsort(-room[domains], kind="stable")]
    taken: list[int] = []
    for number, domain in enumerate(pool.tolist()):
        if int(room[domain]) >= needed:
            rest = pool[number:]
            enough = rest[room[rest] >= needed]
            return np.asarray([*taken, int(enough[np.argmin(room[enough])])], dtype=np.intp)
        taken.append(domain)
        needed -= int(room[domain])
    raise ValueError("the domains do not hold so many pods")
