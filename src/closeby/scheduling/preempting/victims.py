"""Who may go for one preemptor, in units, and what they free in each domain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Amounts, Bools, Ints, Scores
from closeby.objects.pods import Pod
from closeby.objects.words import natural_key
from closeby.scheduling.placing.exclusive import OwnedDomain
from closeby.scheduling.preempting.node_room import NodeRoom, columns, fits
from closeby.scheduling.preempting.owners import owners_in
from closeby.scheduling.preempting.records import EvictionCost
from closeby.scheduling.preempting.running_pods import Holder, RunningPods
from closeby.scheduling.preempting.units import SharedRoom, VictimUnit
from closeby.topology.tree import Tree

#: A cost but for its last field.
LeastCost = tuple[float, ...]


class Victims(Struct, frozen=True, kw_only=True, eq=False):
    """The pods that may be victims of one preemptor."""

    running: RunningPods
    #: Indices of the pods that may go, with the rest of their gang or one by one.
    pods: Ints
    #: Indices of the pods that go in any case: what is being deleted, and victims of others.
    leaving: Ints
    #: Of each pod: whether it may go one by one; of each holder: whether all of it may.
    single: Bools
    whole: Bools
    #: What each budget allows besides the victims of other plans.
    allowed: Sequence[int]
    #: By slot: the place of its node in the order of names.
    name_ranks: Callable[[], Ints]


class Restrictions(NamedTuple):
    """What limits the victims of a preemptor besides their priority."""

    #: Holders that are protected from this priority, and uids of the victims of other plans.
    shielded: Iterable[int]
    planned: Iterable[str]
    #: Nodes that the item must keep off: what goes there anyway does not matter to it.
    barred: Bools | None
    #: uids of pods that were to go and did not.
    stuck: Iterable[str]
    #: What each budget allows besides the victims of other plans.
    allowed: Sequence[int]
    #: By slot: the place of its node in the order of names.
    name_ranks: Callable[[], Ints]


def victims_of(running: RunningPods, priority: int, own: str, limited: Restrictions) -> Victims:
    """Who may go for an item of that priority; ``own`` is the gang's key, whose members never go."""
    count = len(running.pods)
    gone = np.zeros(count, dtype=np.bool_)
    gone[running.rows_of(limited.planned)] = True
    stay = np.zeros(count, dtype=np.bool_)
    stay[running.rows_of(limited.stuck)] = True
    leaving = gone | (running.terminating & (running.priorities < priority) & ~stay)
    may = running.evictable & (running.priorities < priority) & ~leaving & ~running.terminating & ~stay
    held = np.zeros(len(running.holders), dtype=np.bool_)
    held[list(limited.shielded)] = True
    if own in running.gangs:
        held[running.gangs[own]] = True
    may &= ~held[running.holder_of]
    # A gang goes as a whole only if each of its pods may go, and none of them is to stay as its minimum.
    kept = np.bincount(
        running.holder_of[~may & ~leaving & ~running.terminating], minlength=len(running.holders)
    )
    whole = (kept == 0) & ~held & ~running.never_whole
    if limited.barred is not None:
        leaving &= ~limited.barred[running.slots]
    single = may & running.divisible[running.holder_of]
    return Victims(
        running=running,
        pods=np.flatnonzero(may & (whole[running.holder_of] | single)),
        leaving=np.flatnonzero(leaving),
        single=single,
        whole=whole,
        allowed=limited.allowed,
        name_ranks=limited.name_ranks,
    )


class HolderEntries(NamedTuple):
    """What each holder may lose on each node: arrays with one entry for each of these pairs."""

    slots: Ints
    holders: Ints
    #: (rows, entries) what that frees, how many pods it is, and their accelerators.
    freed: Amounts
    pods: Ints
    accelerators: Ints


