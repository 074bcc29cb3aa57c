"""Which claims placed pods use, and how many volumes each node has attached and can have, by driver."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct

from closeby.cluster.changes import ChangeLog
from closeby.cluster.claims import ChosenVolume, ClaimNeed
from closeby.cluster.selecting import NodesByName
from closeby.cluster.storage import Storage
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.volumes import CSINode

Outer = TypeVar("Outer", str, int)
Inner = TypeVar("Inner", str, int)


class VolumeUse:
    """Which claims placed pods use, and what was chosen for those that had no volume; undone exactly."""

    def __init__(self) -> None:
        #: Key of a claim -> slots of the pods that use it, with their number.
        self._users: dict[str, dict[int, int]] = {}
        #: Slot -> keys of the claims that are used there, with the number of pods.
        self._at: dict[int, dict[str, int]] = {}
        #: Key of a claim without a volume -> what was chosen for it.
        self.chosen: dict[str, ChosenVolume] = {}
        #: Name of a volume -> key of the claim for which it was chosen.
        self.taken: dict[str, str] = {}

    def __contains__(self, key: str) -> bool:
        """Whether any placed pod uses a claim."""
        return key in self._users

    def slots(self, key: str) -> tuple[int, ...]:
        """Where pods use a claim."""
        return tuple(self._users.get(key, ()))

    def at(self, slot: int) -> tuple[str, ...]:
        """Keys of the claims that pods use on a slot."""
        return tuple(self._at.get(slot, ()))

    @property
    def used_slots(self) -> tuple[int, ...]:
        """The slots of all pods with claims."""
        return tuple(self._at)

    def validate(self, used: Iterable[tuple[str, int]]) -> None:
        """Assert that it is the sum of these claims at slots."""
        users: dict[str, dict[int, int]] = {}
        at: dict[int, dict[str, int]] = {}
        for key, slot in used:
            _more(users, key, slot)
            _more(at, slot, key)
        assert users == self._users and at == self._at, "claims in use are not those of the pods"
        taken = {one.volume: key for key, one in self.chosen.items() if one.volume is not None}
        assert taken == self.taken, "a volume is chosen for two claims"
        assert self.chosen.keys() <= users.keys(), "something is chosen for a claim without a pod"

    def add(self, key: str, slot: int) -> None:
        """A pod on a slot uses a claim."""
        _more(self._users, key, slot)
        _more(self._at, slot, key)

    def remove(self, key: str, slot: int) -> None:
        _less(self._users, key, slot)
        _less(self._at, slot, key)

    def choose(self, one: ChosenVolume) -> None:
        """This is what the claim gets."""
        self.chosen[one.claim] = one
        if one.volume is not None:
            self.taken[one.volume] = one.claim

    def give_back(self, key: str) -> ChosenVolume | None:
        """The claim gets nothing any more; returns what had been chosen for it."""
        one = self.chosen.pop(key, None)
        if one is not None and one.volume is not None:
            self.taken.pop(one.volume, None)
        return one


def _more(index: dict[Outer, dict[Inner, int]], outer: Outer, inner: Inner) -> None:
    counts = index.setdefault(outer, {})
    counts[inner] = counts.get(inner, 0) + 1


def _less(index: dict[Outer, dict[Inner, int]], outer: Outer, inner: Inner) -> None:
    counts = index[outer]
    counts[inner] -= 1
    if not counts[inner]:
        del counts[inner]
        if not counts:
            del index[outer]


#: Stands for any number of volumes.
UNLIMITED = 1 << 31


class Brought(Struct, frozen=True):
    """What a pod brings to a node of one driver's volumes."""

    driver: str
    #: Volumes that are not attached there yet, those that are, and how many the node takes.
    new: int
    attached: int
    limit: int


