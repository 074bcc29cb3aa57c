"""Time series thinned to what a picture can show, and cumulative distributions."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Columns of a chart; more points than a few in each are not seen.
COLUMNS = 800
#: Points of a distribution's line, at most.
POINTS = 400


def thinned(times: Floats, values: NDArray[np.generic], columns: int = COLUMNS) -> Ints:
    """Indices of the points that draw the same step line: of each column the first, least, greatest and last.

    After M4 (Jugel et al., PVLDB 7(10), 2014). Times ascend, or are where they lie on an axis that is not
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
