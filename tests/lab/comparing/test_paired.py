"""Paired differences and their intervals, against figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from closeby.lab.comparing.figures import paired


def test_three_seeds_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t(0.975, 2) = 4.303, so 2 +- 4.303 / sqrt(3) = 2 +- 2.484."""
    found = paired([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    assert found.mean == 22.0
    assert found.difference == 2.0
    assert found.low == pytest.approx(2 - 2.4841, abs=1e-4)
    assert found.high == pytest.approx(2 + 2.4841, abs=1e-4)
    assert not found.differs


def test_what_a_seed_adds_to_both_cancels() -> None:
    """Seeds differ by hundreds, the policies by 1: paired, that is told apart."""
    found = paired([101.0, 501.1, 900.9], [100.0, 500.0, 900.0])
    assert found.differs
    assert found.difference == pytest.approx(1.0)


def test_equal_runs_do_not_differ() -> None:
    found = paired([1.0, 2.0], [1.0, 2.0])
    assert (found.difference, found.low, found.high, found.differs) == (0.0, 0.0, 0.0, False)


def test_two_seeds_by_hand() -> None:
    """Differences 1 and 2: mean 1.5, deviation 0.7071, t(0.975, 1) = 12.706: 1.5 +- 12.706 x 0.5."""
    found = paired([2.0, 4.0], [1.0, 2.0])
    assert found.low == pytest.approx(-4.8531, abs=1e-4)
    assert found.high == pytest.approx(7.8531, abs=1e-4)
    assert not found.differs


def test_ten_seeds_by_hand() -> None:
    """Differences 1 to 10: mean 5.5, deviation sqrt(82.5 / 9) = 3.0277, t(0.975, 9) = 2.2622: +- 2.1659."""
    found = paired([20.0 + seed for seed in range(1, 11)], [20.0] * 10)
    assert (found.difference, found.seeds) == (5.5, 10)
    assert found.low == pytest.approx(3.3341, abs=1e-4)
    assert found.high == pytest.approx(7.6659, abs=1e-4)
    assert found.differs


def test_sums_in_another_order_do_not_differ() -> None:
    """0.1 + 0.2 is not 0.3 to a computer, for each seed by as much: there is no doubt, and no difference."""
    found = paired([0.1 + 0.2, 0.1 + 0.2], [0.3, 0.3])
    assert (found.difference, found.low, found.high, found.differs) == (0.0, 0.0, 0.0, False)


def test_one_seed_tells_nothing_of_chance() -> None:
    found = paired([3.0], [1.0])
    assert (found.mean, found.difference, found.seeds) == (3.0, 2.0, 1)
    assert (found.low, found.high, found.differs) == (None, None, False)


def test_seeds_of_which_one_side_is_not_known_are_left_out() -> None:
    found = paired([1.0, None, 5.0, 9.0], [0.0, 7.0, None, 6.0])
    assert found.mean == 5.0
    assert (found.difference, found.seeds) == (2.0, 2)
    nothing = paired([None, None], [None, 1.0])
    assert (nothing.mean, nothing.difference, nothing.seeds, nothing.differs) == (None, None, 0, False)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=3, max_size=20))
def test_the_interval_is_that_of_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    differences = {round(a - b, 6) for a, b in pairs}
    if len(differences) < 2:
        return
    found = paired(one, other)
    known = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert found.low == pytest.approx(float(known.low), rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(float(known.high), rel=1e-6, abs=1e-6)


def test_seeds_that_tell_are_counted_of_the_policy_and_of_the_pairs() -> None:
    """The second seed has no figure, the third none of the reference."""
    found = paired([1.0, None, 3.0, 4.0], [1.0, 2.0, None, 5.0])
    assert (found.known, found.seeds) == (3, 2)
    assert found.mean == pytest.approx(8 / 3)
    assert found.difference == -0.5
