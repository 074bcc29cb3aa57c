"""How many equal pods may go to each domain where their own terms count them.

A term that selects the pods which carry it limits how many of them may be in one domain of its key:
anti-affinity allows one, a spread constraint as many as its least domain and ``maxSkew`` say. For a gang of
equal pods the limits are worked out for all of them at once, so that they need not be placed one by one;
where pods come in segments they are ceilings of what is counted.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.cluster.columns import UNLIMITED
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.scheduling.by_domain import DomainLimit, DomainMask
from closeby.topology.tree import Tree

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
    return sorted(limits, key=lambda limit: -_domains(limit))


def _domains(limit: DomainLimit) -> int:
    return int(np.count_nonzero(np.bincount(limit.codes)))


class Ceilings(Struct, frozen=True, eq=False):
    """What hard limits leave to equal pods of which segments stay together."""

    #: The most that domains of a limit may hold in the end; the finest domains first.
    most: tuple[tuple[DomainMask, Counts], ...] = ()
    #: The spread over whose domains segments are shared out, and its domain (a code, -1: none takes a pod)
    #: around each domain of the coarsest layer; None: no segment is whole in a domain of any spread.
    shared_out: tuple[DomainMask, Ints] | None = None
    #: Whether pods for which there is no room under these ceilings have none at all.
    exact: bool = True

    def applied(self, fits: Counts, order: Ints) -> Counts:
        """The room of each node, (slots,), as things are; see ``capped``."""
        for mask, ceiling in self.most:
            limit = limit_of(mask)
            fits = capped(limit, fits, np.maximum(ceiling - limit.counts, 0), order)
        return fits


def ceilings_of(
    masks: Sequence[DomainMask], fits: Counts, tree: Tree, coarsest: int, finest: int, wanted: int
) -> Ceilings:
    """The ceilings for so many pods where each node, (slots,), has room for ``fits`` of them.

    Their segments have domains of levels from ``coarsest`` to ``finest``.
    """
    most: list[tuple[DomainMask, Counts]] = []
    shared_out: tuple[DomainMask, Ints] | None = None
    #: The domains of the limit before, as long as these are inside the segments' and each other.
    inner, exact = np.arange(len(fits)), True
    for mask in sorted(masks, key=lambda mask: -_domains(limit_of(mask))):
        limit = limit_of(mask)
        if limit.eligible is None:
            ceiling = np.ones(len(limit.counts), dtype=np.int64)
            ceiling[0] = limit.counts[0] + wanted
            most.append((mask, ceiling))
            codes, owners = limit.codes.astype(np.intp), tree.owners_of_slots(np.arange(len(fits)), finest)
            exact &= nested(inner, codes) and nested(codes, owners)
            inner = codes
            continue
        around = None if shared_out is not None else _around(limit, tree, coarsest, fits)
        if around is not None:
            shared_out = mask, around
            continue
        exact = False
        between = bounds(limit, room_of(limit, fits), wanted)
        if between is not None:
            most.append((mask, between.most + limit.counts))
    return Ceilings(tuple(most), shared_out, exact)


def limit_of(mask: DomainMask) -> DomainLimit:
    """The limit of a mask that is known to have one, as things are."""
    limit = mask.limit()
    assert limit is not None
    return limit


def _around(limit: DomainLimit, tree: Tree, level: int, fits: Counts) -> Ints | None:
    """The domain of a limit around each domain of a level; None where some are not inside one."""
    positions = np.flatnonzero(fits[tree.slot_at] > 0)
    owners, codes = tree.owners(positions, level), limit.codes[tree.slot_at[positions]]
    around = np.full(tree.count(level), -1, dtype=np.intp)
    around[owners] = codes
    return around if bool((around[owners] == codes).all()) else None


def bounds_of_segments(
    limit: DomainLimit, around: Ints, whole: Counts, cost: Counts | None, size: int, pods: int
) -> tuple[DomainBounds, int] | None:
    """Bounds of whole segments for each domain of a limit, and the domain of a smaller one (0: for none).

    Of domains of the coarsest layer: ``around`` is the limit's domain, ``whole`` how many segments fit,
    ``cost`` how many fewer beside a smaller one. None: the pods can't be shared out.
    """
    known = around >= 0
    segments = np.zeros(len(limit.counts), dtype=np.int64)
    np.add.at(segments, around[known], whole[known])
    number, rest = divmod(pods, size)
    if cost is None or not rest:
        found = bounds(limit, segments, number, size)
        return None if found is None else (found, 0)
    cheapest = np.full(len(segments), UNLIMITED)
    np.minimum.at(cheapest, around[known], cost[known])
    beside = segments - cheapest
    # Of domains that are alike one is tried, the emptiest first.
    eligible = np.zeros(len(segments)) if limit.eligible is None else limit.eligible
    _, kinds = np.unique(np.stack([limit.counts, segments, beside, eligible]), axis=1, return_index=True)
    for code in kinds[np.argsort(limit.counts[kinds], kind="stable")].tolist():
        if not code or beside[code] < 0:
            continue
        counts, left = limit.counts.copy(), segments.copy()
        counts[code] += rest
        left[code] = beside[code]
        lowest = int(counts[code]) - limit.max_skew
        found = bounds(replace(limit, counts=counts), left, number, size, lowest)
        if found is not None:
            return found, code
    return None


def keeps(limit: DomainLimit, used: Ints) -> bool:
    """Whether the domains on which pods were placed, as codes, keep a limit now."""
    counts = limit.counts
    if limit.eligible is None:
        return bool((counts[used[used > 0]] <= 1).all())
    enough = int(limit.eligible.sum()) >= max(limit.min_domains, 1)
    least = int(counts[limit.eligible].min()) if enough else 0
    return bool(((used > 0) & (counts[used] - least <= limit.max_skew)).all())


def nested(finer: Ints, coarser: Ints) -> bool:
    """Whether each domain of one kind is inside one of another; nodes that are in none of the finer are free.

    Both give the domain of each node, (slots,), as a number above 0 or, of ``coarser``, any.
    """
    known = np.flatnonzero(finer > 0)
    owner = np.zeros(int(finer.max(initial=0)) + 1, dtype=np.intp)
    owner[finer[known]] = coarser[known]
    return bool((owner[finer[known]] == coarser[known]).all())
