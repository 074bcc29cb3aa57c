"""Takes in objects of storage that come, change or go, and says for which claims that may matter."""

from collections.abc import Iterable

from closeby.cluster.changes import ChangeLog
from closeby.cluster.claim_needs import Facts
from closeby.cluster.selecting import NodeReach
from closeby.cluster.volumes_by_class import VolumesByClass, is_kept
from closeby.objects.volumes import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)


class StorageChanges:
    """Passes each change on to all that is kept about volumes."""

    def __init__(
        self, facts: Facts, places: NodeReach, by_class: VolumesByClass, usage_changes: ChangeLog
    ) -> None:
        """Slots where other pods may go than before are added to ``usage_changes``."""
        self._nodes = facts.nodes
        self._storage = facts.storage
        self._use = facts.use
        self._attachments = facts.attachments
        self._provisioning = facts.provisioning
        self._refused = facts.refused
        self._places = places
        self._by_class = by_class
        self._touched = usage_changes

    def put(self, one: StorageObject) -> tuple[str, ...] | None:
        """An object was added or changed.

        Returns the keys of the claims for which that may matter; None for all that are to be attached.
        """
        if isinstance(one, CSINode):
            if not self._attachments.put(one):
                return ()
            self._node_changed(one.name)
            return None
        before = self._storage.put(one)
        return () if before == one else self._changed(before, one)

    def remove(self, kind: type[StorageObject], key: str) -> tuple[str, ...] | None:
        """An object was deleted; returns the same."""
        if kind is CSINode:
            self._attachments.remove(key)
            self._node_changed(key)
            return None
        before = self._storage.remove(kind, key)
        return () if before is None else self._changed(before, None)

    def _changed(self, before: StorageObject | None, after: StorageObject | None) -> tuple[str, ...] | None:
        """Of the two that are given at least one is, and both are of one kind."""
        self._refused.changed(before, after)
        match after or before:
            case VolumeAttachment():
                return self._attachments_changed(before, after)
            case PersistentVolumeClaim(key=key):
                self._claims_changed((key,))
                return (key,)
            case PersistentVolume():
                return self._volumes_changed(before, after)
        return self._provisioning_changed(before, after)

    def _attachments_changed(
        self, before: StorageObject | None, after: StorageObject | None
    ) -> tuple[str, ...] | None:
        concerned: dict[str, None] = {}
        for one in (before, after):
            if isinstance(one, VolumeAttachment):
                self._node_changed(one.node)
                if one is before and self._attachments.limits(one.driver, one.node):
                    return None  # One more volume may find a place there.
                concerned |= dict.fromkeys(self._storage.claims_bound_to(one.volume))
        return tuple(concerned)

    def _volumes_changed(
        self, before: StorageObject | None, after: StorageObject | None
    ) -> tuple[str, ...] | None:
        self._by_class.changed(
            before if isinstance(before, PersistentVolume) else None,
            after if isinstance(after, PersistentVolume) else None,
        )
        concerned: dict[str, None] = {}
        for one in (before, after):
            if isinstance(one, PersistentVolume):
                concerned |= dict.fromkeys(self._volume_changed(one))
                if after is None and self._attaches_one_less(one):
                    return None
        return tuple(concerned)

    def _attaches_one_less(self, gone: PersistentVolume) -> bool:
        """Whether a full node may attach another volume: an attachment without its volume does not count."""
        attachments = self._storage.attachments_of(gone.name)
        return any(self._attachments.limits(one.driver, one.node) for one in attachments)

    def _provisioning_changed(
        self, before: StorageObject | None, after: StorageObject | None
    ) -> tuple[str, ...]:
        storage = self._storage
        concerned: dict[str, None] = {}
        for one in (before, after):
            match one:
                case StorageClass(name=name) | CSIStorageCapacity(storage_class=name):
                    self._provisioning.changed(name)
                    keys = storage.open_claims_of(name)
                    if isinstance(one, StorageClass):  # Its driver attaches what is made for them.
                        self._claims_changed(keys)
                    concerned |= dict.fromkeys(keys)
                case CSIDriver(name=name):
                    for each in storage.classes_of(name):
                        self._provisioning.changed(each)
                        concerned |= dict.fromkeys(storage.open_claims_of(each))
        return tuple(concerned)

    def _volume_changed(self, one: PersistentVolume) -> tuple[str, ...]:
        """Returns the claims for which the volume matters, before or after its change."""
        storage = self._storage
        named = storage.claims_naming(one)
        self._claims_changed(named)
        for attached in storage.attachments_of(one.name):
            self._node_changed(attached.node)
        if is_kept(one):
            return named
        if self._by_class:
            self._touched.add(self._places.slots(one.node_affinity))
        return (*named, *storage.open_claims_of(one.storage_class))

    def _claims_changed(self, keys: Iterable[str]) -> None:
        for key in keys:
            for slot in self._use().slots(key):
                self._attachments.touch(slot)
                self._touched.add_one(slot)

    def _node_changed(self, name: str) -> None:
        slot = self._nodes.slots_by_name.get(name)
        if slot is not None:
            self._attachments.touch(slot)
            self._touched.add_one(slot)
