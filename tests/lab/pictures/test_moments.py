"""The stops of the slider."""

import numpy as np
import pytest

from closeby.lab.pictures.moments import STOPS, moments_of


@pytest.mark.parametrize(
    ("until", "unit", "last"),
    [
        (30.0, "s", 30.0),
        (2400.0, "min", 40.0),
        (86_400.0, "h", 24.0),
        (90 * 86_400.0, "d", 90.0),
        (0.0, "s", 0.0),
    ],
)
def test_a_unit_that_suits_the_run(until: float, unit: str, last: float) -> None:
    moments = moments_of(np.zeros(0), until)
    assert (moments.unit, moments.last) == (unit, last)


def test_every_moment_is_a_stop_where_they_are_few() -> None:
    """Also the beginning and the end, each once."""
    moments = moments_of(np.asarray([2.0, 2.0, 7.5, 30.0]), until=30.0)
    assert moments.stops.tolist() == [0.0, 2.0, 7.5, 30.0]
    assert moments.happened == 4


def test_stops_are_close_together_where_much_happens() -> None:
    """4,000 moments in the first hour, and forty in the next hundred hours."""
    early, late = np.linspace(0.0, 3600.0, 4000), np.linspace(3600.0, 364_000.0, 41)
    moments = moments_of(np.concatenate((early, late)), until=364_000.0)
    assert moments.count == STOPS
    assert np.count_nonzero(moments.stops <= 1.0) > 0.98 * STOPS
    assert (moments.stops[0], moments.unit) == (0.0, "h")


def test_what_holds_at_no_stop_is_not_seen() -> None:
    moments = moments_of(np.asarray([0.0, 10.0, 20.0, 30.0]), until=30.0)
    since = np.asarray([0.0, 1.0, 1.0, 10.0, 20.0, 30.0])
    until = np.asarray([1.0, 10.0, 10.5, 10.0, 21.0, 99.0])
    assert moments.seen(since, until).tolist() == [True, False, True, False, True, True]


def test_the_stop_that_holds_at_a_time() -> None:
    moments = moments_of(np.asarray([10.0, 20.0]), until=30.0)
    assert [moments.holding(seconds) for seconds in (0.0, 9.0, 10.0, 19.9, 500.0)] == [0, 0, 1, 1, 3]


def test_a_time_that_is_asked_for_is_a_stop() -> None:
    moments = moments_of(np.linspace(0.0, 3000.0, 5000), until=3000.0, most=3, wanted=77.0)
    assert [moments.named(stop) for stop in range(4)] == ["0 min", "1.28 min", "25 min", "50 min"]
