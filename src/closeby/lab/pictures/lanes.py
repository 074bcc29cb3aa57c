"""Which part of its node each pod is drawn on: neighbours of its own, from when it starts until it ends."""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.scene import Scene

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

    A pod gets the smallest gap that holds it, else the lowest parts that are free. Which of a node's GPUs a
    pod really has is not known.
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
        full = capacity * _parts(scene)
        found = _joined(_lanes(scene, mine, tenant_of))
        rows.extend((slot, low / full, high / full, tenant) for low, high, tenant in found)
    columns = tuple(zip(*rows, strict=True)) or ((), (), (), ())
    return Pieces(
        slots=np.asarray(columns[0], dtype=np.intp),
        low=np.asarray(columns[1], dtype=np.float64),
        high=np.asarray(columns[2], dtype=np.float64),
        tenants=np.asarray(columns[3], dtype=np.intp),
    )


def _lanes(scene: Scene, pods: Ints, tenant_of: Ints) -> Iterator[tuple[int, int, int]]:
    """Pods of one node, by start: the ends of each piece, in GPUs or in thousandths of what is shared."""
    whole = round(float(scene.capacity[scene.slots[pods[0]]]) * _parts(scene))
    taken: list[tuple[int, int, float]] = []
    for pod in pods.tolist():
        tenant = int(tenant_of[pod])
        since, until = float(scene.since[tenant]), float(scene.until[tenant])
        taken = sorted(piece for piece in taken if piece[2] > since)
        for low, high in _chosen(_gaps(taken, whole), round(float(scene.amounts[pod]) * _parts(scene))):
            taken.append((low, high, until))
            yield low, high, tenant


def _parts(scene: Scene) -> int:
    """Whole numbers are exact."""
    return 1 if scene.whole else 1000


def _joined(pieces: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Pieces of one tenant that touch as one."""
    last: tuple[int, int, int] | None = None
    for piece in pieces:
        if last is not None and last[2] == piece[2] and last[1] == piece[0]:
            last = (last[0], piece[1], piece[2])
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _gaps(taken: Iterable[tuple[int, int, float]], whole: int) -> list[tuple[int, int]]:
    """What is free between pieces in ascending order, as ``[first, end)``."""
    gaps: list[tuple[int, int]] = []
    end = 0
    for low, high, _ in taken:
        if low > end:
            gaps.append((end, low))
        end = high
    return [*gaps, (end, whole)] if end < whole else gaps


def _chosen(gaps: list[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """The tightest gap that holds so much, else pieces of the lowest; what there is if too little."""
    fitting = [gap for gap in gaps if gap[1] - gap[0] >= wanted]
    if fitting:
        gaps = [min(fitting, key=lambda gap: (gap[1] - gap[0], gap[0]))]
    for low, end in gaps:
        high = min(end, low + wanted)
        if high > low:
            yield low, high
        wanted -= high - low
