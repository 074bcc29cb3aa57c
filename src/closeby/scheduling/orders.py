"""Orders of work items that several QueueSort plugins share."""

import math
from collections.abc import Hashable
from typing import Final

from closeby.scheduling.extension import QueuedItem

#: Who gives way last, by Kubernetes' class of service.
_CLASSES: Final = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}


def by_service(item: QueuedItem) -> tuple[Hashable, ...]:
    """Priority, class of service, age, uid: the order of upstream's QOSSort, made a total one.

    A gang or application stands where its oldest pending pod would. An unknown time sorts last.
    """
    oldest = min(item.pods, key=lambda pod: (math.inf if pod.created is None else pod.created, pod.uid))
    created = math.inf if oldest.created is None else oldest.created
    return -item.priority, _CLASSES.get(oldest.spec.qos_class, len(_CLASSES)), created, oldest.uid, item.key
