"""The victims of one domain that cost the least, as an integer program.

Each unit is a column that is 1 where it goes. What their order compares first (``last_choice``, budgets,
priority, grace) limits which units there are at all; then one field of the cost after the other is made as
small as it can be, where none before it grows.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd, inf
from typing import Final, NamedTuple

from msgspec import Struct

from closeby.errors import ClosebyError
from closeby.objects.arrays import Ints
from closeby.scheduling.outcomes import EvictionCost
from closeby.scheduling.preemption.room import DomainRoom, FreedAmounts
from closeby.scheduling.preemption.running import MemberLimits
from closeby.scheduling.preemption.units import VictimUnit
from closeby.scheduling.solving.program import Program, Verdict

#: Steps for all programs of an item, and for one.
STEPS: Final = 300
_AT_ONCE: Final = 100
#: Units that one program decides about.
UNITS: Final = 250
#: Fields of a cost are weighed against each other in one program as long as their weights stay below this.
_WEIGHTS: Final = 1 << 20

#: Parts of a second in which lost work is counted.
_PARTS: Final = 16

#: A sum of columns, each times a factor.
Terms = Sequence[tuple[int, int]]


class Cut(NamedTuple):
    """Units (by their holder and pods) of which it is known that they are not enough."""

    units: Collection[VictimUnit]
    #: Whether fewer are not enough either, so that another one must go.
    monotone: bool


class VictimRules(Struct, kw_only=True, eq=False):
    """What limits which units go together."""

    #: What each budget allows, and whether victims may violate budgets.
    allowed: Sequence[int]
    soft: bool
    limits: Mapping[int, MemberLimits]
    #: The slot of each pod, by its index; and how many pods each slot holds that don't leave anyway.
    slots: Ints
    held: Ints
    #: By slot: the place of its node in the order of names.
    name_ranks: Ints
    #: Steps that programs may still take.
    steps: int = STEPS


class UndecidedError(ClosebyError):
    """The steps did not last; ``units`` are enough, where any are known."""

    def __init__(self, units: Sequence[VictimUnit] | None) -> None:
        super().__init__()
        self.units = units


def least_victims(
    room: DomainRoom,
    units: Sequence[VictimUnit],
    rules: VictimRules,
    *,
    cuts: Sequence[Cut] = (),
    limit: EvictionCost | None = None,
    final: bool = False,
) -> list[VictimUnit] | None:
    """The units that are enough and cost the least; None where there are none that cost up to ``limit``.

    Fields after the lost work count only where that is what the limit allows, or if it is ``final``: then of
    several sets that cost the same it is the first by name. What is found may cost more than the limit.

    Raises:
        UndecidedError: the steps did not last, or there are too many units.
    """
    if not rules.soft:
        units = [one for one in units if all(pods <= rules.allowed[budget] for budget, pods in one.budgets)]
    if len(units) > UNITS or rules.steps <= 0:
        raise UndecidedError(None)
    for some, violations in _ranked(room, units, rules, cuts):
        ranks = _ranks(some, violations)
        if limit is not None and ranks > limit[:4]:
            return None
        model = _Model(room, some, rules, cuts, violations)
        # Where fewer units of better ranks are not enough the solver is believed.
        model.proof = len(some) == len(units)
        if not model.minimise([model.lost(limit.lost if limit is not None and ranks == limit[:4] else None)]):
            continue
        first = *_ranks(model.taken, violations), sum(one.lost for one in model.taken)
        if limit is not None and first > limit[:5]:
            return None
        ties = limit is not None and first == limit[:5]
        if not model.only_one() if final else ties:
            model.minimise(model.later_fields())
            model.minimise([model.partly_free(), model.names() if final else ()])
        return model.taken
    return None


def _ranks(units: Sequence[VictimUnit], violations: int) -> tuple[int, int, float, bool]:
    """The fields of a cost before the lost work."""
    return (
        max((one.last_choice for one in units), default=0),
        violations,
        max((one.priority for one in units), default=-inf),
        any(one.slow for one in units),
    )


def _ranked(
    room: DomainRoom, units: Sequence[VictimUnit], rules: VictimRules, cuts: Sequence[Cut]
) -> Iterator[tuple[list[VictimUnit], int]]:
    """The units up to each last choice, priority and length of grace, those first that are better."""
    for last_choice in _levels(one.last_choice for one in units):
        chosen = [one for one in units if one.last_choice <= last_choice]
        violations = 0
        if rules.soft and any(one.budgets for one in chosen):
            model = _Model(room, chosen, rules, cuts, None)
            if not model.minimise([model.violations]):
                continue
            violations = model.value(model.violations)
        for priority in _levels(one.priority for one in chosen):
            for slow in (False, True):
                some = [one for one in chosen if one.priority <= priority and one.slow <= slow]
                if (not slow or any(one.slow for one in some)) and _may_be_enough(room, some):
                    yield some, violations


def _levels(values: Iterable[int]) -> list[int]:
    return sorted(set(values)) or [0]


def _may_be_enough(room: DomainRoom, units: Sequence[VictimUnit]) -> bool:
    for unit in units:
        room.free(unit)
    enough = room.enough
    for unit in units:
        room.free(unit, -1)
    return enough


def _in_common(values: Sequence[int]) -> tuple[Terms, int]:
    """A sum of the first columns, as a multiple of what all the values have in common, and that."""
    common = gcd(*values) or 1
    return [(at, value // common) for at, value in enumerate(values) if value], common


class _Model:
    """The program of some units of a domain."""

    def __init__(
        self,
        room: DomainRoom,
        units: Sequence[VictimUnit],
        rules: VictimRules,
        cuts: Sequence[Cut],
        violations: int | None,
    ) -> None:
        """``violations``: how many there may be; None: any number."""
        self._units = units
        self._rules = rules
        self._program = Program()
        #: The highest value of each column.
        self._most: list[int] = []
        for _ in units:
            self._column(1)
        #: What was found last.
        self._values: list[int] = []
        self._solved = False
        #: Whether it is to be proven that no units are enough, where the solver says so.
        self.proof = True
        self._broken = self._limit_members()
        self.violations = self._limit_budgets(violations)
        self._fill(room)
        for cut in cuts:
            inside = [unit in cut.units for unit in units]
            terms = [(at, 1 - 2 * here) for at, here in enumerate(inside) if not (here and cut.monotone)]
            # Where a unit of the set is not even asked about, another set than this one is certain.
            if cut.monotone or sum(inside) == len(cut.units):
                self._program.row(terms, least=1 if cut.monotone else 1 - len(cut.units))

    @property
    def taken(self) -> list[VictimUnit]:
        """The units that go."""
        return [unit for unit, goes in zip(self._units, self._values, strict=False) if goes]

    def value(self, terms: Terms) -> int:
        """A sum, with the values that were found last."""
        return sum(factor * self._values[at] for at, factor in terms)

    def lost(self, most: float | None) -> Terms:
        """The lost work, which may be ``most`` where that is given."""
        terms, common = _in_common([round(_PARTS * unit.lost) for unit in self._units])
        if most is not None:
            self._program.row(terms, most=round(_PARTS * most) // common)
            self.proof = False
        return terms

    def later_fields(self) -> Iterator[Terms]:
        """The fields of a cost after the lost work, but for the last one."""
        yield self._broken
        yield _in_common([unit.accelerators for unit in self._units])[0]
        yield _in_common([unit.outside for unit in self._units])[0]
        yield self._seconds()
        yield [(at, len(unit.pods)) for at, unit in enumerate(self._units)]

    def minimise(self, sums: Iterable[Terms]) -> bool:
        """Make one sum after the other as small as it can be; False where no units are enough.

        Raises:
            UndecidedError: the steps did not last.
        """
        left = list(sums)
        while left:
            together, weight = [left.pop(0)], 1
            # Where the numbers are small, several at once.
            while left and (weight := weight * self._range(left[0])) * self._range(together[0]) <= _WEIGHTS:
                together.append(left.pop(0))
            if not self._solve(together):
                return False
        return True

    def only_one(self) -> bool:
        """Whether no other units are as good, by what was made small; others are taken now if there are."""
        other = [(at, 1 if self._values[at] else -1) for at in range(len(self._units))]
        before = self.taken
        self._solve([other], keep=False)
        return before == self.taken

    def names(self) -> Terms:
        """The places of the units in the order of names, so that the first go where all else is equal."""
        ordered = sorted(range(len(self._units)), key=lambda at: self._units[at].name)
        return [(at, place) for place, at in enumerate(ordered)]

    def _column(self, most: int, least: int = 0) -> int:
        self._most.append(most)
        return self._program.column(most, least=least)

    def _range(self, terms: Terms) -> int:
        return 1 + sum(abs(factor) * self._most[at] for at, factor in terms)

    def _solve(self, sums: Sequence[Terms], *, keep: bool = True) -> bool:
        """Make sums small together; they must stay so if they are to be kept."""
        costs, weight = [0] * self._program.size, 1
        for terms in reversed(sums):
            for at, factor in terms:
                costs[at] += weight * factor
            weight *= self._range(terms)
        costly = [at for at, cost in enumerate(costs) if cost]
        known = self._solved and all(at < len(self._values) and costs[at] > 0 for at in costly)
        # Nothing is less than nothing.
        if not known or any(self._values[at] for at in costly):
            self._program.cost(costs)
            found = self._program.solve(min(self._rules.steps, _AT_ONCE), proof=self.proof)
            self._rules.steps -= found.steps
            if found.verdict is Verdict.INFEASIBLE and not self._solved:
                return False
            if found.verdict is Verdict.FEASIBLE:
                self._values, self._solved = found.values.tolist(), True
            if not found.best:
                raise UndecidedError(self.taken if self._solved else None)
        for terms in sums if keep else ():
            if terms:
                self._program.row(terms, most=self.value(terms))
        return True

    def _limit_members(self) -> Terms:
        """Members go up to their limits, and not beside all of their gang; the gangs that are broken."""
        broken: list[tuple[int, int]] = []
        whole: dict[int, int] = {}
        members: dict[int, list[int]] = {}
        for at, unit in enumerate(self._units):
            if unit.whole:
                whole[unit.holder] = at
                if unit.gang:
                    broken.append((at, 1))
            else:
                members.setdefault(unit.holder, []).append(at)
        for holder, some in members.items():
            limits = self._rules.limits[holder]
            most = len(some) if limits.singly else min(limits.surplus, len(some))
            instead = [(whole[holder], most)] if holder in whole else []
            self._program.row([*((at, 1) for at in some), *instead], most=most)
            if limits.singly and limits.surplus < len(some):
                breaks = self._column(1)
                broken.append((breaks, 1))
                beyond = limits.surplus - len(some)
                self._program.row([*((at, 1) for at in some), (breaks, beyond)], most=limits.surplus)
            for leaf, least in {} if limits.singly else limits.of_leaf.items():
                there = [(at, 1) for at in some if self._units[at].leaf == leaf]
                if len(there) > least:
                    self._program.row(there, most=least)
        return broken

    def _limit_budgets(self, most: int | None) -> Terms:
        """Budgets are kept, or violated as often as ``most``; how often they are."""
        covered: dict[int, list[tuple[int, int]]] = {}
        for at, unit in enumerate(self._units):
            for budget, pods in unit.budgets:
                covered.setdefault(budget, []).append((at, pods))
        beyond: list[tuple[int, int]] = []
        for budget, terms in covered.items():
            allowed = self._rules.allowed[budget]
            over = sum(pods for _, pods in terms) - allowed
            if over > 0 and self._rules.soft:
                beyond.append((self._column(over), 1))
                terms.append((beyond[-1][0], -1))
            if over > 0:
                self._program.row(terms, most=allowed)
        if most is not None and beyond:
            self._program.row(beyond, most=most)
        return beyond

    def _fill(self, room: DomainRoom) -> None:
        """All pods of each kind find room."""
        freed: dict[int, dict[int, FreedAmounts]] = {}
        for at, unit in enumerate(self._units):
            for slot, amounts in unit.shared:
                freed.setdefault(slot, {})[at] = amounts
        ordered = sorted(freed.items(), key=lambda one: int(self._rules.name_ranks[one[0]]))
        for kind, lack in enumerate(room.lacks):
            terms, least = [(at, unit.gains[kind]) for at, unit in enumerate(self._units)], lack
            for slot, gone in ordered if lack > 0 else ():
                now, most = (
                    room.fits(kind, slot, room.left[slot]),
                    room.fits(kind, slot, self._all(room, slot, gone)),
                )
                if most > now:
                    here = self._column(most, now)
                    terms.append((here, 1))
                    least += now
                    self._share(room, kind, slot, gone, here)
            if lack > 0:
                self._program.row(terms, least=least)

    def _all(self, room: DomainRoom, slot: int, gone: Mapping[int, FreedAmounts]) -> dict[int, int]:
        """What is left on a node if all of these units go; of a gang its members or all of it."""
        left = dict(room.left[slot])
        whole = {self._units[at].holder for at in gone if self._units[at].whole}
        for at, amounts in gone.items():
            if self._units[at].whole or self._units[at].holder not in whole:
                for row, amount in enumerate(amounts):
                    left[row] += amount
        return left

    def _share(
        self, room: DomainRoom, kind: int, slot: int, gone: Mapping[int, FreedAmounts], here: int
    ) -> None:
        """On a node no more pods fit (column ``here``) than units free there."""
        any_fits: int | None = None
        asks, everything, most = room.kinds[kind].asks, self._all(room, slot, gone), self._most[here]
        whole = {self._units[at].holder: at for at in gone if self._units[at].whole}
        members = {self._units[at].holder for at in gone if not self._units[at].whole}
        for at, amounts in gone.items():
            unit = self._units[at]
            if unit.whole and unit.holder in members:
                continue
            # This follows from the rows below, but for parts of units.
            without = room.fits(kind, slot, {row: left - amounts[row] for row, left in everything.items()})
            if without < most:
                goes = {at, whole.get(unit.holder, at)}
                self._program.row([(here, 1), *((one, without - most) for one in goes)], most=without)
        for row, ask in zip(asks.rows, asks.amounts, strict=True):
            left = room.left[slot][row]
            if left >= ask * most:
                continue
            more = [(at, amounts[row]) for at, amounts in gone.items() if amounts[row]]
            common = gcd(ask, *(amount for _, amount in more))
            terms = [(here, ask // common), *((at, -amount // common) for at, amount in more)]
            left //= common
            if left < 0:  # What is taken beyond what there is has to be freed only where a pod goes.
                if any_fits is None:
                    any_fits = self._column(1)
                    self._program.row([(here, 1), (any_fits, -most)], most=0)
                terms.append((any_fits, -left))
                left = 0
            self._program.row(terms, most=left)

    def _seconds(self) -> Terms:
        """How many shorter times there are than the longest until a unit is gone."""
        levels = sorted({unit.seconds for unit in self._units})
        columns = [self._column(1) for _ in levels[1:]]
        for at, unit in enumerate(self._units):
            level = levels.index(unit.seconds)
            if level:
                self._program.row([(at, 1), (columns[level - 1], -1)], most=0)
        for one, longer in pairwise(columns):
            self._program.row([(longer, 1), (one, -1)], most=0)
        return [(at, 1) for at in columns]

    def partly_free(self) -> Terms:
        """The nodes that lose a pod and keep another one."""
        rules = self._rules
        there: dict[int, Counter[int]] = {}
        for at, unit in enumerate(self._units):
            for slot in rules.slots[list(unit.pods)].tolist():
                there.setdefault(slot, Counter())[at] += 1
        found: list[tuple[int, int]] = []
        for slot, pods in there.items():
            held = int(rules.held[slot])
            if len(pods) == 1 and pods.total() == held:
                continue
            partly = self._column(1)
            found.append((partly, 1))
            instead = [(partly, -1)]
            if pods.total() >= held:
                cleared = self._column(1)
                instead.append((cleared, -1))
                self._program.row([(cleared, held), *((at, -n) for at, n in pods.items())], most=0)
            for at in pods:
                self._program.row([(at, 1), *instead], most=0)
        return found
