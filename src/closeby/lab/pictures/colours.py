"""Which colour each gang has: the same all its life, and rarely that of a neighbour.

The nine colours are Paul Tol's scheme "muted" (Colour Schemes, technical note SRON/EPS/TN/09-002, 2021), made
for colour-blind readers to distinguish them too.
"""

import numpy as np
from numpy.typing import NDArray

from closeby.lab.pictures.paper import INK
from closeby.lab.pictures.scene import Scene
from closeby.topology.tree import ROOT_LEVEL

GANGS = ("#332288", "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#AA4499", "#44AA99", "#882255", "#999933")
#: All that is not a gang; nothing at all; a node that may not be used.
SINGLE = "#B4B9C2"
FREE = "#FFFFFF"
UNUSABLE = "#6B7280"
#: How much worse an equal colour is for each shared leaf, and for each pod in a shared domain above leaves,
#: than for each pod elsewhere.
SAME_LEAF = 1e6
SAME_UPPER = 4.0


def colours_of(scene: Scene) -> tuple[str, ...]:
    """A colour for each tenant, chosen as they start: the one that fewest pods of running gangs have.

    Neighbours count most. The larger of those that start together chooses first.
    """
    numbers = _chosen(scene)
    return tuple(
        GANGS[number] if tenant.has_colour else SINGLE
        for tenant, number in zip(scene.tenants, numbers.tolist(), strict=True)
    )


def ink_on(fill: str) -> str:
    """The ink that is read best on a colour: white on dark ones, else dark."""
    red, green, blue = (int(fill[at : at + 2], 16) for at in (1, 3, 5))
    return FREE if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else INK


def _chosen(scene: Scene) -> NDArray[np.intp]:
    """Index of each tenant's colour; -1 for those that are no gangs."""
    chosen = np.full(len(scene.tenants), -1, dtype=np.intp)
    gangs = [index for index, tenant in enumerate(scene.tenants) if tenant.has_colour]
    gangs.sort(key=lambda index: (scene.since[index], -scene.tenants[index].size, index))
    leaf, upper = _owners(scene)
    in_leaf = np.zeros((len(GANGS), int(leaf.max(initial=0)) + 1))
    in_upper = np.zeros((len(GANGS), int(upper.max(initial=0)) + 1))
    pods = np.diff(scene.offsets)
    running: list[int] = []
    for gang in gangs:
        for gone in [one for one in running if scene.until[one] <= scene.since[gang]]:
            running.remove(gone)
            leaves, uppers = _places(scene, gone, leaf, upper)
            in_leaf[chosen[gone], leaves] -= 1
            in_upper[chosen[gone], uppers] -= pods[gone]
        leaves, uppers = _places(scene, gang, leaf, upper)
        near = in_leaf[:, leaves].sum(axis=1) * SAME_LEAF + in_upper[:, uppers].sum(axis=1) * SAME_UPPER
        chosen[gang] = int(np.argmin(near + in_upper.sum(axis=1)))
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


def _places(
    scene: Scene, tenant: int, leaf: NDArray[np.intp], upper: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    slots = scene.slots[scene.offsets[tenant] : scene.offsets[tenant + 1]]
    positions = scene.tree.position_of[slots]
    return np.unique(leaf[positions]), np.unique(upper[positions])
