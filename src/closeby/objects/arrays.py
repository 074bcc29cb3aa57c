"""The types of the arrays that stand for columns over nodes, domains and pods."""

from typing import TypeAlias

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
