"""Whether pods that a trial has not placed yet may still find room in its domain: by sums, for each depth.

The sums are bounds. A node that changed since they were worked out is taken for full, and only where they
might fall short then are they worked out again.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Counts, Ints
from closeby.scheduling.gangs.parts import NodeSet, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import PodClass, Share
from closeby.scheduling.pace import Pace
from closeby.scheduling.placing.many_kinds import FEW
from closeby.topology.tree import Tree

#: Changed slots beyond which the sums are worked out again at once.
_FEW_CHANGES: Final = 64


class Supply:
    """Room of K classes, and free amounts of the R resources that they ask for, on n nodes of a domain."""

    def __init__(
        self,
        cluster: Cluster,
        table: ClassTable,
        tree: Tree,
        inside: NodeSet,
        demand: Sequence[Share],
        pace: Pace,
    ) -> None:
        """``demand``: the classes in the order in which they are placed, with all their pods.

        ``pace`` counts the work for many classes.
        """
        self._pace = pace
        self._cluster = cluster
        self._table = table
        self._tree = tree
        self._inside = inside
        self._first, self._end = tree.span(inside.domain_in(tree))
        #: (n,) slots of the nodes; where possible as a slice, which costs less to read.
        self.slots = tree.slot_at[self._first : self._end]
        self._index = _as_slice(self.slots)
        self._position = np.full(cluster.capacity, -1, dtype=np.intp)
        self._position[self.slots] = np.arange(len(self.slots))
        self._classes: list[PodClass] = [share.pod_class for share in demand]
        #: (K,) pods of each class.
        self._counts = np.asarray([len(share.pods) for share in demand], dtype=np.int64)
        demands = [cluster.demand(pod_class.pod.spec) for pod_class in self._classes]
        self._rows = sorted({row for one in demands for row in one.rows})
        of = [dict(zip(one.rows, one.amounts, strict=True)) for one in demands]
        #: (K, R) what one pod of each class asks for. Of large sums only what is clearly too little counts.
        self._asked = np.asarray([[one.get(row, 0) for row in self._rows] for one in of], dtype=np.float64)
        self._rooms = np.zeros((len(demand), len(self.slots)), dtype=np.int64)
        self._free = np.zeros((len(self._rows), len(self.slots)), dtype=np.int64)
        #: The class in hand when the sums were worked out (-1: they do not hold), and how many of its pods
        #: waited; by how much room and resources exceeded what was asked for; and the positions that changed.
        self._at, self._left = -1, 0
        self._spare_room = np.zeros(0, dtype=np.int64)
        self._spare = np.zeros(0, dtype=np.float64)
        self._changed = set[int]()
        self._cursor = 0

    def room(self, at: int) -> Counts:
        """How many pods of a class each node takes now; (n,), overwritten by the next call."""
        counts = scoped_counts(
            self._table, self._classes[at], self._tree, self._inside, self._cluster.capacity
        )
        np.copyto(self._rooms[at], counts.of(self._tree.node_level)[self._first : self._end])
        room: Counts = self._rooms[at]
        return room

    def columns(self, at: int) -> list[Counts]:
        """What tells nodes apart for the classes from ``at`` on: their rooms, and what is free; each (n,)."""
        self._at = -1
        self._read(at)
        return [*self._rooms[at:], *self._free]

    def enough(self, at: int, left: int) -> bool:
        """Whether ``left`` pods of a class and all of the later classes may find room beside each other.

        Of the class in hand, whose room is read for each pod anyway, the resources alone are looked at.
        """
        if self._at != at or not self._note_changes():
            return self._work_out(at, left)
        spare = self._spare + (self._left - left) * self._asked[at]
        if bool((spare >= 0).all()) and bool((self._spare_room >= 0).all()):
            return True
        return self._work_out(at, left)

    def _note_changes(self) -> bool:
        """Takes nodes for full that changed; False where these are too many."""
        log = self._cluster.usage_changes
        slots = log.since(self._cursor)
        self._cursor = log.cursor
        if slots is None or len(slots) > _FEW_CHANGES:
            return False
        for slot in slots.tolist():
            position = int(self._position[slot]) if slot < len(self._position) else -1
            if position >= 0 and position not in self._changed:
                self._changed.add(position)
                self._spare_room -= self._rooms[self._at + 1 :, position]
                self._spare -= self._free[:, position]
        return True

    def _work_out(self, at: int, left: int) -> bool:
        self._cursor = self._cluster.usage_changes.cursor
        self._changed.clear()
        self._read(at)
        self._at, self._left = at, left
        self._spare_room = self._rooms[at + 1 :].sum(axis=1) - self._counts[at + 1 :]
        usable = (self._rooms[at:] > 0).any(axis=0)
        supply = np.add.reduce(self._free, axis=1, where=usable, dtype=np.float64)
        counts = self._counts[at:].copy()
        counts[0] = left
        self._spare = supply * (1 + 1e-9) - counts @ self._asked[at:]
        return bool((self._spare >= 0).all()) and bool((self._spare_room >= 0).all())

    def _read(self, at: int) -> None:
        more = len(self._classes) - at - FEW
        if more > 0:
            self._pace.note(more * (60 + len(self.slots) // 100))
        for each in range(at, len(self._classes)):
            self.room(each)
        for index, row in enumerate(self._rows):
            self._free[index] = self._cluster.free(row, self._index)


def _as_slice(slots: Ints) -> Ints | slice:
    """A slice of the same slots where they follow one another."""
    if len(slots) and bool((slots[1:] == slots[:-1] + 1).all()):
        return slice(int(slots[0]), int(slots[-1]) + 1)
    return slots
