"""The ring in the order of ranks: what a ring all-reduce runs over.

It shows how well ranks follow the topology, which no measure of pairs can.
"""

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Counts, Ints
from closeby.quality.placements import Placements, by_level


class Rings(Struct, frozen=True, kw_only=True, eq=False):
    """The edges of all jobs' rings: each pod to the next by rank, the last to the first.

    A job of one pod has no ring. Two pods have two edges, there and back. With E edges.
    """

    #: Job and ends of each edge, as positions in the tree; shape (E,).
    job: Ints
    here: Ints
    there: Ints
    #: Whether an edge leaves a domain, by level; shape (E, K).
    crosses: Bools


def rings(found: Placements) -> Rings:
    """The rings of all jobs."""
    count = len(found.positions)
    following = np.arange(1, count + 1)
    last = found.offsets[1:][np.diff(found.offsets) > 0] - 1
    following[last] = found.offsets[:-1][np.diff(found.offsets) > 0]
    edges = np.flatnonzero(following != np.arange(count))
    here, there = found.positions[edges], found.positions[following[edges]]
    return Rings(
        job=found.job[edges],
        here=here,
        there=there,
        crosses=by_level(
            [found.owners(level, here) != found.owners(level, there) for level in range(found.levels)]
        ),
    )


def ring_crossings(found: Placements, ring: Rings) -> Counts:
    """Edges of each job's ring that leave a domain of a level; shape (J, K).

    At least the span, where that is more than one: a ring leaves each domain that it enters.
    """
    return by_level(
        [
            np.bincount(ring.job[ring.crosses[:, level]], minlength=found.jobs).astype(np.int64)
            for level in range(found.levels)
        ]
    )


def ring_hops(crossings: Counts) -> Counts:
    """Tree edges that each job's ring runs over, in all; shape (J,): two for each domain it leaves."""
    hops: Counts = 2 * crossings.sum(axis=1)
    return hops


def least_ring_hops(span: Counts) -> Counts:
    """The fewest that a ring over the same pods could run over, in another order of ranks; shape (J,)."""
    hops: Counts = 2 * np.where(span > 1, span, 0).sum(axis=1)
    return hops
