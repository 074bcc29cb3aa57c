"""Improving where talking pods lie: several starts, moves and swaps, then shaken and improved again.

The budget is a count of evaluated moves and the random numbers are always the same, so that results repeat.
"""

import random
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from closeby.scheduling.moving.layout import Layout, Snapshot
from closeby.scheduling.moving.neighbourhood import AT_ONCE_UP_TO, Neighbourhood
from closeby.scheduling.moving.sites import Sites
from closeby.scheduling.pace import UNPACED, Pace
from closeby.scheduling.traffic import Traffic

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


def improve(traffic: Traffic, sites: Sites, before: Sequence[int | None], pace: Pace = UNPACED) -> Searched:
    """Lower the cost of talk among pods; ``before`` holds the slot of each, None for those without one."""
    active = [pod for pod, slot in enumerate(before) if slot is not None]
    layout = Layout(traffic, sites, active)
    small = len(active) * (len(active) + len(sites.slots)) <= AT_ONCE_UP_TO
    search = _Search(layout, pace, Neighbourhood(traffic, sites, layout) if small else None)
    at = {slot: site for site, slot in enumerate(sites.slots.tolist())}
    return search.run([at[slot] for slot in before if slot is not None], len(before))


def place_all(traffic: Traffic, sites: Sites, pace: Pace = UNPACED) -> tuple[int | None, ...] | None:
    """A slot for each pod, none of which has a place now, with all limits kept; None when none was found.

    For pods of which some found no place one after another: those before stood in their way.
    """
    if sites.pinned.any() or not len(sites.slots):
        return None
    layout = Layout(traffic, sites, range(len(traffic.kinds)))
    return _Search(layout, pace).place_all()


class _Search:
    def __init__(self, layout: Layout, pace: Pace, neighbourhood: Neighbourhood | None = None) -> None:
        """``neighbourhood`` is that of the layout; None when there is none worth looking at as a whole.

        The ``pace`` is told of each look and of each change. Nothing here is seen by others, or sees them.
        """
        self._layout = layout
        self._pace = pace
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
        return self._layout.evaluated >= self._budget

    def run(self, start: Sequence[int], count: int) -> Searched:
        """From a first placement to the best one found."""
        layout = self._layout
        for pod, site in enumerate(start):
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
            self._pace.take(100 + 10 * self._change)
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
                gathered = self._gather(site, largest_first=largest_first)
                if gathered and not layout.keeps_limits():
                    self._descend()  # A broken limit costs more than all talk, so that mending it saves most.
                if gathered and layout.keeps_limits() and layout.cost() < least:
                    best, least = layout.at.copy(), layout.cost()
                layout.restore(empty)
        return None if best is None else tuple(layout.sites.slots[best].tolist())

    def _descend(self) -> None:
        """Moves and swaps that save, until none is left."""
        layout, neighbourhood = self._layout, self._neighbourhood
        if neighbourhood is not None:
            self._pace.take(self._look_at_all)
            while not self._spent and (step := neighbourhood.best()) is not None:
                step.take(layout)
                self._pace.take(self._look_at_all + 2 * self._change)
            return
        saved = True
        while saved and not self._spent:
            saved = False
            for pod in self._movable:
                self._pace.take(self._look + 2 * self._change)
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
        # By the first site of each: numbers of locations tell only which label was heard of first.
        _, start, location_of = np.unique(layout.locations, return_index=True, return_inverse=True)
        total = np.bincount(location_of, weights=room)
        first = []
        for location in np.lexsort((start, -total))[:STARTS].tolist():
            members = np.flatnonzero(location_of == location)
            first.append(int(members[np.argmax(room[members])]))
        return first

    def _gather(self, site: int, *, largest_first: bool = False) -> bool:
        """Place all anew around a site, the one that says most to those placed first; False if that fails.

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
            self._pace.take(self._look + self._change)
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
        self._pace.take(20 + len(self._movable) // 10)
        used = sorted(set(layout.at[self._movable].tolist()))
        here, there = draw.choice(used), draw.randrange(len(layout.locations))
        if here == there:
            return False
        before = layout.snapshot()
        moving = [(pod, there) for pod in self._movable if layout.at[pod] == here]
        moving += [(pod, here) for pod in self._movable if layout.at[pod] == there]
        self._pace.take(2 * self._change * len(moving))
        for pod, _ in moving:
            layout.lift(pod)
        for pod, site in moving:
            if not layout.room(pod)[site]:
                layout.restore(before)
                return False
            layout.place(pod, site)
        return True
