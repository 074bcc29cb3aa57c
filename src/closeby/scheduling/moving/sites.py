"""The nodes among which talking pods are moved about, with what is free there: a small copy to search on."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.judging.classes import ClassTable, Share
from closeby.scheduling.pace import UNPACED, Pace
from closeby.scheduling.traffic import Traffic
from closeby.topology.tree import Tree

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
Amounts = NDArray[np.int64]

#: Up to so many nodes all are looked at.
ALL_UP_TO = 128
#: Beyond that, of each location the best nodes that would hold the pods so many times.
TIMES_OVER = 2


class Sites(Struct, frozen=True, kw_only=True, eq=False):
    """S nodes, P pods in C classes and R resources."""

    #: (S,), in natural order of the nodes' names.
    slots: Ints
    #: What is free, (R, S), and what each pod needs, (P, R).
    free: Amounts
    needs: Amounts
    #: Which class may go to which node, were it empty: (C, S), and the class of each pod, (P,).
    allowed: Bools
    class_of: Ints
    #: Pods that stay where they are, because what they need is not only a matter of amounts; (P,).
    pinned: Bools


def sites_of(
    cluster: Cluster,
    table: ClassTable,
    traffic: Traffic,
    pods: Sequence[Pod],
    keep: Iterable[int],
    flat_tree: Tree,
    pace: Pace = UNPACED,
) -> Sites:
    """The nodes worth looking at for pods of which none has a node now; ``keep`` are among them.

    ``flat_tree`` knows the natural order of all nodes: slots are given out as nodes come and go, which must
    not decide anything.
    """
    shares = table.shares(pods)
    class_of = {pod.uid: place for place, share in enumerate(shares) for pod in share.pods}
    fits = np.stack([share.pod_class.fits for share in shares])
    positions = flat_tree.position_of
    slots = _worth_looking_at(shares, traffic, len(pods), keep, positions, pace)
    slots = slots[np.argsort(positions[slots], kind="stable")]
    demands = [cluster.demand(pod.spec) for pod in pods]
    rows = sorted({row for demand in demands for row in demand.rows})
    column = {row: place for place, row in enumerate(rows)}
    needs = np.zeros((len(pods), len(rows)), dtype=np.int64)
    for place, demand in enumerate(demands):
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            needs[place, column[row]] += amount
    return Sites(
        slots=slots,
        free=np.stack([cluster.free(row, slots) for row in rows]),
        needs=needs,
        allowed=fits[:, slots] > 0,
        class_of=np.asarray([class_of[pod.uid] for pod in pods], dtype=np.intp),
        pinned=np.asarray([bool(pod.spec.host_ports) for pod in pods], dtype=np.bool_),
    )


def _worth_looking_at(
    shares: Sequence[Share], traffic: Traffic, count: int, keep: Iterable[int], positions: Ints, pace: Pace
) -> Ints:
    fits = np.stack([share.pod_class.fits for share in shares])
    usable = np.flatnonzero((fits > 0).any(axis=0))
    kept = np.asarray(sorted(set(keep)), dtype=np.intp)
    if len(usable) <= ALL_UP_TO:
        return np.union1d(usable, kept)
    allowed = np.isfinite(traffic.standing)
    farthest = float(traffic.standing.max(initial=0.0, where=allowed)) + 1.0
    near = np.where(allowed, traffic.standing, farthest).sum(axis=0)
    chosen = [kept]
    for share in shares:
        pace.take(50 + len(positions) // 10)
        room = share.pod_class.fits
        slots = np.flatnonzero(room > 0)
        locations = traffic.locations[slots]
        order = np.lexsort((positions[slots], -room[slots], near[slots], locations))
        slots, locations = slots[order], locations[order]
        held = np.cumsum(room[slots]) - room[slots]
        starts = np.flatnonzero(np.concatenate(([True], locations[1:] != locations[:-1])))
        before = np.repeat(held[starts], np.diff(np.append(starts, len(slots))))
        chosen.append(slots[held - before < TIMES_OVER * count])
    return np.unique(np.concatenate(chosen))
