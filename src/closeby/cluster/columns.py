"""The cluster in columns: nodes in stable slots, resources in rows, and what the pods on them take.

The only writer is ``Cluster``; everybody else reads. Every change is exact integer arithmetic, so that an
``assume`` followed by its ``forget`` restores the columns bit for bit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.changes import ChangeLog, PodChanges
from closeby.cluster.population import Population
from closeby.cluster.volumes import Volumes
from closeby.objects.arrays import Amounts, Counts, Ints, run_ends, widen
from closeby.objects.nodes import Node, is_accelerator, is_gpu, is_share
from closeby.objects.pods import HostPort, Pod, PodSpec, PortOrDisk, conflict
from closeby.topology.families import QOS_ANNOTATION
from closeby.topology.labels import LabelTable

#: No node offers more of anything, and a pod that asks for more fits nowhere: sums of what a thousand pods
#: take on one node stay within 64 bits.
MOST = (1 << 53) - 1


#: Allocatable amount that stands for "the node does not limit this": a node that does not say how many pods
#: it takes, or says more than this. Small enough that sums over a cluster cannot overflow.
UNLIMITED = 1 << 31
#: Resources with a row of their own that pods asked for before any node offered them. All others share one
#: row: a user who invents names can't make the arrays grow.
OWN_ROWS = 64
#: Name of the row of these others.
UNOFFERED = ""
#: Specs whose demand is remembered.
REMEMBERED_DEMANDS = 1 << 17


class Everything:
    """The type of ``EVERYTHING``."""


#: For ``Cluster.room``: all pods.
EVERYTHING: Final = Everything()


class Demand(Struct, frozen=True):
    """``amounts[i]`` units of the resource in row ``rows[i]``; always includes one of ``pods``."""

    rows: tuple[int, ...]
    amounts: tuple[int, ...]
    ports_and_disks: tuple[PortOrDisk, ...]

    def pods_that_fit(self, left: Mapping[int, Amounts] | Amounts) -> Counts:
        """How many such pods fit each node, given what is left there of each resource, by row."""
        room: Counts | None = None
        for row, amount in zip(self.rows, self.amounts, strict=True):
            here = left[row] if amount == 1 else left[row] // amount
            room = here if room is None else np.minimum(room, here)
        return np.maximum(0 if room is None else room, 0)

    def pods_that_fit_one(self, left: Mapping[int, int]) -> int:
        """The same for one node."""
        fits = [left[row] // amount for row, amount in zip(self.rows, self.amounts, strict=True)]
        return max(min(fits), 0)


def demand_of(spec: PodSpec, row_of: dict[str, int]) -> Demand:
    """The demand of a spec; of the resources that no node offers it asks for one in the row they share."""
    asked = [(row_of.get(resource), amount) for resource, amount in spec.requests if amount]
    pairs = [(row_of["pods"], 1)]
    pairs += [(row, min(amount, MOST + 1)) for row, amount in asked if row is not None]
    if len(pairs) <= len(asked):
        pairs.append((row_of[UNOFFERED], 1))
    return Demand(tuple(row for row, _ in pairs), tuple(amount for _, amount in pairs), spec.ports_and_disks)


class Batch(Struct, frozen=True, eq=False):
    """Pods with one spec and the slot each of them goes to; ``slots`` has shape (len(pods),)."""

    spec: PodSpec
    pods: tuple[Pod, ...]
    slots: Ints


class Cluster:
    """Nodes, capacities and usage, by slot. A removed node's slot is reused by a later node."""

    def __init__(self) -> None:
        #: slot -> node; None for a free slot.
        self.nodes: list[Node | None] = []
        #: slot -> name; None for a free slot.
        self.names: list[str | None] = []
        #: Number of slots, used or not.
        self.capacity = 0
        self.labels = LabelTable()
        #: resource -> row of the two arrays below.
        self.row_of: dict[str, int] = {}
        #: (rows, capacity) int64: what pods may take in all, and what they take.
        self.allocatable: Amounts = np.zeros((0, 0), dtype=np.int64)
        self.requested: Amounts = np.zeros((0, 0), dtype=np.int64)
        #: (capacity,) True where a node lives.
        self.alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        #: Slots whose usage changed; slots whose Node object changed, came or went.
        self.usage_changes = ChangeLog()
        self.pod_changes = PodChanges()
        self.node_changes = ChangeLog()
        self._slot_of: dict[str, int] = {}
        #: Claims and volumes, and what the pods here use of them.
        self.volumes = Volumes(self, self.usage_changes, self.node_changes)
        self._free_slots: list[int] = []
        self._removals = 0
        #: pod uid -> (pod, slot), for pods that hold capacity.
        self._placed: dict[str, tuple[Pod, int]] = {}
        #: slot -> uids of the pods that are there, and of some that were; None until a node leaves.
        self._uids_at: dict[int, list[str]] | None = None
        #: Placements that are not in there yet, and how many pods were noted in all.
        self._later: list[tuple[Sequence[Pod], Sequence[int]]] = []
        self._later_count = 0
        #: Which kinds of pods are where, for what pods say about each other.
        self.population = Population(self.labels, self._placed)
        #: What pods have on their nodes for themselves alone.
        self.ports_and_disks = PortsAndDisks()
        self._demands: dict[int, tuple[PodSpec, Demand]] = {}
        #: The same by what it depends on: specs may differ in a claim alone.
        self._demand_of: dict[tuple[object, ...], Demand] = {}
        #: How many rows were added because pods asked for something.
        self._own_rows = 0
        self._add_rows(("pods",))

    # Reading

    @property
    def node_count(self) -> int:
        return len(self._slot_of)

    @property
    def placed_count(self) -> int:
        """Number of pods that hold capacity."""
        return len(self._placed)

    @property
    def resources(self) -> tuple[str, ...]:
        """All resources that a node offers or a pod asked for, in row order."""
        return tuple(self.row_of)

    @property
    def slots_by_name(self) -> Mapping[str, int]:
        return self._slot_of

    def slot(self, node_name: str) -> int | None:
        """Slot of a node, None if there is no such node."""
        return self._slot_of.get(node_name)

    def slot_of(self, node_name: str) -> int:
        """Slot of a node that is there.

        Raises:
            KeyError: there is no such node.
        """
        return self._slot_of[node_name]

    def node_at(self, slot: int) -> Node:
        """The node in a used slot.

        Raises:
            KeyError: the slot is free.
        """
        node = self.nodes[slot]
        if node is None:
            raise KeyError(f"no node in slot {slot}")
        return node

    def placement(self, uid: str) -> int | None:
        """Slot on which a pod holds capacity, None if it holds none."""
        placed = self._placed.get(uid)
        return None if placed is None else placed[1]

    def placed(self, uid: str) -> tuple[Pod, int] | None:
        """A pod that holds capacity, with its slot; None if it holds none."""
        return self._placed.get(uid)

    def placed_pods(self) -> Iterator[tuple[Pod, int]]:
        """All pods that hold capacity, with their slot."""
        return iter(self._placed.values())

    def pods_at(self, slot: int) -> tuple[Pod, ...]:
        """The pods that hold capacity on a slot, in the order in which they were placed."""
        if not self.requested[self.row_of["pods"], slot]:
            return ()
        if self._uids_at is None:
            self._uids_at = {}
            self._later = [([pod], [at]) for pod, at in self._placed.values()]
        for pods, slots in self._later:
            for pod, at in zip(pods, slots, strict=True):
                self._uids_at.setdefault(at, []).append(pod.uid)
        self._later = []
        found = (self._placed.get(uid) for uid in dict.fromkeys(self._uids_at.get(slot, ())))
        return tuple([one[0] for one in found if one is not None and one[1] == slot])

    def demand(self, spec: PodSpec) -> Demand:
        """The spec's demand in rows."""
        known = self._demands.get(id(spec))
        if known is not None and known[0] is spec:
            return known[1]
        if len(self._demands) >= REMEMBERED_DEMANDS:
            self._demands.clear()
            self._demand_of.clear()
        need = spec.requests, spec.ports_and_disks
        demand = self._demand_of.get(need)
        if demand is None:
            self._know([resource for resource, _ in spec.requests if resource not in self.row_of])
            demand = self._demand_of[need] = demand_of(spec, self.row_of)
        self._demands[id(spec)] = (spec, demand)
        return demand

    def row_for(self, resource: str) -> int:
        """The row of a resource that nodes offer or pods asked for, be it the one that others share."""
        row = self.row_of.get(resource)
        return self.row_of[UNOFFERED] if row is None else row

    def free(self, row: int, index: Ints | slice) -> Amounts:
        """What is left of a resource on the given slots; overcommitted nodes have 0 left."""
        left: Amounts = self.allocatable[row, index] - self.requested[row, index]
        return np.maximum(left, 0, out=left)

    def room(
        self, demand: Demand, index: Ints | slice | None = None, *, without: Iterable[Pod] | Everything = ()
    ) -> Counts:
        """How many pods of a demand fit the given slots, or each slot, by resources alone.

        Without some pods, or all (``EVERYTHING``): as if these were gone. Slots without a node have no room.
        """
        index = slice(0, self.capacity) if index is None else index
        if isinstance(without, Everything):
            return demand.pods_that_fit({row: self.allocatable[row][index] for row in demand.rows})
        left = {row: self.allocatable[row][index] - self.requested[row][index] for row in demand.rows}
        room = demand.pods_that_fit(left)
        gone: dict[int, list[Pod]] = {}
        for pod in without:
            if pod.uid in self._placed:
                gone.setdefault(self._placed[pod.uid][1], []).append(pod)
        slots = np.arange(self.capacity)[index] if gone else np.zeros(0, dtype=np.intp)
        for place in np.isin(slots, list(gone)).nonzero()[0].tolist():
            room[place] = self.room_at(demand, slots.item(place), without=gone[slots.item(place)])
        return room

    def room_at(self, demand: Demand, slot: int, *, without: Iterable[Pod] = ()) -> int:
        """The same for one slot; all pods ``without`` which it is asked for are there."""
        left = {row: self.allocatable.item(row, slot) - self.requested.item(row, slot) for row in demand.rows}
        for pod in without:
            held = self.demand(pod.spec)
            for row, amount in zip(held.rows, held.amounts, strict=True):
                if row in left:
                    left[row] += amount
        return demand.pods_that_fit_one(left)

    # Nodes

    def add_node(self, node: Node) -> int:
        """Take a node in, or replace the one of that name; returns its slot."""
        slot = self._slot_of.get(node.name)
        if slot is None:
            slot = self._take_slot()
            self._slot_of[node.name] = slot
        self._write(slot, node)
        return slot

    @property
    def structure(self) -> tuple[int, int]:
        """Another value whenever nodes came, went or moved in a topology; capacity and taints don't count."""
        return self.labels.version, self._removals

    def remove_node(self, name: str) -> tuple[Pod, ...]:
        """Take a node out; returns the pods that held capacity on it (they are forgotten)."""
        slot = self._slot_of.pop(name)
        lost = self.pods_at(slot)
        for pod in lost:
            self.forget_pod(pod.uid)
        self.nodes[slot] = None
        self.names[slot] = None
        self.alive[slot] = False
        self.allocatable[:, slot] = 0
        self.labels.clear(slot)
        self._removals += 1
        self._free_slots.append(slot)
        self.node_changes.add_one(slot)
        return lost

    # Pods

    def assume(self, batch: Batch) -> list[tuple[Pod, int]]:
        """Charge a batch of pods to their slots; returns the pods with these."""
        if len(batch.pods) == 1:
            pod, slot = batch.pods[0], batch.slots.item(0)
            self.place_pod(pod, slot)
            return [(pod, slot)]
        self._charge(batch, +1)
        slots = batch.slots.tolist()
        self._populate(batch, +1)
        placed = list(zip(batch.pods, slots, strict=True))
        uids = [pod.uid for pod in batch.pods]
        self._placed.update(zip(uids, placed, strict=True))
        self.pod_changes.add(uids)
        if self._uids_at is not None:
            self._note_later(batch.pods, slots)
        return placed

    def forget(self, batch: Batch) -> None:
        """Exact reverse of ``assume`` of the same batch."""
        self._charge(batch, -1)
        self._populate(batch, -1)
        for pod in batch.pods:
            del self._placed[pod.uid]
        self.pod_changes.add([pod.uid for pod in batch.pods])

    def place_pod(self, pod: Pod, slot: int) -> None:
        """Charge one pod to a slot."""
        self._charge_one(pod, slot, +1)
        if self.population.minds(pod.spec):
            self.population.add(pod, slot, self.structure)
        self._placed[pod.uid] = (pod, slot)
        self.pod_changes.add((pod.uid,))
        if self._uids_at is not None:
            self._note_later((pod,), (slot,))

    def forget_pod(self, uid: str) -> int | None:
        """Release what a pod holds; returns its slot, None if it held nothing."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return None
        self._charge_one(placed[0], placed[1], -1)
        self.pod_changes.add((uid,))
        if self.population.minds(placed[0].spec):
            self.population.remove(placed[0], placed[1], self.structure)
            self.population.trim()
        return placed[1]

    # Imagining

    @contextmanager
    def hypothetical(
        self, pods: Iterable[tuple[Pod, int]], inside: NDArray[np.bool_] | None
    ) -> Iterator[None]:
        """For questions: as if only these pods held anything, and only nodes ``inside`` were there.

        The placements themselves stay as they are; what is assumed here must be forgotten before the end.
        """
        requested, alive, ports_and_disks = self.requested, self.alive, self.ports_and_disks
        population = self.population
        self.requested, self.ports_and_disks = np.zeros_like(requested), PortsAndDisks()
        self.population = population.without_pods()
        if inside is not None:
            self.alive = alive.copy()
            self.alive[: len(inside)] &= inside
        try:
            with self.volumes.unused():
                for pod, slot in pods:
                    self._charge_one(pod, slot, +1)
                    self.population.add(pod, slot, self.structure)
                yield
        finally:
            rows = len(self.requested) - len(requested)
            if rows:  # A resource that no pod had requested before.
                requested = np.concatenate([requested, np.zeros((rows, requested.shape[1]), dtype=np.int64)])
            self.requested, self.alive, self.ports_and_disks = requested, alive, ports_and_disks
            self.population = population

    # Inside

    def _charge(self, batch: Batch, sign: int) -> None:
        if len(batch.pods) == 1:
            self._charge_one(batch.pods[0], int(batch.slots[0]), sign)
            return
        demand = self.demand(batch.spec)
        if bool((batch.slots[1:] >= batch.slots[:-1]).all()):
            # Slots come in runs; adding per run is several times cheaper than an unbuffered add.
            ends = run_ends(batch.slots)
            slots = batch.slots[ends]
            counts = ends.copy()
            counts[1:] -= ends[:-1]
            counts[0] += 1
            counts *= sign
        else:
            slots, counts = np.unique(batch.slots, return_counts=True)
            counts = sign * counts
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            column = self.requested[row]
            column[slots] += amount * counts
        if demand.ports_and_disks:
            for slot in batch.slots.tolist():
                self.ports_and_disks.charge(demand.ports_and_disks, slot, sign)
        if batch.spec.claims or batch.spec.attached_disks:
            use = self.volumes.take if sign > 0 else self.volumes.release
            for pod, slot in zip(batch.pods, batch.slots.tolist(), strict=True):
                use(pod, slot)
        self.usage_changes.add(slots)

    def _populate(self, batch: Batch, sign: int) -> None:
        if self.population.minds(batch.spec):
            self.population.note_all(batch.pods, batch.slots.tolist(), sign, self.structure)

    def _charge_one(self, pod: Pod, slot: int, sign: int) -> None:
        demand = self.demand(pod.spec)
        self._request(demand, slot, sign)
        if demand.ports_and_disks:
            self.ports_and_disks.charge(demand.ports_and_disks, slot, sign)
        if pod.spec.claims or pod.spec.attached_disks:
            use = self.volumes.take if sign > 0 else self.volumes.release
            use(pod, slot)
        self.usage_changes.add_one(slot)

    def _note_later(self, pods: Sequence[Pod], slots: Sequence[int]) -> None:
        self._later.append((pods, slots))
        self._later_count += len(pods)
        if self._later_count > 2 * len(self._placed) + 1024:
            # It would mostly name pods that are gone.
            self._uids_at, self._later, self._later_count = None, [], 0

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        slot = len(self.nodes)
        self.nodes.append(None)
        self.names.append(None)
        self.capacity += 1
        if slot >= self.alive.shape[0]:
            room = max(64, 2 * slot)
            self.alive = widen(self.alive, room)
            self.allocatable = widen(self.allocatable, room)
            self.requested = widen(self.requested, room)
        return slot

    def _add_rows(self, resources: Iterable[str]) -> None:
        """Make sure that each resource has its row."""
        before = len(self.row_of)
        for resource in resources:
            self.row_of.setdefault(resource, len(self.row_of))
        if len(self.row_of) > before:
            blank = np.zeros((len(self.row_of) - before, self.alive.shape[0]), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, blank])
            self.requested = np.concatenate([self.requested, blank])

    def _know(self, resources: Sequence[str]) -> None:
        """Pods ask for resources that have no rows yet."""
        own = resources[: OWN_ROWS - self._own_rows]
        self._own_rows += len(own)
        self._add_rows(own)
        if len(own) < len(resources):
            self._add_rows((UNOFFERED,))

    def _offer(self, resources: Collection[str]) -> None:
        """A node offers these resources: what pods hold of them moves out of the row that others share."""
        new = {one for one in resources if one not in self.row_of}
        held: list[tuple[Pod, int]] = []
        if new and UNOFFERED in self.row_of:
            held = [
                one for one in self._placed.values() if any(name in new for name, _ in one[0].spec.requests)
            ]
            for pod, slot in held:
                self._request(self.demand(pod.spec), slot, -1)
            self._demands.clear()
            self._demand_of.clear()
        self._add_rows(resources)
        for pod, slot in held:
            self._request(self.demand(pod.spec), slot, +1)

    def _request(self, demand: Demand, slot: int, sign: int) -> None:
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            self.requested[row, slot] += sign * amount

    def _write(self, slot: int, node: Node) -> None:
        self._offer(node.allocatable)
        self.nodes[slot] = node
        self.names[slot] = node.name
        self.alive[slot] = True
        self.allocatable[:, slot] = 0
        for resource, amount in node.allocatable.items():
            self.allocatable[self.row_of[resource], slot] = min(amount, MOST)
        self.allocatable[self.row_of["pods"], slot] = min(node.allocatable.get("pods", UNLIMITED), UNLIMITED)
        self.labels.set(slot, node.labels, node.annotations.get(QOS_ANNOTATION))
        self.node_changes.add_one(slot)


#: Resources of which every cluster has some, in the order in which they are shown.
COMMON: Final = ("cpu", "memory")


def offered(cluster: Cluster) -> tuple[str, ...]:
    """Resources that some node offers, the common ones first; the number of pods is none."""
    found = [
        name for name, row in cluster.row_of.items() if name != "pods" and cluster.allocatable[row].any()
    ]
    return tuple(sorted(found, key=lambda name: (name not in COMMON, name)))


def offered_accelerators(cluster: Cluster) -> tuple[str, ...]:
    """The accelerators that nodes offer, shares left out; where there is none, the only extended resource."""
    extended = tuple(name for name in offered(cluster) if "/" in name and not is_share(name))
    found = tuple(name for name in extended if is_accelerator(name))
    return found or (extended if len(extended) == 1 else ())


def main_resources(cluster: Cluster) -> tuple[str, ...]:
    """The GPUs if any node has some, else cpu and memory."""
    found = offered(cluster)
    gpus = tuple(name for name in found if is_gpu(name))
    return gpus or tuple(name for name in COMMON if name in found)


def taking_pods(cluster: Cluster) -> NDArray[np.bool_]:
    """Which slots hold a node that takes pods; shape (slots,)."""
    found = np.zeros(len(cluster.alive), dtype=np.bool_)
    usable = (node is not None and node.ready and not node.unschedulable for node in cluster.nodes)
    found[: cluster.capacity] = np.fromiter(usable, dtype=np.bool_, count=cluster.capacity)
    return found


class PortsAndDisks:
    """What pods have of these, by slot."""

    def __init__(self) -> None:
        #: What those in each other's way have in common -> slot -> those there, with their number.
        self._there: dict[tuple[str, str | int], dict[int, dict[PortOrDisk, int]]] = {}

    def charge(self, held: Iterable[PortOrDisk], slot: int, sign: int) -> None:
        """A pod on a slot holds these from now on, or (``sign`` -1) does no more."""
        for one in held:
            key = _key(one)
            slots = self._there.setdefault(key, {})
            counts = slots.setdefault(slot, {})
            count = counts.get(one, 0) + sign
            if count:
                counts[one] = count
                continue
            del counts[one]
            if not counts:
                del slots[slot]
            if not slots:
                del self._there[key]

    def taken(self, slot: int, wanted: Sequence[PortOrDisk]) -> bool:
        """Whether any that a pod wants is taken on a slot."""
        return any(
            conflict(one, other) for one in wanted for other in self._there.get(_key(one), {}).get(slot, ())
        )

    def slots(self, wanted: Sequence[PortOrDisk]) -> list[int]:
        """All slots on which any that a pod wants is taken, ascending."""
        found = {
            slot
            for one in wanted
            for slot, others in self._there.get(_key(one), {}).items()
            if any(conflict(one, other) for other in others)
        }
        return sorted(found)


def _key(one: PortOrDisk) -> tuple[str, str | int]:
    """Those with different keys are never in each other's way."""
    return (one.protocol, one.port) if isinstance(one, HostPort) else (one.kind, one.name)
