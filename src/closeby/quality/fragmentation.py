"""Fragmentation: how much of what is free can still serve a gang that wants to be in one domain."""

from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.topology.tree import Tree

#: How many gangs count: from the head of the queue, then those that come next.
NEXT_GANGS: Final = 10


class Waiting(Struct, frozen=True, kw_only=True, eq=False):
    """The gangs that are to be placed next."""

    #: Pods of each, and GPUs of each of its pods; shape (G,).
    pods: NDArray[Any]
    gpus: NDArray[Any]
    #: Fewest domains of each level that could hold it on an empty cluster; shape (G, K).
    fewest: Floats


def domain_sums(tree: Tree, amounts: NDArray[Any]) -> list[NDArray[Any]]:
    """Sums of amounts by domain, one array a level; ``amounts`` has shape (slots,)."""
    at = amounts[tree.slot_at]
    return [tree.sums(level, at) for level in range(tree.node_level + 1)]


def largest_shares(tree: Tree, free: NDArray[Any], each: int = 1) -> Floats:
    """Largest gang that one domain of each level can hold now, over all that is free; shape (K,).

    The gang has pods of ``each`` GPUs (or whatever ``free`` counts; shape (slots,)), and is measured in these
    too. 1 is unfragmented; nan where nothing is free.
    """
    total = float(free[tree.slot_at].sum())
    if total <= 0:
        return np.full(tree.node_level + 1, np.nan)
    placeable = free // each * each
    return np.asarray([float(sums.max()) for sums in domain_sums(tree, placeable)]) / total


def stranded_shares(tree: Tree, free: NDArray[Any], waiting: Waiting) -> Floats:
    """Share of the free GPUs that are in domains unable to host the gangs that come next; shape (K,).

    Mean over those of the gangs that an empty domain of the level could host; nan where there is none, or
    nothing is free.
    """
    levels = tree.node_level + 1
    total = float(free[tree.slot_at].sum())
    shares = np.full((len(waiting.pods), levels), np.nan)
    if total > 0:
        amounts = domain_sums(tree, free)
        rooms = {each: domain_sums(tree, free // max(each, 1)) for each in np.unique(waiting.gpus).tolist()}
        for gang, (pods, each) in enumerate(zip(waiting.pods.tolist(), waiting.gpus.tolist(), strict=True)):
            for level in range(levels):
                if waiting.fewest[gang, level] == 1 and each > 0:
                    unable = rooms[each][level] < pods
                    shares[gang, level] = float(amounts[level][unable].sum()) / total
    known = ~np.isnan(shares)
    counts = known.sum(axis=0)
    sums: Floats = np.where(known, shares, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def free_at(
    times: Floats, node_gpus: NDArray[Any], slots: Ints, taken: NDArray[Any], during: Floats
) -> Counts:
    """Free GPUs of each slot at each of the ascending times; shape (N, slots).

    ``slots``, ``taken`` (GPUs of each pod) and ``during`` (when each pod started and ended) tell of P pods;
    shapes (P,), (P,) and (P, 2). A pod holds its GPUs from its start until just before its end.
    """
    width = len(node_gpus)
    first = np.searchsorted(times, during[:, 0], side="left")
    last = np.searchsorted(times, during[:, 1], side="left")
    seen = first < last
    cells = np.concatenate([first[seen], last[seen]]) * width + np.concatenate([slots[seen], slots[seen]])
    changes = np.concatenate([taken[seen], -taken[seen]])
    grid = np.bincount(cells, weights=changes, minlength=(len(times) + 1) * width)
    used = np.cumsum(grid.reshape(len(times) + 1, width)[: len(times)], axis=0)
    free: Counts = np.maximum(node_gpus[None, :] - np.rint(used).astype(np.int64), 0)
    return free
