"""The log of touched slots: readers see exactly what came after they last looked, or that it is lost."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from closeby.cluster.changes import ChangeLog


def slots(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.asarray(numbers, dtype=np.intp)


def test_a_reader_sees_what_came_after_its_cursor() -> None:
    log = ChangeLog()
    log.add(slots(1, 2))
    cursor = log.cursor
    assert log.since(cursor) is not None
    log.add_one(7)
    log.add(slots(7, 8))
    after = log.since(cursor)
    assert after is not None
    assert after.tolist() == [7, 7, 8]


def test_a_reader_that_fell_far_behind_is_informed() -> None:
    log = ChangeLog(limit=2048)
    log.add_one(1)
    start = 0
    for _ in range(3000):
        log.add_one(2)
    assert log.since(start) is None
    assert log.since(log.cursor) is not None


@given(st.lists(st.lists(st.integers(0, 99), max_size=40), max_size=60), st.integers(0, 60))
def test_what_is_not_lost_is_exact(additions: list[list[int]], looked_at: int) -> None:
    log = ChangeLog(limit=64)
    cursor = 0
    expected: list[int] = []
    for number, numbers in enumerate(additions):
        if number == looked_at:
            cursor, expected = log.cursor, []
        log.add(slots(*numbers))
        expected += numbers
    seen = log.since(cursor)
    assert seen is None or seen.tolist() == expected


def test_the_older_half_is_forgotten_past_the_limit_and_no_more() -> None:
    log, noted = ChangeLog(limit=1000), list(range(2100))
    for number in noted[:1000]:
        log.add_one(number)
    assert log.since(0) is not None
    log.add(slots(*noted[1000:1100]))
    for number in noted[1100:]:
        log.add_one(number)
    assert log.since(0) is None
    first = next(cursor for cursor in range(log.cursor) if log.since(cursor) is not None)
    assert first >= 1000, "half of what was there is lost, and that is told"
    seen = log.since(first)
    assert seen is not None and seen.tolist() == noted[first:]
    assert log.since(first - 1) is None


def test_more_at_once_than_the_log_held_is_kept() -> None:
    log = ChangeLog()
    log.add_one(3)
    log.add(slots(*range(5000)))
    seen = log.since(0)
    assert seen is not None and seen.tolist() == [3, *range(5000)]