class Units:
    """The units of each domain of a level."""

    def __init__(
        self,
        victims: Victims,
        room: NodeRoom,
        tree: Tree,
        level: int,
        owned: Sequence[OwnedDomain],
    ) -> None:
        """``owned``: domains that other gangs have for themselves and that keep the item off."""
        self._victims = victims
        #: By domain of the level: the holders that keep the item off, and their pods that do so.
        self._owners = owners_in(victims.running, victims.pods, tree, level, owned)
        self._running = running = victims.running
        self._room = room
        pods = victims.pods
        slots, holders = running.slots[pods], running.holder_of[pods]
        domains = tree.owners_of_slots(slots, level)
        capacity, size = room.free.shape[1], max(len(running.holders), 1)
        # One entry for each holder on each node.
        pairs, first, which = np.unique(holders * capacity + slots, return_index=True, return_inverse=True)
        at_slot, of_holder, in_domain = pairs % capacity, pairs // capacity, domains[first]
        on = np.bincount(at_slot, minlength=capacity)
        # On nodes where only one holder may lose pods, and only as a whole, what is gained adds up.
        alone = on[at_slot] == 1
        single = victims.single[pods]
        alone[which[single]] = False
        # No row where no node lacks any resource: what stands in the way is something else.
        freed = [_summed(taken[pods], which, first) for taken in room.taken]
        self._freed = np.stack(freed) if freed else np.zeros((0, len(first)), dtype=np.int64)
        inside = _summed(running.accelerators[pods], which, first)
        self.entries = HolderEntries(
            slots=at_slot,
            holders=of_holder,
            freed=self._freed,
            pods=np.bincount(which, minlength=len(pairs)),
            accelerators=inside,
        )
        by_itself = np.flatnonzero(alone)
        on_slot = at_slot[by_itself]
        most = room.free[:, on_slot] + self._freed[:, by_itself]
        gains = [
            fits(kind, most, kind.usable[on_slot]) - now[on_slot]
            for kind, now in zip(room.kinds, room.fits, strict=True)
        ]
        # One entry for each holder in each domain.
        self._keys, together = np.unique(in_domain * size + of_holder, return_inverse=True)
        self._size = size
        count = len(self._keys)
        self._gains = np.asarray(
            [np.bincount(together[by_itself], weights=gain, minlength=count) for gain in gains],
            dtype=np.int64,
        ).reshape(len(gains), count)
        self._inside = np.bincount(together, weights=inside, minlength=count).astype(np.int64)
        self._slots = at_slot
        #: By holder and domain: entries on nodes that the holder shares, and pods that may go one by one.
        shared = np.flatnonzero(~alone)
        self._shared = shared[np.argsort(together[shared], kind="stable")]
        self._shared_keys = together[self._shared]
        singles = np.flatnonzero(single)
        keys = domains[singles] * size + holders[singles]
        order = np.argsort(keys, kind="stable")
        self._singles, self._single_keys = pods[singles][order], keys[order]

    def of(self, domain: int) -> tuple[list[VictimUnit], set[int]]:
        """The units of a domain (by its index), and the slots on which several of them may free room."""
        first, end = np.searchsorted(self._keys, [domain * self._size, (domain + 1) * self._size]).tolist()
        shared_at = np.searchsorted(self._shared_keys, range(first, end + 1)).tolist()
        keys = self._keys[first:end]
        singles_from = np.searchsorted(self._single_keys, keys).tolist()
        singles_to = np.searchsorted(self._single_keys, keys, side="right").tolist()
        units: list[VictimUnit] = []
        slots: set[int] = set()
        for at, key in enumerate(keys.tolist()):
            number = key % self._size
            holder = self._running.holders[number]
            entries = self._shared[shared_at[at] : shared_at[at + 1]]
            shared: SharedRoom = tuple(
                zip(
                    self._slots[entries].tolist(), map(tuple, self._freed[:, entries].T.tolist()), strict=True
                )
            )
            slots.update(slot for slot, _ in shared)
            if self._victims.whole[number]:
                gains = tuple(self._gains[:, first + at].tolist())
                inside = int(self._inside[first + at])
                units.append(self._whole(number, holder, gains=gains, inside=inside, shared=shared))
            singles = self._singles[singles_from[at] : singles_to[at]]
            units += [self._single(number, holder, one) for one in singles.tolist()]
        return units, slots

    def owners_of(self, domain: int) -> list[VictimUnit]:
        """The units that keep the item off a domain (by its index) from nodes outside of it."""
        running, found = self._running, list[VictimUnit]()
        none = (0,) * len(self._room.kinds)
        for number, pods in self._owners.get(domain, {}).items():
            holder = running.holders[number]
            inside = self._keys[np.searchsorted(self._keys, domain * self._size + number) :][:1]
            if self._victims.whole[number] and inside.tolist() != [domain * self._size + number]:
                found.append(self._whole(number, holder, gains=none, inside=0))
            found += [
                self._single(number, holder, one, outside=True) for one in pods if self._victims.single[one]
            ]
        return found

    def free_on(self, slots: set[int]) -> Mapping[int, tuple[int, ...]]:
        """What is free on slots that units share."""
        return columns(self._room.free, sorted(slots))

    def bounds(self, domains: Ints, lacks: Sequence[Ints]) -> list[LeastCost]:
        """What any units that are enough cost at the least in each domain; without nodes left partly free.

        ``lacks`` says for each kind of the preemptor's pods how many more each domain must hold.
        """
        running, count = self._running, len(domains)
        place = np.full(max(int(domains.max(initial=0)) + 1, 1), -1, dtype=np.intp)
        place[domains] = np.arange(count)

        def places(keys: Ints) -> Ints:
            found = keys // self._size
            inside = (found >= 0) & (found < len(place))
            return np.where(inside, place[np.where(inside, found, 0)], -1)

        holders = self._keys % self._size
        at = places(self._keys)
        mixed = np.zeros(count, dtype=np.bool_)
        # Where nodes are shared no sum tells what is enough.
        shared = at[np.unique(self._shared_keys)]
        mixed[shared[shared >= 0]] = True
        single_at = places(self._single_keys)
        mixed[single_at[single_at >= 0]] = True
        whole = self._victims.whole[holders] & (at >= 0)
        alone = single_at >= 0
        holders, singles = holders[whole], self._singles[alone]
        at, single_at = at[whole], single_at[alone]
        heavy = running.holder_accelerators[holders]
        broken = np.bincount(at[running.holder_gang[holders]], minlength=count)
        by = np.concatenate([at, single_at])
        units = np.bincount(by, minlength=count)
        fewest = np.zeros(count, dtype=np.intp)
        lost, lost_in = running.holder_lost[holders], np.zeros(count)
        for gains, lack in zip(self._gains, lacks, strict=True):
            fewest = np.maximum(fewest, lack > 0)
            gain = gains[whole]
            order = np.lexsort((-gain, at))
            before = sum_before(at[order], gain[order], count)
            needed = np.bincount(at[order][before < lack[at[order]]], minlength=count)
            fewest = np.where(mixed, fewest, np.maximum(fewest, needed))
            lost_in = np.maximum(lost_in, np.where(mixed, 0.0, _least_lost(at, lost, gain, lack)))
        none = np.zeros(len(singles), dtype=np.int64)

        def least(of_holders: Scores | Ints, of_singles: Scores | Ints) -> list[float]:
            """The sum of so many of the smallest values in each domain."""
            values = np.concatenate([of_holders, of_singles])
            order = np.lexsort((values, by))
            few = rank_in(by[order]) < fewest[by[order]]
            found: list[float] = np.bincount(
                by[order][few], weights=values[order][few], minlength=count
            ).tolist()
            return found

        def most(of_holders: Ints, of_singles: Ints, nothing: float) -> Scores:
            """The highest of so many of the smallest values in each domain."""
            values = np.concatenate([of_holders, of_singles])
            order = np.lexsort((values, by))
            last = rank_in(by[order]) == np.minimum(fewest, units)[by[order]] - 1
            found = np.full(count, nothing)
            found[by[order][last]] = values[order][last]
            return found

        grace = most(running.holder_grace[holders], running.grace[singles], 0)
        return list(
            zip(
                most(running.holder_last_choice[holders], running.last_choice[singles], 0).tolist(),
                [0] * count,
                most(running.holder_priority[holders], running.priorities[singles], -inf).tolist(),
                (grace > running.longest_grace).tolist(),
                np.maximum(lost_in, least(lost, running.lost[singles])).tolist(),
                np.maximum(fewest - (units - broken), 0).tolist(),
                least(heavy, running.accelerators[singles]),
                least(heavy - self._inside[whole], none),
                grace.tolist(),
                least(running.holder_pods[holders], none + 1),
                strict=True,
            )
        )

    def _whole(
        self, number: int, holder: Holder, *, gains: tuple[int, ...], inside: int, shared: SharedRoom = ()
    ) -> VictimUnit:
        """All of a holder; ``inside``: its accelerators in the domain."""
        running = self._running
        known = running.whole_of(number)
        return VictimUnit(
            holder=number,
            pods=known.pods,
            whole=True,
            gang=holder.gang,
            last_choice=int(running.holder_last_choice[number]),
            priority=int(running.holder_priority[number]),
            slow=bool(running.holder_slow[number]),
            lost=known.lost,
            accelerators=known.accelerators,
            outside=known.accelerators - inside,
            seconds=int(running.holder_grace[number]),
            gains=gains,
            shared=shared,
            budgets=known.budgets,
            name=known.name,
        )

    def _single(self, number: int, holder: Holder, one: int, *, outside: bool = False) -> VictimUnit:
        """A member by itself; ``outside`` of the domain it frees no room."""
        running = self._running
        pod, accelerators = running.pods[one], int(running.accelerators[one])
        room = int(running.slots[one]), tuple(int(taken[one]) for taken in self._room.taken)
        return VictimUnit(
            holder=number,
            pods=(one,),
            whole=False,
            gang=True,
            leaf=holder.leaf_of(pod),
            last_choice=int(running.last_choice[one]),
            priority=int(running.priorities[one]),
            slow=bool(running.grace[one] > running.longest_grace),
            lost=float(running.lost[one]),
            accelerators=accelerators,
            outside=accelerators if outside else 0,
            seconds=int(running.grace[one]),
            gains=(0,) * len(self._room.kinds),
            shared=() if outside else (room,),
            budgets=running.budgets_of((one,)),
            name=pod.key,
        )


