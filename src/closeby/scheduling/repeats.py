"""Scores of nodes while equal pods come to them one after another, without asking the plugin after each.

Pods of a gang that are scored by what was placed a moment ago go to their nodes one by one. Where they are
equal, a plugin can say at once how its scores go on: which of them change, and to what.
"""

from collections.abc import Sequence
from functools import reduce
from math import inf, log
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Counts, Ints, Scores

#: The domain of each node, 0 for none, and what one more pod adds to the nodes of its domain.
Step = tuple[NDArray[np.int32], int]


class Repeats:
    """One plugin's scores of some nodes, before they are normalised; as it is, they never change."""

    __slots__ = ("values",)

    def __init__(self, values: Scores) -> None:
        #: What ``Score.score`` says now, shape (nodes,).
        self.values = values

    def place(self, at: int) -> bool:
        """One of the pods came to a node, given by its place; whether normalised scores may differ now."""
        return False

    def keep(self, kept: Ints) -> None:
        """Only the nodes at these places take another such pod."""
        self.values = self.values[kept]

    def may_ignore(self, closed: Ints) -> bool:
        """Nodes take no more such pods: whether normalised scores of the others are the same without them.

        They stay among the nodes then, until others are kept.
        """
        return False


#: Of a plugin that does not score such pods, and will not while they come.
UNSCORED: Final = Repeats(np.zeros(0))


class SumsByDomain(Repeats):
    """What nodes score while pods with preferences about each other come to them."""

    __slots__ = ("_alike", "_moves", "_open")

    def __init__(self, values: Scores, moves: Sequence[Step]) -> None:
        super().__init__(values)
        self._moves = _telling(moves)
        #: Which nodes score alike and go on so, and how many of each kind take pods; None before it is asked.
        self._alike: list[int] | None = None
        self._open: list[int] = []

    def place(self, at: int) -> bool:
        moved = False
        for codes, step in self._moves:
            code = codes.item(at)
            if code:
                self.values[codes == code] += step
                moved = True
        return moved

    def keep(self, kept: Ints) -> None:
        super().keep(kept)
        self._moves = _telling([(codes[kept], step) for codes, step in self._moves])
        self._alike = None

    def may_ignore(self, closed: Ints) -> bool:
        """Only the least and the greatest score count, and others still have the scores of these nodes."""
        if self._alike is None:
            columns = np.stack([self.values, *(codes for codes, _ in self._moves)])
            alike = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
            self._alike, self._open = alike.tolist(), np.bincount(alike).tolist()
        same = True
        for at in closed.tolist():
            kind = self._alike[at]
            self._open[kind] -= 1
            same &= self._open[kind] > 0
        return same


def _telling(moves: Sequence[Step]) -> list[Step]:
    """Without those that move all nodes alike: only differences count."""
    return [(codes, step) for codes, step in moves if len(codes) and (codes != codes[0]).any()]


class Spread(Struct, eq=False):
    """A preference, and the pods that count for it."""

    #: Whether each node is a domain.
    by_node: bool
    max_skew: int
    #: (nodes,) the domain of each node, 0 for none.
    codes: Ints
    #: The pods there: (nodes,) where each node is a domain, else by code.
    counts: Counts
    #: Whether the pods that come count themselves, and on which slots pods count; None: on all.
    itself: bool
    eligible: Bools | None = None


class SpreadScores(Repeats):
    """What nodes score while pods come to them that count for their own preferences."""

    __slots__ = ("_factors", "_ignored", "_index", "_kinds", "_needs_all", "_parts")

    def __init__(self, kinds: Sequence[Spread], needs_all: bool, size: int, index: Ints | slice) -> None:
        """``index`` gives the slots of the nodes; a slice of all of them stands for itself."""
        super().__init__(np.zeros(size))
        self._kinds = kinds
        self._needs_all = needs_all
        self._index = index
        self._survey()

    def place(self, at: int) -> bool:
        moved, slot = False, at if isinstance(self._index, slice) else self._index.item(at)
        for one, factor, part in zip(self._kinds, self._factors, self._parts, strict=True):
            if one.itself and (one.eligible is None or one.eligible.item(slot)):
                place = at if one.by_node else one.codes.item(at)
                one.counts[place] = count = one.counts.item(place) + 1
                part[place] = count * factor + (one.max_skew - 1)
                moved = True
        if moved:
            self._count()
        return moved

    def keep(self, kept: Ints) -> None:
        self._index = kept if isinstance(self._index, slice) else self._index[kept]
        for one in self._kinds:
            one.codes = one.codes[kept]
            if one.by_node:
                one.counts = one.counts[kept]
        super().keep(kept)
        self._survey()

    def _survey(self) -> None:
        """How many domains there are, which decides how much a pod counts."""
        size = len(self.values)
        self._ignored: Bools | None = None
        if self._needs_all:
            for one in self._kinds:
                if size and one.codes.item(one.codes.argmin()) == 0:
                    lacking = one.codes == 0
                    self._ignored = lacking if self._ignored is None else self._ignored | lacking
        self._factors: list[float] = []
        #: What each preference says: (nodes,) where each node is a domain, else by code.
        self._parts: list[Scores] = []
        for one in self._kinds:
            codes = one.codes if self._ignored is None else one.codes[~self._ignored]
            domains = len(codes) if one.by_node else int(np.count_nonzero(np.bincount(codes)))
            factor = log(domains + 2)
            part: Scores = np.multiply(one.counts, factor, dtype=np.float64)
            part += one.max_skew - 1
            self._factors.append(factor)
            self._parts.append(part)
        self._count()

    def _count(self) -> None:
        if not self._kinds:
            return
        spread: list[Scores] = []
        for one, part in zip(self._kinds, self._parts, strict=True):
            more = part if one.by_node else part.take(one.codes, mode="clip")
            spread.append(more if self._needs_all else np.where(one.codes == 0, 0.0, more))
        total = reduce(np.add, spread) + 0.5
        self.values = np.floor(total, out=total)
        if self._ignored is not None:
            self.values[self._ignored] = -1.0

    @staticmethod
    def normalized(scores: Scores) -> Scores:
        """The least becomes 100, and what is more the less, the more it is; 0 for what is below 0."""
        if not len(scores):
            return scores
        least, ignored = scores.item(scores.argmin()), None
        if least < 0:
            ignored = scores < 0
            known = scores[~ignored]
            least = float(known.min(initial=inf))
        most = scores.item(scores.argmax())
        if most > 0:
            turned: Scores = (most + least) - scores
            turned *= 100.0
            turned /= most
            np.floor(turned, out=turned)
        else:
            turned = np.full(len(scores), 100.0)
        if ignored is not None:
            turned[ignored] = 0.0
        return turned
