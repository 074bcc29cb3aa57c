"""Exhaustive placing of unequal pods inside one domain, within a budget of trials."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.classes import ClassTable, PodClass
from closeby.scheduling.parts import Scope, Share, scoped_counts
from closeby.scheduling.state import CycleState
from closeby.scheduling.statement import Statement
from closeby.topology.tree import Tree

Counts = NDArray[np.int64]
Ints = NDArray[np.intp]

#: Pods tried on nodes during one search.
TRIALS = 2_000


class Trial:
    """Depth-first search for unequal pods: hardest class first, on each distinct kind of node."""

    def __init__(
        self,
        cluster: Cluster,
        table: ClassTable,
        statement: Statement,
        state: CycleState,
        tree: Tree,
        inside: Scope,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._statement = statement
        self._state = state
        self._tree = tree
        self._inside = inside
        self._left = TRIALS
        #: True when the search ended before everything was tried.
        self.gave_up = False

    def place(self, demand: Sequence[Share]) -> bool:
        """Place all pods, or leave nothing placed."""
        pods = [(share.pod_class, pod) for share in demand for pod in share.pods]
        way = [self._options(pods, 0)]
        while way:
            slot = next(way[-1], None)
            if slot is None:
                way.pop()
                if way:
                    self._statement.rollback(self._statement.checkpoint() - 1)
                    self._state.placed.pop()
                continue
            if self._left <= 0:
                self.gave_up = True
                for _ in range(len(way) - 1):
                    self._statement.rollback(self._statement.checkpoint() - 1)
                    self._state.placed.pop()
                return False
            self._left -= 1
            pod = pods[len(way) - 1][1]
            self._statement.assume([pod], np.asarray([slot], dtype=np.intp))
            self._state.placed.append((pod, slot))
            if len(way) == len(pods):
                return True
            way.append(self._options(pods, len(way)))
        return False

    def _options(self, pods: Sequence[tuple[PodClass, Pod]], index: int) -> Iterator[int]:
        """Slots for one pod, tightest first, one of each kind; none if a later class has lost its room."""
        waiting: dict[int, tuple[PodClass, int]] = {}
        for pod_class, _ in pods[index:]:
            waiting[id(pod_class)] = (pod_class, waiting.get(id(pod_class), (pod_class, 0))[1] + 1)
        rooms = {}
        for key, (pod_class, count) in waiting.items():
            counts = scoped_counts(self._table, pod_class, self._tree, self._inside, self._cluster.capacity)
            first, end = self._tree.span(self._inside.domain_in(self._tree))
            rooms[key] = counts.of(self._tree.node_level)[first:end].copy()
            if int(rooms[key].sum()) < count:
                return
        own = rooms[id(pods[index][0])]
        slots = self._tree.slot_at[first:end]
        kinds = np.stack([*rooms.values(), *self._columns(slots)])
        usable = np.flatnonzero(own)
        _, distinct = np.unique(kinds[:, usable], axis=1, return_index=True)
        options = usable[np.sort(distinct)]
        for option in options[np.argsort(own[options], kind="stable")].tolist():
            yield int(slots[option])

    def _columns(self, slots: Ints) -> list[Counts]:
        cluster = self._cluster
        return [cluster.free(row, slots) for row in range(len(cluster.row_of))]
