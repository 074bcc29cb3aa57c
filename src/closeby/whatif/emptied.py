"""What nodes would hold if all that may go had gone: the engine's own count, with every filter."""

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.lifetimes import is_long_running, is_pinned
from closeby.objects.pods import Pod
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodDeleted, PodUpserted
from closeby.scheduling.extension import Scope
from closeby.scheduling.judging.diagnosis import Refusal
from closeby.scheduling.plugin_view import CycleState
from closeby.simulator.runs import Run

Counts = NDArray[np.int64]


class Emptied:
    """The cluster of a run with nothing on it but pods that would not go.

    It is an engine of its own, made when it is first asked; nodes have the same slots in it.
    """

    def __init__(self, run: Run, keeps: Callable[[Pod], bool] = is_pinned) -> None:
        """``keeps`` says which pods are there."""
        self._run = run
        self._keeps = keeps

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Those that are there."""
        kept = ((pod, self._run.node_of(pod)) for pod in self._run.pods if self._keeps(pod))
        return tuple(replace(pod, node_name=node) for pod, node in kept if node is not None)

    @cached_property
    def engine(self) -> Engine:
        """It."""
        return self._run.again(self.pods)

    @cached_property
    def ended(self) -> "Emptied":
        """The same with what runs for ever, such as pods of Deployments: all that ends has ended."""
        return Emptied(self._run, _remains)

    def room(self, pod: Pod, beside: Iterable[Pod] = ()) -> Counts:
        """How many such pods each slot would hold beside these; shape (slots,)."""
        here = {one.uid for one in self.pods}
        others = [one for one in beside if one.uid not in here]
        self.engine.handle(*map(PodUpserted, others))
        room = self.engine.diagnosis.room(pod)
        self.engine.handle(*(PodDeleted(one.uid) for one in others))
        return room

    def refusals(self, pod: Pod) -> list[Refusal]:
        """The slots that would take no such pod, by the filter that says so."""
        return self.engine.diagnosis.refusals(CycleState(), pod)

    def knows_all(self, pod: Pod) -> bool:
        """Whether what such a pod may do depends on nodes alone, not on what was placed elsewhere."""
        filters = self.engine.profile.filters
        return not any(one.filter_scope is Scope.PER_PLACEMENT and one.concerns(pod) for one in filters)


def _remains(pod: Pod) -> bool:
    """Whether it is there once all that ends has ended. What is being deleted goes, unless it comes back."""
    return is_pinned(pod) or (is_long_running(pod) and not pod.terminating)
