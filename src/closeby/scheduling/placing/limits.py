"""How many equal pods may go to each domain where their own terms count them.

A term that selects the pods which carry it limits how many of them may be in one domain of its key:
anti-affinity allows one, a spread constraint as many as its least domain and ``maxSkew`` say. For a gang of
equal pods the limits are worked out for all of them at once, so that they need not be placed one by one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from closeby.objects.arrays import Bools, Counts, Ints
from closeby.scheduling.by_domain import DomainLimit


class DomainBounds(NamedTuple):
    """How many pods each domain must take at the least, and may take at the most; both (domains,)."""

    least: Counts
    most: Counts


def bounds(limit: DomainLimit, room: Counts, wanted: int) -> DomainBounds | None:
    """Between what ``wanted`` pods may be shared out among domains with this much room; None if they can't.

    Any choice between the bounds that adds up to ``wanted`` keeps the limit; ``room`` has shape (domains,).
    """
    nothing = np.zeros(len(room), dtype=np.int64)
    if limit.eligible is None:
        most = np.minimum(room, np.maximum(1 - limit.counts, 0))
        most[0] = room[0]
        return DomainBounds(nothing, most) if int(most.sum()) >= wanted else None
    found = _spread(limit, limit.eligible, room, wanted)
    if found is None:
        return None
    least, most = found
    return DomainBounds(np.where(limit.eligible, np.maximum(least - limit.counts, 0), 0), most)


def _spread(limit: DomainLimit, eligible: Bools, room: Counts, wanted: int) -> tuple[int, Counts] | None:
    """How many pods the least domain is to hold, and the most that domains may take then."""
    if not eligible.any():
        return None
    lowest = highest = 0
    if int(eligible.sum()) >= limit.min_domains:
        lowest = int(limit.counts[eligible].min())
        highest = int((limit.counts + room)[eligible].min())
    # More fit the higher the least domain is, and all up to ``highest`` can be reached.
    while lowest < highest:
        middle = (lowest + highest) // 2
        if int(_up_to(limit, room, middle).sum()) >= wanted:
            highest = middle
        else:
            lowest = middle + 1
    most = _up_to(limit, room, lowest)
    return (lowest, most) if int(most.sum()) >= wanted else None


def _up_to(limit: DomainLimit, room: Counts, least: int) -> Counts:
    """The most that domains may take while the least one holds ``least``."""
    most: Counts = np.minimum(room, np.maximum(least + limit.max_skew - limit.counts, 0))
    most[0] = 0
    return most


def room_of(limit: DomainLimit, fits: Counts) -> Counts:
    """The room of each domain, given the room of each node; shapes (domains,) and (slots,)."""
    room = np.zeros(len(limit.counts), dtype=np.int64)
    np.add.at(room, limit.codes, fits[: len(limit.codes)])
    return room


def capped(limit: DomainLimit, fits: Counts, most: Counts, order: Ints) -> Counts:
    """The room of each node, cut so that no domain takes more than ``most``.

    The first nodes of a domain in ``order`` keep theirs. Where the domains of several limits are inside each
    other, the finest is to be applied first: then as many pods fit in all as the limits allow.
    """
    ordered = order[fits[order] > 0]
    ordered = ordered[np.argsort(limit.codes[ordered], kind="stable")]
    codes, room = limit.codes[ordered], fits[ordered]
    cut = np.zeros_like(fits)
    if len(codes):
        # What the nodes before it in the same domain take.
        before = np.cumsum(room) - room
        starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        before -= np.repeat(before[starts], np.diff(np.append(starts, len(codes))))
        cut[ordered] = np.clip(most[codes] - before, 0, room)
    return cut


def finest_first(limits: Sequence[DomainLimit]) -> list[DomainLimit]:
    """Limits by the number of their domains, those with the most first."""
    return sorted(limits, key=lambda limit: -int(np.count_nonzero(np.bincount(limit.codes))))
