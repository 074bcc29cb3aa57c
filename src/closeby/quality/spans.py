"""Span: how many domains of each level a job is in, and how many it would need on an empty cluster."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats
from closeby.quality.placements import Placements, by_level
from closeby.topology.tree import Tree


def spans(found: Placements, *, labelled: bool = False) -> Counts:
    """Distinct domains that each job uses, by level; shape (J, K); 0 for a job without pods.

    A node without a level's label is a domain of its own, or none (``labelled``).
    """
    columns = []
    for level in range(found.levels):
        runs = found.runs(level)
        if labelled and level < found.tree.node_level:
            runs = runs[found.tree.labelled[level][found.owners(level, found.ascending[runs])]]
        columns.append(np.bincount(found.job[runs], minlength=found.jobs).astype(np.int64))
    return by_level(columns)


def most_held(tree: Tree, room: NDArray[Any]) -> Floats:
    """The most of something that a domain of each level holds; shape (K,).

    ``room`` says how much each slot holds, shape (slots,): pods of one kind, or amounts of a resource.
    """
    if not tree.size:
        return np.zeros(tree.node_level + 1)
    held = room[tree.slot_at].astype(np.float64)
    return np.asarray([tree.sums(level, held).max() for level in range(tree.node_level + 1)])


def fewest(tree: Tree, node_gpus: NDArray[Any], pods: NDArray[Any], gpus: NDArray[Any]) -> Floats:
    """Fewest domains of each level that could hold each job on an empty cluster; shape (J, K).

    That is ceil(pods / most pods that one domain holds when empty). ``node_gpus`` has shape (slots,);
    ``pods`` and ``gpus`` (of each pod) have shape (J,). A pod without GPUs fits anywhere. nan where no domain
    holds any pod.
    """
    kinds, kind_of = np.unique(gpus, return_inverse=True)
    most = np.full((len(kinds), tree.node_level + 1), np.inf)
    for row, wanted in enumerate(kinds.tolist()):
        if wanted > 0:
            most[row] = most_held(tree, node_gpus // wanted)
    return domains_needed(pods[:, None], most[kind_of.reshape(-1)])


def domains_needed(wanted: NDArray[Any], most: NDArray[Any]) -> Floats:
    """ceil(wanted / most), at least 1; nan where ``most`` is 0."""
    known = np.where(most > 0, most, np.nan)
    return np.maximum(np.ceil(wanted / known), 1.0)


def excess_spans(span: Counts, least: Floats) -> Floats:
    """Span over the fewest domains that could hold the job: 1 is ideal; shape (J, K).

    nan for a job without pods, and where no domain could hold any pod of it.
    """
    return np.where(span > 0, span, np.nan) / least
