"""The claims, volumes, storage classes and drivers that there are, and which of them concern which claims."""

from collections.abc import Iterator, Sequence
from typing import Any

from closeby.objects.volumes import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
    storage_key,
)

#: What objects are found by -> their keys, as a set that keeps its order.
Index = dict[str, dict[str, None]]


class Storage:
    """All objects about volumes but CSINodes, by key, with their indices."""

    def __init__(self) -> None:
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.capacities: dict[str, CSIStorageCapacity] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self._objects: dict[type[StorageObject], dict[str, Any]] = {
            PersistentVolumeClaim: self.claims,
            PersistentVolume: self.volumes,
            StorageClass: self.classes,
            CSIDriver: self.drivers,
            CSIStorageCapacity: self.capacities,
            VolumeAttachment: self.attachments,
        }
        #: Class -> keys of the claims that name it and no volume.
        self._open_claims_of: Index = {}
        #: Name of a volume -> keys of the claims that name it.
        self._named_by: Index = {}
        #: Key of a claim -> names of the volumes that are kept for it, or bound to it.
        self._kept_for: Index = {}
        #: Class -> names of its volumes, and keys of its capacities.
        self._volumes_of: Index = {}
        self._capacities_of: Index = {}
        #: Node -> names of the attachments to it; volume -> names of its attachments.
        self._attached_to: Index = {}
        self._attached: Index = {}

    # Reading

    def open_claims_of(self, storage_class: str) -> tuple[str, ...]:
        """Keys of the claims that name a class and no volume yet."""
        return tuple(self._open_claims_of.get(storage_class, ()))

    def claims_bound_to(self, volume: str) -> tuple[str, ...]:
        """Keys of the claims that name a volume."""
        return tuple(self._named_by.get(volume, ()))

    def claims_naming(self, volume: PersistentVolume) -> tuple[str, ...]:
        """Keys of the claims that name a volume, or that it names."""
        own = (volume.claim,) if volume.claim else ()
        return tuple(dict.fromkeys((*self._named_by.get(volume.name, ()), *own)))

    def classes_of(self, provisioner: str) -> tuple[str, ...]:
        """Names of the classes whose volumes a driver makes."""
        return tuple(name for name, one in self.classes.items() if one.provisioner == provisioner)

    def volumes_of(self, storage_class: str) -> Iterator[PersistentVolume]:
        return (self.volumes[name] for name in self._volumes_of.get(storage_class, ()))

    def capacities_of(self, storage_class: str) -> Iterator[CSIStorageCapacity]:
        """What is said of how much of a class can be made where."""
        return (self.capacities[key] for key in self._capacities_of.get(storage_class, ()))

    def kept_for(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that is kept for a claim which is not bound to it yet; of several the first by name."""
        names = self._kept_for.get(claim.key)
        if not names:
            return None
        kept = (self.volumes[name] for name in names)
        usable = [one for one in kept if not one.terminating and one.claim_uid in ("", claim.uid)]
        return min(usable, key=lambda one: one.name, default=None)

    def attached_to(self, node: str) -> Iterator[VolumeAttachment]:
        return (self.attachments[name] for name in self._attached_to.get(node, ()))

    def attachments_of(self, volume: str) -> Iterator[VolumeAttachment]:
        return (self.attachments[name] for name in self._attached.get(volume, ()))

    # Changing

    def put(self, one: StorageObject) -> StorageObject | None:
        """Add an object, or replace the one of its key, which is returned."""
        key = storage_key(one)
        before = self.remove(type(one), key)
        self._objects[type(one)][key] = one
        for index, by in self._indexed(one):
            index.setdefault(by, {})[key] = None
        return before

    def remove(self, kind: type[StorageObject], key: str) -> StorageObject | None:
        """Take an object out; returns it if it was there."""
        one: StorageObject | None = self._objects[kind].pop(key, None)
        if one is not None:
            for index, by in self._indexed(one):
                _drop(index, by, key)
        return one

    def _indexed(self, one: StorageObject) -> Sequence[tuple[Index, str]]:
        """The indices that know an object, each with what it is found by there."""
        match one:
            case PersistentVolumeClaim(volume=""):
                return ((self._open_claims_of, one.request.storage_class or ""),)
            case PersistentVolumeClaim():
                return ((self._named_by, one.volume),)
            case PersistentVolume(claim=""):
                return ((self._volumes_of, one.storage_class),)
            case PersistentVolume():
                return ((self._volumes_of, one.storage_class), (self._kept_for, one.claim))
            case VolumeAttachment():
                return ((self._attached_to, one.node), (self._attached, one.volume))
            case CSIStorageCapacity():
                return ((self._capacities_of, one.storage_class),)
        return ()


def _drop(index: Index, key: str, member: str) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[key]
