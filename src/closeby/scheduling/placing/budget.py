"""How much one gang's search may try. Everything is a count, never a clock, so that results repeat."""

from closeby.scheduling.pace import UNPACED, Pace

#: Candidates (domains) tried.
CANDIDATES = 4096
#: Single pods taken back from a node, where unequal ones are tried one by one.
BACKTRACKS = 2048
#: Choices of domains of which it is tried whether the gang reaches its own minimum there.
GROWTHS = 64
#: Steps of the check whether siblings can share out the domains at all.
STEPS = 100_000


class Budget:
    """Counts down what is left. ``spent`` becomes True when something was left untried."""

    __slots__ = ("_pace", "backtracks", "candidates", "growths", "spent", "steps")

    def __init__(self, pace: Pace = UNPACED) -> None:
        """The ``pace`` is told of all that is taken."""
        self._pace = pace
        self.candidates = CANDIDATES
        self.backtracks = BACKTRACKS
        self.growths = GROWTHS
        self.steps = STEPS
        self.spent = False

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
