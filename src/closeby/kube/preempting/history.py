"""Which gangs were evicted for which plans within the last day, as the status of their PodGroups says it.

So ``maxEvictions`` counts across restarts. Of pods without a gang only the process at work knows it.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from closeby.kube.gangs.objects import GangObjects
from closeby.objects.pods import Pod, gang_key
from closeby.objects.quantities import utc
from closeby.objects.recorded import EvictionStatus
from closeby.scheduling.events import EvictionsRestored
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Eviction
from closeby.scheduling.preemption.rule import DAY

#: Evictions that the status of one gang names: the newest.
_MOST: Final = 16
#: Gangs from which on those are forgotten that were not evicted for a day.
_MANY: Final = 1024


class EvictionHistory:
    """The evictions of each gang."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[EvictionStatus, ...]] = {}
        self._many = _MANY

    def note(self, victim: Pod, plan: str, priority: int) -> str | None:
        """A victim of this plan was evicted; returns its gang if that is one more eviction of it."""
        if victim.group is None:
            return None
        key, now = gang_key(victim), time.time()
        if any(one.plan == plan for one in self.of(key)):
            return None
        recent = [one for one in self.of(key) if now - _moment(one.time) < DAY]
        newest = EvictionStatus(time=utc(now), priority=priority, plan=plan)
        self._of[key] = (*recent, newest)[-_MOST:]
        if len(self._of) > self._many:
            today = now - DAY
            self._of = {one: found for one, found in self._of.items() if _moment(found[-1].time) > today}
            self._many = max(_MANY, 2 * len(self._of))
        return key

    def of(self, key: str) -> tuple[EvictionStatus, ...]:
        """Those of one gang, the oldest first."""
        return self._of.get(key, ())

    def restore(self, state: SchedulingState, objects: GangObjects) -> Iterator[EvictionsRestored]:
        """Reads what stands in the statuses, for the engine too."""
        for key, group in tuple(state.groups.items()):
            record = objects.record_of(group)
            if record is not None and record.evictions:
                self._of[key] = record.evictions
                found = (Eviction(_moment(one.time), one.priority) for one in record.evictions)
                yield EvictionsRestored(key, tuple(found))

    def counted(self, plan: str) -> tuple[str, ...]:
        """The gangs of which evictions for a plan are counted."""
        return tuple(key for key, found in self._of.items() if any(one.plan == plan for one in found))


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # Another client wrote what is not a time.
        return 0.0
