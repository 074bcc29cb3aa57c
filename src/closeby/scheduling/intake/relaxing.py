"""Layers that are required for a time: which of them still are, and when the next one is no more.

A gang has waited since the oldest of its members was created, so that a scheduler that restarts agrees.
"""

from collections.abc import Iterable

from closeby.objects.groups import PodGroup
from closeby.objects.quantities import utc
from closeby.objects.words import plural
from closeby.scheduling.outcomes import Relaxation


class Relaxing:
    """The owner of these deadlines, by the clock of the ticks."""

    def __init__(self) -> None:
        #: The gangs that have such layers, as they were written.
        self.written: dict[str, PodGroup] = {}
        #: Gang -> seconds that it had waited when it was tried last, and when it is to be tried again.
        self._waited: dict[str, float] = {}
        self._deadlines: dict[str, float] = {}
        #: When gangs of unknown age were tried first.
        self._since: dict[str, float] = {}

    def enter(self, group: PodGroup) -> PodGroup:
        """A gang as it was written; returned as it counts now."""
        if not group.relaxing:
            self.leave(group.key)
            return group
        self.written[group.key] = group
        return group.after(self._waited.get(group.key, 0.0))

    def leave(self, key: str) -> None:
        """A gang is gone, or has no such layers any more."""
        for known in (self.written, self._waited, self._deadlines, self._since):
            known.pop(key, None)

    def at(self, key: str, created: Iterable[float | None], clock: float) -> PodGroup:
        """One of these gangs as it counts at a time; ``created``: when its members were."""
        group = self.written[key]
        since = min((one for one in created if one is not None), default=group.created)
        if since is None:
            since = self._since.setdefault(key, clock)
        # A deadline that has come has come for its layer too: a difference of floats may fall short of it.
        over = [one.relax_after or 0.0 for one in group.relaxing if since + (one.relax_after or 0.0) <= clock]
        self._waited[key] = waited = max(clock - since, *over, 0.0)
        falls = [one for one in group.relaxing if (one.relax_after or 0.0) > waited]
        if falls:
            self._deadlines[key] = since + (falls[0].relax_after or 0.0)
        else:
            self._deadlines.pop(key, None)
        return group.after(waited)

    def coming(self, key: str, clock: float, *, wall: bool) -> Relaxation | None:
        """Which requirement of a gang falls next; ``wall``: the clock counts from the epoch."""
        deadline = self._deadlines.get(key)
        if deadline is None:
            return None
        waited = self._waited[key]
        layer = next(one for one in self.written[key].relaxing if (one.relax_after or 0.0) > waited)
        level = layer.level.rpartition("/")[2]
        what = (
            f"the requirement of one {level} for each segment"
            if layer.max_domains is None
            else f"the limit of {plural(layer.max_domains, level)}"
        )
        at = utc(deadline) if wall else f"second {deadline:g}"
        return Relaxation(what=what, at=at, left=deadline - clock)

    @property
    def next(self) -> float | None:
        """The first of these deadlines."""
        return min(self._deadlines.values(), default=None)

    def due(self, clock: float) -> list[str]:
        """The gangs to try now, since a requirement of theirs has fallen."""
        found = [key for key, deadline in self._deadlines.items() if deadline <= clock]
        for key in found:
            del self._deadlines[key]
        return found
