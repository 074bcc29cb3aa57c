"""Volumes of a cluster: where the claims of a pod can be met, and what is chosen for pods that are placed.

What is in use is what the placed pods use: it follows each of them, and is undone exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from closeby.cluster.attachments import UNLIMITED, Attachments, Brought, VolumeUse
from closeby.cluster.changes import ChangeLog
from closeby.cluster.claim_needs import ClaimsToCome, Facts, need_of
from closeby.cluster.claims import ChosenVolume, ClaimedVolume, ClaimNeed, StandIn, nodes_in
from closeby.cluster.selecting import NodeReach, NodesByName
from closeby.cluster.storage import Storage
from closeby.cluster.volumes_by_class import Provisioning, RefusedVolumes, VolumesByClass, VolumeWant, is_kept
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import NodeSelectorTerm, Pod, Requirement
from closeby.objects.volumes import (
    READ_WRITE_ONCE_POD,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)


class Volumes:
    """All that there is, and its use."""

    def __init__(self, nodes: NodesByName, usage_changes: ChangeLog, node_changes: ChangeLog) -> None:
        """Slots where other pods may go than before are added to ``usage_changes``."""
        self._nodes = nodes
        self._touched = usage_changes
        self.storage = Storage()
        self._use = VolumeUse()
        self._places = NodeReach(nodes)
        self._attachments = Attachments(nodes, node_changes, self.storage, self._use)
        self._provisioning = Provisioning(self._places, self.storage)
        #: For which nodes volumes could not be had of late.
        self.refused = RefusedVolumes(nodes, self._places, self.storage, self._attachments)
        self._classes = VolumesByClass(nodes, self._places, self.storage, lambda: self._use.taken)
        of_all = self._attachments, self._provisioning, self.refused
        self._facts = Facts(nodes, self.storage, lambda: self._use, *of_all)
        self._changes = StorageChanges(self._facts, self._places, self._classes, usage_changes)
        #: The claims for ephemeral volumes of pods that are still to come.
        self.to_come = ClaimsToCome(
            self.storage, self._take_in, lambda key: self.remove(PersistentVolumeClaim, key)
        )
        #: Grows with each change of objects or use.
        self._version = 0
        self._last: tuple[Pod | None, int, tuple[ClaimNeed, ...]] = (None, 0, ())

    # Objects

    def put(self, one: StorageObject) -> tuple[str, ...] | None:
        """An object was added or changed.

        Returns the keys of the claims for which that may matter; None for all that are to be attached.
        """
        return self._with_defaults(self._take_in(one), type(one))

    def remove(self, kind: type[StorageObject], key: str) -> tuple[str, ...] | None:
        """An object was deleted; returns the same."""
        self._version += 1
        return self._with_defaults(self._changes.remove(kind, key), kind)

    def _take_in(self, one: StorageObject) -> tuple[str, ...] | None:
        self._version += 1
        return self._changes.put(one)

    def _with_defaults(
        self, concerned: tuple[str, ...] | None, kind: type[StorageObject]
    ) -> tuple[str, ...] | None:
        """Another class may be the default now: claims to come that name none have it then."""
        if kind is not StorageClass or concerned is None:
            return concerned
        return (*concerned, *self.to_come.classes_changed())

    # Use

    def take(self, pod: Pod, slot: int) -> None:
        """A pod with volumes was placed: claims without a volume get one, or have one made."""
        self._version += 1
        without = []
        for key in _claims_of(pod):
            self._use.add(key, slot)
            claim = self.storage.claims.get(key)
            if claim is not None and self._is_open(claim):
                without.append(claim)
        for disk in pod.spec.attached_disks:
            self._use.add(disk.key, slot)
        self._attachments.touch(slot)
        for claim in sorted(without, key=lambda one: (one.request.size, one.name)):
            volume = self.storage.kept_for(claim)
            if volume is None and not claim.selected_node:  # Else one is being made for it.
                volume = self._classes.of(claim.request.storage_class or "").smallest(claim.request, slot)
            self._choose(ChosenVolume(claim.key, None if volume is None else volume.name, slot))

    def release(self, pod: Pod, slot: int) -> None:
        """The exact reverse."""
        self._version += 1
        for key in _claims_of(pod):
            self._use.remove(key, slot)
            if key not in self._use:
                self._give_back(key)
        for disk in pod.spec.attached_disks:
            self._use.remove(disk.key, slot)
        self._attachments.touch(slot)

    def chosen(self, pod: Pod) -> tuple[ChosenVolume, ...]:
        """What was chosen for the claims of a placed pod, in the order of their names."""
        return tuple(self._use.chosen[key] for key in _claims_of(pod) if key in self._use.chosen)

    def claimed(self, pod: Pod) -> tuple[ClaimedVolume, ...]:
        """What the claims of a placed pod have or get, in the order of their names."""
        found = []
        for key in _claims_of(pod):
            claim, chosen = self.storage.claims.get(key), self._use.chosen.get(key)
            if claim is not None:
                volume = chosen.volume if chosen is not None else claim.volume or None
                name = claim.request.storage_class or ""
                found.append(ClaimedVolume(key, volume, name, bound=claim.bound))
        return tuple(found)

    def validate(self, placed: Iterable[tuple[Pod, int]]) -> None:
        """Assert that what is in use is what these pods use, and that no volume was chosen twice."""
        self._use.validate(
            (key, slot)
            for pod, slot in placed
            for key in (*_claims_of(pod), *(disk.key for disk in pod.spec.attached_disks))
        )

    def choose_again(self, before: Iterable[ChosenVolume]) -> None:
        """A pod that was released and placed again keeps what was chosen for it, where that is still free."""
        now = self._use.chosen
        changed = [
            one
            for one in before
            if one != now.get(one.claim, one) and one.slot == now[one.claim].slot and self._is_left(one)
        ]
        for one in changed:
            self._give_back(one.claim)
        for one in changed:
            taken = one.volume is not None and one.volume in self._use.taken
            self._choose(ChosenVolume(one.claim, None, one.slot) if taken else one)

    @contextmanager
    def unused(self) -> Iterator[None]:
        """For questions: as if no pod used anything; what is placed meanwhile is forgotten."""
        before = self._use
        self._swap(VolumeUse())
        try:
            yield
        finally:
            self._swap(before)

    def _swap(self, use: VolumeUse) -> None:
        self._version += 1
        for slot in {*self._use.used_slots, *use.used_slots}:
            self._attachments.touch(slot)
        self._use = self._attachments.use = use

    def _choose(self, one: ChosenVolume) -> None:
        self._version += 1
        self._use.choose(one)
        self._taken_or_free(one)

    def _give_back(self, key: str) -> None:
        one = self._use.give_back(key)
        if one is not None:
            self._taken_or_free(one)

    def _taken_or_free(self, one: ChosenVolume) -> None:
        volume = None if one.volume is None else self.storage.volumes.get(one.volume)
        if volume is not None:
            slots = self._places.slots(volume.node_affinity)
            if len(slots) > 1:
                self._touched.add(slots)

    def _is_open(self, claim: PersistentVolumeClaim) -> bool:
        """Whether a claim gets its volume with the node of its pod, and has none chosen yet."""
        found = self.storage.classes.get(claim.request.storage_class or "")
        waits = found is not None and found.waits and not claim.volume and not claim.lost
        return waits and claim.key not in self._use.chosen

    def needs(self, pod: Pod) -> tuple[ClaimNeed, ...]:
        """What each claim of a pod amounts to now, in the order of their names."""
        if isinstance(pod, StandIn):
            return pod.needs
        last, version, found = self._last
        now = self._version + self.refused.version
        if last is pod and version == now:
            return found  # Several plugins ask one after another.
        found = tuple(
            [
                need_of(key, one, pod.uid, self._facts)
                for key, one in zip(_claims_of(pod), pod.spec.claims, strict=True)
            ]
        )
        self._last = pod, now, found
        return found

    def stand_in(self, pod: Pod) -> Pod:
        """A pod that needs what this one needs now, whatever becomes of it."""
        if not pod.spec.claims:
            return pod
        return StandIn(**{name: getattr(pod, name) for name in Pod.__struct_fields__}, needs=self.needs(pod))

    def claim_key(self, pod: Pod, place: int) -> str:
        """Key of the claim to which the need of that place belongs."""
        return f"{pod.namespace}/{pod.spec.claims[place].of(pod.name)}"

    def wanted_by_several(self, pods: Iterable[Pod]) -> tuple[str, tuple[str, ...]] | None:
        """A claim for one pod at a time that several of these pods name, and their names."""
        if not self.storage.claims:
            return None
        users: dict[str, list[str]] = {}
        for pod in pods:
            for key in _claims_of(pod):
                users.setdefault(key, []).append(pod.name)
        for key, names in users.items():
            claim = self.storage.claims.get(key)
            if len(names) > 1 and claim is not None and READ_WRITE_ONCE_POD in claim.request.access_modes:
                return key, tuple(names)
        return None

    # Where they can be met

    def reached(self, need: ClaimNeed) -> Bools | None:
        """Nodes that reach the volume of a claim that has one, or can reach the one that is made elsewhere.

        Shape (capacity,); None for all.
        """
        if need.node:
            return self._around(need)
        return None if need.reach is None else self._places.mask(need.reach)

    def in_zones(self, need: ClaimNeed) -> Bools:
        """Nodes in the zone and region of a claim's volume; shape (capacity,)."""
        return nodes_in(need.zones, self._places)

    def room(self, pod: Pod, slots: Ints | None) -> Counts:
        """How many pods with claims like these find volumes that are there, or can have them made.

        By slot, each looked at as if no such pod went elsewhere; shape (len(slots),), or of all slots.
        """
        n = self._nodes.capacity if slots is None else len(slots)
        room = np.full(n, UNLIMITED, dtype=np.int64)
        for name, needs in self._by_class(pod).items():
            found = self._count(name, needs, slots)
            own = [need for need in needs if not need.shared]
            if len(own) < len(needs):
                # A claim that pods share takes one volume, however many pods there are.
                room[found == 0] = 0
                found = self._count(name, own, slots)
            room = np.minimum(room, found)
        return room

    def attachable(self, pod: Pod, slots: Ints | None) -> Counts:
        """How many pods like this one find their volumes attached, or a place for them; shape as ``room``."""
        return self._attachments.room(self._attached_by(pod), slots)

    def full_for(self, pod: Pod) -> Ints:
        """The slots that can attach no more of what such a pod brings."""
        if not pod.spec.claims and not pod.spec.attached_disks:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self.attachable(pod, None) == 0)

    def brought(self, pod: Pod, slot: int) -> list[Brought]:
        """The volumes that a pod brings to a node, by driver, as far as they are limited."""
        return self._attachments.brought(self._attached_by(pod), slot)

    def _attached_by(self, pod: Pod) -> tuple[ClaimNeed, ...]:
        disks = pod.spec.attached_disks
        needs = self.needs(pod) if pod.spec.claims else ()
        return (*needs, *(ClaimNeed(driver=one.driver, known=one.key) for one in disks)) if disks else needs

    def depends(self, pod: Pod) -> bool:
        """Whether where a pod goes changes where others like it may go, beyond its own node."""
        if any(one.exclusive or (one.shared and one.request is not None) for one in self.needs(pod)):
            return True
        return any(
            self._classes.of(name).is_shared(need.request for need in needs if need.request is not None)
            for name, needs in self._by_class(pod).items()
        )

    def room_for(self, need: ClaimNeed, slot: int) -> bool:
        """Whether a claim finds a volume, or can have one made, for the node of a slot."""
        request = need.request
        if request is None:
            return True
        name = request.storage_class or ""
        made = bool(self._provisioning.where(name, request.size)[slot])
        return made or self._classes.of(name).smallest(request, slot) is not None

    def volumes_at(self, storage_class: str, slot: int) -> list[PersistentVolume]:
        """The volumes of a class that a node reaches, free or not."""
        return list(self._classes.of(storage_class).at(slot))

    def allowed_at(self, made: StorageClass, slot: int) -> bool:
        """Whether a class lets volumes be made for the node of a slot."""
        return not made.topologies or bool(self._places.mask(made.topologies)[slot])

    def _by_class(self, pod: Pod) -> dict[str, list[ClaimNeed]]:
        """The claims whose volume is still to be chosen, by class, the smallest first."""
        found: dict[str, list[ClaimNeed]] = {}
        for need in self.needs(pod):
            if need.request is not None:
                found.setdefault(need.request.storage_class or "", []).append(need)
        for needs in found.values():
            needs.sort(key=_size)
        return found

    def _count(self, name: str, needs: Sequence[ClaimNeed], slots: Ints | None) -> Counts:
        wants = []
        for need in needs:
            if need.request is not None:
                made = self._provisioning.where(name, need.request.size)
                wants.append(VolumeWant(need.request, made if slots is None else made[slots]))
        if not wants:
            return np.full(self._nodes.capacity if slots is None else len(slots), UNLIMITED, dtype=np.int64)
        return self._classes.of(name).count(wants, slots)

    def _around(self, need: ClaimNeed) -> Bools:
        """The node for which a volume is made, or the nodes that share its labels that the driver names."""
        slot = self._nodes.slots_by_name.get(need.node)
        mask = np.zeros(self._nodes.capacity, dtype=np.bool_)
        if slot is None:
            return mask
        mask[slot] = True
        node = self._nodes.nodes[slot]
        if node is None or not need.same or any(key not in node.labels for key in need.same):
            return mask
        same = tuple(Requirement(key, "In", (node.labels[key],)) for key in need.same)
        return self._places.mask((NodeSelectorTerm(same),))

    def _is_left(self, one: ChosenVolume) -> bool:
        """Whether what was chosen for a claim is there, and was kept for no other claim meanwhile."""
        volume = None if one.volume is None else self.storage.volumes.get(one.volume)
        return one.volume is None or (volume is not None and volume.claim in ("", one.claim))


def _claims_of(pod: Pod) -> list[str]:
    """Keys of the claims of a pod, in the order of their names."""
    return [f"{pod.namespace}/{one.of(pod.name)}" for one in pod.spec.claims]


def _size(need: ClaimNeed) -> int:
    return 0 if need.request is None else need.request.size


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
