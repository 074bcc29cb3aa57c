"""Who may go for one preemptor, in units that go together, and what they free in each domain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Amounts, Bools, Ints, Scores
from closeby.objects.pods import Pod
from closeby.objects.words import natural_key
from closeby.scheduling.outcomes import EvictionCost
from closeby.scheduling.placing.exclusive import OwnedDomain
from closeby.scheduling.preemption.room import FreedAmounts, NodeRoom, SharedRoom
from closeby.scheduling.preemption.running import Holder, RunningPods
from closeby.topology.tree import Tree

#: The first fields of a cost, up to the lost work.
LeastCost = tuple[float, float, float, float, float]


class VictimUnit(Struct, frozen=True, kw_only=True, eq=False):
    """Pods that are evicted together."""

    holder: int
    #: Indices of the pods, in ``RunningPods``.
    pods: tuple[int, ...]
    #: Whether this is all of a gang; else a member or a pod by itself.
    whole: bool
    gang: bool
    #: The part of its gang that a single member is of.
    leaf: str = ""
    last_choice: int = 0
    priority: int
    slow: bool = False
    lost: float
    accelerators: int
    outside: int
    seconds: int = 0
    #: By kind of the preemptor's pods: how many more fit on nodes where nothing but this can go.
    gains: tuple[int, ...]
    shared: SharedRoom = ()
    #: Pods by budget.
    budgets: tuple[tuple[int, int], ...] = ()
    name: str


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

    @property
    def pods_leaving(self) -> tuple[Pod, ...]:
        """The pods that go in any case."""
        return tuple(self.running.pods[one] for one in self.leaving.tolist())


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
        self._owners = _owners_in(victims.running, victims.pods, tree, level, owned)
        self._running = running = victims.running
        self._room = room
        self._tree, self._level = tree, level
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
            kind.fits(most, on_slot) - now[on_slot] for kind, now in zip(room.kinds, room.fits, strict=True)
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

    def free_on(self, slots: Iterable[int]) -> Mapping[int, FreedAmounts]:
        """What is free on slots that units share, by slot."""
        at = sorted(slots)
        return dict(zip(at, map(tuple, self._room.free[:, at].T.tolist()), strict=True))

    def bounds(self, domains: Ints, lacks: Sequence[Ints]) -> list[LeastCost]:
        """What any units that are enough cost at the least in each domain, by the first fields of the cost.

        ``lacks`` says for each kind of the preemptor's pods how many more each domain must hold.
        """
        running, count, room = self._running, len(domains), self._room
        place = np.full(max(int(domains.max(initial=0)) + 1, 1), -1, dtype=np.intp)
        place[domains] = np.arange(count)
        holders = self._keys % self._size
        whole, singles = np.flatnonzero(self._victims.whole[holders]), self._singles
        holders = holders[whole]
        owners = np.concatenate([self._keys[whole], self._single_keys]) // self._size
        inside = (owners >= 0) & (owners < len(place))
        at = np.where(inside, place[np.where(inside, owners, 0)], -1)
        known = at >= 0
        at = at[known]
        gains, lacking = list[Scores](), list[Scores]()
        single_slots = running.slots[singles]
        shared_slots = self._slots[self._shared]
        for kind, lack in enumerate(lacks):
            share, already = self._shares(kind)
            gain = self._gains[kind].astype(np.float64)
            np.add.at(gain, self._shared_keys, share(shared_slots, self._freed[:, self._shared]))
            of_singles = share(single_slots, np.stack([amounts[singles] for amounts in room.taken]))
            gains.append(np.concatenate([gain[whole], of_singles])[known])
            slots = np.unique(np.concatenate([shared_slots, single_slots]))
            of = self._tree.owners_of_slots(slots, self._level)
            counts = (of >= 0) & (of < len(place))
            less = np.zeros(count + 1)
            np.add.at(less, place[of[counts]], (already - room.fits[kind])[slots[counts]])
            lacking.append(lack - less[:count] - 1e-9)

        def of_each(of_holders: Ints | Scores | Bools, of_pods: Ints | Scores | Bools) -> Scores:
            values = np.concatenate([of_holders[holders], of_pods[singles]])[known]
            return values.astype(np.float64)

        grace = of_each(running.holder_grace, running.grace)
        left = np.ones(len(at), dtype=np.bool_)
        least, found = np.zeros(count), list[Scores]()
        for values, nothing in (
            (of_each(running.holder_last_choice, running.last_choice), 0.0),
            (of_each(running.holder_priority, running.priorities), -inf),
            ((grace > running.longest_grace).astype(np.float64), 0.0),
        ):
            least = np.full(count, nothing)
            for gain, lacked in zip(gains, lacking, strict=True):
                order = np.flatnonzero(left)[np.lexsort((values[left], at[left]))]
                needed = order[sum_before(at[order], gain[order], count) < lacked[at[order]]]
                np.maximum.at(least, at[needed], values[needed])
            left &= values <= least[at]
            found.append(least)
        each, lost = of_each(running.holder_lost, running.lost), np.zeros(count)
        for gain, lacked in zip(gains, lacking, strict=True):
            lost = np.maximum(lost, _least_lost(at[left], each[left], gain[left], lacked))
        columns = (found[0], np.zeros(count), found[1], found[2], lost)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _shares(self, kind: int) -> tuple[Callable[[Ints, Amounts], Scores], Scores]:
        """On nodes that units share: how many more pods of a kind may fit, at the most, for what one frees
        there (amounts by row), and how many fit without (by slot); parts of pods count.

        That is by the resource which lets the fewest in if all goes that may go.
        """
        room, asks = self._room, self._room.kinds[kind].asks
        rows, each = np.asarray(asks.rows, dtype=np.intp), np.asarray(asks.amounts, dtype=np.float64)[:, None]
        most = room.most[rows] / each
        fewest = most.argmin(axis=0)
        usable = room.could[kind] > 0
        already = np.where(usable, np.take_along_axis(room.free[rows] / each, fewest[None], axis=0)[0], 0.0)

        def share(slots: Ints, freed: Amounts) -> Scores:
            row = fewest[slots]
            part: Scores = freed[rows[row], np.arange(len(slots))] / each[row, 0]
            part = np.minimum(part, room.could[kind][slots] - already[slots])
            return np.where(usable[slots], np.maximum(part, 0.0), 0.0)

        return share, already

    def _whole(
        self, number: int, holder: Holder, *, gains: tuple[int, ...], inside: int, shared: SharedRoom = ()
    ) -> VictimUnit:
        """All of a holder; ``inside``: its accelerators in the domain."""
        running = self._running
        pods, accelerators = tuple(holder.pods), int(running.holder_accelerators[number])
        return VictimUnit(
            holder=number,
            pods=pods,
            whole=True,
            gang=holder.gang,
            last_choice=int(running.holder_last_choice[number]),
            priority=int(running.holder_priority[number]),
            slow=bool(running.holder_slow[number]),
            lost=float(running.holder_lost[number]),
            accelerators=accelerators,
            outside=accelerators - inside,
            seconds=int(running.holder_grace[number]),
            gains=gains,
            shared=shared,
            budgets=running.budgets_of(pods),
            name=running.name_of(number),
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


def sum_before(groups: Ints, values: Ints | Scores, count: int) -> Scores:
    """The sum of the values before each entry in its group; the groups are sorted."""
    sums = np.cumsum(values) - values
    totals = np.bincount(groups, weights=values, minlength=count)
    return np.asarray(sums - (np.cumsum(totals) - totals)[groups], dtype=np.float64)


def _least_lost(groups: Ints, lost: Scores, gains: Scores, lacks: Scores) -> Scores:
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


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods by namespace and name, numbers as numbers."""
    return tuple(sorted(pods, key=lambda pod: (natural_key(pod.namespace), natural_key(pod.name), pod.uid)))


def _owners_in(
    running: RunningPods, may: Ints, tree: Tree, level: int, owned: Sequence[OwnedDomain]
) -> Mapping[int, Mapping[int, Iterable[int]]]:
    """By domain of a level: the holders of the domains around it, and their pods there outside of it.

    ``may``: indices of the pods that may go.
    """
    found: dict[int, dict[int, dict[int, None]]] = {}
    for one in owned:
        number = running.gangs.get(one.owner)
        if number is None:
            continue
        mine = may[running.holder_of[may] == number]
        pods = mine[np.isin(running.slots[mine], one.slots)]
        at = tree.owners_of_slots(running.slots[pods], level)
        domains = np.unique(tree.owners_of_slots(one.slots, level))
        if not len(pods) or len(domains) == 1:
            continue
        for domain in domains[domains >= 0].tolist():
            others = found.setdefault(domain, {}).setdefault(number, {})
            others |= dict.fromkeys(pods[at != domain].tolist())
    return found
