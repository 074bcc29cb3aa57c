"""What a plugin sees in a cycle: some nodes as columns, columns of its own, and the state of the cycle."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster, Demand
from closeby.objects.arrays import Amounts, Ints
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PortOrDisk
from closeby.scheduling.steps import Steps
from closeby.topology.labels import MISSING, LabelColumn
from closeby.topology.tree import Tree

if TYPE_CHECKING:
    from closeby.scheduling.extension import Filter


class Nodes:
    """A read-only window on ``n`` slots; every array it returns has shape (n,), in the order of ``slots``.

    Slots without a node may be among them; the engine ignores what a plugin says about those.
    """

    __slots__ = ("_cluster", "_index", "_more", "_slots")

    def __init__(
        self, cluster: Cluster, slots: Ints | None = None, more: tuple[Demand, Ints] | None = None
    ) -> None:
        """``slots`` None means every slot. ``more``: as if so many pods of a demand were there besides.

        A slot may be among ``slots`` several times, each time with another number of such pods.
        """
        self._cluster = cluster
        self._slots = slots
        self._more = (
            None if more is None else (dict(zip(more[0].rows, more[0].amounts, strict=True)), more[1])
        )
        self._index: Ints | slice = slice(0, cluster.capacity) if slots is None else slots

    def __len__(self) -> int:
        return self._cluster.capacity if self._slots is None else len(self._slots)

    def __iter__(self) -> Iterator[Node | None]:
        nodes = self._cluster.nodes
        return iter(nodes if self._slots is None else [nodes[slot] for slot in self._slots.tolist()])

    @property
    def slots(self) -> Ints:
        """The slots themselves."""
        return np.arange(self._cluster.capacity) if self._slots is None else self._slots

    @property
    def only(self) -> int | None:
        """The slot, where a single one was asked for: plain numbers take less time than arrays there."""
        if self._slots is None or len(self._slots) != 1 or self._more is not None:
            return None
        return int(self._slots[0])

    @property
    def index(self) -> Ints | slice:
        """Picks these nodes' entries out of an array with one entry per slot; a slice for all slots."""
        return self._index

    def free(self, resource: str) -> Amounts:
        """Allocatable minus requested, never below 0; 0 for an unknown resource."""
        row = self._cluster.row_of.get(resource)
        if row is None:
            return self._none()
        if self._more is None:
            return self._cluster.free(row, self._index)
        left: Amounts = self._cluster.allocatable[row, self._index] - self.used(row)
        return np.maximum(left, 0, out=left)

    def allocatable(self, resource: str) -> Amounts:
        """What pods may take in all."""
        row = self._cluster.row_of.get(resource)
        return self._none() if row is None else self._cluster.allocatable[row, self._index]

    def requested(self, resource: str) -> Amounts:
        """What the pods there take."""
        row = self._cluster.row_of.get(resource)
        return self._none() if row is None else self.used(row)

    def used(self, row: int) -> Amounts:
        """The same for a row of the cluster's resources; never to be changed in place."""
        used: Amounts = self._cluster.requested[row][self._index]
        if self._more is not None:
            amounts, numbers = self._more
            if row in amounts:
                return used + numbers * amounts[row]
        return used

    def taken(self, wanted: Sequence[PortOrDisk]) -> Sequence[int]:
        """Places, in the order of ``slots``, where another pod has one of these host ports or disks."""
        ports_and_disks = self._cluster.ports_and_disks
        if self._slots is None:
            return ports_and_disks.slots(wanted)
        return [
            place for place, slot in enumerate(self._slots.tolist()) if ports_and_disks.taken(slot, wanted)
        ]

    def label_column(self, key: str) -> LabelColumn:
        """The whole column of a label (all slots); see ``label_codes`` for the codes of these nodes."""
        return self._cluster.labels.column(key)

    def label_codes(self, key: str) -> NDArray[np.int32]:
        """Code of each node's value of a label; 0 where the node does not carry it."""
        codes = self._cluster.labels.column(key).codes
        if self._slots is None:
            return _padded(codes, self._cluster.capacity)
        return codes.take(self._slots)

    def all(self, value: bool) -> NDArray[np.bool_]:
        """An array with the same answer for every node."""
        return np.full(len(self), value, dtype=np.bool_)

    def _none(self) -> Amounts:
        return np.zeros(len(self), dtype=np.int64)


