"""How much work a decision has done, in steps, and where it may be suspended.

A step is about a microsecond of work. Steps are counted, never measured, so that a search is suspended at the
same place every time.
"""

from collections.abc import Callable
from math import inf
from typing import Final, Protocol


class Outdated(BaseException):
    """The cluster changed so much while a search was suspended that it must begin again.

    No ``Exception``: nothing on the way may take it for a fault.
    """


class Suspendable(Protocol):
    """What a search holds on the cluster while it runs."""

    def suspend(self) -> None:
        """Give it back for now."""

    def resume(self) -> None:
        """Take it again; raises ``Outdated`` if it is not to be had any more."""


class Pace:
    """Counts the steps of the decision in hand."""

    __slots__ = ("_allowed", "_suspend", "disturbed", "holds", "steps")

    def __init__(self) -> None:
        #: Steps of the present decision.
        self.steps = 0
        #: What the present decision holds on the cluster, in the order in which it was taken.
        self.holds: list[Suspendable] = []
        #: Usage or nodes changed while the present decision was suspended: its result is to be checked.
        self.disturbed = False
        self._allowed: float = inf
        self._suspend: Callable[[], None] | None = None

    def take(self, steps: int) -> None:
        """Some work is about to be done. Where this is called, the decision may be suspended for a while.

        So nothing that others may change can be relied on across the call, but what the decision holds.
        """
        self.steps += steps
        if self.steps >= self._allowed and self._suspend is not None:
            self._suspend()

    def begin(self) -> None:
        """A decision begins."""
        self.steps, self.holds, self.disturbed = 0, [], False

    def settle(self) -> None:
        """Something is final: what is left of this decision is done in the same turn."""
        self.allow(None, None)

    def allow(self, steps: int | None, suspend: Callable[[], None] | None) -> None:
        """``suspend`` is called when so many more steps were taken; None: never."""
        self._allowed = inf if steps is None else self.steps + steps
        self._suspend = suspend


#: For work outside decisions. It is never suspended.
UNPACED: Final = Pace()
