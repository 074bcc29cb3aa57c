"""Whether an item fits without some pods: its own cycle, on the engine's state, which is then as before."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from closeby.objects.arrays import Counts
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
        self._trial.placed = None
        self._tools.pace.begin()
        with self._without(gone, item):
            if isinstance(item, Pod):
                place_pod(self._tools, item)
            else:
                place_gang(self._tools, item)
        return self._trial.placed

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
        with self._without(gone, item):
            return tuple(table.of(pod).fits.copy() for pod in kinds)

    @contextmanager
    def _without(self, gone: Sequence[Pod], item: WaitingGang | Pod) -> Iterator[None]:
        put_back = [self._holdings.lift(pod) for pod in gone]
        put_back.append(self._exclusives.keep_off_in_trial(item))
        try:
            yield
        finally:
            while put_back:
                put_back.pop()()
