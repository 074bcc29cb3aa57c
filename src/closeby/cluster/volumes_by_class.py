"""The volumes that claims can be bound to, by storage class and by the nodes that reach them."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.selecting import NodeReach, NodesByName
from closeby.cluster.storage import Storage
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import ClaimRequest, NodeSelectorTerm
from closeby.objects.volumes import PersistentVolume

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
        """The volumes of one class."""
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
