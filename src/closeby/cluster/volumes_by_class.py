"""The volumes that claims can be bound to, by storage class and node, and where none could be had of late."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.attachments import Attachments
from closeby.cluster.claims import RefusedNode
from closeby.cluster.selecting import NodeReach, NodesByName
from closeby.cluster.storage import Storage
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import ClaimRequest, NodeSelectorTerm, Requirement
from closeby.objects.selectors import LabelSelector
from closeby.objects.volumes import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
)

#: The slots of the nodes that meet terms (None: all nodes), ascending.
Reach = Callable[[tuple[NodeSelectorTerm, ...] | None], Ints]
#: The names of volumes that were chosen for claims.
Taken = Callable[[], Container[str]]
#: More pods than this are not counted on one node.
MOST_COUNTED = 1024
#: Of so many requests it is kept which volumes serve them.
_REQUESTS: Final = 64


class VolumeWant(Struct, eq=False):
    """What a claim asks for, and where a volume could be made for it: (slots,) or of the slots asked for."""

    request: ClaimRequest
    made: Bools


class _Wide(Struct, eq=False):
    """Volumes that the same several nodes reach."""

    slots: Ints
    mask: Bools
    volumes: dict[str, PersistentVolume]
    #: Those of them that are kept for no claim.
    loose: dict[str, PersistentVolume]


class _Columns:
    """The V volumes of a class that are kept for no claim."""

    def __init__(self, local: dict[int, dict[str, PersistentVolume]], wide: Sequence[_Wide]) -> None:
        found = [(one, slot) for slot, there in local.items() for one in there.values()]
        #: Those that several nodes reach come after these.
        self._local = len(found)
        found += [(one, at) for at, group in enumerate(wide) for one in group.loose.values()]
        self._volumes = [one for one, _ in found]
        self._names = [one.name for one in self._volumes]
        #: (V,) the slot of the node that reaches it, or the group of those that several nodes reach.
        self._places = np.asarray([place for _, place in found], dtype=np.intp)
        self._serving: dict[ClaimRequest, Bools] = {}

    def free_for(self, request: ClaimRequest, taken: Container[str]) -> tuple[Ints, Ints]:
        """Places of the free volumes that have what a claim asks for, of one node each and of several."""
        serving = self._serving.get(request)
        if serving is None:
            if len(self._serving) >= _REQUESTS:
                self._serving.clear()
            serving = np.asarray([serves(one, request) for one in self._volumes], dtype=np.bool_)
            self._serving[request] = serving
        chosen = np.fromiter(map(taken.__contains__, self._names), dtype=np.bool_, count=len(self._names))
        free = np.flatnonzero(serving & ~chosen)
        local = int(np.searchsorted(free, self._local))
        return self._places[free[:local]], self._places[free[local:]]


class VolumesOfClass:
    """The volumes of one class. Which of them are free is asked each time."""

    def __init__(self, reach: Reach, capacity: int, taken: Taken) -> None:
        self._reach = reach
        self._capacity = capacity
        self._taken = taken
        #: None after a change.
        self._columns: _Columns | None = None
        self._volumes: dict[str, PersistentVolume] = {}
        #: slot -> volumes that its node alone reaches; those of them that are kept for no claim.
        self._local: dict[int, dict[str, PersistentVolume]] = {}
        self._loose: dict[int, dict[str, PersistentVolume]] = {}
        self._wide: dict[tuple[NodeSelectorTerm, ...] | None, _Wide] = {}

    def put(self, volume: PersistentVolume) -> None:
        """Add a volume, or replace the one of its name."""
        self.remove(volume.name)
        self._columns = None
        self._volumes[volume.name] = volume
        slots = self._reach(volume.node_affinity)
        if len(slots) <= 1:
            for slot in slots.tolist():
                self._local.setdefault(slot, {})[volume.name] = volume
                if not is_kept(volume):
                    self._loose.setdefault(slot, {})[volume.name] = volume
            return
        wide = self._wide.get(volume.node_affinity)
        if wide is None:
            mask = np.zeros(self._capacity, dtype=np.bool_)
            mask[slots] = True
            wide = self._wide[volume.node_affinity] = _Wide(slots, mask, {}, {})
        wide.volumes[volume.name] = volume
        if not is_kept(volume):
            wide.loose[volume.name] = volume

    def remove(self, name: str) -> None:
        """Take a volume out, if it is there."""
        volume = self._volumes.pop(name, None)
        if volume is None:
            return
        self._columns = None
        for slot in self._reach(volume.node_affinity).tolist()[:1]:
            self._local.get(slot, {}).pop(name, None)
            self._loose.get(slot, {}).pop(name, None)
        wide = self._wide.get(volume.node_affinity)
        if wide is not None:
            wide.volumes.pop(name, None)
            wide.loose.pop(name, None)

    def is_shared(self, requests: Iterable[ClaimRequest]) -> bool:
        """Whether several nodes reach a free volume that one of the claims could be bound to."""
        if not any(wide.loose for wide in self._wide.values()):
            return False
        return any(len(self._free_for(request)[1]) for request in requests)

    def count(self, wants: Sequence[VolumeWant], slots: Ints | None) -> Counts:
        """Pods with claims like these that find all volumes; shape (len(slots),), or of all slots.

        Each slot is looked at as if no pod went elsewhere.
        """
        n = self._capacity if slots is None else len(slots)
        found = np.zeros(n, dtype=np.int64)
        found[np.logical_and.reduce([one.made for one in wants])] = MOST_COUNTED
        if len({one.request for one in wants}) > 1:
            for place in np.flatnonzero(found == 0).tolist():
                at = [(one.request, bool(one.made[place])) for one in wants]
                found[place] = self._rounds(at, place if slots is None else int(slots[place]))
            return found
        request, made = wants[0].request, wants[0].made
        local, wide = self._free_for(request)
        free = np.bincount(local, minlength=self._capacity)
        for group, here in zip(
            self._wide.values(), np.bincount(wide, minlength=len(self._wide)), strict=True
        ):
            if here:
                free += here * group.mask
        if slots is not None:
            free = free[slots]
        return np.where(made, found, free // len(wants))

    def smallest(
        self, request: ClaimRequest, slot: int, without: frozenset[str] | set[str] = frozenset()
    ) -> PersistentVolume | None:
        """The smallest volume that a claim of a pod there can be bound to.

        Of equals it is the one that the fewest nodes reach, so that the others are left for pods elsewhere,
        then the first by name.
        """
        there = [(one.size, 1, one.name, one) for one in self._loose.get(slot, {}).values()]
        for wide in self._wide.values():
            if wide.loose and wide.mask[slot]:
                there += [(one.size, len(wide.slots), one.name, one) for one in wide.loose.values()]
        fitting = [one for one in there if one[2] not in without and self._fits(one[3], request)]
        return min(fitting)[3] if fitting else None

    def at(self, slot: int) -> Iterator[PersistentVolume]:
        """The volumes that a node reaches, free or not."""
        yield from self._local.get(slot, {}).values()
        for wide in self._wide.values():
            if wide.mask[slot]:
                yield from wide.volumes.values()

    def _rounds(self, wants: Sequence[tuple[ClaimRequest, bool]], slot: int) -> int:
        """How often claims are met by size; those that may be made need no volume that is there."""
        taken = set[str]()
        for number in range(MOST_COUNTED):
            for request, made in wants:
                volume = self.smallest(request, slot, taken)
                if volume is not None:
                    taken.add(volume.name)
                elif not made:
                    return number
        return MOST_COUNTED

    def _free_for(self, request: ClaimRequest) -> tuple[Ints, Ints]:
        if self._columns is None:
            self._columns = _Columns(self._loose, tuple(self._wide.values()))
        return self._columns.free_for(request, self._taken())

    def _fits(self, volume: PersistentVolume, request: ClaimRequest) -> bool:
        return serves(volume, request) and volume.name not in self._taken()


class VolumesByClass:
    """The volumes of all classes of a cluster; those of a class are read when it is first asked for."""

    def __init__(self, nodes: NodesByName, places: NodeReach, storage: Storage, taken: Taken) -> None:
        self._nodes = nodes
        self._places = places
        self._storage = storage
        self._taken = taken
        self._by_class: dict[str, VolumesOfClass] = {}
        #: The nodes as they were when the volumes were read.
        self._stamp: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._by_class)

    def of(self, name: str) -> VolumesOfClass:
        self._notice_nodes()
        volumes = self._by_class.get(name)
        if volumes is None:
            volumes = self._by_class[name] = VolumesOfClass(
                self._places.slots, self._nodes.capacity, self._taken
            )
            for volume in self._storage.volumes_of(name):
                volumes.put(volume)
        return volumes

    def changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        """A volume is another than it was; None: there was none, or is none any more."""
        if not self._by_class:
            return
        self._notice_nodes()
        if before is not None and before.storage_class in self._by_class:
            self._by_class[before.storage_class].remove(before.name)
        if after is not None and after.storage_class in self._by_class:
            self._by_class[after.storage_class].put(after)

    def _notice_nodes(self) -> None:
        stamp = self._places.current()
        if stamp != self._stamp:
            self._stamp = stamp
            self._by_class.clear()


def is_kept(volume: PersistentVolume) -> bool:
    """Whether a volume is bound to a claim or kept for one, or can't be bound to any."""
    return bool(volume.claim) or volume.terminating or not volume.available


