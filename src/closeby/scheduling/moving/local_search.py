"""Improving the nodes of pods with traffic: several starts, moves and swaps, then shaken and improved again.

The budget is a count of evaluated moves and the random numbers are always the same, so that results repeat.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Floats
from closeby.scheduling.moving.layout import Layout, Sites, Snapshot
from closeby.scheduling.services import Traffic
from closeby.scheduling.steps import Steps

#: Moves and swaps in all up to which looking at all of them is quicker than looking at one pod after another.
AT_ONCE_UP_TO = 50_000
#: To put a pod on its first site takes a step for so many costs of kinds on sites.
FIGURES_A_STEP = 20_000


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
        # A pod has no traffic with itself.
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


#: Moves and swaps that may be evaluated, and at least so many rounds over all of them; more where the layout
#: is so small that all are evaluated at once, which takes a fortieth of the time for each.
MOVES = 200_000
MOVES_AT_ONCE = 8_000_000
ROUNDS = 6
#: Starts from different locations.
STARTS = 8
#: Shakes without a new best after which the search ends, and without any gain after which it goes elsewhere.
PATIENCE = 400
STUCK = 60
#: The search goes on from what costs so much more than the best of its neighbours.
SLACK = 0.01
#: How often the pods of two sites change places when a layout is shaken.
EXCHANGES = 0.5
SEED = 20211015


class Searched(Struct, frozen=True, kw_only=True):
    """The best that was found."""

    #: Slot of each pod, None for those that had none before.
    slots: tuple[int | None, ...]
    cost_before: float
    cost: float
    evaluated: int
    spent: bool


def improve(
    traffic: Traffic, sites: Sites, before: Sequence[int | None], steps: Steps | None = None
) -> Searched:
    """Lower the cost of traffic among pods; ``before`` holds the slot of each, None for those without one."""
    active = [pod for pod, slot in enumerate(before) if slot is not None]
    layout = Layout(traffic, sites, active)
    small = len(active) * (len(active) + len(sites.slots)) <= AT_ONCE_UP_TO
    search = _Search(layout, steps or Steps(), Neighbourhood(traffic, sites, layout) if small else None)
    at = {slot: site for site, slot in enumerate(sites.slots.tolist())}
    return search.run([at[slot] for slot in before if slot is not None], len(before))


def place_all(traffic: Traffic, sites: Sites, steps: Steps | None = None) -> tuple[int | None, ...] | None:
    """A slot for each pod, none of which has a place now, with all limits kept; None when none was found.

    For pods of which some found no place one after another: those before stood in their way.
    """
    if sites.pinned.any() or not len(sites.slots):
        return None
    layout = Layout(traffic, sites, range(len(traffic.kinds)))
    return _Search(layout, steps or Steps()).place_all()


class _Search:
    def __init__(self, layout: Layout, steps: Steps, neighbourhood: Neighbourhood | None = None) -> None:
        """``neighbourhood`` is that of the layout; None when there is none worth looking at as a whole.

        Each look and each change takes some of the decision's ``steps``.
        """
        self._layout = layout
        self._steps = steps
        pods, sites_, kinds = len(layout.pods), len(layout.locations), len(layout.costs)
        #: Steps of a look at all moves and swaps of one pod, or of the whole layout at once, and of a change.
        self._look = 40 + (pods + sites_) // 20
        self._look_at_all = 60 + pods * (pods + sites_) // 100
        self._change = 10 + kinds * sites_ // 400
        self._neighbourhood = neighbourhood
        self._movable = np.flatnonzero(~layout.sites.pinned[layout.pods]).tolist()
        size = len(layout.pods) * (len(layout.pods) + len(layout.locations))
        self._budget = max(MOVES if neighbourhood is None else MOVES_AT_ONCE, ROUNDS * size)
        self._random = random.Random(SEED)

    @property
    def _spent(self) -> bool:
        return self._layout.evaluated >= self._budget or self._steps.over

    def run(self, start: Sequence[int], count: int) -> Searched:
        """From a first placement to the best one found."""
        layout = self._layout
        each = 1 + layout.costs.size // FIGURES_A_STEP
        for pod, site in enumerate(start):
            self._steps.take(each)
            layout.place(pod, site)
        cost_before = layout.cost()
        self._descend()
        best, least = layout.snapshot(), layout.cost()
        for site in self._first_sites():
            if self._spent or least <= layout.epsilon:
                break
            if self._gather(site):
                self._descend()
                if layout.cost() < least - layout.epsilon:
                    best, least = layout.snapshot(), layout.cost()
            layout.restore(best)
        best, least = self._wander(best, least)
        layout.restore(best)
        slots: list[int | None] = [None] * count
        for pod, site in zip(layout.pods.tolist(), layout.at.tolist(), strict=True):
            slots[pod] = int(layout.sites.slots[site])
        return Searched(
            slots=tuple(slots),
            cost_before=cost_before,
            cost=least,
            evaluated=layout.evaluated,
            spent=self._spent,
        )

    def _wander(self, best: Snapshot, least: float) -> tuple[Snapshot, float]:
        """Shake and descend from the best, and from elsewhere by turns, until nothing better is found."""
        layout = self._layout
        here, cost, idle, stuck, elsewhere = best, least, 0, 0, False
        while idle < PATIENCE and not self._spent and least > layout.epsilon and len(self._movable) > 1:
            idle, stuck = idle + 1, stuck + 1
            self._steps.take(100 + 10 * self._change)
            if stuck > STUCK:
                elsewhere, stuck = not elsewhere, 0
                if elsewhere and self._gather(self._random.randrange(len(layout.locations))):
                    self._descend()
                else:
                    layout.restore(best)
                here, cost = layout.snapshot(), layout.cost()
            self._shake()
            self._descend()
            found = layout.cost()
            if found < least - layout.epsilon:
                best, least, idle = layout.snapshot(), found, 0
            if found <= cost + SLACK * abs(cost):
                stuck = 0 if found < cost - layout.epsilon else stuck
                here, cost = layout.snapshot(), min(cost, found)
            else:
                layout.restore(here)
        return best, least

    def place_all(self) -> tuple[int | None, ...] | None:
        """The cheapest of the gatherings that hold everybody and keep all limits."""
        layout = self._layout
        empty = layout.snapshot()
        best, least = None, np.inf
        for largest_first in (False, True):
            for site in self._first_sites():
                if self._steps.over:
                    break
                gathered = self._gather(site, largest_first=largest_first)
                if gathered and not layout.keeps_limits():
                    self._descend()  # A broken limit costs more than all traffic.
                if gathered and layout.keeps_limits() and layout.cost() < least:
                    best, least = layout.at.copy(), layout.cost()
                layout.restore(empty)
        return None if best is None else tuple(layout.sites.slots[best].tolist())

    def _descend(self) -> None:
        """Moves and swaps that save, until none is left."""
        layout, neighbourhood = self._layout, self._neighbourhood
        if neighbourhood is not None:
            self._steps.take(self._look_at_all)
            while not self._spent and (step := neighbourhood.best()) is not None:
                step.take(layout)
                self._steps.take(self._look_at_all + 2 * self._change)
            return
        saved = True
        while saved and not self._spent:
            saved = False
            for pod in self._movable:
                self._steps.take(self._look + 2 * self._change)
                change, site = layout.best_move(pod)
                swapped, other = layout.best_swap(pod)
                if min(change, swapped) >= -layout.epsilon:
                    continue
                saved = True
                if change <= swapped:
                    layout.move(pod, site)
                else:
                    layout.swap(pod, other)

    def _first_sites(self) -> list[int]:
        """The roomiest site of each of the locations with the most room."""
        layout = self._layout
        mean = layout.needs.mean(axis=0)
        asked = mean > 0
        room = (
            (layout.sites.free[asked] / mean[asked][:, None]).min(axis=0)
            if asked.any()
            else layout.locations * 0.0
        )
        # By the first site of each: numbers of locations say only which label came first.
        _, start, location_of = np.unique(layout.locations, return_index=True, return_inverse=True)
        total = np.bincount(location_of, weights=room)
        first = []
        for location in np.lexsort((start, -total))[:STARTS].tolist():
            members = np.flatnonzero(location_of == location)
            first.append(int(members[np.argmax(room[members])]))
        return first

    def _gather(self, site: int, *, largest_first: bool = False) -> bool:
        """Place all again around a site, that with most traffic to those placed first; False if it fails.

        ``largest_first`` takes them by what they need instead, so that the last ones fit into small gaps.
        """
        layout = self._layout
        layout.clear(self._movable)
        waiting = np.asarray(self._movable, dtype=np.intp)
        ties = layout.ties(np.flatnonzero(layout.at >= 0).tolist())
        everyone = layout.ties(self._movable)
        sizes = layout.sizes() if largest_first else None
        first = True
        while len(waiting):
            self._steps.take(self._look + self._change)
            equal = waiting
            for figures in (ties, everyone) if sizes is None else (sizes, ties, everyone):
                own = figures[equal]
                equal = equal[own == own.max()]
            pod = int(equal[0])
            waiting = waiting[waiting != pod]
            room = layout.room(pod)
            layout.evaluated += len(room)
            if not room.any():
                return False
            costs = np.where(room, layout.row(pod), np.inf)
            layout.place(pod, site if first and room[site] else int(np.argmin(costs)))
            first = False
            ties += layout.ties([pod])
        return True

    def _shake(self) -> None:
        """Put a few pods somewhere else, or let the pods of two sites change places."""
        layout, draw = self._layout, self._random
        if draw.random() < EXCHANGES and self._exchange():
            return
        for pod in draw.sample(self._movable, min(len(self._movable), draw.randint(2, 5))):
            home = layout.lift(pod)
            choices = np.flatnonzero(layout.room(pod)).tolist()
            layout.place(pod, draw.choice(choices) if choices else home)

    def _exchange(self) -> bool:
        """The pods of one site against those of another; False (and nothing changed) when they don't fit."""
        layout, draw = self._layout, self._random
        self._steps.take(20 + len(self._movable) // 10)
        used = sorted(set(layout.at[self._movable].tolist()))
        here, there = draw.choice(used), draw.randrange(len(layout.locations))
        if here == there:
            return False
        before = layout.snapshot()
        moving = [(pod, there) for pod in self._movable if layout.at[pod] == here]
        moving += [(pod, here) for pod in self._movable if layout.at[pod] == there]
        self._steps.take(2 * self._change * len(moving))
        for pod, _ in moving:
            layout.lift(pod)
        for pod, site in moving:
            if not layout.room(pod)[site]:
                layout.restore(before)
                return False
            layout.place(pod, site)
        return True
