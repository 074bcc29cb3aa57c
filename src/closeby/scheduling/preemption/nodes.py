"""The node to clear for a plain pod: all are looked at, and one is chosen as DefaultPreemption upstream does.

On a node all pods of lower priority go, then each that is not needed stays: those first that a
PodDisruptionBudget protects, then the most important ones. Gangs go as a whole, or by members beyond their
minimum; a node without victims of gangs that are broken comes before one with some.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import accumulate, islice, pairwise
from math import inf, isfinite
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Ints, Scores
from closeby.objects.pods import Pod
from closeby.objects.words import NaturalKey, natural_key
from closeby.scheduling.intake.budgets import SEVERAL
from closeby.scheduling.judging.holds import HoldKind
from closeby.scheduling.outcomes import DomainCost, EvictionCost
from closeby.scheduling.placing.tools import Placed, Tools
from closeby.scheduling.preemption.clearing import (
    AT_ONCE,
    TOGETHER,
    Clearing,
    FoundVictims,
    most_trials,
)
from closeby.scheduling.preemption.domains import COUNTED, with_kept
from closeby.scheduling.preemption.protected import ProtectedPods
from closeby.scheduling.preemption.room import (
    DomainRoom,
    NodeRoom,
    kinds_of,
    room_of,
    whatever_goes,
)
from closeby.scheduling.preemption.trials import PreemptionTrials
from closeby.scheduling.preemption.units import (
    Units,
    Victims,
    VictimUnit,
    in_order,
    pods_of,
    rank_in,
    sum_before,
)
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
        self.kinds = kinds_of(tools.cluster, demand, tools.holds.until_placed, COUNTED)

    def holding(self) -> bool:
        """Whether some node would hold the pod if nothing ran there."""
        return any(bool(fits.any()) for fits in whatever_goes(self._tools.cluster, self.kinds))

    def best(self, victims: Victims) -> NodeChoice | None:
        """The node that costs the least to clear; None where no victims are enough.

        Where a filter refuses who would have to go for room alone, others on the node may have to go too.
        """
        nodes, most = self._nodes(victims), most_trials(self._tools.cluster.node_count)
        #: Nodes of which more must go than for room: they come by what that costs.
        dearer: list[tuple[NodeCandidate, tuple[Placed, ...]]] = []
        for one in islice(self._promising(nodes, victims), most):
            if self._trials.costly or (dearer and dearer[0][0].key <= one.key):
                break
            spared = nodes.reprieved(one)
            placed = self.places_without(victims, pods_of(victims.running, spared.units))
            if placed is not None:
                return self._choice(spared, placed)
            plain = self.kinds[0].plain and self._tools.holds.of(HoldKind.DOMAIN) is None
            found = None if plain else nodes.by_trials(one.slot, self._places_on(victims))
            if found is not None:
                dearer = sorted([*dearer, found], key=lambda known: known[0].key)
        return self._choice(*dearer[0]) if dearer else None

    def _promising(self, nodes: "_Nodes", victims: Victims) -> Iterator[NodeCandidate]:
        """Nodes in order without those that refuse the pod even if all goes there that may go."""
        candidates = nodes.in_order()
        yield from islice(candidates, AT_ONCE)
        running, leaving = victims.running, victims.pods_leaving
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
        return lambda units: self.places_without(victims, pods_of(victims.running, units))

    def places_without(self, victims: Victims, pods: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the pod goes without these pods and all that leaves anyway; None: it does not fit."""
        return self._trials.place_without(self._pod, (*victims.pods_leaving, *pods))

    def table(self, victims: Victims | None, protected: ProtectedPods) -> tuple[DomainCost, ...]:
        """What clearing each node would cost, the cheapest first, and then why that does not help."""
        cluster, tree = self._tools.cluster, self.tree
        kept = protected.by_domain(tree, tree.node_level)
        known: dict[int, DomainCost] = {}
        if victims is not None:
            for one in islice(self._nodes(victims).in_order(), EXPLAINED):
                gone = in_order(pods_of(victims.running, one.units))
                path = (cluster.node_at(one.slot).name,)
                known[one.slot] = DomainCost(path=path, cost=one.cost, victims=gone)
        others: list[tuple[NaturalKey, int]] = []
        if len(known) < EXPLAINED:
            holding = np.flatnonzero(whatever_goes(cluster, self.kinds)[0] > 0).tolist()
            others = sorted(
                (natural_key(cluster.node_at(slot).name), slot) for slot in holding if slot not in known
            )
        for _, slot in others[: EXPLAINED - len(known)]:
            why = "not enough even so" if victims is not None else "nothing on it may go"
            known[slot] = DomainCost(path=(cluster.node_at(slot).name,), why_not=why)
        places = {slot: place.index for slot in known if (place := tree.node_domain(slot)) is not None}
        return tuple(with_kept(one, kept.get(places[slot])) for slot, one in known.items())

    def _nodes(self, victims: Victims) -> "_Nodes":
        room = room_of(victims.running, self.kinds, victims.leaving, victims.pods)
        owned = self._trials.owners(self._pod)
        units = Units(victims, room, self.tree, self.tree.node_level, owned)
        return _Nodes(self.tree, victims, room, units, Clearing(victims, self._trials, soft=self.soft))


