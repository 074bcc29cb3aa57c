"""Exhaustive placing of pods on the nodes of one domain, within a budget of backtracks.

For unequal pods, and for equal ones when it matters to other parts of the gang which nodes they take.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Ints
from closeby.scheduling.gangs.parts import Distinctions, NodeSet
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.pace import Budget
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.trial_supply import Supply
from closeby.topology.tree import Tree


class _Choice:
    """The node of one pod, and the kinds of nodes that were in vain before.

    No array of all nodes is kept for each pod: a gang may have thousands.
    """

    __slots__ = ("at", "order", "tried")

    def __init__(self, order: Ints, at: int) -> None:
        #: The nodes (positions in the domain) in the order in which the pods of its class visit them.
        self.order = order
        #: Where in that order the pod's node is.
        self.at = at
        #: The kinds of the nodes that were tried: a number for each column.
        self.tried: set[tuple[int, ...]] = set()

    @property
    def position(self) -> int:
        """The node."""
        return int(self.order[self.at])


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

    def ways(
        self, demand: Sequence[Share], apart: Distinctions | None = None, *, each_node: bool = False
    ) -> Iterator[None]:
        """Each step places all pods in another way; the way before is undone, and at last the last one.

        Nodes that differ as ``apart`` says are never of one kind; with ``each_node`` no two nodes are.
        """
        pace = self._statement.state.pace
        supply = Supply(self._cluster, self._table, self._tree, self._inside, demand, pace)
        apart = Distinctions() if apart is None else apart
        owners = [
            tree.owners_of_slots(supply.slots, level)
            for tree in apart.trees
            for level in range(tree.node_level)
        ]
        if len(apart.held):
            owners.append(np.where(np.isin(supply.slots, apart.held), supply.slots, -1))
        others = (
            Supply(self._cluster, self._table, self._tree, self._inside, apart.demand, pace)
            if apart.demand
            else None
        )
        # The class of each pod, and how many pods of that class wait when it is placed.
        pods = [
            (pod, at, len(share.pods) - number)
            for at, share in enumerate(demand)
            for number, pod in enumerate(share.pods)
        ]
        mark = self._statement.checkpoint()
        way: list[_Choice] = []
        choice = self._first(supply, *pods[0][1:], None)
        while choice is not None or way:
            if choice is None:
                # The pod before goes elsewhere.
                self._statement.rollback(self._statement.checkpoint() - 1)
                if not self._budget.take_backtrack():
                    break
                last = way.pop()
                at = pods[len(way)][1]
                choice = last if self._next(supply, at, last, owners, others, each_node=each_node) else None
                continue
            pod, at, _ = pods[len(way)]
            self._statement.assume_one(pod, int(supply.slots[choice.position]))
            way.append(choice)
            if len(way) == len(pods):
                yield
                choice = None
                continue
            _, following, left = pods[len(way)]
            choice = self._first(supply, following, left, choice if following == at else None)
        self._statement.rollback(mark)

    def _first(self, supply: Supply, at: int, left: int, before: _Choice | None) -> _Choice | None:
        """The first node for a pod; None if what is left cannot hold the pods that wait.

        Equal pods visit the nodes in one fixed order (that of the one ``before``), so that no two ways differ
        by exchanging equal pods.
        """
        self._statement.state.pace.take(200 + len(supply.slots) // 50)
        if not supply.enough(at, left):
            return None
        room = supply.room(at)
        order = np.argsort(room, kind="stable") if before is None else before.order
        start = 0 if before is None else before.at
        usable = room[order[start:]]
        if int(usable.sum()) < left:
            return None
        return _Choice(order, start + int((usable > 0).argmax()))

    def _next(
        self,
        supply: Supply,
        at: int,
        choice: _Choice,
        owners: Sequence[Ints],
        others: Supply | None,
        *,
        each_node: bool,
    ) -> bool:
        """Moves a choice that was in vain on to a node of another kind; False where there is none."""
        self._statement.state.pace.take(1_000 + len(supply.slots) // 5)
        later = choice.order[choice.at + 1 :]
        if each_node:
            open_ = np.flatnonzero(supply.room(at)[later] > 0)
        else:
            columns = [*supply.columns(at), *owners]
            if others is not None:
                columns += others.columns(0)
            choice.tried.add(_kind(columns, choice.position))
            open_ = np.flatnonzero(supply.room(at)[later] > 0)
            while len(open_) and (kind := _kind(columns, int(later[open_[0]]))) in choice.tried:
                other = np.zeros(len(open_), dtype=np.bool_)
                for column, value in zip(columns, kind, strict=True):
                    other |= column[later[open_]] != value
                open_ = open_[other]
        if not len(open_):
            return False
        choice.at += 1 + int(open_[0])
        return True


def _kind(columns: Sequence[Ints], position: int) -> tuple[int, ...]:
    """What columns say of a node."""
    return tuple([int(column[position]) for column in columns])
