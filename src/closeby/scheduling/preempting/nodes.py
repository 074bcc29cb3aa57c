"""The node to clear for a plain pod: all are looked at, and one is chosen as DefaultPreemption upstream does.

On a node all pods of lower priority go, then each that is not needed stays: those first that a
PodDisruptionBudget protects, then the most important ones. Gangs go as a whole, or by members beyond their
minimum; a node without victims of gangs that are broken comes before one with some.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Ints
from closeby.objects.pods import Pod
from closeby.objects.words import NaturalKey, natural_key
from closeby.scheduling.placing.tools import Placed, Tools
from closeby.scheduling.preempting.clearing import Clearing, FoundVictims
from closeby.scheduling.preempting.domain_room import DomainRoom
from closeby.scheduling.preempting.domains import COUNTED, with_kept
from closeby.scheduling.preempting.node_ranking import NodeRanking
from closeby.scheduling.preempting.node_room import NodeRoom, PodKind, kinds_of, room_of, whatever_goes
from closeby.scheduling.preempting.protected import ProtectedPods
from closeby.scheduling.preempting.records import DomainCost, EvictionCost
from closeby.scheduling.preempting.running_pods import RunningPods
from closeby.scheduling.preempting.trials import PreemptionTrials
from closeby.scheduling.preempting.tried_sets import AT_ONCE, TOGETHER, TriedSets, most_trials
from closeby.scheduling.preempting.units import VictimUnit
from closeby.scheduling.preempting.victims import Units, Victims, in_order, pods_of, pods_of_leaving
from closeby.topology.tree import Tree

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


class NodeCandidate(NamedTuple):
    """A node that may be cleared, and who must go for that."""

    key: tuple[_Key, NaturalKey]
    slot: int
    units: tuple[VictimUnit, ...]
    cost: EvictionCost


def _key_of(one: NodeCandidate) -> tuple[_Key, NaturalKey]:
    return one.key


class PodQuestion:
    """One plain pod that looks for a node to clear."""

    def __init__(self, tools: Tools, trials: PreemptionTrials, pod: Pod, *, soft: bool) -> None:
        """``soft``: victims may violate budgets."""
        self.soft = soft
        self._tools = tools
        self._trials = trials
        self._pod = pod
        self.tree = tools.topologies.flat()
        demand = tools.table.shares((pod,))
        self.rows, self.kinds = kinds_of(tools.cluster, demand, tools.reserved.kept, COUNTED)

    def holding(self) -> bool:
        """Whether some node would hold the pod if nothing ran there."""
        return any(bool(fits.any()) for fits in whatever_goes(self._tools.cluster, self.rows, self.kinds))

    def best(self, victims: Victims) -> NodeChoice | None:
        """The node that costs the least to clear; None where no victims are enough.

        Where a filter refuses who would have to go for room alone, others on the node may have to go too.
        """
        leaving = pods_of_leaving(victims)
        nodes, most = self._nodes(victims), most_trials(self._tools.cluster.node_count)
        #: Nodes of which more must go than for room: they come by what that costs.
        dearer: list[tuple[NodeCandidate, tuple[Placed, ...]]] = []
        for one in islice(self._promising(nodes, victims), most):
            if self._trials.costly or (dearer and dearer[0][0].key <= one.key):
                break
            spared = nodes.reprieved(one)
            placed = self._trials.place(self._pod, (*leaving, *pods_of(victims.running, spared.units)))
            if placed is not None:
                return self._choice(spared, placed)
            plain = self.kinds[0].plain and self._tools.reserved.owned is None
            found = None if plain else nodes.by_trials(one.slot, self._places_on(victims))
            if found is not None:
                dearer = sorted([*dearer, found], key=lambda known: known[0].key)
        return self._choice(*dearer[0]) if dearer else None

    def _promising(self, nodes: "_Nodes", victims: Victims) -> Iterator[NodeCandidate]:
        """Nodes in order without those that refuse the pod even if all goes there that may go."""
        candidates = nodes.in_order()
        yield from islice(candidates, AT_ONCE)
        running, leaving = victims.running, pods_of_leaving(victims)
        while batch := list(islice(candidates, TOGETHER)):
            there = np.isin(running.slots[victims.pods], [one.slot for one in batch])
            holders = np.unique(running.holder_of[victims.pods[there]])
            owners = [pod for one in batch for unit in nodes.owners_of(one.slot) for pod in unit.pods]
            gone = victims.pods[np.isin(running.holder_of[victims.pods], holders)]
            gone = np.union1d(gone, np.asarray(owners, dtype=np.intp))
            pods = (*leaving, *(running.pods[one] for one in gone.tolist()))
            most = self._trials.most(self._pod, (self._pod,), pods)
            yield from (one for one in batch if most is None or most[0][one.slot])

    def _choice(self, one: NodeCandidate, placed: tuple[Placed, ...]) -> NodeChoice:
        name = self._tools.cluster.node_at(placed[0][1]).name
        return NodeChoice(node=name, cost=one.cost, units=one.units, placed=placed)

    def _places_on(self, victims: Victims) -> Callable[[Sequence[VictimUnit]], tuple[Placed, ...] | None]:
        """Where the pod goes without some units and all that leaves anyway."""
        leaving = pods_of_leaving(victims)
        return lambda units: self._trials.place(self._pod, (*leaving, *pods_of(victims.running, units)))

    def places_without(self, victims: Victims, pods: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the pod goes without these pods and all that leaves anyway; None: it does not fit."""
        return self._trials.place(self._pod, (*pods_of_leaving(victims), *pods))

    def table(self, victims: Victims | None, protected: ProtectedPods) -> tuple[DomainCost, ...]:
        """What clearing each node would cost, the cheapest first, and then why that does not help."""
        cluster, tree = self._tools.cluster, self.tree
        kept = protected.by_domain(tree, tree.node_level)
        known: dict[int, DomainCost] = {}
        if victims is not None:
            for one in islice(self.in_order(victims), EXPLAINED):
                gone = in_order(pods_of(victims.running, one.units))
                path = (cluster.node_at(one.slot).name,)
                known[one.slot] = DomainCost(path=path, cost=one.cost, victims=gone)
        others: list[tuple[NaturalKey, int]] = []
        if len(known) < EXPLAINED:
            holding = np.flatnonzero(whatever_goes(cluster, self.rows, self.kinds)[0] > 0).tolist()
            others = sorted(
                (natural_key(cluster.node_at(slot).name), slot) for slot in holding if slot not in known
            )
        for _, slot in others[: EXPLAINED - len(known)]:
            why = "not enough even so" if victims is not None else "nothing on it may go"
            known[slot] = DomainCost(path=(cluster.node_at(slot).name,), why_not=why)
        places = {slot: place.index for slot in known if (place := tree.node_domain(slot)) is not None}
        return tuple(with_kept(one, kept.get(places[slot])) for slot, one in known.items())

    def in_order(self, victims: Victims, *, one_by_one: bool = False) -> Iterator[NodeCandidate]:
        """The nodes that may be cleared, the best first; ``one_by_one`` compares each by its exact cost."""
        return self._nodes(victims).in_order(one_by_one=one_by_one)

    def _nodes(self, victims: Victims) -> "_Nodes":
        running, cluster = victims.running, self._tools.cluster
        room = room_of(cluster, running, self.rows, self.kinds, victims.leaving, victims.pods)
        clearing = Clearing.among(victims, soft=self.soft)
        owned = self._trials.owners(self._pod)
        units = Units(victims, room, self.tree, self.tree.node_level, owned)
        return _Nodes(cluster, self.tree, self.kinds[0], victims, room, units, clearing, self._trials)


