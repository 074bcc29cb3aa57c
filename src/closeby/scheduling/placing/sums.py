"""Whether unequal pods certainly don't fit into a domain: sums of what is free show it, without any trial."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import MOST, Cluster, Demand
from closeby.objects.arrays import Amounts, Bools, Counts, Ints
from closeby.scheduling.gangs.parts import NodeSet, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.solving.best_fit import Fit, Rule, UnequalPods
from closeby.scheduling.steps import Budget
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

#: As often as nothing keeps pods from.
_OFTEN: Final = float(MOST)
#: After so many changes of nodes sums are made again as a whole.
MANY_CHANGES: Final = 1_000


#: What pods of each kind ask for, and how many there are.
Needs = tuple[tuple[Demand, int], ...]


class _Times(Struct, frozen=True, kw_only=True, eq=False):
    """How many times pods fit into the domains of a level, and when that was."""

    tree: Tree
    mask: Bools | None
    #: Where the logs of changes ended.
    nodes: int
    used: int
    times: Counts


class Sums:
    """Asks about unequal pods on the nodes of domains, as they are now."""

    def __init__(self, cluster: Cluster, table: ClassTable) -> None:
        self._cluster = cluster
        self._table = table
        #: By the needs of unequal pods.
        self._pods: dict[Needs, UnequalPods] = {}
        #: By the needs of unequal pods, the name of a tree and a level.
        self._times: dict[tuple[Needs, str, int], _Times] = {}
        #: Whether a resource, by its place among those asked for, limits the pods of a tree as it should.
        self._limiting: dict[tuple[UnequalPods, int, str], bool] = {}

    def decide(
        self,
        demand: Sequence[Share],
        tree: Tree,
        inside: NodeSet,
        budget: Budget,
        rules: Sequence[Rule] = (),
    ) -> Fit:
        """Whether unequal pods fit beside each other, as far as amounts, room of each kind and rules say.

        Where they take volumes from each other, or keep off each other, that is at the most what fits.
        """
        capacity = self._cluster.capacity
        counts = [scoped_counts(self._table, share.pod_class, tree, inside, capacity) for share in demand]
        pods, free, room = self.columns(demand, tree, inside.domain_in(tree), counts)
        return pods.decide(free, room, budget, rules)

    def columns(
        self, demand: Sequence[Share], tree: Tree, domain: Domain, counts: Sequence[DomainCounts]
    ) -> tuple[UnequalPods, Amounts, Counts]:
        """Pods, what is free of each resource that limits them, and the room for each kind alone.

        Of the nodes of a domain, in the order of the tree; ``counts`` are those of each kind.
        """
        first, end = tree.span(domain)
        pods = self._pods_of(demand)
        room = np.stack([one.of(tree.node_level)[first:end] for one in counts])
        return pods, pods.binding(self._free(pods, tree.slot_at[first:end]), room), room

    def times(self, demand: Sequence[Share], tree: Tree, level: int, inside: NodeSet) -> Counts:
        """How many times all pods together fit into each domain of a level at the most, (domains,).

        Only nodes that ``inside`` does not mask count. Where the same is asked again, domains are looked at
        whose nodes were used meanwhile.
        """
        used, noted = self._cluster.usage_changes, self._cluster.node_changes
        mask = inside.mask_for(tree, self._cluster.capacity)
        key = self._needs(demand), tree.name, level
        known = self._times.get(key)
        changed = None
        if known is not None and known.tree is tree and known.mask is mask and known.nodes == noted.cursor:
            changed = used.since(known.used)
        if known is None or changed is None or len(changed) > MANY_CHANGES or level == ROOT_LEVEL:
            times = self._times_at(demand, tree, level, None, mask)
        else:
            domains, times = np.unique(tree.owners_of_slots(changed, level)), known.times
            domains = domains[domains >= 0]
            if len(domains):
                times[domains] = self._times_at(demand, tree, level, domains, mask)
        self._times[key] = _Times(tree=tree, mask=mask, nodes=noted.cursor, used=used.cursor, times=times)
        return times

    def _times_at(
        self, demand: Sequence[Share], tree: Tree, level: int, domains: Ints | None, allowed: Bools | None
    ) -> Counts:
        """The same for some domains of a level, or for all, and for nodes that are ``allowed``, (slots,)."""
        pods = self._pods_of(demand)
        if domains is None:
            slots = tree.slot_at
            ends = {ROOT_LEVEL: np.array([0, len(slots)]), tree.node_level: np.arange(len(slots) + 1)}
            starts = ends[level] if level in ends else tree.bounds[level]
        else:
            slots, first = tree.slots_of(level, domains)
            starts = np.append(first, len(slots))
        free = self._free(pods, slots)
        usable = free if allowed is None else np.where(allowed[slots], free, 0)
        times = np.full(len(starts) - 1, _OFTEN)
        for row, of_row in enumerate(pods.times_in(usable, starts)):
            if (of_row < times).any() and self._limits(demand, pods, row, tree):
                np.minimum(times, of_row, out=times)
        return times.astype(np.int64)

    def sets(self, demand: Sequence[Share], tree: Tree, level: int, inside: NodeSet) -> Counts:
        """The same, also where the room for the pods of one kind is the limit."""
        capacity = self._cluster.capacity
        rooms = [scoped_counts(self._table, share.pod_class, tree, inside, capacity) for share in demand]
        usable = np.zeros(capacity, dtype=np.bool_)
        usable[tree.slot_at] = np.logical_or.reduce([room.of(tree.node_level) > 0 for room in rooms])
        allowed = inside.allowed(capacity)
        usable = usable if allowed is None else usable & allowed
        times = self._times_at(demand, tree, level, None, usable)
        for share, room in zip(demand, rooms, strict=True):
            np.minimum(times, room.of(level) // len(share.pods), out=times)
        return times

    def _limits(self, demand: Sequence[Share], pods: UnequalPods, row: int, tree: Tree) -> bool:
        """Whether a resource limits all pods as it should; one that is ignored does not."""
        known = self._limiting.get((pods, row, tree.name))
        if known is not None:
            return known
        free = self._free(pods, tree.slot_at)[[row]]
        limits = True
        for kind, share in enumerate(demand):
            self._table.refresh(share.pod_class)
            room = share.pod_class.fits[tree.slot_at]
            limits = limits and bool(pods.limiting(kind, free, room, [row]).all())
        self._limiting[pods, row, tree.name] = limits
        return limits

    def _needs(self, demand: Sequence[Share]) -> Needs:
        return tuple([(self._cluster.demand(share.pod_class.pod.spec), len(share.pods)) for share in demand])

    def _pods_of(self, demand: Sequence[Share]) -> UnequalPods:
        needs = self._needs(demand)
        pods = self._pods.get(needs)
        if pods is None:
            pods = self._pods[needs] = UnequalPods(needs)
        return pods

    def _free(self, pods: UnequalPods, slots: Ints) -> Amounts:
        """What is free of each resource that pods ask for, (R, slots)."""
        free = np.empty((len(pods.rows), len(slots)), dtype=np.int64)
        for place, row in enumerate(pods.rows):
            free[place] = self._cluster.free(row, slots)
        np.maximum(free, 0, out=free)  # What is short on an overcommitted node is not taken from others.
        return free
