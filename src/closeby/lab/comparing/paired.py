"""Paired differences: two policies on the same jobs, seed by seed, with a 95 % confidence interval.

Seeds make noisy jobs, but the same ones for all policies: what a seed adds to both cancels in their
difference. The interval is Student's t for the mean of paired differences: mean +- t(0.975, n - 1) x s /
sqrt(n).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from scipy.special import stdtrit

CONFIDENCE: Final = 0.95
#: Of the larger of two figures: what sums in another order may differ by is not a difference.
_ROUNDING: Final = 1e-12


class Paired(Struct, frozen=True, kw_only=True):
    """How one policy's figure differs from the reference's. None where nothing tells."""

    #: Over the seeds for which it is known, and how many those are.
    mean: float | None
    known: int
    #: Policy less reference, mean over the seeds for which both are known; how many those are.
    difference: float | None
    seeds: int
    #: The interval; None with fewer than two seeds.
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired(values: Sequence[float | None], reference: Sequence[float | None]) -> Paired:
    """Compare two policies by their figures for the same seeds, in the same order."""
    known = [value for value in values if value is not None]
    pairs = [
        (one, other)
        for one, other in zip(values, reference, strict=True)
        if one is not None and other is not None
    ]
    mean = float(np.mean(known)) if known else None
    if not pairs:
        return Paired(mean=mean, known=len(known), difference=None, seeds=0, low=None, high=None)
    differences = np.array([_difference(one, other) for one, other in pairs])
    centre, count = float(differences.mean()), len(pairs)
    if count < 2:
        return Paired(mean=mean, known=len(known), difference=centre, seeds=count, low=None, high=None)
    error = float(differences.std(ddof=1)) / count**0.5
    half = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * error
    low, high = centre - half, centre + half
    return Paired(mean=mean, known=len(known), difference=centre, seeds=count, low=low, high=high)


def _difference(one: float, other: float) -> float:
    difference = one - other
    return difference if abs(difference) > _ROUNDING * max(abs(one), abs(other)) else 0.0
