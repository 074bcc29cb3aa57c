"""The volumes that claims can be bound to, by storage class and by the nodes that reach them."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from closeby.cluster.selecting import NodeReach, NodesByName
from closeby.cluster.storage import Storage
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import ClaimRequest, NodeSelectorTerm
from closeby.objects.volumes import PersistentVolume

#: The slots of the nodes that meet terms (None: all nodes), ascending.
Reach = Callable[[tuple[NodeSelectorTerm, ...] | None], Ints]
#: Whether a volume is free for a claim that has none yet.
IsFree = Callable[[PersistentVolume], bool]
#: More pods than this are not counted on one node.
MOST_COUNTED = 1024


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


class Shelf:
    """The volumes of one class. Which of them are free is asked each time."""

    def __init__(self, reach: Reach, capacity: int, is_free: IsFree) -> None:
        self._reach = reach
        self._capacity = capacity
        self._is_free = is_free
        self._volumes: dict[str, PersistentVolume] = {}
        #: slot -> volumes that its node alone reaches; those of them that are kept for no claim.
        self._local: dict[int, dict[str, PersistentVolume]] = {}
        self._loose: dict[int, dict[str, PersistentVolume]] = {}
        self._wide: dict[tuple[NodeSelectorTerm, ...] | None, _Wide] = {}

    def put(self, volume: PersistentVolume) -> None:
        """Add a volume, or replace the one of its name."""
        self.remove(volume.name)
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
        for slot in self._reach(volume.node_affinity).tolist()[:1]:
            self._local.get(slot, {}).pop(name, None)
            self._loose.get(slot, {}).pop(name, None)
        wide = self._wide.get(volume.node_affinity)
        if wide is not None:
            wide.volumes.pop(name, None)
            wide.loose.pop(name, None)

    def is_shared(self, requests: Iterable[ClaimRequest]) -> bool:
        """Whether several nodes reach a free volume that one of the claims could be bound to."""
        return any(
            self._fits(volume, request)
            for request in requests
            for wide in self._wide.values()
            for volume in wide.loose.values()
        )

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
        free = np.zeros(n, dtype=np.int64)
        for wide in self._wide.values():
            here = sum(self._fits(one, request) for one in wide.loose.values())
            if here:
                free += here * (wide.mask if slots is None else wide.mask[slots])
        places = ((slot, slot) for slot in self._loose) if slots is None else enumerate(slots.tolist())
        for place, slot in places:
            if local := self._loose.get(slot):
                free[place] += sum(self._fits(one, request) for one in local.values())
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

    def _fits(self, volume: PersistentVolume, request: ClaimRequest) -> bool:
        return serves(volume, request) and self._is_free(volume)


class Shelves:
    """All classes of a cluster: each shelf is filled when it is first asked for, as the nodes are then."""

    def __init__(self, nodes: NodesByName, places: NodeReach, storage: Storage, is_free: IsFree) -> None:
        self._nodes = nodes
        self._places = places
        self._storage = storage
        self._is_free = is_free
        self._by_class: dict[str, Shelf] = {}
        #: The nodes as they were when the shelves were filled.
        self._stamp: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._by_class)

    def of(self, name: str) -> Shelf:
        """The volumes of one class."""
        self._notice_nodes()
        shelf = self._by_class.get(name)
        if shelf is None:
            shelf = self._by_class[name] = Shelf(self._places.slots, self._nodes.capacity, self._is_free)
            for volume in self._storage.volumes_of(name):
                shelf.put(volume)
        return shelf

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
