"""How much work a decision does, in steps: where it may be suspended, and how much a search may try.

Everything is a count, never a clock, so that results repeat.
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

    def note(self, steps: int) -> None:
        """Some work was done that could not be suspended: it counts when the next is about to be."""
        self.steps += steps

    def begin(self) -> None:
        """A decision begins."""
        self.steps, self.holds, self.disturbed = 0, [], False

    def end(self) -> None:
        """The decision ended: what it held is in its result, or given back."""
        self.holds = []

    def settle(self) -> None:
        """Something is final: what is left of this decision is done in the same turn."""
        self.allow(None, None)

    def allow(self, steps: int | None, suspend: Callable[[], None] | None) -> None:
        """``suspend`` is called when so many more steps were taken; None: never."""
        self._allowed = inf if steps is None else self.steps + steps
        self._suspend = suspend


#: For work outside decisions. It is never suspended.
UNPACED: Final = Pace()


#: Candidates (domains) tried.
CANDIDATES = 4096
#: Domains tried for segments that are searched one by one, besides two for each: every one is filled.
SEGMENT_CANDIDATES = 512
#: Single pods taken back from a node, where unequal ones are tried one by one.
BACKTRACKS = 2048
#: The same inside segments that are searched one by one.
SEGMENT_BACKTRACKS = 512
#: Choices of domains of which it is tried whether the gang reaches its own minimum there.
GROWTHS = 64
#: Steps of the check whether siblings can share out the domains at all.
STEPS = 100_000
#: Steps of the solver in all programs of a decision.
SOLVER = 2_000


class Budget:
    """Counts down what is left. ``spent`` becomes True when something was left untried."""

    __slots__ = ("_pace", "_undivided", "backtracks", "candidates", "growths", "solver", "spent", "steps")

    def __init__(self, pace: Pace = UNPACED) -> None:
        """The ``pace`` counts all that is taken."""
        self._pace = pace
        self.candidates = CANDIDATES
        self.backtracks = BACKTRACKS
        self.growths = GROWTHS
        self.steps = STEPS
        self.solver = SOLVER
        self.spent = False
        #: Backtracks that segments took from a search without any.
        self._undivided = 0

    def limit_to_segments(self, segments: int, share: int = 1) -> None:
        """Allow no more than a search of so many segments is worth, or one part in ``share`` of that."""
        self.candidates = min(self.candidates, SEGMENT_CANDIDATES // share + 2 * segments)
        before, self.backtracks = self.backtracks, min(self.backtracks, SEGMENT_BACKTRACKS // share)
        self._undivided = (before - self.backtracks) // share

    def divide_no_more(self) -> None:
        """Allow the backtracks of a search without segments, once: those that were preferred are given up."""
        self.backtracks += self._undivided
        self._undivided = 0

    def set_aside(self) -> tuple[int, int]:
        """Half of the domains and backtracks that are left, which ``put_back`` allows again."""
        aside = self.candidates // 2, self.backtracks // 2
        self.put_back((-aside[0], -aside[1]))
        return aside

    def put_back(self, aside: tuple[int, int]) -> None:
        """Allow again what was set aside."""
        self.candidates += aside[0]
        self.backtracks += aside[1]

    def take_candidate(self) -> bool:
        """One more domain; False when that budget is used up."""
        if self.candidates <= 0:
            self.spent = True
            return False
        self.candidates -= 1
        self._pace.take(50)
        return True

    def take_backtrack(self) -> bool:
        """One more pod taken back; False when that budget is used up."""
        if self.backtracks <= 0:
            self.spent = True
            return False
        self.backtracks -= 1
        self._pace.take(50)
        return True

    def take_growth(self) -> bool:
        """One more choice of domains to grow in; False when that budget is used up."""
        if self.growths <= 0:
            self.spent = True
            return False
        self.growths -= 1
        self._pace.take(200)
        return True

    def take_step(self) -> bool:
        """One more step of a check; False when that budget is used up. Nothing is left untried by that."""
        if self.steps <= 0:
            return False
        self.steps -= 1
        self._pace.take(4)
        return True


class HalfBudget:
    """Half of the domains and backtracks that are left of a budget, for one of several searches.

    Between two of its results others go on with the whole budget. What they leave untried is theirs:
    ``spent`` is about this search alone.
    """

    __slots__ = ("_aside", "_budget", "_others_spent", "spent")

    def __init__(self, budget: Budget) -> None:
        """The search begins."""
        self._budget = budget
        self.spent = False
        self.resume()

    def suspend(self) -> None:
        """Others go on, or the search is over."""
        self._budget.put_back(self._aside)
        self.spent, self._budget.spent = self._budget.spent, self._others_spent

    def resume(self) -> None:
        """The search goes on."""
        self._aside = self._budget.set_aside()
        self._others_spent, self._budget.spent = self._budget.spent, self.spent
