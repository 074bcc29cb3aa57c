"""Nodes reserved for a gang that has waited long, cleared for a preemptor, or in domains that gangs have for
themselves. Others must not use them.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from closeby.objects.arrays import Bools, Ints
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Handle, NoArguments, Scope
from closeby.scheduling.plugin_view import CycleState, Nodes

#: Sets of nodes that are remembered, so that results for them are found again.
_KNOWN: Final = 64


def unknown(slot: int, namespace: str) -> str:
    """Where no gang has a domain for itself."""
    return ""


def _all_of(*masks: Bools | None) -> Bools | None:
    """The nodes of all masks, of which some may know fewer nodes."""
    known = [mask for mask in masks if mask is not None]
    if len(known) < 2:
        return known[0] if known else None
    every = np.zeros(max(map(len, known)), dtype=np.bool_)
    for mask in known:
        every[: len(mask)] |= mask
    return every


class ReservedMask:
    """A mask of the reserved nodes, and whether it applies to the present item."""

    __slots__ = (
        "_last_owned",
        "_namespace",
        "_owned_sets",
        "_since",
        "_text",
        "applies",
        "cleared",
        "expected",
        "mask",
        "number",
        "owned",
        "owned_set",
        "set",
        "whose",
    )

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
        #: Nodes in domains that other gangs have for themselves, likewise.
        self.owned: Bools | None = None
        self.owned_set = 0
        #: Which domain a slot of these is in, and whose it is, for the owners of pods in a namespace.
        self.whose: Callable[[int, str], str] = unknown
        self._owned_sets: dict[bytes, int] = {}
        self._last_owned = 0
        self._namespace = self._text = self._since = ""
        #: By when the gang is expected to have the room; empty where that is not known.
        self.expected = ""

    @property
    def keeps_off(self) -> bool:
        """Whether there are nodes that the present item must keep off."""
        return self.applies or self.cleared is not None or self.owned is not None

    @property
    def key(self) -> tuple[int, int, int]:
        """Equal keys: the same nodes for the present item."""
        return self.number if self.applies else -1, self.set, self.owned_set

    @property
    def kept(self) -> Bools | None:
        """The nodes that the present item must keep off, but for those in domains that other gangs have for
        themselves; None for none. Nodes that came later are not in it.
        """
        return _all_of(self.mask if self.applies else None, self.cleared)

    def own(self, mask: Bools | None) -> None:
        """Note the nodes in domains that other gangs have for themselves; equal sets get the same number."""
        self.owned, self.owned_set = mask, 0
        if mask is None:
            return
        content = mask.tobytes()
        if content not in self._owned_sets:
            if len(self._owned_sets) >= _KNOWN:
                self._owned_sets.clear()
            self._last_owned += 1
            self._owned_sets[content] = self._last_owned
        self.owned_set = self._owned_sets[content]

    def reserve(self, slots: Ints, capacity: int, key: str, since: str) -> None:
        """Reserve these slots and no others, for the gang of this key (``namespace/name``)."""
        self.mask = np.zeros(capacity, dtype=np.bool_)
        self.mask[slots] = True
        self.number += 1
        self._namespace, _, _ = key.partition("/")
        self._text, self._since, self.expected = f"reserved for gang {key}", since, ""

    def clear(self) -> None:
        """Reserve nothing."""
        self.mask = None
        self.number += 1
        self._namespace = self._text = self._since = self.expected = ""

    def text(self, namespace: str) -> str:
        """For whom and since when, such as ``reserved for gang default/train since …``.

        The owners of pods in other namespaces do not learn which gang that is.
        """
        known = self._text if namespace == self._namespace else "reserved for a gang of another namespace"
        if not self.expected:
            return f"{known} since {self._since}"
        return f"{known} since {self._since}, but for pods whose activeDeadlineSeconds end by {self.expected}"


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

    def mask(self) -> Bools | None:
        """The nodes that it refuses now."""
        return self._reserved.kept

    def concerns(self, pod: Pod) -> bool:
        return self._reserved.keeps_off

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        mask = self.mask()
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


class ExclusiveDomains(ReservedNodes):
    """Refuses nodes in domains that other gangs have for themselves."""

    name = "ExclusiveDomains"
    reason = Reason.DOMAIN_EXCLUSIVE

    def mask(self) -> Bools | None:
        return self._reserved.owned

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(Reason.DOMAIN_EXCLUSIVE, self._reserved.whose(slot, pod.namespace))
