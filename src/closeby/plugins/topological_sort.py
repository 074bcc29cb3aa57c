"""TopologicalSort: the pods of an application in the order of its graph, everything else by class of service.

An application is one work item, and its pods are taken in the order that its AppGroup's sort gives, replicas
of one workload by age, pods of an unknown workload last. So one total key is enough: mixing the index inside
an application with the age across applications, pod by pod, would be no order at all. (Network-aware
scheduling KEP, TopologicalSort.)
"""

from collections.abc import Hashable
from typing import ClassVar

from closeby.scheduling.extension import QueuedItem, QueueSort
from closeby.scheduling.orders import by_service


class TopologicalSort(QueueSort):
    """Where an AppGroup is missing, its pods are queued one by one, as the KEP's plugin falls back to QoS."""

    name: ClassVar[str] = "TopologicalSort"

    def sort_key(self, item: QueuedItem) -> tuple[Hashable, ...]:
        return by_service(item)
