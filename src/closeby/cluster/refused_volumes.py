"""For which nodes the volume of a claim could not be had of late, so that these are not chosen again at once.

Each time that happens to a claim its node is kept from it for longer. That ends with its time, or when
something changes on which it depends: the claim, its class, or what can be bound or made there.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.attachments import Attachments
from closeby.cluster.claims import RefusedNode
from closeby.cluster.provisioning import selected
from closeby.cluster.selecting import NodeReach, NodesByName
from closeby.cluster.storage import Storage
from closeby.cluster.volumes_by_class import is_kept
from closeby.objects.arrays import Bools
from closeby.objects.pods import NodeSelectorTerm, Requirement
from closeby.objects.volumes import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
)

#: Seconds after the first refusal, and at most; they double with each refusal of a claim.
INITIAL_BACKOFF: Final = 10.0
MAX_BACKOFF: Final = 1800.0


class VolumeFailure(Struct, frozen=True, kw_only=True):
    """The volume of a claim could not be had for a node as it was decided."""

    #: Key of the claim.
    claim: str
    node: str
    #: For people, such as ``its provisioner makes no volume for node n7``.
    why: str
    #: Name of the volume that was to be bound; empty where one was to be made.
    volume: str = ""
    #: Whether that holds for all nodes of which its driver says that they reach the same volumes.
    near: bool = False
    #: Seconds until that was known.
    took: float = 0.0


class RefusedVolumes:
    """What is remembered, by claim."""

    def __init__(
        self, nodes: NodesByName, places: NodeReach, storage: Storage, attachments: Attachments
    ) -> None:
        self._nodes = nodes
        self._places = places
        self._storage = storage
        self._attachments = attachments
        #: Grows with each change.
        self.version = 0
        #: Key of a claim -> node -> what is remembered.
        self._refused: dict[str, dict[str, RefusedNode]] = {}
        #: (Key of a claim, node) -> when it ends, by the clock of the ticks; None until one tells the time.
        self._ends: dict[tuple[str, str], float | None] = {}
        #: Key of a claim -> refusals since it changed.
        self._counts: dict[str, int] = {}

    def of(self, key: str) -> tuple[RefusedNode, ...]:
        """What is remembered of a claim, by name of the node."""
        found = self._refused.get(key)
        return () if found is None else tuple(found[node] for node in sorted(found))

    def mask(self, refused: Iterable[RefusedNode]) -> Bools:
        """The slots of these nodes; shape (capacity,)."""
        mask = np.zeros(self._nodes.capacity, dtype=np.bool_)
        for one in refused:
            if one.alike is not None:
                mask |= self._places.mask((one.alike,))
            if (slot := self._nodes.slots_by_name.get(one.node)) is not None:
                mask[slot] = True
        return mask

    @property
    def next_end(self) -> float | None:
        """When the first ends whose time is known."""
        return min((end for end in self._ends.values() if end is not None), default=None)

    def add(self, one: VolumeFailure) -> bool:
        """From now on this is remembered; False where claim or volume changed so that it does not matter."""
        claim = self._storage.claims.get(one.claim)
        if claim is None or claim.bound or self._is_known_to_be_gone(one):
            return False
        count = self._counts.get(one.claim, 0)
        self._counts[one.claim] = count + 1
        refused = RefusedNode(
            node=one.node,
            alike=self._alike(claim, one.node) if one.near else None,
            why=one.why,
            volume=one.volume,
            # Where an attempt takes long the other nodes come first, or they would not have their turn.
            lasts=min(max(INITIAL_BACKOFF, one.took) * 2.0 ** min(count, 16), max(MAX_BACKOFF, one.took)),
        )
        self._refused.setdefault(one.claim, {})[one.node] = refused
        self._ends[one.claim, one.node] = None
        self.version += 1
        return True

    def passed(self, now: float) -> tuple[str, ...]:
        """It is that time; returns the claims of which something ends."""
        ended: dict[str, None] = {}
        for (key, node), end in list(self._ends.items()):
            if end is None:
                self._ends[key, node] = now + self._refused[key][node].lasts
            elif end <= now:
                self._drop(key, node)
                ended[key] = None
        return tuple(ended)

    def changed(self, before: StorageObject | None, after: StorageObject | None) -> None:
        """What depends on an object that came, went or changed ends."""
        if not self._counts:
            return
        match after or before:
            case PersistentVolumeClaim(key=key):
                if not _asks_the_same(before, after):
                    self._counts.pop(key, None)
                    for node in tuple(self._refused.get(key, ())):
                        self._drop(key, node)
            case PersistentVolume(name=name):
                self._end(tuple(self._refused), name)
            case StorageClass(name=name):
                self._end(self._storage.open_claims_of(name))
            case CSIDriver(name=name):
                for each in self._storage.classes_of(name):
                    self._end(self._storage.open_claims_of(each))
            case CSIStorageCapacity() if isinstance(after, CSIStorageCapacity):
                if after.nodes is not None and _more(before, after):
                    where = selected(after.nodes, self._places)
                    self._end(self._storage.open_claims_of(after.storage_class), where=where)

    def _is_known_to_be_gone(self, one: VolumeFailure) -> bool:
        """Whether that volume is not there for the claim any more: the node may have others for it."""
        if not one.volume:
            return False
        volume = self._storage.volumes.get(one.volume)
        return volume is None or (is_kept(volume) and volume.claim != one.claim)

    def _end(self, keys: Iterable[str], volume: str = "", where: Bools | None = None) -> None:
        """What is remembered of a volume, or of those that are to be made (``where``: for these slots)."""
        for key in keys:
            for one in tuple(self._refused.get(key, {}).values()):
                slot = self._nodes.slots_by_name.get(one.node)
                if one.volume == volume and (where is None or slot is None or where[slot]):
                    self._drop(key, one.node)

    def _drop(self, key: str, node: str) -> None:
        self.version += 1
        nodes = self._refused[key]
        del nodes[node], self._ends[key, node]
        if not nodes:
            del self._refused[key]

    def _alike(self, claim: PersistentVolumeClaim, name: str) -> NodeSelectorTerm | None:
        made = self._storage.classes.get(claim.request.storage_class or "")
        slot = self._nodes.slots_by_name.get(name)
        node = None if slot is None else self._nodes.nodes[slot]
        if made is None or node is None:
            return None
        keys = self._attachments.topology_keys(made.driver, name)
        if not keys or any(key not in node.labels for key in keys):
            return None
        return NodeSelectorTerm(tuple(Requirement(key, "In", (node.labels[key],)) for key in keys))


def _asks_the_same(before: StorageObject | None, after: StorageObject | None) -> bool:
    """Whether no more than the node differs for which a claim's volume is to be made: that is our doing."""
    if not isinstance(before, PersistentVolumeClaim) or not isinstance(after, PersistentVolumeClaim):
        return False
    return replace(before, selected_node=after.selected_node) == after


def _more(before: StorageObject | None, after: CSIStorageCapacity) -> bool:
    """Whether more can be made than before."""
    if not isinstance(before, CSIStorageCapacity) or before.nodes != after.nodes:
        return True
    return (after.largest or 0) > (before.largest or 0)
