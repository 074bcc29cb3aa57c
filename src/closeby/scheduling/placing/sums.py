"""Whether unequal pods certainly don't fit into a domain: sums of what is free show it, without any trial."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from closeby.cluster.columns import Cluster, Demand
from closeby.objects.arrays import Amounts, Bools
from closeby.scheduling.gangs.parts import NodeSet, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.pace import Pace
from closeby.scheduling.placing.bounds import MOST_KINDS, Bounds
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree

#: Figures that are read in one step.
_PER_STEP: Final = 4_000


class Sums:
    """Asks the bounds about the nodes of domains, as they are now."""

    def __init__(self, cluster: Cluster, table: ClassTable, pace: Pace) -> None:
        self._cluster = cluster
        self._table = table
        self._pace = pace
        #: By the needs of unequal pods.
        self._bounds: dict[tuple[tuple[Demand, int], ...], Bounds] = {}
        #: Whether a resource, by its place among those asked for, limits the pods as it should.
        self._limiting: dict[tuple[Bounds, int], bool] = {}

    def lack_room(self, demand: Sequence[Share], tree: Tree, inside: NodeSet) -> bool:
        """Whether pods certainly don't fit beside each other, even if none took a volume from another."""
        domain, capacity = inside.domain_in(tree), self._cluster.capacity
        return any(
            scoped_counts(self._table, share.pod_class, tree, inside, capacity).inside(domain)
            < len(share.pods)
            for share in demand
        ) or self.in_vain(demand, tree, inside)

    def in_vain(self, demand: Sequence[Share], tree: Tree, inside: NodeSet) -> bool:
        """Whether unequal pods certainly don't fit beside each other."""
        self._pace.take(500)
        domain = inside.domain_in(tree)
        bounds, free = self._bounds_and_free(demand, tree, domain)
        first, end = tree.span(domain)
        rooms = (
            scoped_counts(self._table, share.pod_class, tree, inside, self._cluster.capacity).of(
                tree.node_level
            )[first:end]
            for share in demand
        )
        if len(demand) <= MOST_KINDS:
            return bounds.exceeded(free, np.stack(list(rooms)))
        exceeded = bounds.asked_beyond(free)
        for kind, room in enumerate(rooms if exceeded.any() else ()):
            exceeded &= bounds.limiting(kind, free, room)
        return bool(exceeded.any())

    def open_domains(
        self, demand: Sequence[Share], tree: Tree, level: int, allowed: Bools | None
    ) -> Bools | None:
        """In which domains of a level no resource is short for all pods; None: in all, as far as is known.

        ``allowed``: the nodes that may be used, (slots,).
        """
        bounds, free = self._bounds_and_free(demand, tree, ROOT)
        slots = tree.slot_at
        self._pace.note(len(bounds.rows) * len(slots) // _PER_STEP)
        usable = free if allowed is None else np.where(allowed[slots], free, 0)
        ends = {ROOT_LEVEL: np.array([0, len(slots)]), tree.node_level: np.arange(len(slots) + 1)}
        beyond = bounds.asked_beyond_in(usable, ends[level] if level in ends else tree.bounds[level])
        for row in np.flatnonzero(beyond.any(axis=1)).tolist():
            limits = self._limiting.get((bounds, row))
            if limits is None:
                limits = self._limiting[bounds, row] = self._limits(demand, bounds, row, tree, free)
            if not limits:
                beyond[row] = False
        return np.logical_not(beyond.any(axis=0)) if beyond.any() else None

    def ask_more(self, demand: Sequence[Share], tree: Tree, domain: Domain) -> bool:
        """Whether pods ask for more of a resource than is free in a domain, whether it limits them or not."""
        bounds, free = self._bounds_and_free(demand, tree, domain)
        return bool(bounds.asked_beyond(free).any())

    def _limits(self, demand: Sequence[Share], bounds: Bounds, row: int, tree: Tree, free: Amounts) -> bool:
        """Whether a resource limits all pods as it should; one that is ignored does not."""
        self._pace.note(len(demand) * len(tree.slot_at) // _PER_STEP)
        for kind, share in enumerate(demand):
            self._table.refresh(share.pod_class)
            if not bounds.limiting(kind, free[[row]], share.pod_class.fits[tree.slot_at], [row]).all():
                return False
        return True

    def _bounds_and_free(self, demand: Sequence[Share], tree: Tree, domain: Domain) -> tuple[Bounds, Amounts]:
        """Bounds for pods, and what is free of each resource that they ask for on the nodes of a domain."""
        needs = tuple([(self._cluster.demand(share.pod_class.pod.spec), len(share.pods)) for share in demand])
        bounds = self._bounds.get(needs)
        if bounds is None:
            bounds = self._bounds[needs] = Bounds(needs)
        slots = tree.slot_at[slice(*tree.span(domain))]
        free = np.empty((len(bounds.rows), len(slots)), dtype=np.int64)
        for place, row in enumerate(bounds.rows):
            free[place] = self._cluster.free(row, slots)
        return bounds, free
