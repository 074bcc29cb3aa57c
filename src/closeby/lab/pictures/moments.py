"""The moments of a run that a picture can show: the stops of the slider, in a unit that a person reads.

Little happens in most of a long run. A step of the slider is what happens next and not so much time, so that
stops lie close together where jobs come and wait.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.steps import evenly

Floats = NDArray[np.float64]

#: Name, seconds, and the longest run in seconds that is shown in this unit.
UNITS = (
    ("s", 1.0, 600.0),
    ("min", 60.0, 3 * 3600.0),
    ("h", 3600.0, 40 * 86400.0),
    ("d", 86400.0, float("inf")),
)
#: Stops of the slider, at most.
STOPS = 1000


class Moments(Struct, frozen=True, kw_only=True, eq=False):
    """Stops at times at which something happened, all in ``unit``."""

    #: ``s``, ``min``, ``h`` or ``d``, and how many seconds that is.
    unit: str
    seconds: float
    #: Ascending, the first is 0 and the last the end of the run.
    stops: Floats
    #: Moments at which something happened; with as many stops, nothing is hidden between two of them.
    happened: int

    @property
    def count(self) -> int:
        """How many stops there are."""
        return len(self.stops)

    @property
    def last(self) -> float:
        """The last stop, in the unit."""
        return self.at(self.count - 1)

    def at(self, stop: int) -> float:
        """A stop in the unit."""
        return float(self.stops[stop])

    def named(self, stop: int) -> str:
        """A stop as it is shown: ``26.5 h``."""
        return f"{round(self.at(stop), 2):g} {self.unit}"

    def told(self, seconds: Floats) -> Floats:
        """Times in the unit, exact enough for a picture; equal times stay equal, and the order is kept."""
        return _told(seconds, self.seconds)

    def holding(self, seconds: float) -> int:
        """The last stop that does not lie after a time."""
        told = float(self.told(np.asarray(seconds)))
        return max(int(np.searchsorted(self.stops, told, side="right")) - 1, 0)

    def seen(self, since: Floats, until: Floats) -> NDArray[np.bool_]:
        """Whether some stop lies in ``[since, until)``; times in the unit."""
        return np.searchsorted(self.stops, since) < np.searchsorted(self.stops, until)


def moments_of(happened: Floats, until: float, most: int = STOPS, wanted: float | None = None) -> Moments:
    """At most ``most`` stops for a run of ``until`` seconds, evenly over the times at which something
    happened.

    ``wanted`` is a time that shall be a stop besides, such as one that the user asks to see. All in seconds.
    """
    unit, seconds = next((name, size) for name, size, longest in UNITS if until <= longest)
    times = np.unique(_told(np.append(happened, [0.0, until]), seconds))
    stops = times[evenly(len(times), most)]
    if wanted is not None:
        stops = np.unique(np.append(stops, _told(np.asarray([min(wanted, until)]), seconds)))
    return Moments(unit=unit, seconds=seconds, stops=stops, happened=len(times))


def _told(times: Floats, seconds: float) -> Floats:
    return np.asarray(np.round(times / seconds, 4))
