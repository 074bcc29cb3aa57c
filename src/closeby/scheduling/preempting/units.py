"""Units: pods that are evicted together, how many of a gang may go alone, and what some of them cost."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from closeby.scheduling.preempting.records import EvictionCost

#: What a pod takes, in the rows of ``NodeRoom``.
Amounts = tuple[int, ...]


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
    priority: int
    lost: float
    accelerators: int
    outside: int
    #: By kind of the preemptor's pods: how many more fit on nodes where nothing but this can go.
    gains: tuple[int, ...]
    #: What it frees on nodes where something else can go too: slot and amounts.
    shared: tuple[tuple[int, Amounts], ...] = ()
    #: Pods by budget.
    budgets: tuple[tuple[int, int], ...] = ()
    name: str


class MemberLimits(NamedTuple):
    """How many members of a gang may go one by one."""

    #: More than these break the gang; unless ``singly`` no more may go one by one.
    surplus: int
    singly: bool
    of_leaf: Mapping[str, int]


class VictimTally:
    """The cost of the units that go, kept as they come and go."""

    def __init__(self, allowed: Sequence[int], limits: Mapping[int, MemberLimits]) -> None:
        self._allowed = allowed
        self._limits = limits
        self.units: list[VictimUnit] = []
        self._budgets: dict[int, int] = {}
        self._single: dict[int, int] = {}
        self._leaves: dict[tuple[int, str], int] = {}
        self._wholes: set[int] = set()
        self._costs: list[EvictionCost] = [EvictionCost()]

    @property
    def cost(self) -> EvictionCost:
        """Without the nodes that are left partly free."""
        return self._costs[-1]

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

    def take(self, unit: VictimUnit) -> None:
        """A unit goes."""
        cost = self._costs[-1]
        violations, broken = cost.pdb_violations, cost.gangs_broken
        for budget, pods in unit.budgets:
            before = self._budgets.get(budget, 0)
            self._budgets[budget] = before + pods
            most = self._allowed[budget]
            violations += max(before + pods - most, 0) - max(before - most, 0)
        limits = self._limits.get(unit.holder)
        if unit.whole:
            self._wholes.add(unit.holder)
            broken += unit.gang
        elif limits is not None:
            gone = self._single[unit.holder] = self._single.get(unit.holder, 0) + 1
            leaf = unit.holder, unit.leaf
            self._leaves[leaf] = self._leaves.get(leaf, 0) + 1
            broken += gone == limits.surplus + 1
        self.units.append(unit)
        self._costs.append(
            EvictionCost(
                violations,
                max(cost.highest, unit.priority),
                broken,
                cost.lost + unit.lost,
                cost.accelerators + unit.accelerators,
                cost.outside + unit.outside,
                cost.pods + len(unit.pods),
            )
        )

    def drop(self) -> None:
        """The last unit stays after all."""
        unit = self.units.pop()
        self._costs.pop()
        for budget, pods in unit.budgets:
            self._budgets[budget] -= pods
        if unit.whole:
            self._wholes.discard(unit.holder)
        elif unit.holder in self._limits:
            self._single[unit.holder] -= 1
            self._leaves[unit.holder, unit.leaf] -= 1
