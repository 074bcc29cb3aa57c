"""Refusals of plain pods, which hold for all pods that are judged alike as long as nothing changes."""

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.scheduling.outcomes import ItemKind, Outcome
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preemption.rule import Preempts


class Refused(Struct, frozen=True, eq=False):
    """A plain pod that was refused, and waits with others that need the same."""

    #: Its key in the queue.
    key: str
    outcome: Outcome
    #: What of it holds for the others too.
    shared: Outcome


class SharedRefusals:
    """The last refusal for each kind of plain pods."""

    def __init__(self, tools: Tools) -> None:
        self._table = tools.table
        #: Pods of one kind are judged alike.
        self.kind_of: Final = tools.table.kind_of
        profile = tools.profile
        #: Whether a refusal may be given to all pods that are judged alike: no plugin hears of each.
        self._applies = not (
            tools.explains_any
            or any(not one.judges_classes for one in profile.pre_filters)
            or any(not isinstance(one, Preempts) for one in profile.post_filters)
        )
        #: Those that hold, by the kind of the pod.
        self.kept: dict[Hashable, Refused] = {}
        self._stamp: tuple[int, ...] = ()
        #: The stamp of the class table when the cycle that runs began.
        self._begun_at: tuple[int, ...] = ()

    def begin(self) -> None:
        """A cycle begins: if the item is refused, that is by what is known now."""
        self._begun_at = self._table.stamp

    def like(self, pod: Pod) -> Refused | None:
        """The refusal of a pod that is judged as this one; None if there is none."""
        return self.kept.get(self.kind_of(pod))

    def note(self, key: str, outcome: Outcome) -> None:
        """A plain pod was refused: those that are judged alike need not be tried while nothing changes."""
        pod = outcome.refused[0]
        # Filters that look at what was placed elsewhere may look at more of a pod than its class.
        if self._applies and not self._table.of(pod).blind_filters:
            self._forget_before(self._begun_at)
            shared = Outcome(
                key=outcome.key,
                kind=ItemKind.POD,
                refused=outcome.refused,
                reason=outcome.reason,
                message=outcome.message,
                shortfall=outcome.shortfall,
            )
            self.kept[self.kind_of(pod)] = Refused(key, outcome, shared)

    def forget(self) -> None:
        """Forgets all refusals."""
        self.kept.clear()

    def forget_outdated(self) -> None:
        """Forgets all refusals if something changed that they may depend on."""
        self._forget_before(self._table.stamp)

    def _forget_before(self, stamp: tuple[int, ...]) -> None:
        if stamp != self._stamp:
            self.kept.clear()
            self._stamp = stamp
