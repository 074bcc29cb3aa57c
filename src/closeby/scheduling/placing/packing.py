"""Shares segments out over domains, given how many fit in each: the fewest domains, or evenly.

Unequal segments are packed exactly for as long as the steps last.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Counts
from closeby.topology.tree import Domain


class Packed(Struct, frozen=True):
    """The bin of each item; None: there is no way, for certain if ``exact``."""

    bins: tuple[int, ...] | None
    exact: bool = True
    #: Steps that the search took.
    steps: int = 0


#: Steps of one search; with more bins than this they are fewer.
STEPS: Final = 10_000
_BINS: Final = 100


def pack(items: Sequence[int], rooms: Counts, *, spread: bool, alone: bool) -> Packed:
    """Each item into one bin. The fewest bins, then the tightest; with ``spread`` as many as there can be.

    ``alone``: a bin takes one item.
    """
    search = _Packing(items, 1 if alone else len(items))
    # Of bins only the largest count: so many as there are items.
    order = np.argsort(-rooms, kind="stable")
    smallest = min(items, default=0)
    usable = order[rooms[order] >= smallest]
    largest = usable[: len(items)].tolist()
    counts = range(1, len(largest) + 1)
    for count in reversed(counts) if spread else counts:
        chosen = largest[:count]
        found = search.into([int(rooms[one]) for one in chosen], every=spread)
        if found is None:
            continue
        chosen = chosen if spread else _tightened(search, usable, rooms, chosen)
        final = search.into([int(rooms[one]) for one in chosen], every=spread)
        return Packed(tuple(chosen[one] for one in (final or found)), search.exact, search.steps)
    return Packed(None, search.exact, search.steps)


def _tightened(search: "_Packing", usable: Counts, rooms: Counts, chosen: list[int]) -> list[int]:
    """The same number of bins, from the last on each as small as it may be."""
    for place in range(len(chosen) - 1, -1, -1):
        others = set(chosen) - {chosen[place]}
        ascending = [one for one in usable[::-1].tolist() if one not in others]
        low, high = 0, ascending.index(chosen[place])
        while low < high:
            middle = (low + high) // 2
            trial = [*chosen[:place], ascending[middle], *chosen[place + 1 :]]
            if search.into([int(rooms[one]) for one in trial], every=False) is None:
                low = middle + 1
            else:
                high = middle
        chosen = [*chosen[:place], ascending[low], *chosen[place + 1 :]]
    return chosen


class _Packing:
    """Depth-first, the largest item first; equal states are judged once."""

    def __init__(self, items: Sequence[int], most: int) -> None:
        self._items = items
        self._order = sorted(range(len(items)), key=lambda one: -items[one])
        #: Each step looks at all bins.
        self._left = STEPS * _BINS
        self._most = most
        self.steps = 0
        self.exact = True

    def into(self, rooms: list[int], *, every: bool) -> list[int] | None:
        """The bin of each item; ``every``: no bin stays empty."""
        if sum(rooms) < sum(self._items):
            return None
        left, used = list(rooms), [0] * len(rooms)
        hopeless: set[tuple[int, bytes]] = set()
        chosen: list[int] = []
        #: For each item in turn: the state before it, and the bins that it may still go to.
        way: list[tuple[bytes, Iterator[int]]] = []
        while len(chosen) < len(self._order) or (every and not all(used)):
            depth = len(chosen)
            if len(way) == depth < len(self._order):
                state = _state(left, used)
                vain = every and len(self._order) - depth < used.count(0)
                if not vain and (depth, state) not in hopeless:
                    self._left -= max(len(rooms), _BINS)
                    self.steps += 1
                    if self._left < 0:
                        self.exact = False
                        return None
                    way.append((state, self._bins(self._items[self._order[depth]], left, used)))
            index = next(way[depth][1], None) if len(way) > depth else None
            if index is not None:
                left[index] -= self._items[self._order[depth]]
                used[index] += 1
                chosen.append(index)
                continue
            if len(way) > depth:
                hopeless.add((depth, way.pop()[0]))
            if not chosen:
                return None
            last = chosen.pop()
            left[last] += self._items[self._order[len(chosen)]]
            used[last] -= 1
        bins = dict(zip(self._order, chosen, strict=True))
        return [bins[one] for one in range(len(self._items))]

    def _bins(self, item: int, left: list[int], used: list[int]) -> Iterator[int]:
        """The bins that take an item, the tightest first, one of each state."""
        found: dict[tuple[int, int], int] = {}
        for index in sorted(range(len(left)), key=left.__getitem__):
            if left[index] >= item and used[index] < self._most:
                found.setdefault((left[index], used[index]), index)
        return iter(tuple(found.values()))


def _state(left: list[int], used: list[int]) -> bytes:
    """What is left and used of the bins, in whatever order these stand."""
    return array("q", chain.from_iterable(sorted(zip(left, used, strict=True)))).tobytes()


class LastSegment(Struct, frozen=True):
    """The domain of the smaller segment, how many whole ones go with it, and how many domains all need."""

    index: int
    whole: int
    domains: int


def for_the_smaller(
    whole: Counts, beside: Counts, free: Counts, number: int, *, spread: bool
) -> LastSegment | None:
    """Where the smaller segment goes for the fewest domains, of these the tightest.

    ``beside``: whole segments that fit beside it, -1 where it does not; ``free`` is the room of each.
    """
    total = int(whole.sum())
    fitting = np.flatnonzero((beside >= 0) & (total - whole + beside >= number))
    if not len(fitting):
        return None
    own, without = beside[fitting], whole[fitting]
    if spread:
        index = int(fitting[np.argmin(without - own)])
        return LastSegment(index, max(0, number - (total - int(whole[index]))), 0)
    order = np.argsort(-whole, kind="stable")
    reach = np.append(0, np.cumsum(whole[order]))
    # How many others, the largest first, take what does not fit beside it; it may be one of these itself.
    left = np.maximum(number - own, 0)
    others = reach.searchsorted(left)
    among = others > np.argsort(order)[fitting]
    others = np.where(among, reach.searchsorted(left + without) - 1, others)
    held = reach[others + among] - np.where(among, without, 0)
    best = int(np.lexsort((free[fitting], own, others))[0])
    return LastSegment(int(fitting[best]), max(number - int(held[best]), 0), int(others[best]) + 1)


def evenly(whole: Counts, number: int) -> Counts:
    """So many segments over as many domains as can be, each taking as few as can be."""
    low, high = 0, int(whole.max(initial=0))
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(whole, middle).sum()) >= number:
            high = middle
        else:
            low = middle + 1
    shares = np.minimum(whole, max(low - 1, 0))
    left = number - int(shares.sum())
    more = np.flatnonzero(whole > shares)
    shares[more[np.argsort(-whole[more], kind="stable")][:left]] += 1
    return shares


def cut(shares: Sequence[tuple[Domain, int]], sizes: Sequence[int]) -> list[list[tuple[Domain, int]]]:
    """Cut a run of domains with their pods at the given sizes."""
    ends = list(accumulate(sizes))
    found: list[list[tuple[Domain, int]]] = [[] for _ in sizes]
    at = part = 0
    for domain, count in shares:
        end = at + count
        while at < end:
            taken = min(end, ends[part]) - at
            found[part].append((domain, taken))
            at += taken
            if at == ends[part]:
                part += 1
    return found


def first_of(shares: Sequence[tuple[Domain, int]], pods: int) -> list[tuple[Domain, int]]:
    """The first so many pods of a run of domains."""
    found = []
    for domain, count in shares:
        if pods > 0:
            found.append((domain, min(count, pods)))
        pods -= count
    return found
