"""slurm-tree: the choice of Slurm's plugin topology/tree (eval_nodes_tree.c, ``_eval_nodes_topo``, 25.05).

Leaf switches are taken one after another until the job has its nodes. Of two leaves the better one is found
by climbing: the leaf that holds all that is left wins, of two such the one with fewer free nodes (best fit);
where neither does their parents are compared in the same way; below one parent the leaf with more free nodes
wins. A leaf nearer to those already taken comes first if it, or the switch up to which the two were compared,
holds all that is left. Inside a leaf nodes come in their order. As Slurm's manual says, that "may result in
more than the optimum number of switches".

What is counted here is how many of the job's pods fit rather than nodes and CPUs. All nodes have one weight.
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from closeby.objects.arrays import Ints
from closeby.scheduling.extension import Candidate, PartView, PlacementGenerate
from closeby.scheduling.plugin_helpers import confines
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree


class SlurmTree(PlacementGenerate):
    """Proposes the nodes that Slurm would take."""

    name: ClassVar[str] = "slurm-tree"
    close_by_default = True

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """One set of nodes below the tightest switch that must hold the part, then below the next, ..."""
        if part.levels is None:
            return None
        tree = part.levels.tree
        return (Candidate(slots=_Switches(part, tree, top).chosen()) for top in confines(part, tree))


class _Switches:
    """How many pods fit below each switch, while leaves are taken."""

    def __init__(self, part: PartView, tree: Tree, top: Domain) -> None:
        self._tree = tree
        self._top = top
        self._left = part.needed
        self._leaf_level = max(tree.node_level - 1, top.level)
        self._nodes = part.room(tree, tree.node_level)
        #: Level -> room of each of its domains; Python numbers, as they are looked at one by one.
        self._room = {
            level: part.room(tree, level).tolist() for level in range(top.level, self._leaf_level + 1)
        }
        first, end = tree.within(top, self._leaf_level) if top.level < self._leaf_level else _itself(top)
        self._leaves = range(first, end)
        #: Leaf -> its ancestors, from the leaf itself up to the top.
        self._paths = {leaf: self._path(leaf) for leaf in self._leaves if self._room[self._leaf_level][leaf]}
        self._distance = dict.fromkeys(self._paths, 0)

    def chosen(self) -> Ints:
        """Slots of the nodes, in the order of the tree."""
        taken: list[int] = []
        while self._left > 0 and self._paths:
            best = self._best()
            for leaf, path in self._paths.items():
                self._distance[leaf] += 2 * _steps(path, self._paths[best])
            taken += self._take(best)
        return self._tree.slot_at[np.asarray(sorted(taken), dtype=np.intp)]

    def _best(self) -> int:
        """The leaf to take next."""
        leaves = iter(self._paths)
        best = next(leaves)
        for leaf in leaves:
            better, fits = self._compare(self._paths[leaf], self._paths[best])
            nearer = self._distance[leaf] - self._distance[best]
            if (nearer < 0 and fits) or (nearer == 0 and better > 0):
                best = leaf
        return best

    def _compare(self, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, bool]:
        """Above 0 if the first leaf is better, and whether its switch, if that is known, holds the rest."""
        level = self._leaf_level
        for step, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            room, rival = self._at(level - step, mine), self._at(level - step, theirs)
            fits, rival_fits = room >= self._left, rival >= self._left
            if fits and rival_fits and room != rival:
                return rival - room, fits
            if fits != rival_fits:
                return (1 if fits else -1), fits
            if fits or step + 1 == len(one) or one[step + 1] == other[step + 1]:
                break
        return room - rival, fits

    def _take(self, leaf: int) -> list[int]:
        """Positions of the leaf's nodes until the job has enough; the leaf is used up then."""
        first, end = self._tree.span(Domain(self._leaf_level, leaf))
        room = self._nodes[first:end]
        usable = np.flatnonzero(room)
        enough = int(np.searchsorted(np.cumsum(room[usable]), self._left)) + 1
        positions = usable[:enough]
        self._left -= int(room[positions].sum())
        path = self._paths.pop(leaf)
        gone = self._at(self._leaf_level, leaf)
        for step, index in enumerate(path):
            self._room[self._leaf_level - step][max(index, 0)] -= gone
        return [first + position for position in positions.tolist()]

    def _at(self, level: int, index: int) -> int:
        return int(self._room[level][index])

    def _path(self, leaf: int) -> tuple[int, ...]:
        at = Domain(self._leaf_level, leaf)
        levels = range(self._leaf_level, self._top.level - 1, -1)
        return tuple(0 if level == ROOT_LEVEL else self._tree.ancestor(at, level).index for level in levels)


def _itself(domain: Domain) -> tuple[int, int]:
    return domain.index, domain.index + 1


def _steps(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Levels up to the lowest switch that two leaves share."""
    return next(step for step, (mine, theirs) in enumerate(zip(one, other, strict=True)) if mine == theirs)