def rank_in(groups: Ints) -> Ints:
    """The place of each entry in its group; equal entries stand together."""
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1]))) if len(groups) else groups
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))


def sum_before(groups: Ints, values: Ints, count: int) -> Ints:
    """The sum of the values before each entry in its group; the groups are sorted."""
    sums = np.cumsum(values) - values
    totals = np.bincount(groups, weights=values, minlength=count).astype(np.int64)
    return sums - (np.cumsum(totals) - totals)[groups]


def _least_lost(groups: Ints, lost: Scores, gains: Ints, lacks: Ints) -> Scores:
    """What each group loses at the least to gain what it lacks, if parts of units could go; rounded down."""
    helps = gains > 0
    groups, lost, gains = groups[helps], lost[helps], gains[helps]
    order = np.lexsort((lost / gains, groups))
    groups, lost, gains = groups[order], lost[order], gains[order]
    left = lacks[groups] - sum_before(groups, gains, len(lacks))
    share = np.clip(left / gains, 0.0, 1.0)
    found = np.bincount(groups, weights=share * lost, minlength=len(lacks)).astype(np.float64)
    return np.floor(found * (1 - 1e-12), out=found)


def _summed(amounts: Ints, which: Ints, first: Ints) -> Ints:
    """The sum for each number in ``which``, which has it at ``first`` for the first time."""
    if len(first) == len(which):
        return amounts[first].astype(np.int64)
    return np.bincount(which, weights=amounts, minlength=len(first)).astype(np.int64)