class _Going(NamedTuple):
    """Who must go on nodes where the rule alone says it: slot, holder and index of the entry of each."""

    slots: Ints
    holders: Ints
    entries: Ints


class _Nodes:
    """All nodes that one pod may clear, compared at once."""

    def __init__(
        self,
        tree: Tree,
        victims: Victims,
        room: NodeRoom,
        units: Units,
        clearing: Clearing,
    ) -> None:
        self._tree = tree
        self._victims = victims
        self._running = running = victims.running
        self._room = room
        self._units = units
        self._entries = entries = units.entries
        self._clearing = clearing
        candidates = room.could[0] > 0
        left = np.zeros(len(candidates), dtype=np.bool_)
        # Members that may go one by one give a node several ways; so do gangs under several budgets.
        left[running.slots[victims.pods[victims.single[victims.pods]]]] = True
        if running.covered:
            left[entries.slots[running.holder_budget[0][entries.holders] == SEVERAL]] = True
        #: Nodes of which it is searched who goes, and those where that follows from upstream's rule.
        self._others: Ints = np.flatnonzero(candidates & left)
        self._simple: Bools = candidates & ~left

    def in_order(self) -> Iterator[NodeCandidate]:
        """Those that may be cleared, the best first."""
        return merge(self._searched(), self._by_rule(), key=_key_of)

    def reprieved(self, one: NodeCandidate) -> NodeCandidate:
        """The same without what is not needed, where the search for the cheapest took short cuts."""
        units, shared = self._units.of(self._place(one.slot))
        if self._clearing.exact or not _some_alone(units):
            return one
        found = FoundVictims(one.cost, one.units)
        return self._candidate(
            one.slot, self._clearing.reprieved(self._domain_room(one.slot, shared), units, found).units
        )

    def by_trials(
        self, slot: int, places: Callable[[Sequence[VictimUnit]], tuple[Placed, ...] | None]
    ) -> tuple[NodeCandidate, tuple[Placed, ...]] | None:
        """Who must go on a node as all filters see it, and where the pod is then; None if it never fits."""
        units, shared = self._units.of(self._place(slot))
        units += self.owners_of(slot)
        if _some_alone(units):
            clearing, room = self._clearing.with_trials(places), self._domain_room
            with clearing.trials.keeping():
                found = clearing.cheapest(room(slot, shared), units)
                if found is not None and not clearing.exact:
                    found = clearing.reprieved(room(slot, shared), units, found)
            placed = None if found is None else places(found.units)
            if found is None or placed is None:
                return None
            return self._candidate(slot, found.units), placed
        gone = self._in_turn(units)
        placed = places(gone)
        if placed is None:
            return None
        for unit in tuple(gone):
            rest = [one for one in gone if one is not unit]
            left = places(rest)
            if left is not None:
                gone, placed = rest, left
        return self._candidate(slot, gone), placed

    def owners_of(self, slot: int) -> list[VictimUnit]:
        """The units on other nodes whose gangs have a domain around a node for themselves."""
        return self._units.owners_of(self._place(slot))

    def _place(self, slot: int) -> int:
        place = self._tree.node_domain(slot)
        assert place is not None, "each node has its place in the flat tree"
        return place.index

    def _domain_room(self, slot: int, shared: set[int]) -> DomainRoom:
        lack = 1 - int(self._room.fits[0][slot])
        return DomainRoom(self._room.kinds, (lack,), self._units.free_on(shared))

    def _candidate(self, slot: int, units: Sequence[VictimUnit]) -> NodeCandidate:
        cost = self._clearing.cost(units)
        name = natural_key(self._running.cluster.node_at(slot).name)
        return NodeCandidate((self._key(units, cost), name), slot, tuple(units), cost)

    def _key(self, units: Sequence[VictimUnit], cost: EvictionCost) -> _Key:
        """Upstream's order among nodes where no gang is broken; the order of costs among the others."""
        running = self._running
        first = cost.last_choice, cost.pdb_violations, cost.highest, cost.slow, cost.gangs_broken
        if cost.gangs_broken:
            return *first, cost
        gone = [one for unit in units for one in unit.pods]
        # As upstream: a sum of priorities of which each counts as more than 0, and the latest start.
        total = int((running.priorities[gone] + (1 << 31)).sum())
        started = running.started[gone][running.priorities[gone] == cost.highest]
        latest = -float(started[np.isfinite(started)].min(initial=inf))
        return *first, (total, cost.pods, latest if isfinite(latest) else 0.0)

    def _searched(self) -> Iterator[NodeCandidate]:
        """The nodes where those go that cost the least, the best first; as many are searched as must be."""
        heap: list[NodeCandidate] = []
        for least, slot in sorted((self._least_key(slot), slot) for slot in self._others.tolist()):
            while heap and heap[0].key[0] < least:
                yield heappop(heap)
            units, shared = self._units.of(self._place(slot))
            found = self._clearing.cheapest(self._domain_room(slot, shared), units)
            if found is not None:
                heappush(heap, self._candidate(slot, found.units))
        while heap:
            yield heappop(heap)

    def _least_key(self, slot: int) -> _Key:
        """The key of a node is not less than this, whatever pods go."""
        running, asks = self._running, self._room.kinds[0].asks
        units, _ = self._units.of(self._place(slot))
        highest, fewest = -inf, 0
        needs: list[tuple[int, int]] = []
        for row, ask in zip(asks.rows, asks.amounts, strict=True):
            need = ask - self._room.free.item(row, slot)
            if need > 0 and all(unit.shared for unit in units):
                needs.append((row, need))
                freed = sorted((unit.priority, dict(unit.shared)[slot][row]) for unit in units)
                enough = bisect_left([*accumulate(amount for _, amount in freed)], need)
                highest = max(highest, freed[min(enough, len(units) - 1)][0])
        # Who is above that, or is broken for that, makes the key a higher one in any case.
        left = [one for one in units if not (one.whole and one.gang) and one.priority <= highest]
        for row, need in needs:
            largest = sorted((dict(one.shared)[slot][row] for one in left), reverse=True)
            fewest = max(fewest, bisect_left([*accumulate(largest)], need) + 1)
        starts = sorted(running.started[[pod for one in left for pod in one.pods]].tolist())
        # That many pods go at the least; of several priorities those of the highest count.
        equal = starts and starts[-1] < inf and len({one.priority for one in left}) == 1
        latest = [start for start in starts if start < inf][-max(fewest if equal else 1, 1) :][:1]
        least = min((one.priority for one in left), default=0) + (1 << 31)
        return 0, 0, highest, False, 0, (fewest * least, fewest, -latest[0] if latest else 0.0)

    def _in_turn(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The units that may go, in the order in which they may stay: those first that a budget protects."""
        left, ranks = list(self._victims.allowed), self._running.holder_importance
        violating: list[VictimUnit] = []
        others: list[VictimUnit] = []
        for unit in sorted(units, key=lambda one: (ranks[one.holder], one.name)):
            breaks = False
            for budget, pods in unit.budgets:
                left[budget] -= pods
                breaks = breaks or left[budget] < 0
            (violating if breaks else others).append(unit)
        going = [*violating, *others] if self._clearing.soft else others
        return sorted(going, key=lambda unit: -unit.last_choice)

    # All nodes at once

    def _by_rule(self) -> Iterator[NodeCandidate]:
        """The nodes where upstream's rule says who goes, the best first."""
        going, enough = self._going()
        slots = np.flatnonzero(self._simple & enough)
        columns = self._columns(going, slots)
        order = np.lexsort((self._victims.name_ranks()[slots], *reversed(columns)))
        for slot in slots[order].tolist():
            first, end = np.searchsorted(going.slots, (slot, slot + 1)).tolist()
            chosen = set(going.holders[first:end].tolist())
            units, _ = self._units.of(self._place(slot))
            yield self._candidate(slot, [unit for unit in units if unit.holder in chosen])

    def _going(self) -> tuple[_Going, Bools]:
        """Who must go on each node, by slot, and where all that may go is enough.

        All of lower priority go, and then stay, the most important first, as long as that is enough.
        """
        entries, room = self._entries, self._room
        asks = np.asarray(room.kinds[0].demand.amounts, dtype=np.int64)[:, None]
        # Of what is enough on every node nothing has to come free.
        short = np.flatnonzero(((room.free < asks) & (asks > 0) & self._simple).any(axis=1))
        asks = asks[short]
        chosen = np.flatnonzero(self._simple[entries.slots] & self._victims.whole[entries.holders])
        chosen = chosen[self._by_importance(chosen)]
        slots, holders = entries.slots[chosen], entries.holders[chosen]
        violating = self._violating(slots, holders)
        if not self._clearing.soft:
            chosen, slots, holders = chosen[~violating], slots[~violating], holders[~violating]
        elif violating.any():
            last_choice = self._running.holder_last_choice[holders]
            order = np.lexsort((np.arange(len(slots)), ~violating, -last_choice, slots))
            chosen, slots, holders = chosen[order], slots[order], holders[order]
        free, freed = room.free[short], entries.freed[short][:, chosen]
        for row, amounts in enumerate(freed):
            np.add.at(free[row], slots, amounts)
        enough: Bools = np.all(free >= asks, axis=0)
        inside = enough[slots]
        if not inside.all():
            chosen, slots, holders, freed = chosen[inside], slots[inside], holders[inside], freed[:, inside]
        goes = np.zeros(len(chosen), dtype=np.bool_)
        step = rank_in(slots)
        by_step = np.argsort(step, kind="stable")
        bounds = np.searchsorted(step[by_step], range(int(step.max(initial=-1)) + 2)).tolist()
        for first, end in pairwise(bounds):
            here = by_step[first:end]
            at = slots[here]
            after = free[:, at] - freed[:, here]
            stays: Bools = np.all(after >= asks, axis=0)
            free[:, at[stays]] = after[:, stays]
            goes[here[~stays]] = True
        return _Going(slots[goes], holders[goes], chosen[goes]), enough

    def _by_importance(self, chosen: Ints) -> Ints:
        """The order of some entries by node, the most important first."""
        running, entries = self._running, self._entries
        slots, holders = entries.slots[chosen], entries.holders[chosen]
        ranks = running.holder_importance
        keys = slots * (int(ranks.max(initial=0)) + 1) + ranks[holders]
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        if not same.any() or self._alike(chosen[order], same):
            return order
        return np.lexsort((self._names(holders), keys))

    def _alike(self, chosen: Ints, same: Bools) -> bool:
        """Whether it makes no difference which of two neighbours that are as important comes first."""
        running, entries = self._running, self._entries
        holders = entries.holders[chosen]
        columns: list[Ints | Scores] = [*entries.freed[:, chosen]]
        columns.append(running.holder_lost[holders])
        columns += [running.holder_accelerators[holders], running.holder_pods[holders]]
        columns += [running.holder_budget[0][holders], running.holder_weight[holders]]
        columns += [running.holder_grace[holders], running.holder_last_choice[holders]]
        if running.holder_gang[holders].any():
            return False
        return all(bool((column[1:] == column[:-1])[same].all()) for column in columns)

    def _names(self, holders: Ints) -> Ints:
        """The place of each holder in the order of names."""
        numbers, of = np.unique(holders, return_inverse=True)
        names = [self._running.name_of(number) for number in numbers.tolist()]
        ranks = np.empty(len(names), dtype=np.intp)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return ranks[of]

    def _violating(self, slots: Ints, holders: Ints) -> Bools:
        """Which of the entries, in order of importance, a budget forbids to go with those before them."""
        found = np.zeros(len(slots), dtype=np.bool_)
        if not self._running.covered or not len(slots):
            return found
        budgets, pods = self._running.holder_budget
        covered = np.flatnonzero(budgets[holders] >= 0)
        which, count = budgets[holders[covered]], pods[holders[covered]]
        order = np.lexsort((covered, which, slots[covered]))
        keys = slots[covered][order] * (int(which.max(initial=0)) + 1) + which[order]
        groups = np.unique(keys, return_inverse=True)[1]
        before = sum_before(groups, count[order], int(groups.max(initial=-1)) + 1)
        allowed = np.asarray(self._victims.allowed, dtype=np.intp)
        found[covered[order]] = before + count[order] > allowed[which[order]]
        return found

    def _violations(self, going: _Going, capacity: int) -> Ints:
        """By slot: victims whose eviction budgets do not allow."""
        found = np.zeros(capacity, dtype=np.intp)
        if not self._running.covered or not len(going.slots):
            return found
        budgets, pods = self._running.holder_budget
        covered = budgets[going.holders] >= 0
        slots, which = going.slots[covered], budgets[going.holders[covered]]
        allowed = np.asarray(self._victims.allowed, dtype=np.intp)
        keys, of = np.unique(slots * len(allowed) + which, return_inverse=True)
        gone = np.bincount(of, weights=pods[going.holders[covered]], minlength=len(keys)).astype(np.intp)
        over = np.maximum(gone - allowed[keys % len(allowed)], 0)
        np.add.at(found, keys // len(allowed), over)
        return found

    def _columns(self, going: _Going, slots: Ints) -> list[Scores | Ints]:
        """By what the nodes are compared, in order: as in the key of a candidate."""
        running, entries, capacity = self._running, self._entries, len(self._simple)
        at, holders = going.slots, going.holders

        def total(values: Ints | Scores) -> Scores:
            summed = np.bincount(at, weights=values.astype(np.float64), minlength=capacity)[slots]
            return summed.astype(np.float64)

        def most(values: Ints | Bools, nothing: float) -> Scores:
            found = np.full(capacity, nothing)
            np.maximum.at(found, at, values)
            return found

        highest = most(running.holder_priority[holders], -np.inf)
        first = np.full(capacity, np.inf)
        top = running.holder_priority[holders] == highest[at]
        np.minimum.at(first, at[top], running.holder_started[holders[top]])
        latest = np.where(np.isfinite(first), -first, 0.0)[slots]
        broken = total(running.holder_gang[holders].astype(np.intp))
        heavy, pods = running.holder_accelerators[holders], total(running.holder_pods[holders])
        inside = entries.accelerators[going.entries]
        gang = broken > 0
        return [
            most(running.holder_last_choice[holders], 0)[slots],
            self._violations(going, capacity)[slots],
            highest[slots],
            most(running.holder_slow[holders], 0)[slots],
            broken,
            np.where(gang, total(running.holder_lost[holders]), total(running.holder_weight[holders])),
            np.where(gang, total(heavy), pods),
            np.where(gang, total(heavy - inside), latest),
            np.where(gang, most(running.holder_grace[holders], 0)[slots], 0),
            np.where(gang, pods, 0),
            np.where(gang, self._partly_free(going, capacity)[slots], 0),
        ]

    def _partly_free(self, going: _Going, capacity: int) -> Ints:
        """By slot: nodes that lose a pod to it and keep another one."""
        entries = self._entries  # By holder, and for each by slot.
        first, end = np.searchsorted(entries.holders, (going.holders, going.holders + 1))
        counts = end - first
        ends = counts.cumsum()
        all_of = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + counts, counts)
        keys, of = np.unique(
            np.repeat(going.slots, counts) * capacity + entries.slots[all_of], return_inverse=True
        )
        gone = np.bincount(of, weights=entries.pods[all_of], minlength=len(keys))
        partly = keys[gone < self._clearing.held[keys % capacity]]
        return np.bincount(partly // capacity, minlength=capacity)


def _some_alone(units: Sequence[VictimUnit]) -> bool:
    """Whether members of a gang may go one by one."""
    return any(not unit.whole for unit in units)
