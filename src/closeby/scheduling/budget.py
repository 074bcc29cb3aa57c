"""How much one gang's search may try. Everything is a count, never a clock, so that results repeat."""

#: Candidates (domains) tried.
CANDIDATES = 4096
#: Single pods of unequal ones tried on nodes.
TRIALS = 4096
#: Steps of the check whether siblings can share out the domains at all.
STEPS = 100_000


class Budget:
    """Counts down what is left. ``spent`` becomes True when something was left untried."""

    __slots__ = ("candidates", "spent", "steps", "trials")

    def __init__(self) -> None:
        self.candidates = CANDIDATES
        self.trials = TRIALS
        self.steps = STEPS
        self.spent = False

    def take_candidate(self) -> bool:
        """One more domain; False when that budget is used up."""
        if self.candidates <= 0:
            self.spent = True
            return False
        self.candidates -= 1
        return True

    def take_trial(self) -> bool:
        """One more pod on a node; False when that budget is used up."""
        if self.trials <= 0:
            self.spent = True
            return False
        self.trials -= 1
        return True

    def take_step(self) -> bool:
        """One more step of a check; False when that budget is used up. Nothing is left untried by that."""
        if self.steps <= 0:
            return False
        self.steps -= 1
        return True
