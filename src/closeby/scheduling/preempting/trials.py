"""Whether an item fits without some pods: its own cycle, on the engine's state, which is then as before."""

from collections.abc import Sequence

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.scheduling.commit_points import TryOnly
from closeby.scheduling.extension import Handle
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.placing.deciding import place_pod
from closeby.scheduling.placing.exclusive import Exclusives
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang


class PreemptionTrials:
    """Runs cycles without some pods. Every filter and all resources count, those of plugins too."""

    def __init__(self, tools: Tools, state: SchedulingState, holdings: Holdings, handle: Handle) -> None:
        self._state = state
        self._holdings = holdings
        self._trial = TryOnly(handle)
        self._tools = tools.for_fork()
        self._tools.profile = replace(self._tools.profile, permits=(*tools.profile.permits, self._trial))
        self._exclusives = Exclusives(self._tools, state)

    def place(self, item: WaitingGang | Pod, gone: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the item's pods would go without the pods that are gone; None if it does not fit."""
        put_back = [self._holdings.lift(pod) for pod in gone]
        put_back.append(self._exclusives.keep_off_in_trial(item))
        self._trial.placed = None
        self._tools.pace.begin()
        try:
            if isinstance(item, Pod):
                place_pod(self._tools, item)
            else:
                place_gang(self._tools, item)
        finally:
            while put_back:
                put_back.pop()()
        return self._trial.placed
