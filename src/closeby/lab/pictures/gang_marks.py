"""What distinguishes gangs on the rack map: a colour each, a lane on every node, and numbers."""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.paper import (
    ON_DARK,
    ON_LIGHT,
)
from closeby.lab.pictures.scene import Scene
from closeby.objects.arrays import Floats, Ints
from closeby.topology.tree import ROOT_LEVEL

#: Paul Tol's scheme "muted", and six that stand apart from it.
GANGS = (
    *("#332288", "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#AA4499", "#44AA99", "#882255", "#999933"),
    *("#EE7733", "#0077BB", "#B8A0D9", "#7F5539", "#C5D86D", "#F4A6B8"),
)
#: All that is not a gang; nothing at all; a node that may not be used; one without any of what is shared.
SINGLE = "#B4B9C2"
FREE = "#FFFFFF"
UNUSABLE = "#6B7280"
BARE = "#C8CDD6"
#: Edges of nodes and boxes; outline and tint of nodes that are kept free, and the outline's width, most of
#: which is outside of the bar.
FRAME = "#B9BFCA"
EDGE = "#D92D20"
TINT = "#FBD5D1"
STROKE = 1.6
#: How much worse an equal colour is for each shared leaf, and for each pod in a shared domain above leaves,
#: than for each pod elsewhere.
SAME_LEAF = 1e6
SAME_UPPER = 4.0


def colours_of(scene: Scene) -> tuple[str, ...]:
    """A colour for each tenant, chosen as they start: the one that fewest pods of running gangs have.

    Neighbours count most. The larger of those that start together chooses first.
    """
    numbers = _colour_indices(scene)
    return tuple(
        GANGS[number] if tenant.has_colour else SINGLE
        for tenant, number in zip(scene.tenants, numbers.tolist(), strict=True)
    )


def ink_on(fill: str) -> str:
    """The ink that is read best on a colour: white on dark ones, else dark."""
    return ON_DARK if is_dark(fill) else ON_LIGHT


