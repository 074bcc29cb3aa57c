"""Which nodes to keep free for a gang: in the tightest domain it may have, where least is to wait for."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.groups import Strategy
from closeby.scheduling.forked_cycle import ForkedCycle
from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.tools import Tools, WaitingGang
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree

Shares = NDArray[np.float64]

#: Domains of one level in which a gang of unequal pods, or with subgroups, is tried.
TRIALS: Final = 8
#: Steps of all trials for one question (see ``closeby.scheduling.steps``): they run within one turn.
STEPS: Final = 40_000


class ReservationChoice(Struct, frozen=True, kw_only=True, eq=False):
    """Nodes that suffice for a gang once what runs on them has come to its end."""

    slots: Ints
    tree: Tree
    domain: Domain
    #: Pods of the gang that have no room on these nodes yet; 0 when all could start now.
    missing: int


class Chooser:
    """Chooses among domains by the room they could have and the room they have."""

    def __init__(self, tools: Tools, trial: ForkedCycle) -> None:
        self._tools = tools
        self._trial = trial
        #: Steps that trials may still take for the question in hand.
        self._left = 0

    def choose(self, gang: WaitingGang) -> ReservationChoice | None:
        """The best nodes to keep; None when the gang would not even find a place in an empty cluster."""
        self._left = STEPS
        minimum = gang.parts(everyone=False)
        demand = self._tools.table.shares([pod for leaf in minimum.leaves() for pod in leaf.core])
        if not demand:
            return None
        levels = gang.constraints.levels.get("")
        tree = self._tools.topologies.flat() if levels is None else levels.tree
        with self._trial.emptied(gang.running) as emptied:
            potential = [emptied.room(share.pods[0]) for share in demand]
        weighed = [
            _Weighed(self._tools.cluster, tree, share, could)
            for share, could in zip(demand, potential, strict=True)
        ]
        divided = bool(gang.group.subgroups or gang.constraints.layerings)
        equal = len(weighed) == 1 and not divided and not demand[0].pod_class.blind_filters
        for level in _levels(gang):
            for domain in _best_first(tree, level, weighed, gang, minimum):
                if equal:
                    return weighed[0].choice(domain)
                slots = self._rehearsed(gang, tree, domain)
                if slots is not None:
                    missing = sum(one.missing_on(slots) for one in weighed)
                    return ReservationChoice(slots=slots, tree=tree, domain=domain, missing=missing)
        return None

    def suffices(self, gang: WaitingGang, slots: Ints) -> bool:
        """Whether the gang would still find its place on these nodes if they were empty."""
        self._left = STEPS
        inside = np.zeros(self._tools.cluster.capacity, dtype=np.bool_)
        inside[slots] = True
        inside[[slot for _, slot in gang.running]] = True
        return self._tried(gang, inside) is not None

    def missing(self, gang: WaitingGang, slots: Ints) -> int:
        """Pods of the gang's minimum without room on these slots now."""
        table = self._tools.table
        minimum = gang.parts(everyone=False)
        demand = table.shares([pod for leaf in minimum.leaves() for pod in leaf.core])
        return sum(max(len(share.pods) - int(share.pod_class.fits[slots].sum()), 0) for share in demand)

    def _tried(self, gang: WaitingGang, inside: Bools) -> Ints | None:
        """The slots on which the gang would be placed among some nodes once all has ended that ends.

        None if it does not fit, or if the remaining steps are too few to know.
        """
        before = self._trial.steps
        with self._trial.inside((*gang.running, *self._trial.staying()), inside):
            placed = self._trial.place(gang, self._left)
        self._left = max(0, self._left - (self._trial.steps - before))
        if placed is None:
            return None
        return np.asarray(sorted({slot for _, slot in placed}), dtype=np.intp)

    def _rehearsed(self, gang: WaitingGang, tree: Tree, domain: Domain) -> Ints | None:
        inside = np.zeros(self._tools.cluster.capacity, dtype=np.bool_)
        inside[tree.slots_in(domain)] = True
        return self._tried(gang, inside)


def _levels(gang: WaitingGang) -> range:
    """The levels at which the gang may have its domain, the tightest first."""
    levels = gang.constraints.levels.get("")
    if levels is None:
        return range(ROOT_LEVEL, ROOT_LEVEL - 1, -1)
    bound = ROOT_LEVEL if levels.required is None else levels.required
    finest = bound if levels.preferred is None else levels.preferred
    return range(finest, bound - 1, -1)


