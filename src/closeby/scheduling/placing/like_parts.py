"""Parts of a gang with like pods, as segments mostly are: how many of them the domains of a level can hold.

Each of them must be in one domain. What is free, and the room for each kind of their pods, say how many a
domain holds at the most; one in which there is no way to place the first of them holds none. Where all
domains together hold fewer than there are, no choice of domains and no order of the parts helps.
"""

from collections.abc import Collection

import numpy as np

from closeby.objects.arrays import Counts, Ints
from closeby.scheduling.extension import Candidate
from closeby.topology.tree import Tree


class LikeParts:
    """Some like parts inside a scope, while they are searched side by side."""

    def __init__(
        self, *, names: Collection[str], needed: int, tree: Tree, level: int, first: int, most: Counts
    ) -> None:
        """``needed``: of the parts with these names so many must find a place.

        ``most``: how many of them each domain of a level holds at the most, from the first one on.
        """
        self._names = names
        self._needed = needed
        self._tree = tree
        self._level = level
        self._first = first
        self._most = np.minimum(most, needed)
        self._room = int(self._most.sum())

    @property
    def hopeless(self) -> bool:
        """Whether the domains hold fewer than must find a place."""
        return self._room < self._needed

    def shut(self, name: str, candidate: Candidate | None) -> bool:
        """Whether a domain is known to hold none of the parts, of which ``name`` is one."""
        place = self._place(name, candidate)
        return place is not None and not self._most[place]

    def failed(self, name: str, candidate: Candidate | None, used: Ints) -> None:
        """There is certainly no way to place a part in a domain beside what is on the ``used`` slots."""
        place = self._place(name, candidate)
        if place is None or not self._most[place]:
            return
        owners = self._tree.owners_of_slots(used, self._level)
        if not (owners == self._first + place).any():
            self._room -= int(self._most[place])
            self._most[place] = 0

    def _place(self, name: str, candidate: Candidate | None) -> int | None:
        domain = None if candidate is None or candidate.tree is not self._tree else candidate.domain
        if domain is None or domain.level != self._level or name not in self._names:
            return None
        place = domain.index - self._first
        return place if 0 <= place < len(self._most) else None
