"""The stops of the slider."""

import numpy as np
import pytest

from closeby.report.pictures.moments import moments_of


@pytest.mark.parametrize(
    ("until", "unit", "step", "last"),
    [
        (30.0, "s", 0.05, 30.0),
        (2400.0, "min", 0.05, 40.0),
        (86_400.0, "h", 0.05, 24.0),
        (30 * 86_400.0, "h", 1.0, 720.0),
        (90 * 86_400.0, "d", 0.1, 90.0),
        (0.0, "s", 1.0, 0.0),
    ],
)
def test_a_round_step_in_a_unit_that_suits_the_run(until: float, unit: str, step: float, last: float) -> None:
    moments = moments_of(until)
    assert (moments.unit, moments.step, moments.last) == (unit, step, last)
    assert moments.count <= 1001


def test_the_last_stop_is_never_before_the_end() -> None:
    for until in (1.0, 7.77, 599.9, 601.0, 12_345.6, 1e6, 1e8):
        moments = moments_of(until)
        assert moments.last * moments.seconds >= until * (1 - 1e-9)


def test_what_holds_at_no_stop_is_not_seen() -> None:
    """Stops at 0, 10, 20 and 30."""
    moments = moments_of(30.0, most=4)
    assert (moments.step, moments.count) == (10.0, 4)
    since = np.asarray([0.0, 1.0, 1.0, 10.0, 20.0, 30.0])
    until = np.asarray([1.0, 10.0, 10.5, 10.0, 21.0, 99.0])
    assert moments.seen(since, until).tolist() == [True, False, True, False, True, True]


def test_the_nearest_stop() -> None:
    moments = moments_of(30.0, most=4)
    assert [moments.nearest(seconds) for seconds in (0.0, 4.0, 16.0, 500.0)] == [0, 0, 2, 3]
