"""Where a placed gang lies: its domain, its span over the levels, and the ranks of its members."""

from collections.abc import Collection, Sequence
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.scheduling.outcomes import Place
from closeby.topology.tree import ROOT, Tree

Ints = NDArray[np.intp]


def place_of(tree: Tree, members: Sequence[tuple[Pod, int]]) -> Place:
    """The tightest domain and the span of members with their slots (at least one)."""
    positions = np.sort(tree.position_of[np.asarray([slot for _, slot in members], dtype=np.intp)])
    positions = positions[: np.searchsorted(positions, tree.size)]
    domain = tree.tightest(positions) if len(positions) else ROOT
    names = tree.level_names
    owners = [*(at[positions] for at in tree.domain_at), positions]
    return Place(
        topology=tree.name,
        level=None if domain == ROOT else names[domain.level],
        path=tree.path(domain),
        # Positions ascend, and with them the domains: a new domain begins wherever the number changes.
        span={
            name: int(np.count_nonzero(owner[1:] != owner[:-1])) + bool(len(owner))
            for name, owner in zip(names, owners, strict=True)
        },
    )


def ranks(tree: Tree, taken: Collection[int], unknown: int, placed: Sequence[tuple[Pod, int]]) -> list[int]:
    """Rank of each newly placed pod, in their order: consecutive ranks are neighbours in topology order.

    Ranks that members have (``taken``) are kept; the new ones get the lowest that are free. Placed members of
    which no rank is known (so many are ``unknown``) are taken to hold the lowest.
    """
    positions = tree.position_of[np.asarray([slot for _, slot in placed], dtype=np.intp)]
    order = np.argsort(positions, kind="stable")
    places = np.empty(len(order), dtype=np.intp)
    places[order] = np.arange(len(order))
    if not taken and not unknown:
        return places.tolist()
    free = (rank for rank in count() if rank not in taken)
    numbers = list(islice(free, unknown, unknown + len(placed)))
    return [numbers[place] for place in places.tolist()]
