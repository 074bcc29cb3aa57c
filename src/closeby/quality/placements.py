"""Jobs and the nodes of their pods in columns, which measures are worked out from, and the domains they span.

Nothing here or beside it loops over pods: a history of a hundred thousand jobs takes a fraction of a second.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.topology.tree import Tree

#: What single nodes are called among the levels, whatever alias a topology gives them.
NODE_LEVEL = "hostname"


class Placements(Struct, frozen=True, kw_only=True, eq=False):
    """Where the pods of J jobs are in one tree, P pods in all. A job that never started has no pods.

    Results by level have K columns: the tree's levels, coarse to fine, and at last single nodes.
    """

    tree: Tree
    #: Job ``i`` has the pods ``offsets[i]`` to ``offsets[i + 1]``; shape (J + 1,).
    offsets: Ints
    #: Job of each pod; shape (P,).
    job: Ints
    #: Position of each pod's node in the tree, in the order of ranks; shape (P,).
    positions: Ints
    #: The same, ascending inside each job, so that the pods of a domain stand side by side; shape (P,).
    ascending: Ints

    @property
    def jobs(self) -> int:
        """J."""
        return len(self.offsets) - 1

    @property
    def levels(self) -> int:
        """K."""
        return self.tree.node_level + 1

    @property
    def pods(self) -> Counts:
        """Pods of each job that are in the tree; shape (J,)."""
        return np.diff(self.offsets).astype(np.int64)

    def owners(self, level: int, positions: Ints) -> Ints:
        """The domain of a level in which each position is."""
        return self.tree.owners(positions, level)

    def runs(self, level: int) -> Ints:
        """Where in ``ascending`` the pods of each domain that a job uses begin: one a job and domain."""
        owners = self.owners(level, self.ascending)
        begins = np.ones(len(owners), dtype=np.bool_)
        begins[1:] = (owners[1:] != owners[:-1]) | (self.job[1:] != self.job[:-1])
        return np.flatnonzero(begins)


def placements(tree: Tree, offsets: NDArray[Any], slots: NDArray[Any]) -> Placements:
    """Jobs on slots, pods in the order of their ranks: job ``i`` has ``slots[offsets[i]:offsets[i + 1]]``.

    Pods whose slot is not in the tree are left out.
    """
    inside = slots < len(tree.position_of)
    positions = np.full(len(slots), tree.size, dtype=np.intp)
    positions[inside] = tree.position_of[slots[inside]]
    job = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = positions < tree.size
    if not known.all():
        job, positions = job[known], positions[known]
    bounds = np.concatenate(([0], np.cumsum(np.bincount(job, minlength=len(offsets) - 1))))
    order = np.argsort(job * np.intp(tree.size + 1) + positions, kind="stable")
    return Placements(
        tree=tree, offsets=bounds.astype(np.intp), job=job, positions=positions, ascending=positions[order]
    )


def per_job(found: Placements, jobs: NDArray[Any], weights: NDArray[Any] | None = None) -> Floats:
    """Sum of ``weights`` (else the number of entries) by job; shape (J,). ``jobs`` names each entry's job."""
    return np.bincount(jobs, weights=weights, minlength=found.jobs).astype(np.float64)


def level_names(tree: Tree) -> tuple[str, ...]:
    """Short names of the K levels, coarse to fine; single nodes are always ``hostname``."""
    return (*tree.level_names[:-1], NODE_LEVEL)


def known(value: float) -> float | None:
    """None for nan."""
    return None if np.isnan(value) else float(value)


def by_level(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One column a level; shape (J, K)."""
    return np.stack(columns, axis=1)


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
    return np.asarray([sums.max() for sums in tree.sums_by_level(held)])


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
