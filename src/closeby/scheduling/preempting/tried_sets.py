"""Sets of victims that are tried by the preemptor's own cycle, where arithmetic does not tell all."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from closeby.scheduling.placing.tools import Placed
from closeby.scheduling.preempting.trials import TRIAL_STEPS, PreemptionTrials
from closeby.scheduling.preempting.units import VictimUnit

#: Cycles that are tried for one item: at the least, and where the cluster has few nodes.
TRIALS: Final = 64
MOST_TRIALS: Final = 256
_FEW_NODES: Final = 1 << 14
#: Candidates (domains or nodes) that are tried without asking first which may hold the item at all, and of
#: how many others that is asked together.
AT_ONCE: Final = 16
TOGETHER: Final = 256


def most_trials(nodes: int) -> int:
    """How many cycles are tried for one item in a cluster of so many nodes."""
    return max(TRIALS, min(MOST_TRIALS, _FEW_NODES // max(nodes, 1)))


class TriedSets:
    """Whether an item fits without some units; no set is tried twice."""

    def __init__(
        self,
        fits: Callable[[Sequence[VictimUnit]], tuple[Placed, ...] | None],
        trials: PreemptionTrials,
        nodes: int,
        *,
        monotone: bool,
    ) -> None:
        """``fits`` asks the ``trials``. ``monotone``: what fits without some units also fits without more."""
        self._fits = fits
        self._trials = trials
        self.monotone = monotone
        #: Trials left; half of them are kept for what comes after the exact search.
        self._left: float = most_trials(nodes)
        self._kept = self._left / 2
        #: Whether a set was not tried for want of trials.
        self.spent = False
        self._accepted: dict[frozenset[int], tuple[Placed, ...]] = {}
        self._refused: set[frozenset[int]] = set()

    @property
    def tired(self) -> bool:
        """Whether the exact search has had its share of the trials."""
        if self._left == inf:
            return self._trials.over
        return self._left <= self._kept or 2 * self._trials.steps >= TRIAL_STEPS

    def go_on(self) -> None:
        """Try from now on whatever is asked, until no more may be tried for the item at all."""
        self._left = inf

    def accepts(self, units: Sequence[VictimUnit]) -> bool:
        """Whether the item fits without these units; False if there is no trial left."""
        ended = self._left <= 0 or (self._trials.over if self._left == inf else self._trials.costly)
        if ended and self.spent and not self._accepted:
            return False
        gone = frozenset(pod for unit in units for pod in unit.pods)
        if gone in self._accepted:
            return True
        if gone in self._refused or (self.monotone and any(gone < one for one in self._refused)):
            return False
        if self.monotone and any(gone > one for one in self._accepted):
            return True
        if ended:
            self.spent = True
            return False
        self._left -= 1
        placed = self._fits(units)
        if placed is None:
            self._refused.add(gone)
            return False
        self._accepted[gone] = placed
        return True

    def slots(self, units: Sequence[VictimUnit]) -> set[int] | None:
        """Where the item would be without units that were tried; None: these were not."""
        placed = self._accepted.get(frozenset(pod for unit in units for pod in unit.pods))
        return None if placed is None else {slot for _, slot in placed}
