"""The cheapest domain to clear for a gang: all that could hold it are looked at, none is sampled."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.groups import Exclusive
from closeby.objects.pods import Pod
from closeby.scheduling.gangs.segments import TreeLayer
from closeby.scheduling.judging.holds import HoldKind
from closeby.scheduling.outcomes import DomainCost, EvictionCost, KeptPods
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang
from closeby.scheduling.preemption.clearing import (
    AT_ONCE,
    TOGETHER,
    TRIALS,
    Clearing,
    FoundVictims,
    TriedSets,
)
from closeby.scheduling.preemption.protected import ProtectedPods
from closeby.scheduling.preemption.room import (
    DomainRoom,
    NodeRoom,
    kinds_of,
    of_domains,
    room_of,
    whatever_goes,
)
from closeby.scheduling.preemption.trials import PreemptionTrials
from closeby.scheduling.preemption.units import LeastCost, Units, Victims, VictimUnit, in_order, pods_of
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree

#: Filters whose answers the arithmetic knows: resources, and what is true of a node whatever runs there.
COUNTED: Final = frozenset({"NodeResourcesFit", "Reservation"})
#: Domains of which the cost is worked out for an explanation.
EXPLAINED: Final = 64

#: The least that a domain costs, the domain, its units and its room.
DomainCandidate = tuple[LeastCost, Domain, list[VictimUnit], DomainRoom]


class DomainChoice(Struct, frozen=True, kw_only=True, eq=False):
    """The domain to clear, who goes for that, and where the gang's pods go."""

    tree: Tree
    domain: Domain
    cost: EvictionCost
    units: tuple[VictimUnit, ...]
    placed: tuple[Placed, ...]
    exact: bool


