"""Pods that fit, summed up a topology's tree (KAI topology-aware scheduling design, "allocatable pods")."""

import numpy as np
from numpy.typing import NDArray

from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

Counts = NDArray[np.int64]
Ints = NDArray[np.intp]


class DomainCounts:
    """How many pods of one class fit in every domain of one tree.

    Exact for equal pods, since each pod placed on a node leaves room for exactly one fewer there.
    """

    __slots__ = ("_of", "total", "tree")

    def __init__(self, tree: Tree, fits: Counts) -> None:
        """``fits`` has shape (slots,)."""
        self.tree = tree
        at = fits[tree.slot_at]
        sums: list[Counts] = [at]
        finer = at
        for level in range(len(tree.levels) - 1, -1, -1):
            starts = tree.children[level][:-1]
            finer = np.add.reduceat(finer, starts) if len(starts) else np.zeros(0, dtype=np.int64)
            sums.append(finer)
        sums.reverse()
        #: per level, ending with single nodes (by position)
        self._of = sums
        self.total = int(sums[0].sum())

    def of(self, level: int) -> Counts:
        """Counts of all domains of a level; ``tree.node_level`` gives single nodes by position.

        ``ROOT_LEVEL`` gives one count, the whole cluster's.
        """
        return np.asarray([self.total]) if level == ROOT_LEVEL else self._of[level]

    def inside(self, domain: Domain) -> int:
        """Count of one domain."""
        return self.total if domain.level == ROOT_LEVEL else int(self._of[domain.level][domain.index])

    def add(self, slots: Ints, change: Counts) -> None:
        """Change the counts of single nodes (each slot at most once) and of all domains that hold them."""
        positions = self.tree.position_of[slots]
        inside = positions < self.tree.size
        if not inside.all():
            positions, change = positions[inside], change[inside]
        self._of[-1][positions] += change
        for sums, at in zip(self._of, self.tree.domain_at, strict=False):
            np.add.at(sums, at[positions], change)
        self.total += int(change.sum())
