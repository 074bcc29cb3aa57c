"""Trials of one item after the other without some pods, and what they may cost."""

from collections.abc import Sequence
from typing import Final

from closeby.objects.arrays import Counts
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Handle
from closeby.scheduling.forked_cycle import ForkedCycle
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang

#: What the search for one item's victims may cost in trials, and as much again to spare some of them.
TRIAL_STEPS: Final = 50_000
#: Steps of a decision that are about as much work as one of an integer program.
_OF_PROGRAM: Final = 100


class PreemptionTrials(ForkedCycle):
    """Trials whose steps are counted for one item after the other."""

    def __init__(self, tools: Tools, state: SchedulingState, holdings: Holdings, handle: Handle) -> None:
        super().__init__(tools, state, holdings, handle)
        #: What was spent for earlier items, and on programs.
        self._earlier = 0

    def begin(self) -> None:
        """The search for the victims of one item begins."""
        self._earlier += self.steps
        self.steps = 0

    def note_solving(self, steps: int) -> None:
        """An integer program took so many steps of its own."""
        self._earlier += _OF_PROGRAM * steps

    @property
    def all_steps(self) -> int:
        """What all trials and programs have cost so far."""
        return self._earlier + self.steps

    @property
    def costly(self) -> bool:
        """Whether nothing more should be tried than to spare victims that were found."""
        return self.steps >= TRIAL_STEPS

    @property
    def over(self) -> bool:
        """Whether nothing more should be tried for this item."""
        return self.steps >= 2 * TRIAL_STEPS

    def place_without(self, item: WaitingGang | Pod, gone: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the item's pods would go without the pods that are gone; None if it does not fit."""
        with self.without(gone, item):
            return self.place(item)

    def most(
        self, item: WaitingGang | Pod, kinds: Sequence[Pod], gone: Sequence[Pod]
    ) -> tuple[Counts, ...] | None:
        """By slot: how many pods of each kind may fit without the pods that are gone, and at most.

        ``kinds`` has one pod of each. Filters that look at what was placed elsewhere are not asked: they may
        refuse more. None where fewer pods may also close a node, as with a required affinity or a spread
        constraint: then nothing follows for other sets of pods.
        """
        table = self._tools.table
        if table.helped_by_pods(kinds):
            return None
        with self.without(gone, item):
            return tuple(table.of(pod).fits.copy() for pod in kinds)
