"""Who may go for one preemptor, in units, and what they free in each domain."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Ints
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.scheduling.preempting.ground import GroundRoom, columns, fits
from closeby.scheduling.preempting.records import EvictionCost
from closeby.scheduling.preempting.units import MemberLimits, VictimUnit
from closeby.scheduling.preempting.world import Holder, World, leaf_of
from closeby.topology.tree import Tree


class Victims(Struct, frozen=True, kw_only=True, eq=False):
    """The pods that may be victims of one preemptor."""

    world: World
    #: Indices of the pods that may go, with the rest of their gang or one by one.
    pods: Ints
    #: Indices of the pods that go in any case: what is being deleted, and victims of others.
    leaving: Ints
    #: Of each pod: whether it may go one by one; of each holder: whether all of it may.
    single: Bools
    whole: Bools


def victims_of(
    world: World,
    priority: int,
    own: str,
    shielded: Iterable[int],
    evicted: Iterable[str],
    barred: Bools | None,
    stuck: Iterable[str] = (),
) -> Victims:
    """Who may go for an item of that priority; ``own`` is the gang's key, whose members never go.

    ``shielded`` holders are protected from this priority; ``evicted`` are uids of victims of other plans.
    The item must keep off ``barred`` nodes: what goes there anyway does not matter to it. ``stuck`` pods (by
    uid) were to go and did not.
    """
    count = len(world.pods)
    gone = np.zeros(count, dtype=np.bool_)
    gone[[world.index_of[uid] for uid in evicted if uid in world.index_of]] = True
    stay = np.zeros(count, dtype=np.bool_)
    stay[[world.index_of[uid] for uid in stuck if uid in world.index_of]] = True
    leaving = gone | (world.terminating & (world.priorities < priority) & ~stay)
    may = world.evictable & (world.priorities < priority) & ~leaving & ~world.terminating & ~stay
    held = np.zeros(len(world.holders), dtype=np.bool_)
    held[list(shielded)] = True
    mine = [number for number, holder in enumerate(world.holders) if holder.gang and holder.key == own]
    held[mine] = True
    may &= ~held[world.holder_of]
    # A gang goes as a whole only if each of its pods may go.
    kept = np.bincount(world.holder_of[~may & ~leaving & ~world.terminating], minlength=len(world.holders))
    whole = (kept == 0) & ~held
    if barred is not None:
        leaving &= ~barred[world.slots]
    divisible = np.asarray([holder.divisible for holder in world.holders], dtype=np.bool_)
    single = may & divisible[world.holder_of]
    return Victims(
        world=world,
        pods=np.flatnonzero(may & (whole[world.holder_of] | single)),
        leaving=np.flatnonzero(leaving),
        single=single,
        whole=whole,
    )


def limits_of(world: World) -> dict[int, MemberLimits]:
    """Of each gang that may lose single members: how many."""
    return {
        number: MemberLimits(holder.surplus, holder.singly, holder.surplus_of)
        for number, holder in enumerate(world.holders)
        if holder.divisible
    }


class Units:
    """The units of each domain of a level."""

    def __init__(self, victims: Victims, room: GroundRoom, tree: Tree, level: int) -> None:
        self._victims = victims
        self._world = world = victims.world
        self._room = room
        pods = victims.pods
        slots, holders = world.slots[pods], world.holder_of[pods]
        domains = tree.owners_of_slots(slots, level)
        capacity, size = room.free.shape[1], max(len(world.holders), 1)
        # One entry for each holder on each node.
        pairs, first, which = np.unique(holders * capacity + slots, return_index=True, return_inverse=True)
        at_slot, of_holder, in_domain = pairs % capacity, pairs // capacity, domains[first]
        on = np.bincount(at_slot, minlength=capacity)
        # On nodes where only one holder may lose pods, and only as a whole, what is gained adds up.
        alone = on[at_slot] == 1
        alone[which[victims.single[pods]]] = False
        freed = [np.bincount(which, weights=taken[pods], minlength=len(pairs)) for taken in room.taken]
        self._freed = np.asarray(freed, dtype=np.float64).reshape(len(freed), -1).astype(np.int64)
        free = room.free[:, at_slot]
        gains = [
            (fits(kind, free + self._freed, kind.usable[at_slot]) - now[at_slot]) * alone
            for kind, now in zip(room.kinds, room.fits, strict=True)
        ]
        # One entry for each holder in each domain.
        self._keys, together = np.unique(in_domain * size + of_holder, return_inverse=True)
        self._size, count = size, len(self._keys)
        self._gains = [
            np.bincount(together, weights=gain, minlength=count).astype(np.int64).tolist() for gain in gains
        ]
        inside = np.bincount(which, weights=world.accelerators[pods], minlength=len(pairs))
        self._inside = np.bincount(together, weights=inside, minlength=count).astype(np.int64).tolist()
        self._slots = at_slot
        #: Of each holder in each domain: its entries on nodes that it shares.
        self._shared: dict[int, list[int]] = {}
        for entry in np.flatnonzero(~alone).tolist():
            self._shared.setdefault(int(together[entry]), []).append(entry)
        #: By domain and holder: its pods that may go one by one.
        self._singles: dict[int, list[int]] = {}
        for place in np.flatnonzero(victims.single[pods]).tolist():
            key = int(domains[place]) * size + int(holders[place])
            self._singles.setdefault(key, []).append(int(pods[place]))

    def of(self, domain: int) -> tuple[list[VictimUnit], set[int]]:
        """The units of a domain (by its index), and the slots on which several of them may free room."""
        first, end = np.searchsorted(self._keys, [domain * self._size, (domain + 1) * self._size]).tolist()
        units: list[VictimUnit] = []
        slots: set[int] = set()
        for at in range(first, end):
            key = int(self._keys[at])
            number = key % self._size
            holder = self._world.holders[number]
            shared = tuple(
                (int(self._slots[entry]), tuple(self._freed[:, entry].tolist()))
                for entry in self._shared.get(at, ())
            )
            slots.update(slot for slot, _ in shared)
            if self._victims.whole[number]:
                units.append(self._whole(number, holder, at, shared))
            units += [self._single(number, holder, one) for one in self._singles.get(key, ())]
        return units, slots

    def ground_of(self, slots: set[int]) -> Mapping[int, tuple[int, ...]]:
        """What is free on slots that units share."""
        return columns(self._room.free, sorted(slots))

    def _whole(
        self, number: int, holder: Holder, at: int, shared: tuple[tuple[int, tuple[int, ...]], ...]
    ) -> VictimUnit:
        known = self._world.whole_of(number)
        return VictimUnit(
            holder=number,
            pods=known.pods,
            whole=True,
            gang=holder.gang,
            priority=holder.priority,
            lost=known.lost,
            accelerators=known.accelerators,
            outside=known.accelerators - self._inside[at],
            gains=tuple(gains[at] for gains in self._gains),
            shared=shared,
            budgets=known.budgets,
            name=known.name,
        )

    def _single(self, number: int, holder: Holder, one: int) -> VictimUnit:
        world = self._world
        pod = world.pods[one]
        return VictimUnit(
            holder=number,
            pods=(one,),
            whole=False,
            gang=True,
            leaf=leaf_of(holder, pod),
            priority=int(world.priorities[one]),
            lost=float(world.lost[one]),
            accelerators=int(world.accelerators[one]),
            outside=0,
            gains=(0,) * len(self._room.kinds),
            shared=((int(world.slots[one]), tuple(int(taken[one]) for taken in self._room.taken)),),
            budgets=world.budgets_of((one,)),
            name=pod.key,
        )


def partly_free_in(world: World, leaving: Ints) -> Callable[[Sequence[VictimUnit]], int]:
    """Counts the nodes that lose a pod of some units and keep another one, beside those that leave anyway."""
    slots: list[int] = world.slots.tolist()
    held: list[int] = []

    def count(units: Sequence[VictimUnit]) -> int:
        if not held:
            size = max(slots, default=-1) + 1
            left = np.bincount(world.slots, minlength=size) - np.bincount(
                world.slots[leaving], minlength=size
            )
            held.extend(left.tolist())
        gone = Counter(slots[one] for unit in units for one in unit.pods)
        return sum(held[slot] > pods for slot, pods in gone.items())

    return count


def as_unit(world: World, pods: Sequence[int]) -> VictimUnit:
    """Any pods (by index) as one unit, for who chooses victims by a rule of its own."""
    chosen = list(pods)
    return VictimUnit(
        holder=int(world.holder_of[chosen[0]]),
        pods=tuple(chosen),
        whole=True,
        gang=False,
        priority=int(world.priorities[chosen].max()),
        lost=float(world.lost[chosen].sum()),
        accelerators=int(world.accelerators[chosen].sum()),
        outside=0,
        gains=(),
        name=world.pods[chosen[0]].key,
    )


def cost_of(world: World, pods: Sequence[int]) -> EvictionCost:
    """What any pods (by index) cost, as far as budgets don't matter; every gang that loses one is broken."""
    unit = as_unit(world, pods)
    holders = {int(one) for one in world.holder_of[list(pods)]}
    return EvictionCost(
        highest=unit.priority,
        gangs_broken=sum(world.holders[one].gang for one in holders),
        lost=unit.lost,
        accelerators=unit.accelerators,
        pods=len(unit.pods),
    )


def pods_of(world: World, units: Iterable[VictimUnit]) -> tuple[Pod, ...]:
    """The pods of some units."""
    return tuple(world.pods[one] for unit in units for one in unit.pods)


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods by namespace and name, numbers as numbers."""
    return tuple(sorted(pods, key=lambda pod: (natural_key(pod.namespace), natural_key(pod.name), pod.uid)))
