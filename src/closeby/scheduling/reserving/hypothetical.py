"""A hypothetical cluster in which all pods that can end have ended: what a gang could ever get.

Pods with long-running owners, and static pods, stay. A question changes nothing: the columns are restored bit
for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Handle, NoArguments, Permit
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.pace import Outdated, Pace
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]
Ints = NDArray[np.intp]

#: Steps of all trials for one question (see ``closeby.scheduling.pace``): they run within one turn.
STEPS: Final = 40_000
_ONLY_TRIED: Final = Condition(
    reason=Reason.NODE_RESERVED, object="", message="this was a trial", blocking=True
)


class HypotheticalCluster:
    """Tries gangs on the cluster without the pods that end."""

    def __init__(self, tools: Tools, state: SchedulingState, handle: Handle) -> None:
        self._tools = tools
        self._state = state
        self._handle = handle
        #: Steps that trials may still take.
        self.left = 0

    def begin(self) -> None:
        """Start a question. All its trials together may take ``STEPS``."""
        self.left = STEPS

    def room(self, pods: Sequence[Pod], own: Iterable[Placed]) -> list[Counts]:
        """Of pods like each of these, how many each slot could take; shape (capacity,) each.

        ``own`` are pods that stay besides the long-running ones.
        """
        tools = self._tools
        with self._emptied(own, None):
            table = ClassTable(tools.cluster, tools.profile.filters, ())
            return [table.of(pod).fits.copy() for pod in pods]

    def try_placing(self, gang: WaitingGang, inside: Bools) -> Ints | None:
        """The slots on which the gang would be placed, among the nodes of ``inside``.

        None if it does not fit, or if the remaining steps are too few to know.
        """
        tools, probe = self._tools, _Probe(self._handle)
        profile = replace(tools.profile, permits=(probe,), post_filters=(), placement_scores=())
        with self._emptied(gang.running, inside):
            trial_tools = Tools(
                tools.cluster, tools.topologies, profile, explain=False, explain_everything=False
            )
            with suppress(Outdated):
                _in_steps(trial_tools.pace, self.left)
                place_gang(trial_tools, gang)
            self.left = max(0, self.left - trial_tools.pace.steps)
        return probe.slots

    @contextmanager
    def _emptied(self, own: Iterable[Placed], inside: Bools | None) -> Iterator[None]:
        cluster, state = self._tools.cluster, self._state
        stay = {pod.uid: (pod, slot) for pod, slot in own}
        for uid in state.long_running:
            slot = cluster.placement(uid)
            if slot is not None:
                stay[uid] = (state.pods[uid], slot)
        with cluster.hypothetical(stay.values(), inside):
            yield


def _in_steps(pace: Pace, limit: int) -> None:
    """Stop what runs at this pace after so many steps; everything it holds is released."""

    def end() -> None:
        for held in reversed(pace.holds):
            held.suspend()
        raise Outdated

    pace.allow(limit, end)


class _Probe(Permit):
    """Notes where a gang would be placed, and refuses the placement."""

    name = "Trial"

    def __init__(self, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self.slots: Ints | None = None

    def permit(self, state: object, placements: tuple[Placed, ...]) -> Condition | None:
        self.slots = np.asarray(sorted({slot for _, slot in placements}), dtype=np.intp)
        return _ONLY_TRIED
