"""Shares of domains under anti-affinity and spread, against every way to share pods out."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from closeby.scheduling.by_domain import DomainLimit
from closeby.scheduling.placing.limits import bounds, capped, most_inside, room_of


@st.composite
def limits(draw: st.DrawFn) -> tuple[DomainLimit, list[int]]:
    """One limit over up to four domains, with the room of eight nodes; domain 0 is nodes without the key."""
    domains = draw(st.integers(1, 4))
    codes = draw(st.lists(st.integers(0, domains), min_size=8, max_size=8))
    counts = draw(st.lists(st.integers(0, 3), min_size=domains, max_size=domains))
    eligible = draw(st.lists(st.booleans(), min_size=domains, max_size=domains))
    apart = draw(st.booleans())
    limit = DomainLimit(
        codes=np.asarray(codes, dtype=np.int32),
        counts=np.asarray([0, *counts]),
        eligible=None if apart else np.asarray([False, *eligible]),
        max_skew=draw(st.integers(1, 2)),
        min_domains=draw(st.integers(1, 3)),
    )
    room = draw(st.lists(st.integers(0, 3), min_size=8, max_size=8))
    # No pod goes to a node whose domain does not count.
    usable = [True] * (domains + 1) if apart else [False, *eligible]
    return limit, [amount if usable[code] else 0 for amount, code in zip(room, codes, strict=True)]


def allowed(limit: DomainLimit, taken: tuple[int, ...]) -> bool:
    """Whether so many more pods in each domain keep the limit in the end."""
    after = [int(count) + more for count, more in zip(limit.counts, taken, strict=True)]
    used = [number for number, more in zip(after[1:], taken[1:], strict=True) if more]
    if limit.eligible is None:
        return all(number <= 1 for number in used)
    eligible = [number for number, counts in zip(after, limit.eligible, strict=True) if counts]
    least = min(eligible, default=0) if len(eligible) >= limit.min_domains else 0
    return not taken[0] and all(number - least <= limit.max_skew for number in used)


@given(limits(), st.integers(1, 10), st.integers(1, 4))
def test_pods_are_shared_out_exactly_when_some_way_keeps_the_limit(
    drawn: tuple[DomainLimit, list[int]], wanted: int, size: int
) -> None:
    limit, fits = drawn
    room = room_of(limit, np.asarray(fits))
    ways = [
        way
        for way in product(*(range(int(most) + 1) for most in room))
        if sum(way) == wanted and allowed(limit, tuple(number * size for number in way))
    ]
    found = bounds(limit, room, wanted, size)
    assert (found is not None) == bool(ways)
    if found is not None:
        assert all(found.least <= found.most)
        between = product(*(range(int(low), int(high) + 1) for low, high in zip(*found, strict=True)))
        chosen = [way for way in between if sum(way) == wanted]
        assert chosen
        assert all(allowed(limit, tuple(number * size for number in way)) for way in chosen)


@given(limits(), st.data())
def test_no_domain_keeps_more_room_than_its_share(
    drawn: tuple[DomainLimit, list[int]], data: st.DataObject
) -> None:
    limit, fits = drawn
    room = room_of(limit, np.asarray(fits))
    most = np.asarray([data.draw(st.integers(0, 5)) for _ in room])
    order = np.asarray(data.draw(st.permutations(range(8))))
    cut = capped(limit, np.asarray(fits), most, order)
    assert all(cut <= fits)
    assert list(room_of(limit, cut)) == list(np.minimum(room, most))


@given(limits(), st.data())
def test_a_set_of_nodes_takes_as_many_pods_as_some_way_inside_it(
    drawn: tuple[DomainLimit, list[int]], data: st.DataObject
) -> None:
    limit, fits = drawn
    owners = np.asarray(data.draw(st.lists(st.integers(-1, 2), min_size=8, max_size=8)))
    most = most_inside(limit, np.asarray(fits), owners, 3)
    for one in range(3):
        room = room_of(limit, np.where(owners == one, fits, 0))
        ways = product(*(range(int(most) + 1) for most in room))
        best = max(sum(way) for way in ways if allowed(limit, way))
        assert most[one] == best
