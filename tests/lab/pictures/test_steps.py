"""Series thinned, and cumulative distributions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.lab.pictures.moments import cdf, thinned


def test_few_points_are_all_kept() -> None:
    assert thinned(np.arange(5.0), np.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_of_many_points_the_ends_and_extremes_of_each_column_stay() -> None:
    """Ten columns of a hundred points; a spike in one, a dip in another."""
    values = np.zeros(1000)
    values[333], values[777] = 5, -5
    kept = thinned(np.arange(1000.0), values, columns=10)
    assert len(kept) <= 40
    assert {0, 333, 777, 999} <= set(kept.tolist())
    assert np.all(np.diff(kept) > 0)


def test_a_distribution_by_hand() -> None:
    """Weights 1, 1 and 2 at 5, 7 and 9; what is nan or weighs nothing does not count."""
    values, shares = cdf(np.asarray([9.0, 5.0, np.nan, 7.0, 1.0]), np.asarray([2.0, 1.0, 8.0, 1.0, 0.0]))
    assert values.tolist() == [5.0, 7.0, 9.0]
    assert shares.tolist() == [0.25, 0.5, 1.0]


def test_of_nothing_there_is_no_distribution() -> None:
    values, shares = cdf(np.asarray([np.nan]))
    assert (len(values), len(shares)) == (0, 0)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=300), st.integers(2, 50))
def test_any_distribution_ascends_to_one(values: list[float], points: int) -> None:
    found, shares = cdf(np.asarray(values), points=points)
    assert np.all(np.diff(found) > 0)
    assert np.all(np.diff(shares) > 0)
    assert shares[-1] == 1
    assert found[-1] == max(values)
    assert len(found) <= points + 2
    for value, share in zip(found.tolist(), shares.tolist(), strict=True):
        assert share == pytest.approx(np.mean(np.asarray(values) <= value))
