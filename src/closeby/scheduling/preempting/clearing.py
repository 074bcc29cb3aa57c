"""Which victims free enough of one domain at the least cost.

Up to ``EXACT`` units every set of them is judged, by branch and bound. Beyond that those are taken that lose
the least for each accelerator, until it is enough, and then those are spared that are not needed. The
arithmetic counts resources alone; where that is not all, sets are tried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from closeby.objects.arrays import Ints
from closeby.scheduling.preempting.domain_room import DomainRoom
from closeby.scheduling.preempting.records import EvictionCost
from closeby.scheduling.preempting.tried_sets import TriedSets
from closeby.scheduling.preempting.units import MemberLimits, VictimCounts, VictimTally, VictimUnit
from closeby.scheduling.preempting.victims import Victims, partly_free_in

#: Units of a domain of which every set is judged.
EXACT: Final = 20
#: Nodes of the search for one item, and how many of them look at sets that cost as much as the best.
NODES: Final = 20_000
TIES: Final = 2_000
#: Nodes of the search for members of one gang that go instead of all of it.
MEMBER_NODES: Final = 500
#: Units that are counted besides the members of such gangs, summed over all these searches.
MEMBER_UNITS: Final = 250_000


class FoundVictims(NamedTuple):
    """A set of units that is enough."""

    cost: EvictionCost
    units: tuple[VictimUnit, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """For the order of sets that cost the same."""
        return tuple(sorted(unit.name for unit in self.units))


class Clearing(Struct, kw_only=True, eq=False):
    """The search in one domain after another; what it may spend is shared."""

    allowed: Sequence[int]
    limits: Mapping[int, MemberLimits]
    #: Whether victims may violate budgets.
    soft: bool
    #: Nodes that some units would leave partly free.
    partly_free: Callable[[Sequence[VictimUnit]], int]
    #: The slot of each pod, by its index.
    slots: Ints
    #: Whether the item fits without some units, where arithmetic alone does not tell; None: it does.
    tried: TriedSets | None = None
    nodes: int = 0
    #: Whether nothing was left untried.
    exact: bool = True

    @classmethod
    def among(cls, victims: Victims, *, soft: bool) -> "Clearing":
        """The search among these victims; ``soft``: they may violate budgets."""
        running = victims.running
        return cls(
            allowed=victims.allowed,
            limits=running.limits,
            slots=running.slots,
            soft=soft,
            partly_free=partly_free_in(running, victims.leaving),
        )

    def cheapest(
        self, domain_room: DomainRoom, units: Sequence[VictimUnit], limit: EvictionCost | None
    ) -> FoundVictims | None:
        """The cheapest units of a domain that are enough, if they cost no more than ``limit``."""
        if self._never(units):
            return None
        if len(units) <= EXACT and self.nodes < NODES:
            search = _Exact(self, domain_room, units, limit)
            best = search.run()
            if not search.spent:
                return best
        self.exact = False
        found = self._greedy(domain_room, units)
        if found is None or (limit is not None and found.cost > limit):
            return None
        return found

    def reprieved(
        self, domain_room: DomainRoom, units: Sequence[VictimUnit], found: FoundVictims
    ) -> FoundVictims:
        """What was found by short cuts without what is not needed, however many sets are tried for that.

        ``units``: all of the domain.
        """
        if self.tried is not None:
            self.tried.go_on()
            for unit in found.units:
                domain_room.free(unit)
            found = self._needed(domain_room, found.units)
        return self._with_members(domain_room, units, found)

    def _never(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the item does not fit even if all units go."""
        tried = self.tried
        return tried is not None and tried.monotone and not tried.accepts(units) and not tried.spent

    def _accepted(self, domain_room: DomainRoom, units: Sequence[VictimUnit]) -> bool:
        return domain_room.enough and (self.tried is None or self.tried.accepts(units))

    def costs(self, units: Sequence[VictimUnit]) -> EvictionCost:
        """What some units cost together."""
        tally = VictimTally(self.allowed, self.limits)
        for unit in units:
            tally.take(unit)
        return self.found(tally).cost

    def found(self, tally: VictimTally) -> FoundVictims:
        """What is taken now."""
        units = tuple(tally.units)
        return FoundVictims(tally.cost._replace(partly_free=self.partly_free(units)), units)

    def _greedy(self, domain_room: DomainRoom, units: Sequence[VictimUnit]) -> FoundVictims | None:
        """The cheapest first until it is enough; then back with those that are not needed, the dearest first.

        Where the cheapest leave too little of a budget, or of what a gang can spare, the largest are taken
        first.
        """
        taken = self._taken(domain_room, sorted(units, key=self._order))
        if taken is None:
            taken = self._taken(domain_room, sorted(units, key=self._largest))
        return None if taken is None else self._needed(domain_room, taken)

    def _taken(self, domain_room: DomainRoom, ordered: Sequence[VictimUnit]) -> list[VictimUnit] | None:
        """One unit after the other until it is enough; None if it never is."""
        counts = VictimCounts(self.allowed, self.limits)
        taken: dict[VictimUnit, None] = {}
        of_holder: dict[int, list[VictimUnit]] = {}
        # Where sets are tried, ever more units go between one trial and the next.
        step, due = 1, 0
        for number, unit in enumerate(ordered):
            if domain_room.enough and number >= due:
                if self._accepted(domain_room, list(taken)):
                    break
                due = number + step
                step *= 2 if self.tries_blocks else 1
            # With all of a gang the members go that went before.
            mine = of_holder.get(unit.holder, ()) if unit.whole and unit.gang else ()
            for one in mine:
                counts.count(one, -1)
            if not self._take_one(counts, unit):
                for one in mine:
                    counts.count(one)
                continue
            for one in mine:
                domain_room.free(one, -1)
                del taken[one]
            if mine:
                del of_holder[unit.holder]
            of_holder.setdefault(unit.holder, []).append(unit)
            taken[unit] = None
            domain_room.free(unit)
        if self._accepted(domain_room, list(taken)):
            return list(taken)
        for unit in taken:
            domain_room.free(unit, -1)
        return None

    def _take_one(self, counts: VictimCounts, unit: VictimUnit) -> bool:
        """Whether a unit can go besides those that were counted; it is counted then."""
        if not counts.may_take(unit):
            return False
        counts.count(unit)
        if self.soft or not counts.violations:
            return True
        counts.count(unit, -1)
        return False

    def _with_members(
        self, domain_room: DomainRoom, units: Sequence[VictimUnit], found: FoundVictims
    ) -> FoundVictims:
        """The same with members of gangs instead of all of them where these are enough, the dearest first."""
        members: dict[int, list[VictimUnit]] = {}
        for unit in units:
            if not unit.whole:
                members.setdefault(unit.holder, []).append(unit)
        wholes = [unit for unit in found.units if unit.whole and unit.gang and unit.holder in members]
        for unit in found.units:
            domain_room.free(unit)
        counted = 0
        for whole in sorted(wholes, key=self._order, reverse=True):
            counted += len(found.units)
            if counted > MEMBER_UNITS:
                break
            others = [unit for unit in found.units if unit is not whole]
            domain_room.free(whole, -1)
            some = members[whole.holder]
            better = _Exact(self, domain_room, some, None, others, self.nodes + MEMBER_NODES).run()
            found = better or found
            for unit in (whole,) if better is None else better.units[len(others) :]:
                domain_room.free(unit)
        for unit in found.units:
            domain_room.free(unit, -1)
        return found

    @property
    def tries_blocks(self) -> bool:
        """Whether sets are tried, and what fits without some units also fits without more."""
        return self.tried is not None and self.tried.monotone

    def _needed(self, domain_room: DomainRoom, gone: Sequence[VictimUnit]) -> FoundVictims:
        """Of units that are enough those that are needed: the dearest stay first. All are back in the end."""
        taken = dict.fromkeys(self._in_the_way(domain_room, list(gone)))
        left = sorted(taken, key=self._order, reverse=True)
        size, at = 1, 0
        while at < len(left):
            some = dict.fromkeys(left[at : at + size])
            for unit in some:
                domain_room.free(unit, -1)
            if domain_room.enough and (
                self.tried is None or self.tried.accepts([one for one in taken if one not in some])
            ):
                for unit in some:
                    del taken[unit]
                at += size
                size *= 2 if self.tries_blocks else 1
                continue
            for unit in some:
                domain_room.free(unit)
            at += size == 1
            size = max(size // 2, 1)
        for unit in taken:
            domain_room.free(unit, -1)
        return FoundVictims(self.costs(tuple(taken)), tuple(taken))

    def _in_the_way(self, domain_room: DomainRoom, taken: list[VictimUnit]) -> list[VictimUnit]:
        """Those on the nodes that the item would have without all, if these are enough."""
        slots = None if self.tried is None or not self.tried.monotone else self.tried.slots(taken)
        if slots is None:
            return taken
        meets = [not slots.isdisjoint(self.slots[list(unit.pods)].tolist()) for unit in taken]
        there = [unit for unit, met in zip(taken, meets, strict=True) if met]
        others = [unit for unit, met in zip(taken, meets, strict=True) if not met]
        for unit in others:
            domain_room.free(unit, -1)
        if self._accepted(domain_room, there):
            return there
        for unit in others:
            domain_room.free(unit)
        return taken

    def _largest(self, unit: VictimUnit) -> tuple[object, ...]:
        """Those first that need the least of the budgets for what they free, of these the largest pods."""
        gain = max(sum(unit.gains) + len(unit.shared), 1)
        covered = sum(pods for _, pods in unit.budgets) / gain
        return covered, -unit.accelerators / len(unit.pods), *self._order(unit)

    def _order(self, unit: VictimUnit) -> tuple[object, ...]:
        """What loses the least for each accelerator, or pod of the preemptor, that it makes room for."""
        freed = unit.accelerators - unit.outside or max(sum(unit.gains) + len(unit.shared), 1)
        first = *unit.rank, unit.lost / freed, -freed
        return *first, unit.whole and unit.gang, unit.seconds, len(unit.pods), unit.name


class _Exact:
    """Branch and bound over all sets of a domain's units."""

    def __init__(
        self,
        clearing: Clearing,
        domain_room: DomainRoom,
        units: Sequence[VictimUnit],
        limit: EvictionCost | None,
        others: Sequence[VictimUnit] = (),
        nodes: int = NODES,
    ) -> None:
        """``others`` go in any case, and are out of the room. The node of this number ends the search."""
        self._others = others
        self._nodes = nodes
        self._clearing = clearing
        self._domain_room = domain_room
        self._limit = limit
        self.best: FoundVictims | None = None
        self.spent = False
        self._tally = VictimTally(clearing.allowed, clearing.limits)
        self._units = sorted(units, key=lambda u: (*u.rank, u.lost, u.gang and u.whole, u.name))
        count = len(self._units)
        #: From each unit on: the most that is still to be gained, by kind, and by a single unit of it.
        self._rest: list[list[int]] = [[0] * len(domain_room.wanted) for _ in range(count + 1)]
        for at in range(count - 1, -1, -1):
            gains = self._most(self._units[at])
            self._rest[at] = [a + b for a, b in zip(self._rest[at + 1], gains, strict=True)]
        self._additive = not any(unit.shared for unit in self._units)

    def _most(self, unit: VictimUnit) -> list[int]:
        """The most that a unit can help: on shared nodes whatever could ever fit there."""
        if not unit.shared:
            return list(unit.gains)
        return [gain + (1 << 40) for gain in unit.gains]

    def run(self) -> FoundVictims | None:
        """The cheapest set that was found; it may not be the cheapest of all once the search is ``spent``."""
        for unit in self._others:
            self._tally.take(unit)
        self._descend(0)
        return self.best

    def _descend(self, at: int) -> None:
        """Judge the units from ``at`` on, with those taken before."""
        clearing, tally = self._clearing, self._tally
        clearing.nodes += 1
        self.spent = self.spent or clearing.nodes > self._nodes
        if self.spent:
            return
        if self._domain_room.enough:
            found = clearing.found(tally)
            if not self._improves(found):
                return
            if self._accepts(found.units):
                self.best = found
                return
        if at == len(self._units) or self._hopeless(at):
            return
        if self._domain_room.enough and self._never(at):
            return
        unit = self._units[at]
        if tally.may_take(unit):
            tally.take(unit)
            if clearing.soft or not tally.cost.pdb_violations:
                self._domain_room.free(unit)
                self._descend(at + 1)
                self._domain_room.free(unit, -1)
            tally.drop()
        self._descend(at + 1)

    def _accepts(self, units: Sequence[VictimUnit]) -> bool:
        tried = self._clearing.tried
        if tried is None:
            return True
        self.spent = self.spent or tried.tired
        return not self.spent and tried.accepts(units)

    def _never(self, at: int) -> bool:
        """Whether it is not enough even if all units from ``at`` on go too."""
        return self._clearing.tries_blocks and not self._accepts([*self._tally.units, *self._units[at:]])

    def _improves(self, found: FoundVictims) -> bool:
        if self._limit is not None and found.cost > self._limit:
            return False
        return self.best is None or (found.cost, found.names) < (self.best.cost, self.best.names)

    def _hopeless(self, at: int) -> bool:
        lacks = self._domain_room.lacks()
        if any(lack > rest for lack, rest in zip(lacks, self._rest[at], strict=True)):
            return True
        best = self._limit if self.best is None else self.best.cost
        if best is None:
            return False
        for bound, most in zip(self._bounds(at, lacks), best[:-1], strict=True):
            if bound != most:
                return bound > most
        return self._clearing.nodes > TIES

    def _bounds(self, at: int, lacks: Sequence[int]) -> Iterator[float]:
        """What any set that is enough costs at the least, beyond here; without nodes left partly free."""
        cost, left = self._tally.cost, self._units[at:]
        fewest = 0 if self._domain_room.enough else 1
        if self._additive:
            for kind, lack in enumerate(lacks):
                gains = sorted((unit.gains[kind] for unit in left), reverse=True)
                number, got = 0, 0
                while got < lack and number < len(gains):
                    got += gains[number]
                    number += 1
                fewest = max(fewest, number)
        if not fewest:
            yield from cost[:-1]
            return

        def least(values: Sequence[float]) -> float:
            return sum(sorted(values)[:fewest])

        def most_of(values: Sequence[float]) -> float:
            return sorted(values)[min(fewest, len(values)) - 1]

        yield max(cost.last_choice, most_of([unit.last_choice for unit in left]))
        yield cost.pdb_violations
        yield max(cost.highest, most_of([unit.priority for unit in left]))
        yield max(cost.slow, most_of([unit.slow for unit in left]))
        yield cost.lost + least([unit.lost for unit in left])
        singles = sum(not (unit.whole and unit.gang) for unit in left)
        yield cost.gangs_broken + max(fewest - singles, 0)
        yield cost.accelerators + least([unit.accelerators for unit in left])
        yield cost.outside + least([unit.outside for unit in left])
        yield max(cost.seconds, most_of([unit.seconds for unit in left]))
        yield cost.pods + least([len(unit.pods) for unit in left])
