"""Nodes reserved for a gang that has waited long, or cleared for a preemptor. Others must not use them."""

import numpy as np

from closeby.objects.arrays import Bools, Ints
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Handle, NoArguments, Scope
from closeby.scheduling.plugin_view import CycleState, Nodes


class ReservedMask:
    """A mask of the reserved nodes, and whether it applies to the present item."""

    __slots__ = ("_namespace", "_since", "_text", "applies", "cleared", "mask", "number", "set")

    def __init__(self) -> None:
        #: True while the present item must keep off these nodes. Results for its pods are cached apart from
        #: those for equal pods to which the mask does not apply.
        self.applies = False
        #: Shape (capacity,); None when nothing is reserved.
        self.mask: Bools | None = None
        #: Changes whenever the reserved nodes change.
        self.number = 0
        #: Nodes that are cleared for items that go before the present one; None for none. Each set of them
        #: has a number, 0 stands for none.
        self.cleared: Bools | None = None
        self.set = 0
        self._namespace = self._text = self._since = ""

    @property
    def keeps_off(self) -> bool:
        """Whether there are nodes that the present item must keep off."""
        return self.applies or self.cleared is not None

    @property
    def key(self) -> tuple[int, int]:
        """Equal keys: the same nodes for the present item."""
        return self.number if self.applies else -1, self.set

    @property
    def barred(self) -> Bools | None:
        """The nodes that the present item must keep off; None for none.

        Nodes that came later are not in it.
        """
        mask = self.mask if self.applies else None
        if mask is None or self.cleared is None:
            return self.cleared if mask is None else mask
        size = max(len(mask), len(self.cleared))
        both = np.zeros(size, dtype=np.bool_)
        both[: len(mask)] |= mask
        both[: len(self.cleared)] |= self.cleared
        return both

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
        return self._reserved.keeps_off

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        mask = self._reserved.barred
        if mask is None:
            return nodes.all(True)
        if len(mask) < self.handle.cluster.capacity:  # Nodes that came since are not reserved.
            mask = np.append(mask, np.zeros(self.handle.cluster.capacity - len(mask), dtype=np.bool_))
        free: Bools = ~mask[nodes.index]
        return free

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        cleared = self._reserved.cleared
        if cleared is not None and slot < len(cleared) and cleared[slot]:
            return Rejection(Reason.NODE_RESERVED, "it is cleared for pods of at least the same priority")
        return Rejection(Reason.NODE_RESERVED, self._reserved.text(pod.namespace))