def is_dark(fill: str) -> bool:
    """Whether a colour is nearer to black than to white."""
    red, green, blue = (int(fill[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def leaves_of(scene: Scene, slots: Ints) -> Ints:
    """The leaf of each slot; the whole cluster where there are no levels above nodes."""
    leaf, _ = _owners(scene)
    return leaf[scene.tree.position_of[slots]]


def _colour_indices(scene: Scene) -> NDArray[np.intp]:
    """Index of each tenant's colour; -1 for those that are no gangs."""
    chosen = np.full(len(scene.tenants), -1, dtype=np.intp)
    gangs = [index for index, tenant in enumerate(scene.tenants) if tenant.has_colour]
    gangs.sort(key=lambda index: (scene.since[index], -scene.tenants[index].size, index))
    leaf, upper = _owners(scene)
    in_leaf = np.zeros((len(GANGS), int(leaf.max(initial=0)) + 1))
    in_upper = np.zeros((len(GANGS), int(upper.max(initial=0)) + 1))
    pods = np.diff(scene.offsets)
    running: list[int] = []
    # A job that was evicted keeps its colour.
    known: dict[str, int] = {}
    for gang in gangs:
        for gone in [one for one in running if scene.until[one] <= scene.since[gang]]:
            running.remove(gone)
            leaves, uppers = _leaves_and_uppers(scene, gone, leaf, upper)
            in_leaf[chosen[gone], leaves] -= 1
            in_upper[chosen[gone], uppers] -= pods[gone]
        leaves, uppers = _leaves_and_uppers(scene, gang, leaf, upper)
        near = in_leaf[:, leaves].sum(axis=1) * SAME_LEAF + in_upper[:, uppers].sum(axis=1) * SAME_UPPER
        fresh = int(np.argmin(near + in_upper.sum(axis=1)))
        chosen[gang] = known.setdefault(scene.tenants[gang].name, fresh)
        in_leaf[chosen[gang], leaves] += 1
        in_upper[chosen[gang], uppers] += pods[gang]
        running.append(gang)
    return chosen


def _owners(scene: Scene) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Leaf, and domain above it, of each position; the whole cluster where there is none."""
    tree = scene.tree
    whole = np.zeros(tree.size + 1, dtype=np.intp)
    leaf, upper = (
        np.append(tree.domain_at[level], 0) if level > ROOT_LEVEL else whole
        for level in (tree.node_level - 1, tree.node_level - 2)
    )
    return leaf, upper


def _leaves_and_uppers(
    scene: Scene, tenant: int, leaf: NDArray[np.intp], upper: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    slots = scene.slots[scene.offsets[tenant] : scene.offsets[tenant + 1]]
    positions = scene.tree.position_of[slots]
    return np.unique(leaf[positions]), np.unique(upper[positions])


class Pieces(Struct, frozen=True, kw_only=True, eq=False):
    """Parts of nodes, R in all. At no moment do two pieces of one node overlap; shapes (R,).

    The pods of a piece are of one tenant and of one segment.
    """

    slots: Ints
    #: From where to where on the node's bar, 0 to 1.
    low: Floats
    high: Floats
    tenants: Ints
    #: One of its pods.
    pods: Ints


def pieces_of(scene: Scene) -> Pieces:
    """The pieces of all pods.

    A pod gets the smallest gap that holds it, else the lowest parts that are free. Which of a node's GPUs a
    pod really has is not known.
    """
    tenant_of = scene.tenant_of
    order = np.lexsort((np.arange(len(scene.slots)), scene.since[tenant_of], scene.slots))
    rows: list[tuple[int, float, float, int]] = []
    # Pods with the same number here may be one piece.
    alike = _alike(scene, tenant_of)
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
        found = _joined(_lanes(scene, mine, tenant_of), alike)
        rows.extend((slot, low / full, high / full, pod) for low, high, pod in found)
    columns = tuple(zip(*rows, strict=True)) or ((), (), (), ())
    pods = np.asarray(columns[3], dtype=np.intp)
    return Pieces(
        slots=np.asarray(columns[0], dtype=np.intp),
        low=np.asarray(columns[1], dtype=np.float64),
        high=np.asarray(columns[2], dtype=np.float64),
        tenants=tenant_of[pods],
        pods=pods,
    )


def _alike(scene: Scene, tenant_of: Ints) -> Ints:
    """The same number for the pods of one segment of one tenant; shape (P,)."""
    if scene.segments is None:
        return tenant_of
    indices = scene.segments.indices + 1
    return tenant_of * np.intp(indices.max(initial=0) + 1) + indices


def _lanes(scene: Scene, pods: Ints, tenant_of: Ints) -> Iterator[tuple[int, int, int]]:
    """Pods of one node, by start: the ends of each piece, in GPUs or in thousandths of what is shared, and
    the pod."""
    whole = round(float(scene.capacity[scene.slots[pods[0]]]) * _parts(scene))
    taken: list[tuple[int, int, float]] = []
    for pod in pods.tolist():
        tenant = int(tenant_of[pod])
        since, until = float(scene.since[tenant]), float(scene.until[tenant])
        taken = sorted(piece for piece in taken if piece[2] > since)
        for low, high in _chosen(_gaps(taken, whole), round(float(scene.amounts[pod]) * _parts(scene))):
            taken.append((low, high, until))
            yield low, high, pod


def _parts(scene: Scene) -> int:
    """Whole numbers are exact."""
    return 1 if scene.whole else 1000


def _joined(pieces: Iterable[tuple[int, int, int]], alike: Ints) -> Iterator[tuple[int, int, int]]:
    """Pieces of pods that are ``alike`` and touch as one."""
    last: tuple[int, int, int] | None = None
    for piece in pieces:
        if last is not None and alike[last[2]] == alike[piece[2]] and last[1] == piece[0]:
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
