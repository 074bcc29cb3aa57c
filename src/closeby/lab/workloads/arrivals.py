"""When jobs come: by the hour of the day as in Helios, in bursts as in Alibaba's openb trace."""

from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from closeby.lab.workloads.published import BURSTINESS, HOURLY

Floats = NDArray[np.float64]

_HOUR: Final = 3600.0


def gaps(count: int, burstiness: float, random: Generator) -> Floats:
    """Times between arrivals, mean 1, standard deviation ``burstiness``; shape (count,).

    Hyper-exponential with balanced means (two exponentials that hold half the time each), which with
    openb's mean of 334 s and 1.75 has quantiles 160, 712 and 3,094 s at 50, 90 and 99 %; openb itself has
    137, 842 and 2,954.

    Raises:
        ValueError: below 1, where arrivals would be more even than a Poisson process.
    """
    if burstiness < 1:
        raise ValueError(f"burstiness must be 1 (Poisson) or more, not {burstiness}")
    square = burstiness**2
    often = (1.0 + np.sqrt((square - 1.0) / (square + 1.0))) / 2.0
    short = random.random(count) < often
    scale = np.where(short, 0.5 / often, 0.5 / max(1.0 - often, 1e-12))
    return np.asarray(random.standard_exponential(count) * scale, dtype=np.float64)


def arrivals(
    count: int, span: float, random: Generator, *, diurnal: bool = True, burstiness: float = BURSTINESS
) -> Floats:
    """Ascending times in [0, span] of ``count`` arrivals; the clock begins at midnight. Shape (count,).

    A renewal process in operational time, which passes as fast as jobs come at that hour, stretched so that
    exactly ``count`` come within the span.
    """
    passed = np.cumsum(gaps(count + 1, burstiness, random))
    share = passed[:-1] / passed[-1]
    if not diurnal:
        return np.asarray(share * span, dtype=np.float64)
    hours = int(np.ceil(span / _HOUR)) + 1
    knots = np.arange(hours + 1) * _HOUR
    rate = np.resize(np.asarray(HOURLY, dtype=np.float64), hours)
    come = np.concatenate(([0.0], np.cumsum(rate * _HOUR)))
    total = np.interp(span, knots, come)
    return np.asarray(np.interp(share * total, come, knots), dtype=np.float64)