def _padded(codes: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    if len(codes) >= length:
        return codes[:length]
    return np.concatenate([codes, np.full(length - len(codes), MISSING, dtype=np.int32)])


Value = TypeVar("Value", bound=Hashable)

_NOTHING: Ints = np.zeros(0, dtype=np.intp)

#: Code of a slot that holds no node.
NO_NODE = 0


class NodeChanges:
    """Tells which slots' nodes changed since the last question."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = cluster.node_changes
        self._cursor = -1

    def take(self) -> Ints | None:
        """Slots whose Node came, went or changed (repeats possible); None: all must be read again."""
        cursor = self._cursor
        if cursor == self._log.cursor:
            return _NOTHING
        self._cursor = self._log.cursor
        return self._log.since(cursor)


class NodeColumn(Generic[Value]):
    """One value per node, worked out from the Node object alone by ``derive``."""

    def __init__(self, cluster: Cluster, derive: Callable[[Node], Value]) -> None:
        self._cluster = cluster
        self._derive = derive
        self._changes = NodeChanges(cluster)
        self._codes: Ints = _NOTHING
        self._code_of: dict[Value, int] = {}

    @property
    def values(self) -> tuple[Value, ...]:
        """The distinct values; the value at place ``i`` has code ``i + 1``. Some may be out of use."""
        self._follow()
        return tuple(self._code_of)

    def codes(self, nodes: Nodes) -> Ints:
        """Code of each node's value, 0 for a slot without a node; shape (len(nodes),)."""
        self._follow()
        return self._codes[nodes.index]

    def flags(self, nodes: Nodes, question: Callable[[Value], bool]) -> NDArray[np.bool_]:
        """The answer to a yes-or-no question about each node's value; shape (len(nodes),).

        A slot without a node may get either answer.
        """
        answers = [question(value) for value in self.values]
        if all(answers):
            return nodes.all(True)
        if not any(answers):
            return nodes.all(False)
        return np.asarray([False, *answers], dtype=np.bool_).take(self.codes(nodes))

    def figures(self, nodes: Nodes, question: Callable[[Value], float]) -> NDArray[np.float64]:
        """A figure for each node's value; shape (len(nodes),). A slot without a node gets 0."""
        return np.asarray([0.0, *map(question, self.values)], dtype=np.float64).take(self.codes(nodes))

    def _follow(self) -> None:
        changed = self._changes.take()
        capacity = self._cluster.capacity
        if changed is None or len(self._code_of) > 2 * capacity + 64:
            self._code_of.clear()
            self._codes = np.zeros(max(64, 2 * capacity), dtype=np.intp)
            self._write(range(capacity))
        elif len(changed):
            if capacity > len(self._codes):
                self._codes = np.concatenate([self._codes, np.zeros(2 * capacity, dtype=np.intp)])
            self._write(set(changed.tolist()))

    def _write(self, slots: range | set[int]) -> None:
        code_of, derive = self._code_of, self._derive
        for slot in slots:
            node = self._cluster.nodes[slot]
            if node is None:
                self._codes[slot] = NO_NODE
            else:
                value = derive(node)
                code = code_of.get(value)
                if code is None:
                    code = code_of[value] = len(code_of) + 1
                self._codes[slot] = code


class CycleState:
    """Scratch of one cycle; plugins keep what they computed in ``data`` under their own name."""

    __slots__ = ("anchors", "data", "group", "more_filters", "placed", "steps", "tree")

    def __init__(
        self, group: PodGroup | None = None, tree: Tree | None = None, anchors: tuple[int, ...] = ()
    ) -> None:
        #: The gang being placed, None for a plain pod.
        self.group = group
        #: The tree in which the gang's closeness is judged, None when there is none.
        self.tree = tree
        #: Slots of the gang's members that already run.
        self.anchors = anchors
        #: Members placed in this cycle so far, in order, with their slot; the cycle's statement keeps it.
        self.placed: list[tuple[Pod, int]] = []
        #: Counts the work done; plugins whose work grows with their input count theirs.
        self.steps = Steps()
        self.data: dict[Hashable, object] = {}
        #: Filters of this cycle alone; they are asked after the profile's.
        self.more_filters: tuple[Filter, ...] = ()
