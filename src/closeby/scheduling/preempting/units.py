"""Units: pods that are evicted together, how many of a gang may go alone, and what some of them cost."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from closeby.scheduling.preempting.records import EvictionCost

#: What a pod takes, in the rows of ``NodeRoom``.
Amounts = tuple[int, ...]
#: What comes free on nodes where something else can go too: slots and amounts.
SharedRoom = tuple[tuple[int, Amounts], ...]


class VictimUnit(Struct, frozen=True, kw_only=True, eq=False):
    """Pods that are evicted together."""

    holder: int
    #: Indices of the pods, in ``RunningPods``.
    pods: tuple[int, ...]
    #: Whether this is all of a gang; else a member or a pod by itself.
    whole: bool
    gang: bool
    #: The part of its gang that a single member is of.
    leaf: str = ""
    last_choice: int = 0
    priority: int
    slow: bool = False
    lost: float
    accelerators: int
    outside: int
    seconds: int = 0
    #: By kind of the preemptor's pods: how many more fit on nodes where nothing but this can go.
    gains: tuple[int, ...]
    shared: SharedRoom = ()
    #: Pods by budget.
    budgets: tuple[tuple[int, int], ...] = ()
    name: str

    @property
    def rank(self) -> tuple[int, ...]:
        """What counts before the lost work, those first that go first."""
        return self.last_choice, bool(self.budgets), self.priority, self.slow


class MemberLimits(NamedTuple):
    """How many members of a gang may go one by one."""

    #: More than these break the gang; unless ``singly`` no more may go one by one.
    surplus: int
    singly: bool
    of_leaf: Mapping[str, int]


class VictimCounts:
    """How many go of each gang and budget, while units go and come back in any order."""

    def __init__(self, allowed: Sequence[int], limits: Mapping[int, MemberLimits]) -> None:
        self._allowed = allowed
        self._limits = limits
        self._budgets: dict[int, int] = {}
        self._single: dict[int, int] = {}
        self._leaves: dict[tuple[int, str], int] = {}
        self._wholes: set[int] = set()
        #: Pods that go beyond what budgets allow, and gangs that are left with less than their minimum.
        self.violations = 0
        self.broken = 0

    def may_take(self, unit: VictimUnit) -> bool:
        """Whether a unit can go besides the others."""
        if unit.holder in self._wholes:
            return False
        gone = self._single.get(unit.holder, 0)
        limits = self._limits.get(unit.holder)
        if unit.whole or limits is None:
            return not gone
        if limits.singly:
            return True
        if gone >= limits.surplus:
            return False
        most = limits.of_leaf.get(unit.leaf)
        return most is None or self._leaves.get((unit.holder, unit.leaf), 0) < most

    def count(self, unit: VictimUnit, sign: int = 1) -> None:
        """A unit goes; with -1 it is back."""
        for budget, pods in unit.budgets:
            before = self._budgets.get(budget, 0)
            after = self._budgets[budget] = before + sign * pods
            most = self._allowed[budget]
            self.violations += max(after - most, 0) - max(before - most, 0)
        limits = self._limits.get(unit.holder)
        if unit.whole:
            self._wholes.symmetric_difference_update((unit.holder,))
            self.broken += sign * unit.gang
        elif limits is not None:
            gone = self._single.get(unit.holder, 0)
            after = self._single[unit.holder] = gone + sign
            leaf = unit.holder, unit.leaf
            self._leaves[leaf] = self._leaves.get(leaf, 0) + sign
            self.broken += (after > limits.surplus) - (gone > limits.surplus)


class VictimTally:
    """The cost of the units that go, kept as they come and go; the last one comes back first."""

    def __init__(self, allowed: Sequence[int], limits: Mapping[int, MemberLimits]) -> None:
        self._counts = VictimCounts(allowed, limits)
        self.may_take = self._counts.may_take
        self.units: list[VictimUnit] = []
        self._costs: list[EvictionCost] = [EvictionCost()]

    @property
    def cost(self) -> EvictionCost:
        """Without the nodes that are left partly free."""
        return self._costs[-1]

    def take(self, unit: VictimUnit) -> None:
        """A unit goes."""
        cost, counts = self._costs[-1], self._counts
        counts.count(unit)
        self.units.append(unit)
        self._costs.append(
            EvictionCost(
                max(cost.last_choice, unit.last_choice),
                counts.violations,
                max(cost.highest, unit.priority),
                cost.slow or unit.slow,
                cost.lost + unit.lost,
                counts.broken,
                cost.accelerators + unit.accelerators,
                cost.outside + unit.outside,
                max(cost.seconds, unit.seconds),
                cost.pods + len(unit.pods),
            )
        )

    def drop(self) -> None:
        """The last unit stays after all."""
        self._costs.pop()
        self._counts.count(self.units.pop(), -1)
