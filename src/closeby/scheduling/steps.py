"""How much work a decision does, in steps of about a microsecond, and how much a search may try.

Everything is a count, never a clock, so that results repeat.
"""

from collections.abc import Hashable, Mapping
from math import inf

from closeby.scheduling.solving.program import Program, Solution, Verdict

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
#: Steps of the solver in all programs of a search: where the decision has a limit, and where it has none, as
#: in files (some 4 s). And how many steps of the decision one of them is.
SOLVER = 2_000
SOLVER_WITHOUT_LIMIT = 20_000
STEPS_OF_SOLVER = 5


class Steps:
    """Counts the work of one decision, and knows when its searches must come to an end."""

    __slots__ = ("limit", "solved", "taken", "undecided")

    def __init__(self, limit: float = inf, solved: Mapping[Hashable, Solution] = {}) -> None:
        """After ``limit`` steps nothing more is searched; what takes its course is still done.

        ``solved``: by key what came of programs that were solved elsewhere.
        """
        self.taken = 0
        self.limit = limit
        self.solved = solved
        #: The first program that was not decided.
        self.undecided: Program | None = None

    def take(self, steps: int) -> None:
        """So much work follows, or was done."""
        self.taken += steps

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.taken >= self.limit


class Budget:
    """Counts down what is left to a search. ``spent`` becomes True when something was left untried."""

    __slots__ = ("_steps", "_undivided", "backtracks", "candidates", "growths", "solver", "spent", "steps")

    def __init__(self, steps: Steps | None = None) -> None:
        """``steps`` are those of the decision."""
        self._steps = Steps() if steps is None else steps
        self.candidates = CANDIDATES
        self.backtracks = BACKTRACKS
        self.growths = GROWTHS
        self.steps = STEPS
        self.solver = SOLVER_WITHOUT_LIMIT if self._steps.limit == inf else SOLVER
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
        if self._out(self.candidates, 50):
            return False
        self.candidates -= 1
        return True

    def take_backtrack(self) -> bool:
        """One more pod taken back; False when that budget is used up."""
        if self._out(self.backtracks, 50):
            return False
        self.backtracks -= 1
        return True

    def take_growth(self) -> bool:
        """One more choice of domains to grow in; False when that budget is used up."""
        if self._out(self.growths, 200):
            return False
        self.growths -= 1
        return True

    def solve(self, program: Program) -> Solution:
        """What comes of a program, within what is left for the solver."""
        known = self._steps.solved.get(program.key) if self._steps.solved else None
        if known is not None:
            return known
        solution = program.solve(self.solver)
        self.solver -= solution.steps
        self._steps.take(STEPS_OF_SOLVER * solution.steps)
        if solution.verdict is Verdict.UNDECIDED and self._steps.undecided is None:
            self._steps.undecided = program
        return solution

    def take_step(self) -> bool:
        """One more step of a check; False when that budget is used up. Nothing is left untried by that."""
        if self.steps <= 0 or self._steps.over:
            return False
        self.steps -= 1
        self._steps.take(4)
        return True

    def _out(self, left: int, steps: int) -> bool:
        """Whether nothing is left, or the decision has taken all its steps; else so many are taken."""
        if left <= 0 or self._steps.over:
            self.spent = True
            return True
        self._steps.take(steps)
        return False
