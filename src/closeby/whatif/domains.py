"""The domains that could hold a gang as a whole, and what slots come to in each."""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.scheduling.judging.counts import DomainCounts
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

Counts = NDArray[np.int64]
Ints = NDArray[np.intp]


class Domains(Struct, frozen=True, eq=False):
    """Those of one level of a tree; the whole cluster at ``ROOT_LEVEL``."""

    tree: Tree
    level: int
    #: Slots of members that already run: what requires a level must lie in their domain.
    anchors: tuple[int, ...] = ()

    def owners(self, slots: Ints) -> Ints:
        """The domain of each slot; -1 outside the tree."""
        return self.tree.owners_of_slots(slots, self.level)

    def slots(self, domain: int) -> Ints:
        """The nodes of a domain."""
        return self.tree.slots_in(Domain(self.level, domain))

    def sums(self, at: NDArray[np.int64]) -> Counts:
        """What amounts by slot come to in each domain."""
        return DomainCounts(self.tree, at).of(self.level)

    def labelled(self, sums: Counts) -> Counts:
        """The same with -1 for domains that do not carry their level's label."""
        return sums if self.level == ROOT_LEVEL else np.where(self.tree.labelled[self.level], sums, -1)

    def room(self, at: NDArray[np.int64]) -> Counts:
        """The same sums with -1 for all domains in which a gang as a whole may not lie."""
        room = self.labelled(self.sums(at))
        if self.level == ROOT_LEVEL or not self.anchors:
            return room
        owners = self.owners(np.asarray(self.anchors, dtype=np.intp))
        here = (owners == owners[0]).all() & (np.arange(len(room)) == owners[0])
        return np.where(here, room, -1)


def slots_of(placements: Iterable[int | None]) -> tuple[int, ...]:
    """Those that are known."""
    return tuple(slot for slot in placements if slot is not None)
