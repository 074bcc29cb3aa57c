"""What a preemptor's pods find on each node: now, and if all went that may go. Only resources count."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Bools, Counts, Ints
from closeby.scheduling.extension import Filter
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.preempting.running_pods import RunningPods


class PodKind(Struct, frozen=True, kw_only=True, eq=False):
    """Equal pods that look for a place."""

    wanted: int
    #: Of each resource that is asked for: what one pod asks for.
    asks: tuple[int, ...]
    #: (capacity,) nodes that such pods may go to, as far as that depends on nodes alone.
    usable: Bools
    #: Whether resources and nodes decide all, so that the arithmetic is exact.
    plain: bool


class NodeRoom(Struct, frozen=True, kw_only=True, eq=False):
    """The rows that matter, and what of them is free; all arrays have one column per slot."""

    kinds: tuple[PodKind, ...]
    rows: tuple[int, ...]
    #: (rows, capacity) without the pods that leave anyway; below 0 where more is taken than there is.
    free: Amounts
    #: By row: what each running pod takes.
    taken: tuple[Amounts, ...]
    #: By kind: pods that fit now, and pods that would fit if all went that may go.
    fits: tuple[Counts, ...]
    could: tuple[Counts, ...]

    def freed(self, pods: Ints) -> Amounts:
        """What some pods take, as one column per pod; shape (rows, pods)."""
        return np.stack([amounts[pods] for amounts in self.taken])


def fits(kind: PodKind, free: Amounts, usable: Bools) -> Counts:
    """How many pods of a kind fit into each column of what is free."""
    room: Counts | None = None
    for ask, left in zip(kind.asks, free, strict=True):
        if ask:
            here = left // ask
            room = here if room is None else np.minimum(room, here)
    if room is None:
        raise ValueError("a demand names at least the resource 'pods'")
    return np.where(usable, np.maximum(room, 0), 0)


def kinds_of(
    cluster: Cluster, demand: Sequence[Share], barred: Bools | None, exact: frozenset[str]
) -> tuple[tuple[int, ...], tuple[PodKind, ...]]:
    """Rows and kinds of the pods that look for a place. ``barred`` slots are kept for others.

    ``exact`` names the filters of which the arithmetic here knows all.
    """
    demands = [cluster.demand(share.pods[0].spec) for share in demand]
    rows = tuple(dict.fromkeys(row for one in demands for row in one.rows))
    kinds = []
    for share, one in zip(demand, demands, strict=True):
        by_row = dict(zip(one.rows, one.amounts, strict=True))
        usable = share.pod_class.static
        if barred is not None:
            usable = usable.copy()
            usable[: len(barred)] &= ~barred  # Nodes that came since are kept for no other item.
        others: list[Filter] = [*share.pod_class.node_filters, *share.pod_class.blind_filters]
        kinds.append(
            PodKind(
                wanted=len(share.pods),
                asks=tuple(by_row.get(row, 0) for row in rows),
                usable=usable,
                plain=not share.pod_class.masks
                and all(plugin.name in exact for plugin in (*share.pod_class.capacities, *others)),
            )
        )
    return rows, tuple(kinds)


def whatever_goes(cluster: Cluster, rows: Sequence[int], kinds: Sequence[PodKind]) -> tuple[Counts, ...]:
    """By kind: pods that would fit if nothing ran anywhere."""
    everything = cluster.allocatable[list(rows)][:, : cluster.capacity]
    return tuple(fits(kind, everything, kind.usable) for kind in kinds)


def room_of(
    cluster: Cluster,
    running: RunningPods,
    rows: tuple[int, ...],
    kinds: tuple[PodKind, ...],
    leaving: Ints,
    victims: Ints,
) -> NodeRoom:
    """``leaving`` and ``victims`` are indices of pods that go anyway, and that may go."""
    index = list(rows)
    free = cluster.allocatable[index][:, : cluster.capacity] - cluster.requested[index][:, : cluster.capacity]
    taken = tuple(running.amounts(row) for row in rows)
    for at, amounts in enumerate(taken):
        np.add.at(free[at], running.slots[leaving], amounts[leaving])
    most = free.copy()
    for at, amounts in enumerate(taken):
        np.add.at(most[at], running.slots[victims], amounts[victims])
    return NodeRoom(
        kinds=kinds,
        rows=rows,
        free=free,
        taken=taken,
        fits=tuple(fits(kind, free, kind.usable) for kind in kinds),
        could=tuple(fits(kind, most, kind.usable) for kind in kinds),
    )


def columns(free: Amounts, slots: Sequence[int]) -> Mapping[int, tuple[int, ...]]:
    """What is free on some slots, by slot."""
    return dict(zip(slots, map(tuple, free[:, list(slots)].T.tolist()), strict=True))
