"""Which part of its node each pod is drawn on: neighbours of its own, from when it starts until it ends."""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.report.pictures.scene import Scene

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


class Pieces(Struct, frozen=True, kw_only=True, eq=False):
    """Parts of nodes, R in all. At no moment do two pieces of one node overlap; shapes (R,)."""

    slots: Ints
    #: From where to where on the node's bar, 0 to 1.
    low: Floats
    high: Floats
    tenants: Ints


def pieces_of(scene: Scene) -> Pieces:
    """The pieces of all pods.

    A GPU is a lane: a pod gets the smallest run of free lanes that holds it, else the lowest free ones. Which
    of a node's GPUs a pod really has is not known. What is not counted in pieces is stacked by tenant.
    """
    tenant_of = scene.tenant_of
    order = np.lexsort((np.arange(len(scene.slots)), scene.since[tenant_of], scene.slots))
    rows: list[tuple[int, float, float, int]] = []
    slots = scene.slots[order]
    begins = np.flatnonzero(np.diff(slots, prepend=-1))
    ends = np.append(begins, len(slots))[1:]
    for first, end in zip(begins.tolist(), ends.tolist(), strict=True):
        slot = int(slots[first])
        capacity = float(scene.capacity[slot])
        if (
            slot >= len(scene.tree.position_of)
            or scene.tree.position_of[slot] == scene.tree.size
            or not capacity
        ):
            continue
        mine = order[first:end]
        found = _lanes(scene, mine, tenant_of) if scene.whole else _stacked(scene, mine, tenant_of)
        rows.extend((slot, low / capacity, high / capacity, tenant) for low, high, tenant in _joined(found))
    columns = tuple(zip(*rows, strict=True)) or ((), (), (), ())
    return Pieces(
        slots=np.asarray(columns[0], dtype=np.intp),
        low=np.asarray(columns[1], dtype=np.float64),
        high=np.asarray(columns[2], dtype=np.float64),
        tenants=np.asarray(columns[3], dtype=np.intp),
    )


def _lanes(scene: Scene, pods: Ints, tenant_of: Ints) -> Iterator[tuple[float, float, int]]:
    """Pods of one node, by start: first and last lane of each piece."""
    taken_until = [-np.inf] * int(scene.capacity[scene.slots[pods[0]]])
    for pod in pods.tolist():
        tenant = int(tenant_of[pod])
        since, until = float(scene.since[tenant]), float(scene.until[tenant])
        free = [lane for lane, end in enumerate(taken_until) if end <= since]
        for low, high in _chosen(_runs(free), int(scene.amounts[pod])):
            taken_until[low:high] = [until] * (high - low)
            yield low, high, tenant


def _joined(pieces: Iterable[tuple[float, float, int]]) -> Iterator[tuple[float, float, int]]:
    """Pieces of one tenant that touch as one."""
    last: tuple[float, float, int] | None = None
    for piece in pieces:
        if last is not None and last[2] == piece[2] and last[1] == piece[0]:
            last = (last[0], piece[1], piece[2])
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _runs(lanes: list[int]) -> list[tuple[int, int]]:
    """Neighbours as ``[first, end)``."""
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and runs[-1][1] == lane:
            runs[-1] = (runs[-1][0], lane + 1)
        else:
            runs.append((lane, lane + 1))
    return runs


def _chosen(runs: list[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """The tightest run that holds ``wanted`` lanes, else pieces of the lowest; what there are if too few."""
    fitting = [run for run in runs if run[1] - run[0] >= wanted]
    if fitting:
        runs = [min(fitting, key=lambda run: (run[1] - run[0], run[0]))]
    for low, end in runs:
        high = min(end, low + wanted)
        if high > low:
            yield low, high
        wanted -= high - low


def _stacked(scene: Scene, pods: Ints, tenant_of: Ints) -> Iterator[tuple[float, float, int]]:
    """Shares one upon another in the order of tenants; only for what is all there at the same time."""
    capacity = float(scene.capacity[scene.slots[pods[0]]])
    held: dict[int, float] = {}
    for pod in pods.tolist():
        tenant = int(tenant_of[pod])
        held[tenant] = held.get(tenant, 0.0) + float(scene.amounts[pod])
    low = 0.0
    for tenant, amount in sorted(held.items()):
        high = min(low + amount, capacity)
        if high > low:
            yield low, high, tenant
        low = high
