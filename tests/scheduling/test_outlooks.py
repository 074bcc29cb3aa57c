"""Whether groups of pods can share out some domains at all, known before any of them is placed."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.scheduling.placing.search import MANY_GROUPS, Feasibility, outlook
from closeby.scheduling.steps import Budget


def budget(steps: int | None = None) -> Budget:
    made = Budget()
    if steps is not None:
        made.steps = steps
    return made


@pytest.mark.parametrize(
    ("sizes", "rooms", "expected"),
    [
        # The largest first, each into the tightest domain that holds it.
        ([4], [4], Feasibility.EASY),
        ([2, 3, 4], [5, 4], Feasibility.EASY),
        ([3, 2], [5, 9], Feasibility.EASY),
        # 4 into 5 would leave 1 for 3 and 2; it goes into 6 beside a 2.
        ([4, 3, 2, 2], [6, 5], Feasibility.FITS),
        # 4 keeps off the 6 that two of 3 fill; the third of them goes into the 4 that is left of 8.
        ([4, 3, 3, 3], [8, 6], Feasibility.FITS),
        # As a whole there is room, but not for so many of such a size.
        ([3, 3, 3], [5, 5, 2], Feasibility.HOPELESS),
        ([3, 3], [2, 2, 2], Feasibility.HOPELESS),
        ([3, 3, 3], [4, 4], Feasibility.HOPELESS),
        # Not even as a whole.
        ([5, 5], [9], Feasibility.HOPELESS),
        # Sizes and numbers would do, but nothing goes beside 6, and 4, 3 and 3 into no 8.
        ([6, 4, 3, 3], [8, 8], Feasibility.HOPELESS),
        # What holds none of them does not count.
        ([3, 3], [2, 2, 5], Feasibility.HOPELESS),
    ],
)
def test_the_outlook_of_sizes_and_rooms(sizes: list[int], rooms: list[int], expected: Feasibility) -> None:
    assert outlook(sizes, rooms, budget()) is expected


def test_what_cannot_be_tried_out_is_open() -> None:
    """As a whole and by numbers there is room, which only trying can refute."""
    sizes, rooms = [6, 4, 3, 3], [8, 8]
    assert outlook(sizes, rooms, budget()) is Feasibility.HOPELESS
    spent = budget(steps=1)
    assert outlook(sizes, rooms, spent) is Feasibility.OPEN
    assert not spent.spent, "that leaves nothing untried"


def test_more_groups_than_can_be_tried_out_are_open() -> None:
    #   Each 6 takes 4 and 2, each 5 the rest; the largest first, 4 would go into 5.
    count = MANY_GROUPS // 4 + 1
    assert outlook([4, 3, 2, 2] * count, [6, 5] * count, budget()) is Feasibility.OPEN
    assert outlook([4, 3, 2, 2], [6, 5], budget()) is Feasibility.FITS


def possible(sizes: list[int], rooms: list[int]) -> bool:
    """By trying everything."""
    for choice in product(range(len(rooms)), repeat=len(sizes)):
        left = list(rooms)
        for size, at in zip(sizes, choice, strict=True):
            left[at] -= size
        if min(left) >= 0:
            return True
    return False


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5), st.lists(st.integers(0, 9), min_size=1, max_size=4)
)
def test_it_says_what_trying_everything_says(sizes: list[int], rooms: list[int]) -> None:
    expected = possible(sizes, rooms)
    found = outlook(sizes, rooms, budget())
    assert found is not Feasibility.OPEN
    assert (found is not Feasibility.HOPELESS) == expected
