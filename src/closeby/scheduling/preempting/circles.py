"""Who was evicted how often, so that evictions don't go round in circles."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from closeby.objects.pods import Pod
from closeby.scheduling.preempting.records import Preemption
from closeby.scheduling.preempting.rule import DAY
from closeby.scheduling.preempting.world import World, owner_of

#: Seconds for which a victim that comes back does not preempt itself.
_PEACE: Final = 60.0


class _Eviction(NamedTuple):
    """When pods were evicted, and for which priority."""

    when: float
    priority: int


class Evictions:
    """The evictions of each gang or owner. Without times all of them count."""

    def __init__(self, most: int) -> None:
        """``most`` evictions within a day protect from the same priority."""
        self._most = most
        self._of: dict[str, list[_Eviction]] = {}
        #: By owner: the plan that evicted it last.
        self._last: dict[str, object] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def note(self, plan: Preemption, now: float | None) -> None:
        """The victims of a plan are evicted."""
        for owner in {owner_of(pod) for pod in plan.victims if not pod.terminating}:
            found = self._of.setdefault(owner, [])
            when = 0.0 if now is None else now
            found[:] = [one for one in found if when - one.when < DAY]
            found.append(_Eviction(when, plan.priority))

    def note_once(self, pod: Pod, plan: Preemption, now: float) -> None:
        """A victim of a plan was evicted; all of one owner that fall to one plan count once."""
        found = self._of.setdefault(owner_of(pod), [])
        if (owner_of(pod), plan.preemptor, plan.victims) != self._last.get(owner_of(pod)):
            self._last[owner_of(pod)] = owner_of(pod), plan.preemptor, plan.victims
            found[:] = [one for one in found if now - one.when < DAY]
            found.append(_Eviction(now, plan.priority))

    def just_evicted(self, pod: Pod, now: float) -> bool:
        """Whether a pod's gang or owner was evicted a moment ago."""
        found = self._of.get(owner_of(pod))
        return found is not None and now - found[-1].when < _PEACE

    def shielded(self, world: World, priority: int, now: float | None) -> Iterator[int]:
        """Holders that were evicted too often for such a priority."""
        if not self._of:
            return
        for number, holder in enumerate(world.holders):
            recent = [one for one in self._of.get(holder.owner, ()) if now is None or now - one.when < DAY]
            if len(recent) >= self._most and priority <= max(one.priority for one in recent):
                yield number
