"""Whether unequal pods certainly don't fit into a domain: sums of what is free show it, without any trial."""

from collections.abc import Sequence

import numpy as np

from closeby.cluster.columns import Cluster, Demand
from closeby.objects.arrays import Amounts
from closeby.scheduling.gangs.parts import NodeSet, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.pace import Pace
from closeby.scheduling.placing.bounds import MOST_KINDS, Bounds
from closeby.topology.tree import Domain, Tree


class Sums:
    """Asks the bounds about the nodes of domains, as they are now."""

    def __init__(self, cluster: Cluster, table: ClassTable, pace: Pace) -> None:
        self._cluster = cluster
        self._table = table
        self._pace = pace
        #: By the needs of unequal pods.
        self._bounds: dict[tuple[tuple[Demand, int], ...], Bounds] = {}

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

    def ask_more(self, demand: Sequence[Share], tree: Tree, domain: Domain) -> bool:
        """Whether pods ask for more of a resource than is free in a domain, whether it limits them or not."""
        bounds, free = self._bounds_and_free(demand, tree, domain)
        return bool(bounds.asked_beyond(free).any())

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
