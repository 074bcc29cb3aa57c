"""How many equal pods may go to each domain where their own terms count them.

A term that selects the pods which carry it limits how many of them may be in one domain of its key:
anti-affinity allows one, a spread constraint as many as its least domain and ``maxSkew`` say. For a gang of
equal pods the limits are worked out for all of them at once, so that they need not be placed one by one.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import UNLIMITED
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.scheduling.by_domain import DomainLimit

#: Products that are worked out to compare which domains pods can use.
_PRODUCTS: Final = 1 << 27


class DomainBounds(NamedTuple):
    """How many pods each domain must take at the least, and may take at the most; both (domains,)."""

    least: Counts
    most: Counts


def bounds(
    limit: DomainLimit, room: Counts, wanted: int, size: int = 1, lowest: int = 0
) -> DomainBounds | None:
    """Between what ``wanted`` pods may be shared out among domains with this much room; None if they can't.

    Any choice between the bounds that adds up to ``wanted`` keeps the limit; ``room`` has shape (domains,).
    Pods that stay together, ``size`` each time, are counted so, here and in what is returned. ``lowest``: the
    least domain of a spread must hold so many.
    """
    nothing = np.zeros(len(room), dtype=np.int64)
    if limit.eligible is None:
        most = np.minimum(room, np.maximum(1 - limit.counts, 0) // size)
        most[0] = room[0]
        return DomainBounds(nothing, most) if int(most.sum()) >= wanted else None
    return _spread(limit, limit.eligible, room, wanted, size, lowest)


def _spread(
    limit: DomainLimit, eligible: Bools, room: Counts, wanted: int, size: int, lowest: int
) -> DomainBounds | None:
    """The bounds of a spread constraint."""
    if not eligible.any():
        return None
    low = highest = 0
    if int(eligible.sum()) >= limit.min_domains:
        low = int(limit.counts[eligible].min())
        highest = int((limit.counts + room * size)[eligible].min())
    # More fit the higher the least domain is, and all up to ``highest`` can be reached.
    low, high = max(low, lowest), highest
    while low < high:
        middle = (low + high) // 2
        if int(_up_to(limit, room, middle, size).sum()) >= wanted:
            high = middle
        else:
            low = middle + 1
    for least in range(low, highest + 1):
        most = _up_to(limit, room, least, size)
        needed = np.where(eligible, np.maximum(-((limit.counts - least) // size), 0), 0)
        if int(most.sum()) < wanted or int(needed.sum()) > wanted:
            return None
        # Of pods that stay together a domain may lack some, and have too many with those.
        if bool((needed <= most).all()):
            return DomainBounds(needed, most)
    return None


def _up_to(limit: DomainLimit, room: Counts, least: int, size: int) -> Counts:
    """The most that domains may take while the least one holds ``least``."""
    most: Counts = np.minimum(room, np.maximum(least + limit.max_skew - limit.counts, 0) // size)
    most[0] = 0
    return most


def most_inside(limit: DomainLimit, room: Counts, owners: Ints, count: int) -> Counts:
    """How many pods each of ``count`` sets of nodes takes at the most if all pods are to be inside it.

    ``room`` is that of each node, ``owners`` its set (-1: none); both (slots,). What the limit says of nodes
    outside the set stays as it is: so it is often clear that a rack can't hold pods that must spread.
    """
    used = np.flatnonzero((room > 0) & (owners >= 0))
    domains = len(limit.counts)
    # Each domain of the limit in each set, with the room there.
    pairs, which = np.unique(owners[used] * domains + limit.codes[used], return_inverse=True)
    held = np.bincount(which, weights=room[used], minlength=len(pairs)).astype(np.int64)
    sets, codes = np.divmod(pairs, domains)
    if limit.eligible is None:
        taken = np.where(codes > 0, np.minimum(held, np.maximum(1 - limit.counts[codes], 0)), held)
    else:
        least = _least_inside(limit, limit.eligible, sets, codes, held, count)
        taken = np.minimum(held, np.maximum(least[sets] + limit.max_skew - limit.counts[codes], 0))
        taken[codes == 0] = 0
    most: Counts = np.bincount(sets, weights=taken, minlength=count).astype(np.int64)
    return most


def _least_inside(
    limit: DomainLimit, eligible: Bools, sets: Ints, codes: Ints, held: Counts, count: int
) -> Counts:
    """How many pods the least domain can hold in the end if pods come to one set alone; shape (count,)."""
    known = np.flatnonzero(eligible)
    least = np.zeros(count, dtype=np.int64)
    if len(known) < max(limit.min_domains, 1):
        return least
    emptiest = known[np.argsort(limit.counts[known], kind="stable")]
    rank = np.zeros(len(limit.counts), dtype=np.int64)
    rank[emptiest] = np.arange(len(emptiest))
    inside = np.flatnonzero(eligible[codes])
    order = inside[np.lexsort((rank[codes[inside]], sets[inside]))]
    owners = sets[order]
    # A set reaches the emptiest domains as long as these follow one another; the next one stays as it is.
    sizes = np.bincount(owners, minlength=count)
    places = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    reached = np.bincount(owners[rank[codes[order]] == places], minlength=count)
    least[:] = np.append(limit.counts[emptiest], UNLIMITED)[reached]
    np.minimum.at(least, owners, limit.counts[codes[order]] + held[order])
    return least


def most_apart(codes: NDArray[np.int32], owners: Ints, count: int, number: int) -> Counts:
    """How many of ``number`` pods that keep off each other each of ``count`` sets of nodes takes at the most.

    ``codes`` is the domain of each node (-1: it takes none of them, 0: it has none), ``owners`` its set (-1:
    none); both (slots,).
    """
    known = np.flatnonzero((codes >= 0) & (owners >= 0))
    there = np.unique(np.stack((owners[known], codes[known])), axis=1)
    most: Counts = np.bincount(there[0], minlength=count).astype(np.int64)
    most[there[0][there[1] == 0]] = number
    return np.minimum(most, number)


def exceed_domains(number_by_usable: Mapping[bytes, int]) -> bool:
    """Whether pods certainly can't have a domain each; given how many can use which domains (packed bits).

    By Hall's theorem it is so where all pods that can use no others than some domains are more than these.
    That is tried with the domains of each kind of pods, which settles it where those of two kinds are apart
    or the ones inside the others, and with all domains.
    """
    if not number_by_usable:
        return False
    usable = np.stack([np.unpackbits(np.frombuffer(one, dtype=np.uint8)) for one in number_by_usable])
    numbers = np.array([*number_by_usable.values(), 0])
    ways = np.concatenate((usable, usable.any(axis=0, keepdims=True))).astype(np.float32)
    tried = ways[-max(1, _PRODUCTS // ways.size) :]  # All domains are the last.
    inside = ways @ (1 - tried).T == 0
    return bool((numbers @ inside > tried.sum(axis=1)).any())


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
