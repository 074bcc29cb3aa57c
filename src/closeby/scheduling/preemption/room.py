"""What a preemptor's pods find on each node: now, and if all went that may go. Only resources count."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import EVERYTHING, Cluster, Demand
from closeby.objects.arrays import Amounts, Bools, Counts, Ints
from closeby.scheduling.extension import Filter
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.preemption.running import RunningPods
from closeby.topology.tree import Tree

#: Amounts in the rows of ``NodeRoom``.
FreedAmounts = tuple[int, ...]
#: What comes free on some nodes: slots and amounts.
SharedRoom = tuple[tuple[int, FreedAmounts], ...]


class PodKind(Struct, frozen=True, kw_only=True, eq=False):
    """Equal pods that look for a place."""

    wanted: int
    #: What one pod asks for: in the rows of the cluster, and in those of ``NodeRoom``.
    demand: Demand
    asks: Demand
    #: (capacity,) nodes that such pods may go to, as far as that depends on nodes alone.
    usable: Bools
    #: Whether resources and nodes decide all, so that the arithmetic is exact.
    plain: bool

    def fits(self, free: Amounts, slots: Ints | slice = slice(None)) -> Counts:
        """How many fit where so much is free: into each node, or into these slots."""
        return np.where(self.usable[slots], self.asks.pods_that_fit(free), 0)


class NodeRoom(Struct, frozen=True, kw_only=True, eq=False):
    """The rows that matter, and what of them is free; all arrays have one column per slot."""

    kinds: tuple[PodKind, ...]
    #: (rows, capacity) without the pods that leave anyway; below 0 where more is taken than there is. And
    #: if all went that may go.
    free: Amounts
    most: Amounts
    #: By row: what each running pod takes.
    taken: tuple[Amounts, ...]
    #: By kind: pods that fit now, and pods that would fit if all went that may go.
    fits: tuple[Counts, ...]
    could: tuple[Counts, ...]


def kinds_of(
    cluster: Cluster, shares: Sequence[Share], barred: Bools | None, exact: frozenset[str]
) -> tuple[PodKind, ...]:
    """The kinds of the pods that look for a place. ``barred`` slots are kept for others.

    ``exact`` names the filters of which the arithmetic here knows all.
    """
    demands = [cluster.demand(share.pods[0].spec) for share in shares]
    rows = _rows(demands)
    kinds = []
    for share, demand in zip(shares, demands, strict=True):
        usable = share.pod_class.static
        if barred is not None:
            usable = usable.copy()
            usable[: len(barred)] &= ~barred  # Nodes that came since are kept for no other item.
        others: list[Filter] = [*share.pod_class.node_filters, *share.pod_class.blind_filters]
        kinds.append(
            PodKind(
                wanted=len(share.pods),
                demand=demand,
                asks=Demand(tuple(map(rows.index, demand.rows)), demand.amounts, ()),
                usable=usable,
                plain=not share.pod_class.masks
                and all(plugin.name in exact for plugin in (*share.pod_class.capacities, *others)),
            )
        )
    return tuple(kinds)


def whatever_goes(cluster: Cluster, kinds: Sequence[PodKind]) -> tuple[Counts, ...]:
    """By kind: pods that would fit if nothing ran anywhere."""
    return tuple(np.where(kind.usable, cluster.room(kind.demand, without=EVERYTHING), 0) for kind in kinds)


def room_of(running: RunningPods, kinds: tuple[PodKind, ...], leaving: Ints, victims: Ints) -> NodeRoom:
    """``leaving`` and ``victims`` are indices of pods that go anyway, and that may go."""
    cluster, rows = running.cluster, _rows([kind.demand for kind in kinds])
    free = (cluster.allocatable[list(rows)] - cluster.requested[list(rows)])[:, : cluster.capacity]
    taken = tuple(running.amounts(row) for row in rows)
    for at, amounts in enumerate(taken):
        np.add.at(free[at], running.slots[leaving], amounts[leaving])
    most = free.copy()
    for at, amounts in enumerate(taken):
        np.add.at(most[at], running.slots[victims], amounts[victims])
    return NodeRoom(
        kinds=kinds,
        free=free,
        most=most,
        taken=taken,
        fits=tuple(kind.fits(free) for kind in kinds),
        could=tuple(kind.fits(most) for kind in kinds),
    )


def _rows(demands: Sequence[Demand]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(row for one in demands for row in one.rows))


def of_domains(tree: Tree, level: int, counts: Counts) -> Counts:
    """What the nodes (by slot) of each domain of a level have together."""
    return tree.sums(level, counts.take(tree.slot_at))


class FreesRoom(Protocol):
    """What goes and frees room: so much by kind, and so much on nodes where something else can go too."""

    @property
    def gains(self) -> tuple[int, ...]:
        """By kind: how many more fit on nodes where nothing but this can go."""

    @property
    def shared(self) -> SharedRoom:
        """What comes free on the others."""


class DomainRoom:
    """The room of one domain while units go and come back: what fits of what is wanted."""

    def __init__(
        self, kinds: Sequence[PodKind], lacks: Sequence[int], left: Mapping[int, FreedAmounts]
    ) -> None:
        """``lacks`` is missing of each kind without victims, ``left`` (by slot) on nodes that units share."""
        self.kinds = kinds
        self.lacks = list(lacks)
        self.left = {slot: dict(enumerate(amounts)) for slot, amounts in left.items()}

    @property
    def enough(self) -> bool:
        """Whether all that is wanted fits."""
        return all(lack <= 0 for lack in self.lacks)

    def fits(self, kind: int, slot: int, left: Mapping[int, int]) -> int:
        """How many pods of a kind fit into a slot where so much is left."""
        one = self.kinds[kind]
        return one.asks.pods_that_fit_one(left) if one.usable[slot] else 0

    def free(self, unit: FreesRoom, sign: int = 1) -> None:
        """A unit goes; with -1 it is back."""
        lacks, kinds = self.lacks, range(len(self.lacks))
        for kind, gain in enumerate(unit.gains):
            lacks[kind] -= sign * gain
        for slot, amounts in unit.shared:
            left = self.left[slot]
            before = [self.fits(kind, slot, left) for kind in kinds]
            for row, amount in enumerate(amounts):
                left[row] += sign * amount
            for kind in kinds:
                lacks[kind] -= self.fits(kind, slot, left) - before[kind]