class GangQuestion:
    """One gang that looks for a domain to clear."""

    def __init__(self, tools: Tools, trials: PreemptionTrials, gang: WaitingGang, *, soft: bool) -> None:
        """``soft``: victims may violate budgets."""
        self.soft = soft
        self._tools = tools
        self._trials = trials
        self._gang = gang
        minimum = gang.parts(everyone=False)
        core = [pod for leaf in minimum.leaves() for pod in leaf.core]
        demand = tools.table.shares(core)
        levels = gang.constraints.levels.get("")
        self.tree = tools.topologies.flat() if levels is None else levels.tree
        required = None if levels is None else levels.required
        self.level = ROOT_LEVEL if required is None else required
        self._preferred = None if levels is None or levels.by_default else levels.preferred
        self._one_of_each = [share.pods[0] for share in demand]
        kinds = kinds_of(tools.cluster, demand, tools.holds.until_placed, COUNTED)
        self._anchors = minimum.all_anchors()
        layering = None if gang.group.subgroups or self._anchors else gang.constraints.layerings.get("")
        if layering is not None and (levels is None or levels.by_default or layering.tree is self.tree):
            # The one segment of a coarse layer is all of the minimum: it requires that level. What must go
            # from a domain that the gang has for itself is anywhere in it, not in a finer domain alone.
            alone = (one.level for one in layering.layers if one.exclusive is not Exclusive.NONE)
            finest = next(alone, layering.tree.node_level)
            one = [
                layer.level
                for layer in layering.layers
                if layer.required and layer.level <= finest and _undivided(layer, len(core))
            ]
            if one and one[-1] > self.level:
                self.tree, self.level = layering.tree, one[-1]
        if minimum.may_leave_out:  # Not all of these need a place.
            kinds = tuple(replace(one, wanted=0, plain=False) for one in kinds)
        self.kinds = kinds
        #: Whether arithmetic tells what fits; else each set of victims is tried.
        divided = bool(gang.group.subgroups or gang.constraints.layerings)
        owned = tools.holds.of(HoldKind.DOMAIN) is not None
        self._plain = len(kinds) == 1 and kinds[0].plain and not divided and not owned
        #: Whether more room never takes a place from it.
        self._monotone = not minimum.may_leave_out and not tools.table.helped_by_pods(self._one_of_each)
        self.wanted = sum(kind.wanted for kind in kinds)
        self._tried = 0

    def holding(self) -> Ints:
        """The domains that would hold the gang if nothing ran there; by index at the level."""
        return self._holding(whatever_goes(self._tools.cluster, self.kinds))

    def _holding(self, fits: Sequence[Ints]) -> Ints:
        tree, level = self.tree, self.level
        usable = np.ones(1, dtype=np.bool_) if level == ROOT_LEVEL else tree.labelled[level].copy()
        for kind, counts in zip(self.kinds, fits, strict=True):
            usable &= of_domains(tree, level, counts) >= kind.wanted
        if self._anchors and level > ROOT_LEVEL:
            owners = tree.owners_of_slots(self._anchors, level)
            beside = np.zeros(len(usable), dtype=np.bool_)
            if (owners == owners[0]).all() and owners[0] >= 0:
                beside[owners[0]] = True
            usable &= beside
        return np.flatnonzero(usable)

    def best(self, victims: Victims) -> DomainChoice | None:
        """The domain that costs the least to clear; None where no victims are enough."""
        search = self._search(victims)
        if search is None:
            return None
        if self._plain:
            found = self._cheapest(search, victims)
            if found is None or found.placed:
                return found
            # A filter knows better than the arithmetic.
        search.clearing.tried = self._tried_sets(victims)
        found = self._cheapest(search, victims)
        # A set that was not tried itself may be too small: no pod goes for that.
        return None if found is None or not found.placed else found

    def _tried_sets(self, victims: Victims) -> TriedSets:
        return TriedSets(
            lambda units: self._fits(victims, units),
            self._trials,
            self._tools.cluster.capacity,
            monotone=self._monotone,
        )

    def _search(self, victims: Victims) -> "_Search | None":
        running = victims.running
        room = room_of(running, self.kinds, victims.leaving, victims.pods)
        domains = self._holding(room.could)
        if not len(domains):
            return None
        clearing = Clearing(victims, self._trials, soft=self.soft)
        units = Units(victims, room, self.tree, self.level, self._trials.owners(self._gang))
        fits = [of_domains(self.tree, self.level, counts) for counts in room.fits]
        return _Search(clearing, self, units, room, fits, domains)

    def _cheapest(self, search: "_Search", victims: Victims) -> DomainChoice | None:
        clearing, tries = search.clearing, search.clearing.tried is not None
        best: tuple[tuple[object, ...], FoundVictims, DomainCandidate] | None = None
        #: Whether all fields of the best cost count, not just those up to the lost work.
        final = tries

        def keyed(found: FoundVictims, candidate: DomainCandidate) -> tuple[object, ...]:
            return found.cost, not self._close(found, victims, candidate[1]), candidate[1].index

        candidates = search.in_order()
        if tries:
            candidates = self._promising(candidates, victims)
        with self._trials.keeping():
            for candidate in candidates:
                bound, _, units, domain_room = candidate
                if best is not None and bound > best[1].cost[: len(bound)]:
                    break
                limit = None if best is None else best[1].cost
                found = clearing.cheapest(domain_room, units, limit, final=tries)
                if found is None:
                    continue
                if best is not None and not final and found.cost[: len(bound)] == best[1].cost[: len(bound)]:
                    _, _, units, domain_room = best[2]
                    same = min(best[1], clearing.cheapest(domain_room, units) or best[1], key=_cost_of)
                    best, final = (keyed(same, best[2]), same, best[2]), True
                key = keyed(found, candidate)
                if best is None or key < best[0]:
                    best, final = (key, found, candidate), tries
        if best is None:
            return None
        _, found, (_, domain, units, domain_room) = best
        exact = clearing.exact and not (clearing.tried is not None and clearing.tried.spent)
        with self._trials.keeping():
            if not exact:
                found = clearing.reprieved(domain_room, units, found)
            elif not final:
                found = min(found, clearing.cheapest(domain_room, units) or found, key=_cost_of)
        placed = self._fits(victims, found.units) or ()
        choice = DomainChoice(
            tree=self.tree, domain=domain, cost=found.cost, units=found.units, placed=placed, exact=exact
        )
        return self.placed_at(choice, victims, placed)

    def placed_at(self, choice: DomainChoice, victims: Victims, placed: Sequence[Placed]) -> DomainChoice:
        """The same with the domain of the required level that the gang's own cycle chose.

        Victims may free several: a gang that goes as a whole frees nodes in each domain that it is in.
        """
        tree, level, running = self.tree, self.level, victims.running
        owners = tree.owners_of_slots(np.asarray([slot for _, slot in placed], dtype=np.intp), level)
        if level == ROOT_LEVEL or not len(owners) or (owners != owners[0]).any():
            return replace(choice, placed=tuple(placed))
        domain = Domain(level, int(owners[0]))
        if domain == choice.domain:
            return replace(choice, placed=tuple(placed))
        gone = np.asarray([one for unit in choice.units for one in unit.pods], dtype=np.intp)
        inside = tree.owners_of_slots(running.slots[gone], level) == domain.index
        cost = choice.cost._replace(outside=int(running.accelerators[gone[~inside]].sum()))
        return replace(choice, domain=domain, cost=cost, placed=tuple(placed))

    def _promising(
        self, candidates: Iterator[DomainCandidate], victims: Victims
    ) -> Iterator[DomainCandidate]:
        """The same domains without those that can't hold the gang even if all goes there that may go."""
        yield from islice(candidates, AT_ONCE)
        leaving = victims.pods_leaving
        while batch := list(islice(candidates, TOGETHER)):
            gone = dict.fromkeys(one for _, _, units, _ in batch for unit in units for one in unit.pods)
            pods = (*leaving, *(victims.running.pods[one] for one in gone))
            most = self._trials.most(self._gang, self._one_of_each, pods)
            holding = None if most is None else set(self._holding(most).tolist())
            yield from (one for one in batch if holding is None or one[1].index in holding)

    def table(self, victims: Victims | None, protected: ProtectedPods) -> tuple[DomainCost, ...]:
        """What clearing each domain would cost, or why that does not help; the cheapest first."""
        tree, level = self.tree, self.level
        search = None if victims is None else self._search(victims)
        empty = whatever_goes(self._tools.cluster, self.kinds)
        could = [] if search is None else [of_domains(tree, level, counts) for counts in search.room.could]
        ever = [of_domains(tree, level, counts) for counts in empty]
        known: dict[int, DomainCost] = {}
        if search is not None and victims is not None:
            for _, domain, units, domain_room in list(search.in_order())[:EXPLAINED]:
                known[domain.index] = self._judged(search, victims, domain, units, domain_room)
        kept = protected.by_domain(tree, level)
        rows = [
            with_kept(
                known.get(index)
                or self._short(Domain(level, index) if level > ROOT_LEVEL else ROOT, ever, could),
                kept.get(index),
            )
            for index in range(tree.count(level))
            if level == ROOT_LEVEL or tree.labelled[level][index]
        ]
        return tuple(sorted(rows, key=lambda row: (row.cost is None, row.cost or ())))

    def _judged(
        self,
        search: "_Search",
        victims: Victims,
        domain: Domain,
        units: Sequence[VictimUnit],
        domain_room: DomainRoom,
    ) -> DomainCost:
        path = self.tree.path(domain)
        clearing = search.clearing
        clearing.tried = None
        found = clearing.cheapest(domain_room, units)
        if found is None:
            why = "a PodDisruptionBudget forbids it" if units and not clearing.soft else "not enough even so"
            return DomainCost(path=path, why_not=why)
        if self._tried < TRIALS and self._fits(victims, found.units) is None:
            # More must go than for room alone.
            clearing.tried = self._tried_sets(victims)
            with self._trials.keeping():
                found = clearing.cheapest(domain_room, units)
            if found is None:
                spent = clearing.tried.spent
                why = "not worked out" if spent else "a filter refuses it even so"
                return DomainCost(path=path, why_not=why)
        return DomainCost(path=path, cost=found.cost, victims=in_order(pods_of(victims.running, found.units)))

    def _short(self, domain: Domain, ever: Sequence[Ints], could: Sequence[Ints]) -> DomainCost:
        path = self.tree.path(domain)
        wanted = self.wanted
        most = sum(
            min(int(one[domain.index]), kind.wanted) for one, kind in zip(ever, self.kinds, strict=True)
        )
        if most < wanted:
            return DomainCost(path=path, why_not=f"it holds {most} of {wanted} pods even if it is empty")
        if not could:
            return DomainCost(path=path, why_not="nothing in it may go")
        room = sum(
            min(int(one[domain.index]), kind.wanted) for one, kind in zip(could, self.kinds, strict=True)
        )
        why = f"{room} of {wanted} pods fit without all that may go"
        return DomainCost(path=path, why_not=why if room < wanted else "not worked out")

    def _close(self, found: FoundVictims, victims: Victims, domain: Domain) -> bool:
        """Whether the gang would also fit in one domain of the level that it prefers."""
        tree, level = self.tree, self._preferred
        if level is None or level <= domain.level:
            return True
        gone = np.asarray([one for unit in found.units for one in unit.pods], dtype=np.intp)
        first, end = tree.within(domain, level)
        after = room_of(victims.running, self.kinds, victims.leaving, gone)
        enough = np.ones(end - first, dtype=np.bool_)
        for kind, counts in zip(self.kinds, after.could, strict=True):
            enough &= of_domains(tree, level, counts)[first:end] >= kind.wanted
        return bool(enough.any())

    def places_without(self, victims: Victims, pods: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the gang goes without these pods and all that leaves anyway; None: it does not fit."""
        return self._trials.place_without(self._gang, (*victims.pods_leaving, *pods))

    def _fits(self, victims: Victims, units: Sequence[VictimUnit]) -> tuple[Placed, ...] | None:
        """Where the gang goes without these units and all that leaves anyway; None: it does not fit."""
        self._tried += 1
        gone = dict.fromkeys(one for unit in units for one in unit.pods)
        return self.places_without(victims, [victims.running.pods[one] for one in gone])


def with_kept(cost: DomainCost, kept: tuple[int, tuple[KeptPods, ...]] | None) -> DomainCost:
    """The same with the pods that can't be evicted there."""
    return cost if kept is None else replace(cost, kept_pods=kept[0], kept=kept[1])


class _Search(Struct, frozen=True, eq=False):
    """All candidates of one question."""

    clearing: Clearing
    question: GangQuestion
    units: Units
    room: NodeRoom
    fits: Sequence[Ints]
    domains: Ints

    def in_order(self) -> Iterator[DomainCandidate]:
        """The domains with their units, those first that could be the cheapest, with the least they cost."""
        kinds, level = self.question.kinds, self.question.level
        lacks = [kind.wanted - counts[self.domains] for kind, counts in zip(kinds, self.fits, strict=True)]
        bounds = self.units.bounds(self.domains, lacks)
        places = range(len(bounds))
        for bound, index, place in sorted(zip(bounds, self.domains.tolist(), places, strict=True)):
            units, slots = self.units.of(index)
            units += self.units.owners_of(index)
            lacking = [int(lack[place]) for lack in lacks]
            domain_room = DomainRoom(kinds, lacking, self.units.free_on(slots))
            yield bound, ROOT if level == ROOT_LEVEL else Domain(level, index), units, domain_room


def _cost_of(found: FoundVictims) -> EvictionCost:
    return found.cost


def _undivided(layer: TreeLayer, pods: int) -> bool:
    """Whether a layer puts so many pods in one domain: they are one segment, or may use no second one."""
    return layer.size >= pods or layer.max_domains == 1
