"""Nodes reserved for a gang that has waited long. Items behind it in the queue must not use them."""

import numpy as np

from closeby.objects.arrays import Bools, Ints
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Handle, NoArguments, Scope
from closeby.scheduling.plugin_view import CycleState, Nodes


class ReservedMask:
    """A mask of the reserved nodes, and whether it applies to the present item."""

    __slots__ = ("_namespace", "_since", "_text", "applies", "mask", "number")

    def __init__(self) -> None:
        #: True while the present item must keep off these nodes. Results for its pods are cached apart from
        #: those for equal pods to which the mask does not apply.
        self.applies = False
        #: Shape (capacity,); None when nothing is reserved.
        self.mask: Bools | None = None
        #: Changes whenever the reserved nodes change.
        self.number = 0
        self._namespace = self._text = self._since = ""

    def reserve(self, slots: Ints, capacity: int, key: str, since: str) -> None:
        """Reserve these slots and no others, for the gang of this key (``namespace/name``)."""
        self.mask = np.zeros(capacity, dtype=np.bool_)
        self.mask[slots] = True
        self.number += 1
        self._namespace, _, _ = key.partition("/")
        self._text, self._since = f"reserved for gang {key}", since

    def clear(self) -> None:
        """Reserve nothing."""
        self.mask = None
        self.number += 1
        self._namespace = self._text = self._since = ""

    def text(self, namespace: str) -> str:
        """For whom and since when, such as ``reserved for gang default/train since …``.

        The owners of pods in other namespaces do not learn which gang that is.
        """
        known = self._text if namespace == self._namespace else "reserved for a gang of another namespace"
        return f"{known} since {self._since}"


class ReservedNodes(Filter):
    """Refuses reserved nodes to items that must keep off; the last filter to be asked.

    So what it refuses are nodes that would take the pod if they were not reserved.
    """

    name = "Reservation"
    reason = Reason.NODE_RESERVED
    filter_scope = Scope.PER_NODE

    def __init__(self, reserved: ReservedMask, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self._reserved = reserved

    def concerns(self, pod: Pod) -> bool:
        return self._reserved.applies

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        mask = self._reserved.mask
        if mask is None:
            return nodes.all(True)
        if len(mask) < self.handle.cluster.capacity:  # Nodes that came since are not reserved.
            mask = np.append(mask, np.zeros(self.handle.cluster.capacity - len(mask), dtype=np.bool_))
        free: Bools = ~mask[nodes.index]
        return free

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(Reason.NODE_RESERVED, self._reserved.text(pod.namespace))
