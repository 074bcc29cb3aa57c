"""A run over time whose clock stands still is a fault, and says so."""

import pytest

from closeby.errors import StandstillError
from closeby.lab.replay.standstill import PATIENCE, Standstill


def test_time_that_stands_still_for_long_is_a_fault() -> None:
    standstill = Standstill()
    standstill.moment(3.5, happened=False)
    for _ in range(PATIENCE - 1):
        standstill.moment(3.5, happened=False)
    with pytest.raises(StandstillError, match=r"time stands still at 3\.5 s"):
        standstill.moment(3.5, happened=False)


@pytest.mark.parametrize("step", [0.0, 1e-9])
def test_what_goes_on_is_none(step: float) -> None:
    """However many moments there are: time goes on, or something happens now and then."""
    standstill = Standstill()
    for number in range(3 * PATIENCE):
        standstill.moment(number * step, happened=not step and number % (PATIENCE - 1) == 0)
