"""Exhaustive placing of pods on the nodes of one domain, within a budget of backtracks.

For unequal pods, and for equal ones when it matters to other parts of the gang which nodes they take.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Counts, Ints
from closeby.objects.pods import Pod
from closeby.scheduling.gangs.parts import NodeSet, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import PodClass, Share
from closeby.scheduling.pace import Budget
from closeby.scheduling.placing.statement import Statement
from closeby.topology.tree import Tree


class Trial:
    """Depth-first search: one class after another, the tightest nodes first, each kind of node once."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        table: ClassTable,
        statement: Statement,
        tree: Tree,
        inside: NodeSet,
        budget: Budget,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._statement = statement
        self._tree = tree
        self._inside = inside
        self._budget = budget
        first, end = tree.span(inside.domain_in(tree))
        self._first, self._end = first, end
        #: (n,) slots of the domain; everything below has one entry or column per such node.
        self._slots = tree.slot_at[first:end]
        #: The same, where possible as a slice, which costs less to read.
        self._index = _as_slice(self._slots)
        self._owners: list[Ints] = []
        #: The classes in their order, with the number of pods of each.
        self._owing: list[tuple[PodClass, int]] = []
        #: The order in which pods of the class in hand visit the nodes, and the rank of each node in it.
        self._orders: list[tuple[Ints, Ints]] = []

    def ways(
        self, demand: Sequence[Share], apart: Sequence[Tree] = (), *, each_node: bool = False
    ) -> Iterator[None]:
        """Each step places all pods in another way; the way before is undone, and at last the last one.

        Nodes in different domains of the trees in ``apart`` are never of one kind; with ``each_node`` no two
        nodes are.
        """
        self._owners = [
            tree.owners_of_slots(self._slots, level) for tree in apart for level in range(tree.node_level)
        ]
        if each_node:
            self._owners.append(np.arange(len(self._slots)))
        pods = [(share.pod_class, pod) for share in demand for pod in share.pods]
        self._owing = [(share.pod_class, len(share.pods)) for share in demand]
        for share in demand:
            self._cluster.demand(share.pod_class.pod.spec)  # Every resource has its row from here on.
        nothing = np.zeros(0, dtype=np.intp)
        self._orders = [(nothing, nothing)] * len(pods)
        visited: list[int] = []
        way = [self._options(pods, 0, visited)]
        while way:
            option = next(way[-1], None)
            if option is None:
                way.pop()
                if not way:
                    break
                self._undo(visited)
                if not self._budget.take_backtrack():
                    break
                continue
            pod = pods[len(way) - 1][1]
            slot = self._slots[option]
            self._statement.assume_one(pod, int(slot))
            visited.append(option)
            if len(way) == len(pods):
                yield
                self._undo(visited)
                if not self._budget.take_backtrack():
                    break
            else:
                way.append(self._options(pods, len(way), visited))
        while visited:
            self._undo(visited)

    def _undo(self, visited: list[int]) -> None:
        self._statement.rollback(self._statement.checkpoint() - 1)
        visited.pop()

    def _options(
        self, pods: Sequence[tuple[PodClass, Pod]], index: int, visited: Sequence[int]
    ) -> Iterator[int]:
        """Nodes for one pod; none if what is left cannot hold the pods that wait.

        Equal pods visit the nodes in one fixed order, so that no two ways differ by exchanging equal pods.
        """
        # A row for each class, resource and tree is gathered, and sorted to find nodes of one kind.
        self._statement.state.pace.take(100 + len(self._slots) * (len(self._cluster.row_of) + 4) // 50)
        waiting = self._waiting(index)
        rooms = {key: self._room(pod_class) for key, (pod_class, _) in waiting.items()}
        free = [self._cluster.free(row, self._index) for row in range(len(self._cluster.row_of))]
        if not self._enough(rooms, waiting, free):
            return
        own = rooms[id(pods[index][0])]
        if index and pods[index - 1][0] is pods[index][0]:
            order, rank = self._orders[index - 1]
            usable = order[rank[visited[-1]] :]
        else:
            order = np.argsort(own, kind="stable")
            rank = np.empty(len(order), dtype=np.intp)
            rank[order] = np.arange(len(order))
            usable = order
        self._orders[index] = order, rank
        usable = usable[own[usable] > 0]
        if int(own[usable].sum()) < waiting[id(pods[index][0])][1]:
            return
        # One of a kind is enough. Which others are of another kind matters only once it was in vain.
        columns = [*rooms.values(), *free, *self._owners]
        while len(usable):
            first = int(usable[0])
            yield first
            other = np.zeros(len(usable), dtype=np.bool_)
            for column in columns:
                other |= column[usable] != column[first]
            usable = usable[other]

    def _waiting(self, index: int) -> dict[int, tuple[PodClass, int]]:
        """The classes of the pods from ``index`` on, with the number of pods of each."""
        waiting: dict[int, tuple[PodClass, int]] = {}
        placed = index
        for pod_class, count in self._owing:
            left = count - max(min(placed, count), 0)
            placed -= count
            if left:
                waiting[id(pod_class)] = (pod_class, left)
        return waiting

    def _room(self, pod_class: PodClass) -> Counts:
        counts = scoped_counts(self._table, pod_class, self._tree, self._inside, self._cluster.capacity)
        return counts.of(self._tree.node_level)[self._first : self._end].copy()

    def _enough(
        self,
        rooms: dict[int, Counts],
        waiting: dict[int, tuple[PodClass, int]],
        free: Sequence[Amounts],
    ) -> bool:
        if any(int(rooms[key].sum()) < count for key, (_, count) in waiting.items()):
            return False
        usable = np.logical_or.reduce([room > 0 for room in rooms.values()])
        asked: dict[int, int] = {}
        for pod_class, count in waiting.values():
            demand = self._cluster.demand(pod_class.pod.spec)
            for row, amount in zip(demand.rows, demand.amounts, strict=True):
                asked[row] = asked.get(row, 0) + amount * count
        # Sums of whole numbers near 2**63 would wrap round; this only has to see what is clearly too little.
        return all(
            float(np.add.reduce(free[row], where=usable, dtype=np.float64)) * (1 + 1e-9) >= amount
            for row, amount in asked.items()
        )


def _as_slice(slots: Ints) -> Ints | slice:
    """A slice of the same slots where they follow one another."""
    if len(slots) and bool((slots[1:] == slots[:-1] + 1).all()):
        return slice(int(slots[0]), int(slots[-1]) + 1)
    return slots
