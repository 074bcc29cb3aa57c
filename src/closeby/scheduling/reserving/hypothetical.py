"""A hypothetical cluster in which all pods that can end have ended: what a gang could ever get.

Pods with long-running owners, and static pods, stay. A question changes nothing: the columns are restored bit
for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import Pod
from closeby.objects.process import Contained
from closeby.objects.workloads import is_pinned
from closeby.scheduling.by_domain import DomainFilter
from closeby.scheduling.commit_points import TryOnly
from closeby.scheduling.extension import Handle, Scope
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.statement import GiveBack
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang
from closeby.scheduling.reasons.nodes import Diagnosis

#: Steps of all trials for one question (see ``closeby.scheduling.steps``): they run within one turn.
STEPS: Final = 40_000


class HypotheticalCluster:
    """Tries gangs on the cluster without the pods that end."""

    def __init__(
        self, tools: Tools, state: SchedulingState, handle: Handle, give_back: GiveBack | None
    ) -> None:
        """With ``give_back`` nothing is left of a trial that ended in a fault, which is raised."""
        self._tools = tools
        self._state = state
        self._handle = handle
        self._give_back = give_back
        #: Steps that trials may still take.
        self.left = 0

    def begin(self) -> None:
        """Start a question. All its trials together may take ``STEPS``."""
        self.left = STEPS

    def room(self, pods: Sequence[Pod], own: Iterable[Placed]) -> list[Counts]:
        """Of pods like each of these, how many each slot could take; shape (capacity,) each.

        ``own`` are pods that stay besides the long-running ones.
        """
        with self.emptied(own) as diagnosis:
            return [diagnosis.room(pod) for pod in pods]

    @contextmanager
    def emptied(
        self, own: Iterable[Placed] = (), *, pinned: bool = False, bare: bool = False
    ) -> Iterator[Diagnosis]:
        """Questions about the cluster with long-running pods and ``own`` alone.

        ``pinned``: of the long-running pods only those that come back to their node at once; ``bare``: none.
        """
        cluster, filters = self._tools.cluster, self._tools.profile.filters
        stay = () if bare else self.staying(pinned=pinned)
        with self._emptied(own, None, stay):
            yield Diagnosis(cluster, ClassTable(cluster, filters, ()), filters, ())

    def staying(self, *, pinned: bool = False) -> list[Placed]:
        """The pods that stay, with their slots."""
        cluster, state = self._tools.cluster, self._state
        pods = ((state.pods[uid], cluster.placement(uid)) for uid in state.long_running)
        return [(pod, at) for pod, at in pods if at is not None and (not pinned or is_pinned(pod))]

    def knows_all(self, pod: Pod) -> bool:
        """Whether what such a pod may do depends on nodes alone, not on what was placed elsewhere."""
        filters = self._tools.profile.filters
        apart = (
            one for one in filters if one.filter_scope is Scope.PER_PLACEMENT or isinstance(one, DomainFilter)
        )
        return not any(one.concerns(pod) for one in apart) and not any(
            one.reaches_beyond(pod) for one in filters
        )

    def try_placing(self, gang: WaitingGang, inside: Bools) -> Ints | None:
        """The slots on which the gang would be placed, among the nodes of ``inside``.

        None if it does not fit, or if the remaining steps are too few to know.
        """
        tools, trial = self._tools, TryOnly(self._handle)
        profile = replace(tools.profile, permits=(trial,), post_filters=(), placement_scores=())
        with self._emptied(gang.running, inside, self.staying()):
            trial_tools = Tools(
                tools.cluster, tools.topologies, profile, explain=False, explain_everything=False
            )
            trial_tools.steps.limit = self.left
            with Contained() as placing:
                place_gang(trial_tools, gang)
            if placing.error is not None:
                if self._give_back is not None:
                    self._give_back(gang.waiting)
                raise placing.error
            self.left = max(0, self.left - trial_tools.steps.taken)
        if trial.placed is None:
            return None
        return np.asarray(sorted({slot for _, slot in trial.placed}), dtype=np.intp)

    @contextmanager
    def _emptied(
        self, own: Iterable[Placed], inside: Bools | None, staying: Iterable[Placed]
    ) -> Iterator[None]:
        stay = {pod.uid: (pod, slot) for pod, slot in (*own, *staying)}
        with self._tools.cluster.hypothetical(stay.values(), inside):
            yield