def partly_free_in(running: RunningPods, leaving: Ints) -> Callable[[Sequence[VictimUnit]], int]:
    """Counts the nodes that lose a pod of some units and keep another one, beside those that leave anyway."""
    held: list[Ints] = []

    def count(units: Sequence[VictimUnit]) -> int:
        if not held:
            size = int(running.slots.max(initial=-1)) + 1
            left = np.bincount(running.slots, minlength=size)
            held.append(left - np.bincount(running.slots[leaving], minlength=size))
        gone = running.slots[[one for unit in units for one in unit.pods]]
        slots, pods = np.unique(gone, return_counts=True)
        return int((held[0][slots] > pods).sum())

    return count


def as_unit(running: RunningPods, pods: Sequence[int]) -> VictimUnit:
    """Any pods (by index) as one unit, for who chooses victims by a rule of its own."""
    chosen = list(pods)
    return VictimUnit(
        holder=int(running.holder_of[chosen[0]]),
        pods=tuple(chosen),
        whole=True,
        gang=False,
        priority=int(running.priorities[chosen].max()),
        lost=float(running.lost[chosen].sum()),
        accelerators=int(running.accelerators[chosen].sum()),
        outside=0,
        seconds=int(running.grace[chosen].max()),
        gains=(),
        name=running.pods[chosen[0]].key,
    )


def cost_of(running: RunningPods, pods: Sequence[int]) -> EvictionCost:
    """What any pods (by index) cost, as far as budgets don't matter; every gang that loses one is broken."""
    unit = as_unit(running, pods)
    holders = {int(one) for one in running.holder_of[list(pods)]}
    return EvictionCost(
        highest=unit.priority,
        gangs_broken=sum(running.holders[one].gang for one in holders),
        lost=unit.lost,
        accelerators=unit.accelerators,
        seconds=unit.seconds,
        pods=len(unit.pods),
    )


def pods_of(running: RunningPods, units: Iterable[VictimUnit]) -> tuple[Pod, ...]:
    """The pods of some units."""
    return tuple(running.pods[one] for unit in units for one in unit.pods)


def pods_of_leaving(victims: Victims) -> tuple[Pod, ...]:
    """The pods that go anyway."""
    return tuple(victims.running.pods[one] for one in victims.leaving.tolist())


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods by namespace and name, numbers as numbers."""
    return tuple(sorted(pods, key=lambda pod: (natural_key(pod.namespace), natural_key(pod.name), pod.uid)))
