"""What a plugin makes of each Node object, as a column that follows the nodes' changes.

Many nodes give the same answer, so the column keeps each distinct value once and a small code per slot: a
question is asked once per distinct value and gathered over the slots.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.scheduling.nodes_view import Nodes

Ints = NDArray[np.intp]

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
        """Slots whose Node came, went or changed (repeats possible); None: all must be read anew."""
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
                self._codes[slot] = code_of.setdefault(derive(node), len(code_of) + 1)
