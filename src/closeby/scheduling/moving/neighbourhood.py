"""All moves and all swaps of a small layout at once: a step of a descent is one look at a few matrices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.scheduling.extension import Traffic
from closeby.scheduling.moving.layout import Layout
from closeby.scheduling.moving.sites import Sites

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Moves and swaps in all up to which looking at all of them is quicker than looking at one pod after another.
AT_ONCE_UP_TO = 50_000


class Step(NamedTuple):
    """A move of a pod to a site, or (``swap``) an exchange with another pod, and what it changes."""

    change: float
    pod: int
    target: int
    swap: bool

    def take(self, layout: Layout) -> None:
        """Make the change."""
        (layout.swap if self.swap else layout.move)(self.pod, self.target)


class _Pairs(NamedTuple):
    """What it means that two pods lie on two sites, as ``weights[pod, pod] * apart[site, site]``.

    Or, of limits, whether ``apart`` exceeds ``weights``.
    """

    weights: Floats
    apart: Floats
    limits: bool

    def own(self, at: Ints) -> Floats:
        """Of each pod with itself, were it on each site and stayed on its own as well; shape (P, S)."""
        return self._of(np.diag(self.weights)[:, None], self.apart[at])

    def among(self, at: Ints) -> Floats:
        """Of each two pods as they lie; shape (P, P)."""
        return self._of(self.weights, self.apart[np.ix_(at, at)])

    def _of(self, weights: Floats, apart: Floats) -> Floats:
        return (apart > weights).astype(np.float64) if self.limits else weights * apart


class Neighbourhood:
    """The moves and swaps of a layout. With P pods on S sites."""

    def __init__(self, traffic: Traffic, sites: Sites, layout: Layout) -> None:
        self._layout = layout
        count, places = len(layout.pods), layout.locations
        self.size = count * (count + len(places))
        self._rows = np.arange(count)
        self._needs = layout.needs
        own_class = sites.class_of[layout.pods]
        movable = ~sites.pinned[layout.pods]
        bearable = np.isfinite(traffic.standing[:, sites.slots])[layout.kinds]
        self._allowed: Bools = sites.allowed[own_class] & bearable & movable[:, None]
        self._once: Bools = ~np.tri(count, dtype=np.bool_)
        kinds = np.ix_(layout.kinds, layout.kinds)
        self._talk = _Pairs(traffic.weights[kinds], _apart(traffic.between, places), limits=False)
        self._limits = None
        if np.isfinite(traffic.limits).any():
            known = np.where(traffic.unknown, np.finfo(np.float64).max, traffic.between)
            self._limits = _Pairs(traffic.limits[kinds], _apart(known, places), limits=True)

    def best(self) -> Step | None:
        """The change that saves most; None when none saves anything."""
        layout = self._layout
        layout.evaluated += self.size
        moves, swaps = self._changes(layout.costs, self._talk)
        if self._limits is not None:
            broken_moves, broken_swaps = self._changes(layout.broken.astype(np.float64), self._limits)
            moves += layout.penalty * broken_moves
            swaps += layout.penalty * broken_swaps
        best = self._best_swap(swaps, self._best_move(moves))
        return best if best.change < -layout.epsilon else None

    def _changes(self, costs: Floats, pairs: _Pairs) -> tuple[Floats, Floats]:
        """By move, shape (P, S), and by swap, (P, P)."""
        at, rows = self._layout.at, self._rows
        moves = costs[self._layout.kinds] - pairs.own(at)
        moves -= moves[rows, at][:, None]
        there = moves[:, at]
        # Each looks at the other's place as if the other stayed there: twice the pair too little.
        swaps: Floats = there + there.T + 2 * pairs.among(at)
        return moves, swaps

    def _best_move(self, moves: Floats) -> Step:
        fits = self._allowed.copy()
        for needs, left in zip(self._needs.T, self._layout.left, strict=True):
            fits &= needs[:, None] <= left
        fits[self._rows, self._layout.at] = False
        found = np.where(fits, moves, np.inf)
        pod, site = divmod(int(np.argmin(found)), found.shape[1])
        return Step(float(found[pod, site]), pod, site, swap=False)

    def _best_swap(self, swaps: Floats, move: Step) -> Step:
        """Only swaps that save more than the best move are looked at: few are left to check for room."""
        at, left = self._layout.at, self._layout.left
        ones, others = np.nonzero(self._once & (swaps < min(move.change, -self._layout.epsilon)))
        if not len(ones):
            return move
        fits = self._allowed[ones, at[others]] & self._allowed[others, at[ones]] & (at[ones] != at[others])
        more = self._needs[ones] - self._needs[others]
        fits &= (more <= left[:, at[others]].T).all(axis=1) & (-more <= left[:, at[ones]].T).all(axis=1)
        if not fits.any():
            return move
        best = int(np.argmin(np.where(fits, swaps[ones, others], np.inf)))
        one, other = int(ones[best]), int(others[best])
        return Step(float(swaps[one, other]), one, other, swap=True)


def _apart(between: Floats, places: Ints) -> Floats:
    """Costs between sites by those between their locations; a site is at no cost from itself."""
    found: Floats = between[np.ix_(places, places)]
    np.fill_diagonal(found, 0.0)
    return found
