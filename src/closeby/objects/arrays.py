"""The types of the arrays that stand for columns over nodes, domains and pods."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Indices: slots, positions, domains, codes.
Ints: TypeAlias = NDArray[np.intp]
Bools: TypeAlias = NDArray[np.bool_]
#: Numbers of pods.
Counts: TypeAlias = NDArray[np.int64]
#: Amounts of a resource.
Amounts: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = NDArray[np.float64]
Costs: TypeAlias = NDArray[np.float64]


def widen(array: NDArray[Any], room: int) -> NDArray[Any]:
    """The array with more room in its last axis, filled with zeros."""
    wide = np.zeros((*array.shape[:-1], room), dtype=array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide


def run_ends(values: Ints) -> Ints:
    """The index of the last of each run of equal values."""
    last = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=last[:-1])
    return last.nonzero()[0]
