"""The claims, volumes, storage classes and drivers that there are, and which of them concern which claims."""

from collections.abc import Iterator

from closeby.objects.volumes import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)


class Storage:
    """All objects about volumes but CSINodes, by key, with their indices."""

    def __init__(self) -> None:
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.capacities: dict[str, CSIStorageCapacity] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        #: Class -> keys of the claims that name it and no volume, as a set that keeps its order.
        self._open_claims_of: dict[str, dict[str, None]] = {}
        #: Name of a volume -> keys of the claims that name it.
        self._named_by: dict[str, dict[str, None]] = {}
        #: Key of a claim -> names of the volumes that are kept for it, or bound to it.
        self._kept_for: dict[str, dict[str, None]] = {}
        #: Class -> names of its volumes, and keys of its capacities.
        self._volumes_of: dict[str, dict[str, None]] = {}
        self._capacities_of: dict[str, dict[str, None]] = {}
        #: Node -> names of the attachments to it; volume -> names of its attachments.
        self._attached_to: dict[str, dict[str, None]] = {}
        self._attached: dict[str, dict[str, None]] = {}

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
        """The volumes of a class."""
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
        """The attachments to a node."""
        return (self.attachments[name] for name in self._attached_to.get(node, ()))

    def attachments_of(self, volume: str) -> Iterator[VolumeAttachment]:
        """The attachments of a volume."""
        return (self.attachments[name] for name in self._attached.get(volume, ()))

    # Changing

    def put(self, one: StorageObject) -> StorageObject | None:
        """Add an object, or replace the one of its key, which is returned."""
        match one:
            case PersistentVolumeClaim():
                return self._put_claim(one)
            case PersistentVolume():
                return self._put_volume(one)
            case VolumeAttachment():
                return self._put_attachment(one)
            case StorageClass(name=name):
                before: StorageObject | None = self.classes.get(name)
                self.classes[name] = one
                return before
            case CSIDriver(name=name):
                before = self.drivers.get(name)
                self.drivers[name] = one
                return before
            case CSIStorageCapacity(key=key):
                before = self.remove(CSIStorageCapacity, key)
                self.capacities[key] = one
                self._capacities_of.setdefault(one.storage_class, {})[key] = None
                return before
        return None

    def remove(self, kind: type[StorageObject], key: str) -> StorageObject | None:
        """Take an object out; returns it if it was there."""
        if kind is PersistentVolumeClaim:
            claim = self.claims.pop(key, None)
            if claim is not None:
                _drop(self._open_claims_of, claim.request.storage_class or "", key)
                _drop(self._named_by, claim.volume, key)
            return claim
        if kind is PersistentVolume:
            volume = self.volumes.pop(key, None)
            if volume is not None:
                _drop(self._volumes_of, volume.storage_class, key)
                _drop(self._kept_for, volume.claim, key)
            return volume
        if kind is CSIStorageCapacity:
            capacity = self.capacities.pop(key, None)
            if capacity is not None:
                _drop(self._capacities_of, capacity.storage_class, key)
            return capacity
        if kind is VolumeAttachment:
            attachment = self.attachments.pop(key, None)
            if attachment is not None:
                _drop(self._attached_to, attachment.node, key)
                _drop(self._attached, attachment.volume, key)
            return attachment
        if kind is StorageClass:
            return self.classes.pop(key, None)
        return self.drivers.pop(key, None)

    def _put_claim(self, claim: PersistentVolumeClaim) -> StorageObject | None:
        key = claim.key
        before = self.remove(PersistentVolumeClaim, key) if key in self.claims else None
        self.claims[key] = claim
        if claim.volume:
            self._named_by.setdefault(claim.volume, {})[key] = None
        else:
            self._open_claims_of.setdefault(claim.request.storage_class or "", {})[key] = None
        return before

    def _put_volume(self, volume: PersistentVolume) -> StorageObject | None:
        name = volume.name
        before = self.remove(PersistentVolume, name) if name in self.volumes else None
        self.volumes[name] = volume
        self._volumes_of.setdefault(volume.storage_class, {})[name] = None
        if volume.claim:
            self._kept_for.setdefault(volume.claim, {})[name] = None
        return before

    def _put_attachment(self, one: VolumeAttachment) -> StorageObject | None:
        name = one.name
        before = self.remove(VolumeAttachment, name) if name in self.attachments else None
        self.attachments[name] = one
        self._attached_to.setdefault(one.node, {})[name] = None
        self._attached.setdefault(one.volume, {})[name] = None
        return before


def _drop(index: dict[str, dict[str, None]], key: str, member: str) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[key]
