"""The moments of a run that a picture can show, and time series thinned to these."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Floats, Ints

#: Columns of a chart; more points than a few in each are not seen.
COLUMNS = 800
#: Points of a distribution's line, at most.
POINTS = 400


def thinned(times: Floats, values: NDArray[np.generic], columns: int = COLUMNS) -> Ints:
    """Indices of the points that draw the same step line: of each column the first, least, greatest and last.

    After M4 (Jugel et al., PVLDB 7(10), 2014). Times ascend, or are where they are on an axis that is not
    even; all points are kept when there are few.
    """
    if len(times) <= 4 * columns:
        return np.arange(len(times))
    width = (times[-1] - times[0]) / columns or 1.0
    column = np.minimum(((times - times[0]) / width).astype(np.intp), columns - 1)
    begins = np.flatnonzero(np.diff(column, prepend=-1))
    ends = np.append(begins[1:], len(times)) - 1
    by_value = np.lexsort((values, column))
    return np.unique(np.concatenate((begins, ends, by_value[begins], by_value[ends])))


def evenly(count: int, most: int) -> Ints:
    """Indices of at most so many of ``count`` points, evenly spread; the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 2))).round().astype(np.intp))


def cdf(values: Floats, weights: Floats | None = None, points: int = POINTS) -> tuple[Floats, Floats]:
    """Ascending values, and the share of all weight at or below each; the last share is 1.

    Values that are nan, or have no weight, do not count. A line of many points is thinned by even shares.
    """
    weights = np.ones(len(values)) if weights is None else weights
    counted = ~np.isnan(values) & (weights > 0)
    if not counted.any():
        return np.zeros(0), np.zeros(0)
    found, row = np.unique(values[counted], return_inverse=True)
    sums = np.cumsum(np.bincount(row.reshape(-1), weights=weights[counted]))
    shares = np.asarray(sums / sums[-1], dtype=np.float64)
    if len(found) > points:
        kept = np.unique(np.searchsorted(shares, np.linspace(0, 1, points)))
        kept = np.unique(np.concatenate(([0], kept[kept < len(found)], [len(found) - 1])))
        found, shares = found[kept], shares[kept]
    return found, shares


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

    def in_units(self, seconds: Floats) -> Floats:
        """Times in the unit, exact enough for a picture; equal times stay equal, and the order is kept."""
        return _rounded(seconds, self.seconds)

    def holding(self, seconds: float) -> int:
        """The last stop that is not after a time."""
        moment = float(self.in_units(np.asarray(seconds)))
        return max(int(np.searchsorted(self.stops, moment, side="right")) - 1, 0)

    def seen(self, since: Floats, until: Floats) -> NDArray[np.bool_]:
        """Whether some stop is in ``[since, until)``; times in the unit."""
        return np.searchsorted(self.stops, since) < np.searchsorted(self.stops, until)


def moments_of(happened: Floats, until: float, most: int = STOPS, wanted: float | None = None) -> Moments:
    """At most ``most`` stops for a run of ``until`` seconds, evenly over the times at which something
    happened.

    ``wanted`` is a time that shall be a stop besides, such as one that the user asks to see. All in seconds.
    """
    unit, seconds = next((name, size) for name, size, longest in UNITS if until <= longest)
    times = np.unique(_rounded(np.append(happened, [0.0, until]), seconds))
    stops = times[evenly(len(times), most)]
    if wanted is not None:
        stops = np.unique(np.append(stops, _rounded(np.asarray([min(wanted, until)]), seconds)))
    return Moments(unit=unit, seconds=seconds, stops=stops, happened=len(times))


def _rounded(times: Floats, seconds: float) -> Floats:
    return np.asarray(np.round(times / seconds, 4))
