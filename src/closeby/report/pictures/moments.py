"""The moments of a run that a picture can show: the stops of the slider, in a unit that a person reads."""

from math import ceil, floor, log10

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Name, seconds, and the longest run in seconds that is told in this unit.
UNITS = (
    ("s", 1.0, 600.0),
    ("min", 60.0, 3 * 3600.0),
    ("h", 3600.0, 40 * 86400.0),
    ("d", 86400.0, float("inf")),
)
#: Stops of the slider, at most.
STOPS = 1000


class Moments(Struct, frozen=True, kw_only=True):
    """Stops at 0, ``step``, 2 ``step``, … up to ``last``, all in ``unit``."""

    #: ``s``, ``min``, ``h`` or ``d``, and how many seconds that is.
    unit: str
    seconds: float
    step: float
    #: The last stop is at or after the end of the run.
    count: int

    @property
    def last(self) -> float:
        """The last stop, in the unit."""
        return self.at(self.count - 1)

    def at(self, stop: int) -> float:
        """A stop in the unit, as the slider says it."""
        return round(stop * self.step, 9)

    def told(self, seconds: Floats) -> Floats:
        """Times in the unit, exact enough for a picture; equal times stay equal, and the order is kept."""
        return np.asarray(np.round(seconds / self.seconds, 4))

    def nearest(self, seconds: float) -> int:
        """The stop nearest to a time."""
        return min(max(round(seconds / self.seconds / self.step), 0), self.count - 1)

    def seen(self, since: Floats, until: Floats) -> NDArray[np.bool_]:
        """Whether some stop lies in ``[since, until)``; times in the unit."""
        # A stop that is meant to fall on a time may miss it by a rounding error of the division.
        nudge = 1e-7
        return np.asarray(np.ceil(since / self.step - nudge) < np.ceil(until / self.step - nudge))


def moments_of(until: float, most: int = STOPS) -> Moments:
    """Stops for a run of ``until`` seconds: a round step, and at most ``most`` of them."""
    unit, seconds = next((name, size) for name, size, longest in UNITS if until <= longest)
    length = until / seconds
    step = _round_up(length / max(most - 1, 1)) if length > 0 else 1.0
    return Moments(unit=unit, seconds=seconds, step=step, count=ceil(length / step - 1e-7) + 1)


def _round_up(value: float) -> float:
    """The next of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, …"""
    power = 10.0 ** floor(log10(value))
    factor = next((factor for factor in (1, 2, 5) if factor * power >= value * (1 - 1e-9)), 10)
    return round(factor * power, 9)
