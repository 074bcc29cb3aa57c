"""The node to clear for a plain pod: all are looked at, and one is chosen as DefaultPreemption upstream does.

On a node all pods of lower priority go, then each that is not needed stays: those first that a
PodDisruptionBudget protects, then the most important ones. Gangs go as a whole, or by members beyond their
minimum; a node without victims of gangs that are broken comes before one with some.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.scheduling.placing.tools import Placed, Tools
from closeby.scheduling.preempting.clearing import Clearing, Ground
from closeby.scheduling.preempting.domains import COUNTED
from closeby.scheduling.preempting.ground import kinds_of, room_of, whatever_goes
from closeby.scheduling.preempting.records import DomainCost, EvictionCost
from closeby.scheduling.preempting.trials import PreemptionTrials
from closeby.scheduling.preempting.units import VictimUnit
from closeby.scheduling.preempting.victims import Units, Victims, in_order, limits_of, partly_free_in, pods_of
from closeby.scheduling.preempting.world import World

#: Nodes that are tried for one pod where a filter knows more than the arithmetic.
TRIALS: Final = 64
#: Nodes of which the cost is shown in an explanation.
EXPLAINED: Final = 64


class NodeChoice(Struct, frozen=True, kw_only=True, eq=False):
    """The node to clear, who goes for that, and where the pod goes."""

    node: str
    cost: EvictionCost
    units: tuple[VictimUnit, ...]
    placed: tuple[Placed, ...]


#: By what nodes are compared.
_Key = tuple[object, ...]


class PodQuestion:
    """One plain pod that looks for a node to clear."""

    def __init__(self, tools: Tools, trials: PreemptionTrials, pod: Pod) -> None:
        self._tools = tools
        self._trials = trials
        self._pod = pod
        self.tree = tools.topologies.flat()
        demand = tools.table.shares((pod,))
        self.rows, self.kinds = kinds_of(tools.cluster, demand, tools.reserved.barred, COUNTED)

    def holding(self) -> bool:
        """Whether some node would hold the pod if nothing ran there."""
        return any(bool(fits.any()) for fits in whatever_goes(self._tools.cluster, self.rows, self.kinds))

    def best(self, victims: Victims, *, soft: bool) -> NodeChoice | None:
        """The node that costs the least to clear; None where no victims are enough."""
        leaving = pods_of_leaving(victims)
        for _, slot, units, cost in sorted(self._candidates(victims, soft), key=itemgetter(0))[:TRIALS]:
            placed = self._trials.place(self._pod, (*leaving, *pods_of(victims.world, units)))
            if placed is not None:
                name = self._tools.cluster.node_at(slot).name
                return NodeChoice(node=name, cost=cost, units=units, placed=placed)
        return None

    def places_without(self, victims: Victims, pods: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the pod goes without these pods and all that leaves anyway; None: it does not fit."""
        return self._trials.place(self._pod, (*pods_of_leaving(victims), *pods))

    def table(self, victims: Victims, *, soft: bool) -> tuple[DomainCost, ...]:
        """What clearing each node would cost; the cheapest first."""
        cluster = self._tools.cluster
        return tuple(
            DomainCost(
                path=(cluster.node_at(slot).name,),
                cost=cost,
                victims=in_order(pods_of(victims.world, units)),
            )
            for _, slot, units, cost in sorted(self._candidates(victims, soft), key=itemgetter(0))[:EXPLAINED]
        )

    def _candidates(
        self, victims: Victims, soft: bool
    ) -> Iterator[tuple[_Key, int, tuple[VictimUnit, ...], EvictionCost]]:
        world, cluster = victims.world, self._tools.cluster
        room = room_of(cluster, world, self.rows, self.kinds, victims.leaving, victims.pods)
        kind = self.kinds[0]
        level = self.tree.node_level
        units_of = Units(victims, room, self.tree, level)
        clearing = Clearing(
            allowed=world.allowed,
            limits=limits_of(world),
            soft=soft,
            partly_free=partly_free_in(world, victims.leaving),
        )
        for slot in np.flatnonzero(room.could[0] > 0).tolist():
            place = self.tree.node_domain(slot)
            if place is None:
                continue
            units, slots = units_of.of(place.index)
            ground = Ground(
                [1], [int(room.fits[0][slot])], [kind.asks], units_of.ground_of(slots), lambda _, __: True
            )
            kept = self._needed(victims, clearing, ground, units, soft)
            if kept is None:
                continue
            cost = clearing.costs(kept)
            name = natural_key(cluster.node_at(slot).name)
            yield (self._key(victims, kept, cost), name), slot, kept, cost

    def _needed(
        self, victims: Victims, clearing: Clearing, ground: Ground, units: Sequence[VictimUnit], soft: bool
    ) -> tuple[VictimUnit, ...] | None:
        """The units of a node that must go, by upstream's rule; None where all of them are not enough."""
        singles = {unit.holder for unit in units if not unit.whole and unit.gang}
        whole = [unit for unit in units if unit.whole or unit.holder not in singles]
        spared = self._reprieved(victims.world, clearing, ground, whole, soft)
        if singles:
            few = self._reprieved(
                victims.world,
                clearing,
                ground,
                clearing.within_limits(
                    [unit for unit in units if not (unit.whole and unit.holder in singles)]
                ),
                soft,
            )
            if few is not None and (spared is None or clearing.costs(few) < clearing.costs(spared)):
                return few
        return spared

    def _reprieved(
        self, world: World, clearing: Clearing, ground: Ground, units: Sequence[VictimUnit], soft: bool
    ) -> tuple[VictimUnit, ...] | None:
        left = list(world.allowed)
        violating: list[VictimUnit] = []
        others: list[VictimUnit] = []
        for unit in sorted(units, key=partial(_importance, world)):
            breaks = False
            for budget, pods in unit.budgets:
                left[budget] -= pods
                breaks = breaks or left[budget] < 0
            (violating if breaks else others).append(unit)
        if not soft:
            violating = []
        gone = [*violating, *others]
        for unit in gone:
            ground.free(unit)
        enough = ground.enough
        kept: list[VictimUnit] = []
        for unit in gone:
            ground.free(unit, -1)
            if not enough or not ground.enough:
                ground.free(unit)
                kept.append(unit)
        for unit in kept:
            ground.free(unit, -1)
        return tuple(kept) if enough else None

    def _key(self, victims: Victims, units: Sequence[VictimUnit], cost: EvictionCost) -> _Key:
        """Upstream's order among nodes where no gang is broken; the order of costs among the others."""
        world = victims.world
        if cost.gangs_broken:
            return cost.pdb_violations, cost.highest, cost.gangs_broken, cost
        # As upstream: a sum of priorities of which each counts as more than 0, and the latest start.
        total = sum(int(world.priorities[one]) + (1 << 31) for unit in units for one in unit.pods)
        top = [
            float(world.started[one])
            for unit in units
            for one in unit.pods
            if world.priorities[one] == cost.highest and np.isfinite(world.started[one])
        ]
        latest = -min(top) if top else 0.0
        return cost.pdb_violations, cost.highest, cost.gangs_broken, (total, cost.pods, latest)


def _importance(world: World, unit: VictimUnit) -> tuple[object, ...]:
    """The most important first: by priority, gangs before pods, those that started first."""
    return -unit.priority, not unit.gang, float(world.started[list(unit.pods)].min()), unit.name


def pods_of_leaving(victims: Victims) -> tuple[Pod, ...]:
    """The pods that go anyway."""
    return tuple(victims.world.pods[one] for one in victims.leaving.tolist())
