"""Where a placed gang lies: its domain, its span over the levels, and the ranks of its members."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.scheduling.outcomes import Place
from closeby.topology.tree import ROOT, Tree

Ints = NDArray[np.intp]


def place_of(tree: Tree, members: Sequence[tuple[Pod, int]]) -> Place:
    """The tightest domain and the span of members with their slots (at least one)."""
    positions = tree.position_of[np.asarray([slot for _, slot in members], dtype=np.intp)]
    positions = positions[positions < tree.size]
    domain = tree.tightest(positions) if len(positions) else ROOT
    names = tree.level_names
    owners = [*(at[positions] for at in tree.domain_at), positions]
    return Place(
        topology=tree.name,
        level=None if domain == ROOT else names[domain.level],
        path=tree.path(domain),
        span={name: len(np.unique(owner)) for name, owner in zip(names, owners, strict=True)},
    )


def ranks(
    tree: Tree, running: Sequence[tuple[Pod, int]], placed: Sequence[tuple[Pod, int]]
) -> Mapping[str, int]:
    """Rank of each newly placed pod, by uid: consecutive ranks are neighbours in topology order.

    Ranks that running members carry are kept; the new ones get the lowest that are free.
    """
    order = np.argsort(
        tree.position_of[np.asarray([slot for _, slot in placed], dtype=np.intp)], kind="stable"
    )
    taken = {pod.rank for pod, _ in running if pod.rank is not None}
    # Running members without a rank label are taken to hold the lowest ranks.
    unknown = sum(1 for pod, _ in running if pod.rank is None)
    free = (rank for rank in range(len(running) + len(placed) + len(taken) + 1) if rank not in taken)
    for _ in range(unknown):
        next(free)
    return {placed[index][0].uid: rank for index, rank in zip(order.tolist(), free, strict=False)}
