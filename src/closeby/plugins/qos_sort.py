"""QOSSort: the greater priority first, then the better class of service, then who waits longest."""

from collections.abc import Hashable
from typing import ClassVar

from closeby.scheduling.extension import QueuedItem, QueueSort
from closeby.scheduling.orders import by_service


class QOSSort(QueueSort):
    """Upstream's plugin of that name, made a total order by the uid."""

    name: ClassVar[str] = "QOSSort"

    def sort_key(self, item: QueuedItem) -> tuple[Hashable, ...]:
        return by_service(item)
