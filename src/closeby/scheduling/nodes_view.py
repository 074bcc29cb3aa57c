"""What a plugin sees of the nodes it is asked about: some slots, as columns."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.topology.labels import MISSING, LabelColumn

Ints = NDArray[np.intp]
Amounts = NDArray[np.int64]


class Nodes:
    """A read-only window on ``n`` slots; every array it returns has shape (n,), in the order of ``slots``.

    Slots without a node may be among them; the engine ignores what a plugin says about those.
    """

    __slots__ = ("_cluster", "_index", "_slots")

    def __init__(self, cluster: Cluster, slots: Ints | None = None) -> None:
        """``slots`` None means every slot of the cluster."""
        self._cluster = cluster
        self._slots = slots
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
    def index(self) -> Ints | slice:
        """Picks these nodes' entries out of an array with one entry per slot; a slice for all slots."""
        return self._index

    def free(self, resource: str) -> Amounts:
        """Allocatable minus requested, never below 0; 0 for a resource nobody knows."""
        row = self._cluster.row_of.get(resource)
        return self._none() if row is None else self._cluster.free(row, self._index)

    def allocatable(self, resource: str) -> Amounts:
        """What pods may take in all."""
        row = self._cluster.row_of.get(resource)
        return self._none() if row is None else self._cluster.allocatable[row, self._index]

    def requested(self, resource: str) -> Amounts:
        """What the pods there take."""
        row = self._cluster.row_of.get(resource)
        return self._none() if row is None else self._cluster.requested[row, self._index]

    def label_column(self, key: str) -> LabelColumn:
        """The whole column of a label (all slots); see ``label_codes`` for the codes of these nodes."""
        return self._cluster.labels.column(key)

    def label_codes(self, key: str) -> NDArray[np.int32]:
        """Code of each node's value of a label; 0 where the node does not carry it."""
        codes = self._cluster.labels.column(key).codes
        if self._slots is None:
            return _padded(codes, self._cluster.capacity)
        return codes[self._slots]

    def all(self, value: bool) -> NDArray[np.bool_]:
        """An array with the same answer for every node."""
        return np.full(len(self), value, dtype=np.bool_)

    def _none(self) -> Amounts:
        return np.zeros(len(self), dtype=np.int64)


def _padded(codes: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    if len(codes) >= length:
        return codes[:length]
    return np.concatenate([codes, np.full(length - len(codes), MISSING, dtype=np.int32)])