class _Nodes(NamedTuple):
    """All nodes that one pod may clear."""

    cluster: Cluster
    tree: Tree
    kind: PodKind
    victims: Victims
    room: NodeRoom
    units: Units
    clearing: Clearing
    trials: PreemptionTrials

    def in_order(self, *, one_by_one: bool = False) -> Iterator[NodeCandidate]:
        """Those that may be cleared, the best first; ``one_by_one`` compares each by its exact cost."""
        if one_by_one:
            return iter(sorted(self._judged(np.flatnonzero(self.room.could[0] > 0)), key=_key_of))
        ranking = NodeRanking(self.victims, self.room, self.units, soft=self.clearing.soft)
        ranked = (
            one
            for slots, rough in ranking.groups()
            for one in (sorted(self._judged(slots), key=_key_of) if rough else self._judged(slots))
        )
        return merge(sorted(self._judged(ranking.others), key=_key_of), ranked, key=_key_of)

    def reprieved(self, one: NodeCandidate) -> NodeCandidate:
        """The same without what is not needed, where the search for the cheapest took short cuts."""
        units, shared = self.units.of(self._place(one.slot))
        if self.clearing.exact or not _some_alone(units):
            return one
        found = FoundVictims(one.cost, one.units)
        spared = self.clearing.reprieved(self._domain_room(one.slot, shared), units, found)
        return self._candidate(one.slot, spared.units)

    def by_trials(
        self, slot: int, places: Callable[[Sequence[VictimUnit]], tuple[Placed, ...] | None]
    ) -> tuple[NodeCandidate, tuple[Placed, ...]] | None:
        """Who must go on a node as all filters see it, and where the pod is then; None if it never fits."""
        units, shared = self.units.of(self._place(slot))
        units += self.owners_of(slot)
        if _some_alone(units):
            tried = TriedSets(places, self.trials, self.cluster.capacity, monotone=True)
            with self.trials.keeping():
                found = self._cheapest(self._domain_room(slot, shared), units, tried)
            placed = None if found is None else places(found)
            return None if found is None or placed is None else (self._candidate(slot, found), placed)
        gone = self._in_turn(units)
        placed = places(gone)
        if placed is None:
            return None
        for unit in tuple(gone):
            rest = [one for one in gone if one is not unit]
            left = places(rest)
            if left is not None:
                gone, placed = rest, left
        return self._candidate(slot, tuple(gone)), placed

    def owners_of(self, slot: int) -> list[VictimUnit]:
        """The units on other nodes whose gangs have a domain around a node for themselves."""
        return self.units.owners_of(self._place(slot))

    def _place(self, slot: int) -> int:
        place = self.tree.node_domain(slot)
        assert place is not None, "each node has its place in the flat tree"
        return place.index

    def _judged(self, slots: Ints) -> Iterator[NodeCandidate]:
        """Nodes with who must go, without those where all that may go is not enough."""
        for slot in slots.tolist():
            units, shared = self.units.of(self._place(slot))
            domain_room = self._domain_room(slot, shared)
            kept = self._needed(domain_room, units)
            if kept is not None:
                yield self._candidate(slot, kept)

    def _domain_room(self, slot: int, shared: set[int]) -> DomainRoom:
        return DomainRoom(
            [1],
            [int(self.room.fits[0][slot])],
            [self.kind.asks],
            self.units.free_on(shared),
            lambda _, __: True,
        )

    def _candidate(self, slot: int, units: tuple[VictimUnit, ...]) -> NodeCandidate:
        cost = self.clearing.costs(units)
        name = natural_key(self.cluster.node_at(slot).name)
        return NodeCandidate((self._key(units, cost), name), slot, units, cost)

    def _needed(self, domain_room: DomainRoom, units: Sequence[VictimUnit]) -> tuple[VictimUnit, ...] | None:
        """The units of a node that must go; None where all of them are not enough.

        By upstream's rule, or where members of a gang may go one by one, which upstream does not know, those
        that cost the least.
        """
        return (
            self._cheapest(domain_room, units) if _some_alone(units) else self._reprieved(domain_room, units)
        )

    def _cheapest(
        self, domain_room: DomainRoom, units: Sequence[VictimUnit], tried: TriedSets | None = None
    ) -> tuple[VictimUnit, ...] | None:
        """The units that cost the least and are enough; ``tried`` knows more than the arithmetic."""
        clearing = (
            self.clearing if tried is None else replace(self.clearing, tried=tried, nodes=0, exact=True)
        )
        found = clearing.cheapest(domain_room, units, None)
        if found is not None and tried is not None and not clearing.exact:
            found = clearing.reprieved(domain_room, units, found)
        return None if found is None else found.units

    def _in_turn(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The units that may go, in the order in which they may stay: those first that a budget protects."""
        left = list(self.victims.allowed)
        violating: list[VictimUnit] = []
        others: list[VictimUnit] = []
        for unit in sorted(units, key=partial(_importance, self.victims.running)):
            breaks = False
            for budget, pods in unit.budgets:
                left[budget] -= pods
                breaks = breaks or left[budget] < 0
            (violating if breaks else others).append(unit)
        going = [*violating, *others] if self.clearing.soft else others
        return sorted(going, key=lambda unit: -unit.last_choice)

    def _reprieved(
        self, domain_room: DomainRoom, units: Sequence[VictimUnit]
    ) -> tuple[VictimUnit, ...] | None:
        gone = self._in_turn(units)
        for unit in gone:
            domain_room.free(unit)
        enough = domain_room.enough
        kept: list[VictimUnit] = []
        for unit in gone:
            domain_room.free(unit, -1)
            if not enough or not domain_room.enough:
                domain_room.free(unit)
                kept.append(unit)
        for unit in kept:
            domain_room.free(unit, -1)
        return tuple(kept) if enough else None

    def _key(self, units: Sequence[VictimUnit], cost: EvictionCost) -> _Key:
        """Upstream's order among nodes where no gang is broken; the order of costs among the others."""
        running = self.victims.running
        first = cost.last_choice, cost.pdb_violations, cost.highest, cost.slow, cost.gangs_broken
        if cost.gangs_broken:
            return *first, cost
        # As upstream: a sum of priorities of which each counts as more than 0, and the latest start.
        total = sum(int(running.priorities[one]) + (1 << 31) for unit in units for one in unit.pods)
        top = [
            float(running.started[one])
            for unit in units
            for one in unit.pods
            if running.priorities[one] == cost.highest and np.isfinite(running.started[one])
        ]
        latest = -min(top) if top else 0.0
        return *first, (total, cost.pods, latest)


def _some_alone(units: Sequence[VictimUnit]) -> bool:
    """Whether members of a gang may go one by one."""
    return any(not unit.whole for unit in units)


def _importance(running: RunningPods, unit: VictimUnit) -> tuple[object, ...]:
    """Those first that stay: the last choice, then by priority, a long grace, gangs before pods, by start."""
    started = float(running.started[list(unit.pods)].min())
    return -unit.last_choice, -unit.priority, not unit.slow, not unit.gang, started, unit.name