def serves(volume: PersistentVolume, request: ClaimRequest) -> bool:
    """Whether a volume of the right class has what a claim asks for."""
    return (
        volume.size >= request.size
        and volume.volume_mode == request.volume_mode
        and volume.attributes_class == request.attributes_class
        and set(request.access_modes) <= set(volume.access_modes)
        and (request.selector is None or request.selector.matches(volume.labels))
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
    """For which nodes the volume of a claim could not be had of late, so that none is chosen again at once.

    Each time that happens to a claim its node is kept from it for longer. That ends with its time, or when
    something changes on which it depends: the claim, its class, or what can be bound or made there.
    """

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


class Provisioning:
    """Answers by class and size, remembered until the class, its driver or the nodes change."""

    def __init__(self, places: NodeReach, storage: Storage) -> None:
        self._places = places
        self._storage = storage
        self._stamp: tuple[int, ...] = ()
        #: Class -> how often something changed on which all of its claims depend.
        self._epochs: dict[str, int] = {}
        self._made: dict[tuple[str, int, int], Bools] = {}

    def epoch(self, name: str) -> int:
        """Another number after each change of a class, its driver or what can be made of it."""
        return self._epochs.get(name, 0)

    def changed(self, name: str) -> None:
        """A class, its driver or what can be made of it has changed."""
        self._epochs[name] = self.epoch(name) + 1

    def where(self, name: str, size: int) -> Bools:
        """The slots for whose nodes a volume of a class can be made; shape (capacity,)."""
        stamp = self._places.current()
        if stamp != self._stamp:
            self._stamp = stamp
            self._made.clear()
        key = name, size, self.epoch(name)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._where(name, size)
        return found

    def _where(self, name: str, size: int) -> Bools:
        made, places = self._storage.classes.get(name), self._places
        everywhere = places.mask(None)
        if made is None or not made.provisions:
            return np.zeros_like(everywhere)
        mask = places.mask(made.topologies) if made.topologies else everywhere
        driver = self._storage.drivers.get(made.provisioner)
        if driver is None or not driver.storage_capacity:
            return mask
        enough = np.zeros_like(everywhere)
        for one in self._storage.capacities_of(name):
            if one.nodes is not None and one.largest is not None and one.largest >= size:
                enough |= selected(one.nodes, places)
        return np.logical_and(mask, enough)


def selected(selector: LabelSelector, places: NodeReach) -> Bools:
    """The slots whose nodes a selector selects; shape (capacity,)."""
    if selector.empty:
        return places.mask(None)
    found = tuple(Requirement(one.key, one.operator, one.values) for one in selector.requirements)
    return places.mask((NodeSelectorTerm(found),))
