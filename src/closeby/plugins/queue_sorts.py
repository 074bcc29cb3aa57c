"""The orders of the queue: PrioritySort, QOSSort and TopologicalSort."""

import math
from collections.abc import Hashable
from typing import ClassVar, Final

from closeby.objects.words import natural_key
from closeby.scheduling.extension import QueuedItem, QueueSort

#: Kubernetes' classes of service, the best first.
_CLASSES: Final = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}


class PrioritySort(QueueSort):
    """The greater priority first, then the longest wait, then the key in natural order, so that replica 2
    comes before replica 10; an unknown time sorts last.

    Upstream's plugin of that name, made a total order by the key.
    """

    name: ClassVar[str] = "PrioritySort"

    def sort_key(self, item: QueuedItem) -> tuple[Hashable, ...]:
        return (-item.priority, math.inf if item.anchor is None else item.anchor, natural_key(item.key))


class QOSSort(QueueSort):
    """The greater priority first, then the better class of service, then age, then the uid.

    Upstream's plugin of that name, made a total order by the uid. A gang or application stands where its
    oldest pending pod would. An unknown time sorts last.
    """

    name: ClassVar[str] = "QOSSort"

    def sort_key(self, item: QueuedItem) -> tuple[Hashable, ...]:
        oldest = min(item.pods, key=lambda pod: (math.inf if pod.created is None else pod.created, pod.uid))
        created = math.inf if oldest.created is None else oldest.created
        service = _CLASSES.get(oldest.spec.qos_class, len(_CLASSES))
        return -item.priority, service, created, oldest.uid, item.key


class TopologicalSort(QOSSort):
    """The pods of an application in the order of its graph, everything else as QOSSort does.

    Source: Network-aware scheduling KEP, TopologicalSort. An application is one work item, and its pods are
    taken by priority, then in the order that its AppGroup's sort gives, replicas of one workload by age, pods
    of an unknown workload last. So one total key is enough: pod by pod, the index inside an application and
    the age across applications would make no order at all. Where an AppGroup is missing, its pods are queued
    one by one.
    """

    name: ClassVar[str] = "TopologicalSort"
