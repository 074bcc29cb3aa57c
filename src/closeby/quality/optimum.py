"""The best that was possible: fewest domains and least mean distance of a gang on what was free.

Exact for gangs of equal pods, by dynamic programming over the tree: the most pairs that ``k`` pods inside a
domain can have together follows from the same of its children.
"""

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from closeby.objects.arrays import Floats
from closeby.topology.tree import Tree

#: Larger gangs, and more nodes with room, are not worked out.
MOST_PODS: Final = 64
MOST_NODES: Final = 4096


def least_spans(tree: Tree, room: NDArray[Any], pods: int) -> Floats | None:
    """Fewest domains of each level, each level for itself, that could hold a gang of equal pods; shape (K,).

    ``room`` says how many of its pods each slot can take; shape (slots,). None where they do not fit.
    """
    at = room[tree.slot_at]
    if at.sum() < pods or not tree.size:
        return None
    found = []
    for level in range(tree.node_level + 1):
        filled = np.cumsum(np.sort(tree.sums(level, at))[::-1])
        found.append(int(np.searchsorted(filled, pods)) + 1)
    return np.asarray(found, dtype=np.float64)


def least_mean_distance(tree: Tree, room: NDArray[Any], pods: int) -> float | None:
    """Least possible mean number of tree edges between two pods of a gang.

    None where the pods do not fit, are fewer than two, or where there are too many of them (``MOST_PODS``)
    or of nodes with room (``MOST_NODES``).
    """
    at = np.minimum(room[tree.slot_at], pods)
    if at.sum() < pods or not 2 <= pods <= MOST_PODS or np.count_nonzero(at) > MOST_NODES:
        return None
    together = _together(np.arange(pods + 1))
    inner = [at] if not tree.node_level else np.split(at, tree.bounds[-1][1:-1])
    best = [_filled(rooms, pods) for rooms in inner]
    for level in range(tree.node_level - 1, -1, -1):
        best = [one + together for one in best]
        children = pairwise(tree.children[level - 1].tolist()) if level else [(0, len(best))]
        best = [_merged(best[first:end]) for first, end in children]
    every = float(together[pods])
    return 2.0 * (every * (tree.node_level + 1) - float(best[0][pods])) / every


def _together(pods: NDArray[Any]) -> Floats:
    """Pairs of pods."""
    found: Floats = pods * (pods - 1) / 2.0
    return found


def _filled(rooms: NDArray[Any], pods: int) -> Floats:
    """Most pairs on one node that 0, 1, … pods on nodes with such rooms can have; shape (pods + 1,).

    Filling the roomiest first is best: pairs grow faster than pods. -inf where the pods do not fit.
    """
    largest = np.sort(rooms)[::-1]
    filled = np.concatenate(([0], np.cumsum(largest)))
    pairs = np.concatenate(([0.0], np.cumsum(_together(largest))))
    counts = np.arange(pods + 1)
    full = np.searchsorted(filled, counts, side="right") - 1
    found: Floats = pairs[full] + _together(counts - filled[full])
    return np.where(counts <= filled[-1], found, -np.inf)


def _merged(domains: list[Floats]) -> Floats:
    """Most pairs of 0, 1, … pods shared out among several domains; all of shape (pods + 1,)."""
    found = domains[0]
    size = len(found)
    for domain in domains[1:]:
        if not np.isfinite(domain[1:]).any():
            continue
        # Row k holds found[k], found[k - 1], … : what the others have while this domain takes 0, 1, …
        padded = np.concatenate([np.full(size - 1, -np.inf), found])
        others = np.lib.stride_tricks.sliding_window_view(padded, size)[:, ::-1]
        found = (others + domain).max(axis=1)
    return found
