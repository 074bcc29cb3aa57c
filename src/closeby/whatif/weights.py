"""How much pods hold of what an item asks for: by that the least that stands in its way is chosen."""

from collections.abc import Iterable
from math import prod

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod


class Weights:
    """The dominant share: the largest part that a pod holds of all that nodes offer of one resource."""

    def __init__(self, cluster: Cluster, rows: Iterable[int]) -> None:
        """``rows``: those of what the item asks for; that each pod is one of the ``pods`` counts nothing."""
        self._cluster = cluster
        offered = {
            row: int(cluster.allocatable[row][cluster.alive].sum())
            for row in rows
            if row != cluster.row_of["pods"]
        }
        self._offered = {row: amount for row, amount in offered.items() if amount}
        #: Whole numbers, so that equal amounts are equal however they are split up.
        whole = prod(self._offered.values())
        self._units = {row: whole // amount for row, amount in self._offered.items()}

    def of(self, pod: Pod) -> int:
        """What a pod weighs."""
        demand = self._cluster.demand(pod.spec)
        held = zip(demand.rows, demand.amounts, strict=True)
        return max((amount * self._units[row] for row, amount in held if row in self._units), default=0)

    def by_slot(self, held: NDArray[np.int64]) -> NDArray[np.float64]:
        """What amounts by row and slot weigh, about: of all that nodes offer; shape (slots,)."""
        shares = [held[row] / offered for row, offered in self._offered.items()]
        return np.max(shares, axis=0) if shares else np.zeros(held.shape[1])
