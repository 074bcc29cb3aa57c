"""Jobs and the nodes of their pods in columns: what every measure of placement is worked out from.

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
        tree=tree,
        offsets=bounds.astype(np.intp),
        job=job,
        positions=positions,
        ascending=positions[order],
    )


def per_job(found: Placements, jobs: NDArray[Any], weights: NDArray[Any] | None = None) -> Floats:
    """Sum of ``weights`` (else the number of entries) by job; shape (J,). ``jobs`` names each entry's job."""
    return np.bincount(jobs, weights=weights, minlength=found.jobs).astype(np.float64)


def level_names(tree: Tree) -> tuple[str, ...]:
    """Short names of the K levels, coarse to fine; single nodes are always ``hostname``."""
    return (*tree.level_names[:-1], NODE_LEVEL)


def by_level(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One column a level; shape (J, K)."""
    return np.stack(columns, axis=1)