def _best_first(
    tree: Tree, level: int, weighed: Sequence["_Weighed"], gang: WaitingGang, minimum: Part
) -> Iterator[Domain]:
    """Domains of a level that could hold the gang: least to wait for, then by the strategy."""
    usable = tree.labelled[level].copy() if level > ROOT_LEVEL else np.ones(1, dtype=np.bool_)
    missing = np.zeros(len(usable), dtype=np.int64)
    for one in weighed:
        usable &= one.could_in(level) >= one.wanted
        missing += np.maximum(one.wanted - one.can_in(level), 0)
    anchors = minimum.all_anchors()
    if anchors and level > ROOT_LEVEL:
        owners = tree.owners_of_slots(anchors, level)
        beside = np.zeros(len(usable), dtype=np.bool_)
        beside[owners[owners >= 0]] = True
        usable &= beside
    found = np.flatnonzero(usable)
    size = weighed[0].could_in(level)[found]
    tight = gang.group.strategy is Strategy.BINPACK
    order = found[np.lexsort((found, size if tight else -size, missing[found]))]
    for index in order[:TRIALS].tolist():
        yield ROOT if level == ROOT_LEVEL else Domain(level, index)


class _Weighed:
    """Equal pods of a gang: how many a place can take now, and how many it could."""

    def __init__(self, cluster: Cluster, tree: Tree, share: Share, could: Counts) -> None:
        self._tree = tree
        self.wanted = len(share.pods)
        #: A node never has more room than it could have.
        self._can_at = np.minimum(share.pod_class.fits, could)
        self._can = DomainCounts(tree, self._can_at)
        self._could = DomainCounts(tree, could)
        demand = cluster.demand(share.pods[0].spec)
        rows = list(demand.rows)
        offered = cluster.allocatable[rows][:, : cluster.capacity]
        #: (capacity,) the part of the scarcest resource that is taken: how much has still to end there.
        self._taken: Shares = (cluster.requested[rows][:, : cluster.capacity] / np.maximum(offered, 1)).max(
            axis=0
        )

    def can_in(self, level: int) -> Counts:
        """By domain of a level: pods that fit now."""
        return self._can.of(level)

    def could_in(self, level: int) -> Counts:
        """By domain of a level: pods that would fit if others left."""
        return self._could.of(level)

    def missing_on(self, slots: Ints) -> int:
        """Pods without room on these slots."""
        return max(self.wanted - int(self._can_at[slots].sum()), 0)

    def choice(self, domain: Domain) -> ReservationChoice:
        """As few nodes of a domain as could hold all: whole children with the most room first."""
        positions: list[int] = []
        left = self.wanted
        while left:
            if domain.level + 1 >= self._tree.node_level:
                positions += self._nodes(domain, left)
                break
            for child, room in self._children(domain):
                if room > left:
                    domain = child
                    break
                positions += self._nodes(child, room)
                left -= room
                if not left:
                    break
            else:
                break
        slots = self._tree.slot_at[positions]
        top = self._top(slots, domain)
        return ReservationChoice(
            slots=np.sort(slots), tree=self._tree, domain=top, missing=self.missing_on(slots)
        )

    def _top(self, slots: Ints, inside: Domain) -> Domain:
        """The tightest domain that holds the nodes."""
        return self._tree.tightest(self._tree.position_of[slots]) if len(slots) else inside

    def _children(self, domain: Domain) -> Iterator[tuple[Domain, int]]:
        """Those that could take any, the one that can take the most now first; with what they could take."""
        level = domain.level + 1
        first, end = self._tree.within(domain, level)
        can, could = self._can.of(level)[first:end], self._could.of(level)[first:end]
        for index in np.lexsort((could - can, -can)).tolist():
            if could[index]:
                yield Domain(level, first + index), int(could[index])

    def _nodes(self, domain: Domain, wanted: int) -> list[int]:
        """Positions of as few nodes as could take so many: most room now, then least taken."""
        first, end = self._tree.span(domain)
        slots = self._tree.slot_at[first:end]
        level = self._tree.node_level
        can, could = self._can.of(level)[first:end], self._could.of(level)[first:end]
        chosen: list[int] = []
        for index in np.lexsort((-could, self._taken[slots], -can)).tolist():
            if wanted <= 0:
                break
            if could[index]:
                chosen.append(first + index)
                wanted -= int(could[index])
        return chosen