class Attachments:
    """Counts per slot and driver, worked out again only where something changed."""

    def __init__(self, nodes: NodesByName, node_changes: ChangeLog, storage: Storage, use: VolumeUse) -> None:
        self._nodes = nodes
        self._log = node_changes
        self._cursor = -1
        self._storage = storage
        self.use = use
        #: What nodes say of their drivers, by name.
        self.csi_nodes: dict[str, CSINode] = {}
        self._used: dict[str, Counts] = {}
        self._limits: dict[str, Counts] = {}
        self._changed = set[int]()

    def room(self, needs: Sequence[ClaimNeed], slots: Ints | None) -> Counts:
        """How many pods with claims like these find their volumes attached, or a place for them.

        Shape (len(slots),), or of all slots.
        """
        capacity = self._nodes.capacity
        index: Ints | slice = slice(0, capacity) if slots is None else slots
        room = np.full(capacity if slots is None else len(slots), UNLIMITED, dtype=np.int64)
        for driver, of_driver in self._by_driver(needs).items():
            left = self._column(self._limits, driver)[index] - self._column(self._used, driver)[index]
            own = sum(not one.known for one in of_driver)
            once = np.zeros(len(room), dtype=np.int64)
            for key in {one.known for one in of_driver if one.known}:
                once += ~self._attached_where(key)[index]
            if own:
                room = np.minimum(room, np.maximum(left - once, 0) // own)
            else:  # What is attached already takes no further place.
                room[(once > 0) & (once > left)] = 0
        return room

    def brought(self, needs: Sequence[ClaimNeed], slot: int) -> list[Brought]:
        """The same for one node, driver by driver."""
        found = []
        for driver, of_driver in self._by_driver(needs).items():
            new = sum(not one.known for one in of_driver)
            new += sum(not self._attached_where(key)[slot] for key in {one.known for one in of_driver} - {""})
            attached, limit = self._column(self._used, driver)[slot], self._column(self._limits, driver)[slot]
            found.append(Brought(driver, new, int(attached), int(limit)))
        return found

    def topology_keys(self, driver: str, node: str) -> tuple[str, ...]:
        """Labels of nodes by which a driver on a node says which nodes reach a volume."""
        said = self.csi_nodes.get(node)
        return next((one.topology_keys for one in said.drivers if one.name == driver), ()) if said else ()

    def put(self, node: CSINode) -> bool:
        """A node says this of its drivers; returns whether that is news."""
        if self.csi_nodes.get(node.name) == node:
            return False
        self.csi_nodes[node.name] = node
        self._touch(node.name)
        return True

    def limits(self, driver: str, node: str) -> bool:
        """Whether a node attaches only so many volumes of a driver."""
        said = self.csi_nodes.get(node)
        return said is not None and any(one.name == driver and one.limit is not None for one in said.drivers)

    def remove(self, name: str) -> CSINode | None:
        """A node says nothing any more; returns what it said."""
        self._touch(name)
        return self.csi_nodes.pop(name, None)

    def touch(self, slot: int) -> None:
        """What is attached to the node in this slot has changed."""
        self._changed.add(slot)

    def _touch(self, name: str) -> None:
        slot = self._nodes.slots_by_name.get(name)
        if slot is not None:
            self._changed.add(slot)

    def _by_driver(self, needs: Sequence[ClaimNeed]) -> dict[str, list[ClaimNeed]]:
        """What is needed of each driver that some node limits."""
        self._follow()
        found: dict[str, list[ClaimNeed]] = {}
        for need in needs:
            if need.driver in self._limits:
                found.setdefault(need.driver, []).append(need)
        return found

    def _attached_where(self, claim: str) -> Bools:
        """Where the volume of a claim, or a disk, is attached already, or will be; shape (capacity,)."""
        mask = np.zeros(self._nodes.capacity, dtype=np.bool_)
        mask[list(self.use.slots(claim))] = True
        found = self._storage.claims.get(claim)
        for one in self._storage.attachments_of(found.volume) if found is not None else ():
            slot = self._nodes.slots_by_name.get(one.node)
            if slot is not None:
                mask[slot] = True
        return mask

    def _attached_at(self, slot: int, node: str) -> set[tuple[str, str]]:
        """Driver and handle of what a node has attached, or will have."""
        storage = self._storage
        names = list[str]()
        found = set[tuple[str, str]]()
        for one in storage.attached_to(node):
            # As in kube-scheduler disks of older kinds count by the pods that use them alone.
            attached = storage.volumes.get(one.volume)
            if attached is not None and not attached.migrated:
                names.append(one.volume)
        for key in self.use.at(slot):
            kind, _, disk = key.partition(":")
            if disk and kind == "disk":
                driver, _, handle = disk.partition(":")
                found.add((driver, handle))
                continue
            claim = storage.claims.get(key)
            if claim is None:
                continue
            if claim.bound and claim.volume in storage.volumes:
                names.append(claim.volume)
                continue
            # That its volume is gone makes no place for another one while the pod is there.
            made = storage.classes.get(claim.request.storage_class or "")
            if made is not None and made.driver:
                found.add((made.driver, key))
        volumes = (storage.volumes.get(name) for name in names)
        return found | {(one.driver, one.handle) for one in volumes if one is not None and one.driver}

    def _column(self, columns: dict[str, Counts], driver: str) -> Counts:
        """Different volumes of a driver, or those that nodes take at most, by slot."""
        column, capacity = columns.get(driver), self._nodes.capacity
        blank = 0 if columns is self._used else UNLIMITED
        if column is None:
            column = columns[driver] = np.full(capacity, blank, dtype=np.int64)
        elif len(column) < capacity:
            more = np.full(2 * capacity - len(column), blank, dtype=np.int64)
            column = columns[driver] = np.concatenate([column, more])
        return column[:capacity]

    def _follow(self) -> None:
        if self._cursor != self._log.cursor:
            changed = None if self._cursor < 0 else self._log.since(self._cursor)
            self._changed.update(range(self._nodes.capacity) if changed is None else changed.tolist())
            self._cursor = self._log.cursor
        if not self._changed:
            return
        for slot in self._changed:
            self._write(slot)
        self._changed.clear()

    def _write(self, slot: int) -> None:
        for driver in self._used:
            self._column(self._used, driver)[slot] = 0
        for driver in self._limits:
            self._column(self._limits, driver)[slot] = UNLIMITED
        node = self._nodes.nodes[slot]
        if node is None:
            return
        said = self.csi_nodes.get(node.name)
        for one in said.drivers if said is not None else ():
            if one.limit is not None:
                self._column(self._limits, one.name)[slot] = one.limit
        for driver, _ in self._attached_at(slot, node.name):
            self._column(self._used, driver)[slot] += 1
