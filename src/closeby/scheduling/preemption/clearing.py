"""Which victims free enough of one domain at the least cost.

An integer program chooses them (``least``); what its steps do not last for is decided by a simpler search:
one unit goes after the other, and then those stay, the dearest first, that are not needed. The arithmetic
counts resources alone; where that is not all, sets are tried by the preemptor's own cycle.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.scheduling.outcomes import EvictionCost
from closeby.scheduling.placing.tools import Placed
from closeby.scheduling.preemption.least import UNITS, Cut, UndecidedError, VictimRules, least_victims
from closeby.scheduling.preemption.room import DomainRoom
from closeby.scheduling.preemption.trials import TRIAL_STEPS, PreemptionTrials
from closeby.scheduling.preemption.units import Victims, VictimUnit

#: Cycles that are tried for one item: at the least, and where the cluster has few nodes.
TRIALS: Final = 64
MOST_TRIALS: Final = 256
_FEW_NODES: Final = 1 << 14
#: Units that are counted where members of a gang go instead of all of it, summed over all these gangs.
MEMBER_UNITS: Final = 250_000
#: Steps of the program that chooses such members.
MEMBER_STEPS: Final = 20
#: Candidates (domains or nodes) that are tried without asking first which may hold the item at all, and of
#: how many others that is asked together.
AT_ONCE: Final = 16
TOGETHER: Final = 256


def most_trials(nodes: int) -> int:
    """How many cycles are tried for one item in a cluster of so many nodes."""
    return max(TRIALS, min(MOST_TRIALS, _FEW_NODES // max(nodes, 1)))


class TriedSets:
    """Whether an item fits without some units; no set is tried twice."""

    def __init__(
        self,
        fits: Callable[[Sequence[VictimUnit]], tuple[Placed, ...] | None],
        trials: PreemptionTrials,
        nodes: int,
        *,
        monotone: bool,
    ) -> None:
        """``fits`` asks the ``trials``. ``monotone``: what fits without some units also fits without more."""
        self._fits = fits
        self._trials = trials
        self.monotone = monotone
        #: Trials left; half of them are kept for what comes after the exact search.
        self._left: float = most_trials(nodes)
        self._kept = self._left / 2
        #: Whether a set was not tried for want of trials.
        self.spent = False
        self._accepted: set[frozenset[int]] = set()
        self._refused: set[frozenset[int]] = set()

    @property
    def tired(self) -> bool:
        """Whether the exact search has had its share of the trials."""
        if self._left == inf:
            return self._trials.over
        return self._left <= self._kept or 2 * self._trials.steps >= TRIAL_STEPS

    def go_on(self) -> None:
        """Try from now on whatever is asked, until no more may be tried for the item at all."""
        self._left = inf

    def accepts(self, units: Collection[VictimUnit]) -> bool:
        """Whether the item fits without these units; False if there is no trial left."""
        ended = self._left <= 0 or (self._trials.over if self._left == inf else self._trials.costly)
        if ended and self.spent and not self._accepted:
            return False
        gone = frozenset(pod for unit in units for pod in unit.pods)
        if gone in self._accepted:
            return True
        if gone in self._refused or (self.monotone and any(gone < one for one in self._refused)):
            return False
        if self.monotone and any(gone > one for one in self._accepted):
            return True
        if ended:
            self.spent = True
            return False
        self._left -= 1
        fits = self._fits(tuple(units)) is not None
        (self._accepted if fits else self._refused).add(gone)
        return fits


class FoundVictims(NamedTuple):
    """A set of units that is enough."""

    cost: EvictionCost
    units: tuple[VictimUnit, ...]


class Clearing:
    """The search in one domain after another; what it may spend is shared."""

    def __init__(
        self, victims: Victims, trials: PreemptionTrials, *, soft: bool, tried: TriedSets | None = None
    ) -> None:
        """``soft``: victims may violate budgets. ``tried``: where arithmetic does not tell what fits."""
        self.soft = soft
        self.tried = tried
        self.trials = trials
        self._victims = victims
        #: Whether nothing was left untried.
        self.exact = True
        running = victims.running
        #: By slot: pods that don't leave anyway.
        self.held = held = np.bincount(running.slots, minlength=running.cluster.capacity)
        held -= np.bincount(running.slots[victims.leaving], minlength=len(held))
        self._rules = VictimRules(
            allowed=victims.allowed,
            soft=soft,
            limits=running.limits,
            slots=running.slots,
            held=held,
            name_ranks=victims.name_ranks(),
        )

    def with_trials(self, places: Callable[[Sequence[VictimUnit]], tuple[Placed, ...] | None]) -> "Clearing":
        """The same where sets of units are tried, of which more also fit where fewer do."""
        nodes = self._victims.running.cluster.capacity
        tried = TriedSets(places, self.trials, nodes, monotone=True)
        return Clearing(self._victims, self.trials, soft=self.soft, tried=tried)

    def cheapest(
        self,
        room: DomainRoom,
        units: Sequence[VictimUnit],
        limit: EvictionCost | None = None,
        *,
        final: bool = True,
    ) -> FoundVictims | None:
        """The units of a domain that are enough and cost the least, if they cost no more than ``limit``.

        Unless it is ``final`` fields after the lost work count only where that is what the limit allows.
        """
        if self._never(units):
            return None
        steps = self._rules.steps
        try:
            some = [self._least(room, sorted(units, key=_order), limit, final)]
        except UndecidedError as undecided:
            self.exact = False
            some = [*self._by_short_cuts(room, units, undecided.units)]
        self.trials.note_solving(steps - self._rules.steps)
        costs = [(self.cost(found), tuple(found)) for found in some if found is not None]
        best = min(costs, key=lambda one: one[0], default=None)
        return None if best is None or (limit is not None and best[0] > limit) else FoundVictims(*best)

    def reprieved(self, room: DomainRoom, units: Sequence[VictimUnit], found: FoundVictims) -> FoundVictims:
        """What was found by short cuts without what is not needed, however many sets are tried for that.

        ``units``: all of the domain.
        """
        if self.tried is not None:
            self.tried.go_on()
        needed = self._needed(room, units, found.units)
        return FoundVictims(self.cost(needed), tuple(needed))

    def cost(self, units: Collection[VictimUnit]) -> EvictionCost:
        """What some units cost together."""
        rules, budgets, members, on = self._rules, Counter[int](), Counter[int](), Counter[int]()
        for unit in units:
            budgets.update(dict(unit.budgets))
            members[unit.holder] += not unit.whole
            on.update(rules.slots[list(unit.pods)].tolist())
        broken = sum(unit.whole and unit.gang for unit in units)
        return EvictionCost(
            last_choice=max((unit.last_choice for unit in units), default=0),
            pdb_violations=sum(max(pods - rules.allowed[one], 0) for one, pods in budgets.items()),
            highest=max((unit.priority for unit in units), default=-inf),
            slow=any(unit.slow for unit in units),
            lost=sum(unit.lost for unit in units),
            gangs_broken=broken
            + sum(pods > rules.limits[one].surplus for one, pods in members.items() if pods),
            accelerators=sum(unit.accelerators for unit in units),
            outside=sum(unit.outside for unit in units),
            seconds=max((unit.seconds for unit in units), default=0),
            pods=on.total(),
            partly_free=sum(pods < rules.held.item(slot) for slot, pods in on.items()),
        )

    def _never(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the item does not fit even if all units go."""
        tried = self.tried
        return tried is not None and tried.monotone and not tried.accepts(units) and not tried.spent

    def _least(
        self, room: DomainRoom, units: Sequence[VictimUnit], limit: EvictionCost | None, final: bool
    ) -> list[VictimUnit] | None:
        """The cheapest that are enough, of which the preemptor's own cycle says the same."""
        tried, cuts = self.tried, list[Cut]()
        if len(units) > UNITS:
            self.exact, units = False, units[:UNITS]
        while True:
            found = least_victims(room, units, self._rules, cuts=cuts, limit=limit, final=final)
            if found is None and not self.exact:
                raise UndecidedError(None)
            if tried is None or found is None:
                return found
            if tried.tired:
                raise UndecidedError(None)
            if tried.accepts(found):
                return found
            refused = self._refused(tried, found, units) if tried.monotone else found
            cuts.append(Cut(frozenset(refused), tried.monotone))

    def _refused(
        self, tried: TriedSets, gone: Sequence[VictimUnit], units: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """As many units as can be found, besides those that are not enough, that are not either."""
        refused = list(gone)
        left = [one for one in units if one not in set(gone)]
        at, size = 0, len(left) // 2
        while at < len(left) and size and not tried.tired:
            some = left[at : at + size]
            if tried.accepts([*refused, *some]):
                at, size = at + (size == 1), max(size // 2, 1)
            else:
                refused += some
                at, size = at + size, 2 * size
        return refused

    def _by_short_cuts(
        self, room: DomainRoom, units: Sequence[VictimUnit], known: Sequence[VictimUnit] | None
    ) -> Iterator[list[VictimUnit]]:
        """Of those that are known to be enough, and of all, those that are needed.

        Where the cheapest leave too little of a budget the largest are taken first.
        """
        if known is not None and (self.tried is None or self.tried.accepts(known)):
            yield self._needed(room, units, known)
        for order in (_order, _largest):
            some = self._taken(sorted(units, key=order), room)
            if some is not None:
                yield self._needed(room, units, some)
                return

    def _taken(self, units: Sequence[VictimUnit], room: DomainRoom) -> list[VictimUnit] | None:
        """Of some units those that may go together, the first ones first, until it is enough; None if never.

        With all of a gang the members go that went before.
        """
        budgets, members = Counter[int](), Counter[Hashable]()
        of_holder: dict[int, list[VictimUnit]] = {}
        taken: dict[VictimUnit, None] = {}

        def count(unit: VictimUnit, sign: int) -> None:
            budgets.update({budget: sign * pods for budget, pods in unit.budgets})
            members.update(dict.fromkeys((unit.holder, (unit.holder, unit.leaf)), sign))
            room.free(unit, sign)

        # Where sets are tried, ever more units go between one trial and the next.
        step, due = 1, 0
        for number, unit in enumerate(units):
            if room.enough and number >= due:
                if self.tried is None or self.tried.accepts(taken):
                    break
                step, due = step * 2, number + step
            before = of_holder.get(unit.holder, [])
            if before and before[0].whole:
                continue
            for one in before if unit.whole else ():
                count(one, -1)
            if not self._may_go(unit, budgets, members):
                for one in before if unit.whole else ():
                    count(one, 1)
                continue
            for one in before if unit.whole else ():
                del taken[one]
            count(unit, 1)
            of_holder[unit.holder] = [unit] if unit.whole else [*before, unit]
            taken[unit] = None
        enough = room.enough and (self.tried is None or self.tried.accepts(taken))
        for unit in taken:
            room.free(unit, -1)
        return list(taken) if enough else None

    def _may_go(self, unit: VictimUnit, budgets: Counter[int], members: Counter[Hashable]) -> bool:
        """Whether a unit may go besides others of which so many count."""
        rules = self._rules
        if not self.soft and any(budgets[one] + pods > rules.allowed[one] for one, pods in unit.budgets):
            return False
        limits = None if unit.whole else rules.limits[unit.holder]
        if limits is None or limits.singly:
            return True
        most = limits.of_leaf.get(unit.leaf, limits.surplus)
        return members[unit.holder] < limits.surplus and members[unit.holder, unit.leaf] < most

    def _needed(
        self, room: DomainRoom, units: Sequence[VictimUnit], gone: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """Of units that are enough those that are needed: the dearest stay first.

        Of a gang that can't stay as a whole some members go instead where these are enough.
        """
        taken = dict.fromkeys(gone)
        left = sorted(taken, key=_order, reverse=True)
        for unit in taken:
            room.free(unit)
        members: dict[int, list[VictimUnit]] = {}
        for unit in units:
            if not unit.whole:
                members.setdefault(unit.holder, []).append(unit)
        blocks = self.tried is not None and self.tried.monotone
        at, size, counted = 0, 1, 0
        while at < len(left):
            some = left[at : at + size]
            if self._exchanged(room, taken, some, ()):
                at, size = at + size, size * 2 if blocks else 1
                continue
            if size == 1 and some[0].whole and some[0].holder in members and counted < MEMBER_UNITS:
                counted += len(taken)
                room.free(some[0], -1)
                others = [one for one in taken if one is not some[0]]
                instead = self._instead(others, room, members[some[0].holder])
                room.free(some[0])
                if instead and self._exchanged(room, taken, some, instead):
                    left += reversed(instead)
            at, size = at + (size == 1), max(size // 2, 1)
        for unit in taken:
            room.free(unit, -1)
        return list(taken)

    def _instead(
        self, others: Sequence[VictimUnit], room: DomainRoom, members: Sequence[VictimUnit]
    ) -> list[VictimUnit]:
        """The members of a gang that are enough besides others that go; none if there are none."""
        used = Counter[int]()
        for unit in others:
            used.update(dict(unit.budgets))
        if self.tried is not None:  # As many as may go: they stay later where they are not needed.
            gone, some = Counter[Hashable](), list[VictimUnit]()
            for unit in sorted(members, key=_order):
                if self._may_go(unit, used, gone):
                    used.update(dict(unit.budgets))
                    gone.update((unit.holder, (unit.holder, unit.leaf)))
                    some.append(unit)
            return some
        allowed = [max(most - used[budget], 0) for budget, most in enumerate(self._rules.allowed)]
        try:
            rules = replace(self._rules, allowed=allowed, steps=MEMBER_STEPS)
            return least_victims(room, sorted(members, key=_order), rules) or []
        except UndecidedError as undecided:
            return list(undecided.units or ())

    def _exchanged(
        self,
        room: DomainRoom,
        taken: dict[VictimUnit, None],
        some: Sequence[VictimUnit],
        instead: Sequence[VictimUnit],
    ) -> bool:
        """Whether it is enough if some stay and others go instead; they do then."""
        for unit in some:
            room.free(unit, -1)
        for unit in instead:
            room.free(unit)
        enough = room.enough
        if enough and self.tried is not None:
            stay = set(some)
            enough = self.tried.accepts([*(one for one in taken if one not in stay), *instead])
        if enough:
            for unit in some:
                del taken[unit]
            taken.update(dict.fromkeys(instead))
            return True
        for unit in some:
            room.free(unit)
        for unit in instead:
            room.free(unit, -1)
        return False


def _order(unit: VictimUnit) -> tuple[object, ...]:
    """What loses the least for each accelerator, or pod of the preemptor, that it makes room for."""
    freed = unit.accelerators - unit.outside or max(sum(unit.gains) + len(unit.shared), 1)
    first = unit.last_choice, bool(unit.budgets), unit.priority, unit.slow, unit.lost / freed, -freed
    return *first, unit.whole and unit.gang, unit.seconds, len(unit.pods), unit.name


def _largest(unit: VictimUnit) -> tuple[object, ...]:
    """Those first that need the least of the budgets for what they free, of these the largest pods."""
    gain = max(sum(unit.gains) + len(unit.shared), 1)
    covered = sum(pods for _, pods in unit.budgets) / gain
    return covered, -unit.accelerators / len(unit.pods), *_order(unit)
