"""Whether unequal pods can't all fit beside each other in a domain: shown by sums, without trying them.

For any weights of the kinds of pods, what the nodes can hold of weighted pods at most is a bound: each node
holds the best of the mixtures that fit on it. Where the pods weigh more than all nodes together can hold,
they don't fit, however they are placed. Sums of one resource are such weights, the number of the large pods
are others; from these the weights are improved step by step towards the kinds that fall short. Most searches
that are in vain end here after a few sums.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import MOST, Demand
from closeby.objects.arrays import Amounts, Bools, Counts, Floats, Ints
from closeby.scheduling.pace import UNPACED, Pace

#: A node with more mixtures of pods than this is not judged, nor are all nodes together with more than that.
MOST_OF_A_NODE: Final = 2_000
MOST_OF_ALL: Final = 20_000
#: Kinds of nodes, and of pods, beyond which nothing is judged.
MOST_KINDS: Final = 256
#: Steps by which weights are improved.
STEPS: Final = 300
#: A step of a decision for so many parts of mixtures that are put together, and so many numbers in a sum.
_PARTS: Final = 8
_NUMBERS: Final = 1 << 13
#: Weights are whole numbers up to this, so that sums are exact.
_SCALE: Final = 1 << 20
#: By how much sums of amounts may be wrong.
_ROUNDING: Final = 1e-9
_ALL: Final = slice(None)

Weights = NDArray[np.float64]
#: What one node has free of each resource that is asked for, and how many pods of each kind it takes alone.
NodeKind = tuple[int, ...]


class Bounds:
    """Judges pods of some kinds; mixtures are remembered, since domains have nodes of the same kinds."""

    def __init__(self, needs: Sequence[tuple[Demand, int]], pace: Pace = UNPACED) -> None:
        """``needs``: what a pod of each kind asks for, and how many there are; ``pace`` counts the steps."""
        self._pace = pace
        #: Rows of the resources that any of them asks for.
        self.rows = sorted({row for demand, _ in needs for row in demand.rows})
        of_kind = [dict(zip(demand.rows, demand.amounts, strict=True)) for demand, _ in needs]
        #: (K, R)
        self._asked = np.asarray([[of.get(row, 0) for row in self.rows] for of in of_kind], dtype=np.int64)
        self._wanted = np.asarray([count for _, count in needs], dtype=np.int64)
        self._mixtures: dict[NodeKind, Counts | None] = {}
        #: Weights that showed something before are tried first.
        self._telling: list[Ints] = []

    def asked_beyond(self, free: Amounts) -> Bools:
        """Of which resources the pods ask for more than is free on all nodes, (R,); ``free``: (R, n)."""
        beyond: Bools = self.times_in(free, np.array([0, free.shape[1]]))[:, 0] < 1
        return beyond

    def times_in(self, free: Amounts, starts: Ints) -> Weights:
        """How many times each resource is enough for all pods in parts of the nodes, (R, parts).

        Each part is from one of ``starts`` until the next one.
        """
        asked = self._wanted.astype(np.float64) @ self._asked
        until = np.zeros((len(free), free.shape[1] + 1))
        np.cumsum(free, axis=1, dtype=np.float64, out=until[:, 1:])
        held = np.diff(until[:, starts], axis=1) + _ROUNDING * until[:, -1:]
        return np.floor(held / np.maximum(asked, _ROUNDING)[:, None])

    def limiting(self, kind: int, free: Amounts, room: Counts, rows: Sequence[int] | slice = _ALL) -> Bools:
        """Which of some resources limit the pods of a kind as they should, (rows,).

        ``room`` is how many of them fit on each node, (n,), ``free`` what it has of these resources,
        (rows, n). A resource that is ignored does not limit them.
        """
        asked = self._asked[kind][rows].astype(np.float64)
        limiting: Bools = (room * asked[:, None] <= free).all(axis=1)
        return limiting

    def exceeded(self, free: Amounts, room: Counts) -> bool:
        """Whether the pods certainly don't fit; ``free`` has shape (R, n), ``room`` (K, n).

        ``room`` is how many pods of one kind alone each node takes; the other kinds never make it more.
        There are at most ``MOST_KINDS``.
        """
        # With each node shared among the kinds in this proportion there is room for all.
        if float((self._wanted / np.maximum(room.sum(axis=1), _ROUNDING)).sum()) <= 1.0:
            return False
        limits = np.logical_and.reduce([self.limiting(kind, free, one) for kind, one in enumerate(room)])
        if (self.asked_beyond(free) & limits).any():
            return True
        # A resource of which a node has enough for all that it could take is left out: fewer nodes differ.
        most = np.minimum(room, self._wanted[:, None]).astype(np.float64)
        ample = self._asked.T.astype(np.float64) @ most <= free
        free = np.where(limits[:, None] & ~ample, free, MOST)
        kinds, multiplicity = np.unique(np.concatenate([free, room]), axis=1, return_counts=True)
        if kinds.shape[1] > MOST_KINDS:
            return False
        found: list[Counts] = []
        size = 0
        for column in kinds.T.tolist():
            kind = tuple(column)
            if kind not in self._mixtures:
                self._mixtures[kind] = self._of(kind[: len(free)], kind[len(free) :])
            mixtures = self._mixtures[kind]
            if mixtures is None or size + len(mixtures) > MOST_OF_ALL:
                return False
            found.append(mixtures)
            size += len(mixtures)
        if not found:
            return False
        return self._judge(np.concatenate(found), np.asarray(list(map(len, found))), multiplicity)

    def _judge(self, mixtures: Counts, sizes: Ints, multiplicity: Ints) -> bool:
        starts = np.cumsum(sizes) - sizes
        for told in self._telling:
            held = np.maximum.reduceat(mixtures @ told, starts)
            if int(held @ multiplicity) < int(told @ self._wanted):
                return True
        wanted, numbers = self._wanted.astype(np.float64), mixtures.astype(np.float64)
        steps = 1 + mixtures.size // _NUMBERS
        node_of = np.repeat(np.arange(len(sizes)), sizes)
        tried: list[tuple[float, Weights]] = []
        for first in self._first_weights():
            self._pace.take(steps)
            lack, _ = self._lack(first / wanted, numbers, starts, node_of, multiplicity)
            tried.append((lack, first))
        weights: Weights = max(tried, key=itemgetter(0))[1]
        for _ in range(STEPS):
            self._pace.take(steps)
            lack, supply = self._lack(weights / wanted, numbers, starts, node_of, multiplicity)
            if lack > 0 and self._certain(weights / wanted, mixtures, starts, multiplicity):
                return True
            short = 1.0 - supply / wanted
            if (short <= 0).all():
                return False  # These mixtures hold all pods.
            # Towards weights at which the pods weigh 1 % more than what the nodes hold.
            weights = np.maximum(weights + short * ((0.01 - lack) / float(short @ short)), 0.0)
            if not weights.any():
                return False
            weights = _shares(weights)
        return False

    def _first_weights(self) -> Iterator[Weights]:
        """Shares of each kind of pods in what all weigh together: by resource, and by number of the large."""
        for amounts in self._asked.T:
            if amounts.any():
                yield _shares(amounts * self._wanted.astype(np.float64))
            for least in np.unique(amounts[amounts > 0]):
                yield _shares(np.where(amounts >= least, self._wanted, 0))

    def _lack(
        self, weights: Weights, mixtures: Floats, starts: Ints, node_of: Ints, multiplicity: Ints
    ) -> tuple[float, Weights]:
        """By how much the pods weigh more than what the nodes hold, and what they hold of each kind then."""
        values = mixtures @ weights
        held = np.maximum.reduceat(values, starts)
        reached = np.flatnonzero(values >= held[node_of])
        nodes = node_of[reached]
        chosen = reached[np.concatenate(([True], nodes[1:] != nodes[:-1]))]
        lack = float(weights @ self._wanted) - float(held @ multiplicity)
        return lack, multiplicity @ mixtures[chosen]

    def _certain(self, weights: Weights, mixtures: Counts, starts: Ints, multiplicity: Ints) -> bool:
        """The same in whole numbers."""
        whole = np.round(weights * (_SCALE / weights.max())).astype(np.int64)
        held = np.maximum.reduceat(mixtures @ whole, starts)
        if int(held @ multiplicity) >= int(whole @ self._wanted):
            return False
        self._telling = [whole, *self._telling[:3]]
        return True

    def _of(self, free: Sequence[int], room: Sequence[int]) -> Counts | None:
        """The mixtures that fit on a node and that no pod of the last kind could be added to."""
        most = [min(one, int(wanted)) for one, wanted in zip(room, self._wanted, strict=True)]
        # The kind with the most room is added last, as many as fit.
        order = sorted(range(len(most)), key=most.__getitem__)
        partial: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), tuple(free))]
        for index in order:
            asked, last = self._asked[index].tolist(), index == order[-1]
            longer = []
            for counts, left in partial:
                fits = min([most[index], *(one // of for one, of in zip(left, asked, strict=True) if of)])
                for count in (fits,) if last else range(fits + 1):
                    rest = tuple([one - count * of for one, of in zip(left, asked, strict=True)])
                    longer.append(((*counts, count), rest))
                if len(longer) > MOST_OF_A_NODE:
                    return None
            self._pace.take(len(longer) // _PARTS)
            partial = longer
        mixtures = np.empty((len(partial), len(most)), dtype=np.int64)
        mixtures[:, order] = [counts for counts, _ in partial]
        return mixtures


def _shares(weights: NDArray[np.number]) -> Weights:
    shares: Weights = weights / weights.sum()
    return shares
