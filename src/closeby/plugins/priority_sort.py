"""PrioritySort: the greater priority first, then who waits longest, then by name."""

import math
from collections.abc import Hashable

from closeby.scheduling.extension import QueuedItem, QueueSort


class PrioritySort(QueueSort):
    """Upstream's plugin of that name, made a total order by the key; an unknown time sorts last."""

    name = "PrioritySort"

    def sort_key(self, item: QueuedItem) -> tuple[Hashable, ...]:
        return (-item.priority, math.inf if item.anchor is None else item.anchor, item.key)
