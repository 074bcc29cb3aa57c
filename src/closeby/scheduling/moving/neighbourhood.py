"""All moves and all swaps of a small layout at once: a step of a descent is one look at a few matrices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.scheduling.moving.layout import Layout
from closeby.scheduling.moving.sites import Sites
from closeby.scheduling.traffic import Traffic

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
        self._scarce = _scarce(layout)
        kinds = np.ix_(layout.kinds, layout.kinds)
        self._apart = traffic.between[np.ix_(places, places)]
        np.fill_diagonal(self._apart, 0.0)
        self._weights: Floats = traffic.weights[kinds]
        self._own = np.diag(self._weights)[:, None] if np.diag(self._weights).any() else None
        #: Each limit, the pairs of pods that it is about (as 1), and the sites that are beyond it.
        self._limits: list[tuple[Floats, Floats]] = []
        for limit in np.unique(traffic.limits[np.isfinite(traffic.limits)]).tolist():
            beyond = (traffic.between > limit) | traffic.unknown
            beyond = beyond[np.ix_(places, places)].astype(np.float64)
            np.fill_diagonal(beyond, 0.0)
            about = layout.penalty * (traffic.limits[kinds] == limit)
            if about.any():
                self._limits.append((about, beyond))
        self._own_limits = [
            (np.diag(pairs)[:, None], far) for pairs, far in self._limits if np.diag(pairs).any()
        ]

    def best(self) -> Step | None:
        """The change that saves most; None when none saves anything."""
        layout = self._layout
        layout.evaluated += self.size
        moves, swaps = self._changes()
        best = self._best_swap(swaps, self._best_move(moves))
        return best if best.change < -layout.epsilon else None

    def _changes(self) -> tuple[Floats, Floats]:
        """By move, shape (P, S), and by swap, (P, P)."""
        layout, rows = self._layout, self._rows
        at = layout.at
        costs = layout.costs + layout.penalty * layout.broken if self._limits else layout.costs
        moves: Floats = costs.take(layout.kinds, axis=0)
        # A pod does not talk to itself.
        if self._own is not None:
            moves -= self._own * self._apart.take(at, axis=0)
        for own, beyond in self._own_limits:
            moves -= own * beyond.take(at, axis=0)
        moves -= moves[rows, at][:, None]
        there = moves.take(at, axis=1)
        # Each looks at the other's place as if the other stayed there: twice the pair too little.
        pairs = self._weights * self._apart.take(at, axis=0).take(at, axis=1)
        for about, beyond in self._limits:
            pairs += about * beyond.take(at, axis=0).take(at, axis=1)
        pairs *= 2.0
        pairs += there
        pairs += there.T
        return moves, pairs

    def _best_move(self, moves: Floats) -> Step:
        fits = self._allowed.copy()
        for row in self._scarce:
            fits &= self._needs[:, row, None] <= self._layout.left[row]
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


def _scarce(layout: Layout) -> list[int]:
    """The resources of which not every site has room for all pods at once, as rows."""
    enough = layout.sites.free.min(axis=1) >= layout.needs.sum(axis=0)
    rows: list[int] = np.flatnonzero(~enough).tolist()
    return rows
