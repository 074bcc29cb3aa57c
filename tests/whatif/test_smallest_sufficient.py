"""The fewest of some things that are still enough."""

from collections.abc import Sequence

from closeby.whatif.trials import smallest_sufficient


class Sum:
    """Numbers are enough if they come to an amount."""

    def __init__(self, amount: int, tried: list[tuple[int, ...]]) -> None:
        self._amount = amount
        self._tried = tried

    def __call__(self, numbers: Sequence[int]) -> int | None:
        self._tried.append(tuple(numbers))
        return sum(numbers) if sum(numbers) >= self._amount else None


def test_what_may_stay_is_left_out_from_the_last_on() -> None:
    tried: list[tuple[int, ...]] = []
    assert smallest_sufficient([4, 3, 2, 1], 10, Sum(6, tried)) == ([4, 3], 7)
    assert tried == [(4, 3, 2), (4, 3), (4,), (3,)]


def test_nothing_is_left_out_where_all_are_needed() -> None:
    assert smallest_sufficient([4, 3], 7, Sum(7, [])) == ([4, 3], 7)


def test_that_none_at_all_is_enough_is_not_asked() -> None:
    tried: list[tuple[int, ...]] = []
    assert smallest_sufficient([1], 1, Sum(0, tried)) == ([1], 1)
    assert tried == []


def test_equal_things_are_distinguished_by_identity() -> None:
    one, other = [5], [5]
    assert smallest_sufficient([one, other], "both", lambda left: "one" if left else None) == ([one], "one")
