"""Which nodes the waiting pods of an application could ever use: what frees none of them needs no trial."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.pods import Pod, PodSpec
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.services import DependencyCost
from closeby.whatif.questions import Question
from closeby.whatif.rooms import Rooms, lasting

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]

#: Kinds of pods that are looked at one by one; of more than these the least that any of them needs counts.
KINDS = 8


class Kin(NamedTuple):
    """Waiting pods that are equal, with the nodes that they may go to whatever runs there."""

    pods: tuple[Pod, ...]
    rooms: Rooms
    #: By slot: nothing that lasts is against it, such as its labels and taints.
    possible: Bools
    #: By slot: and it is near enough to the replicas that are placed.
    allowed: Bools

    def on(self, slots: Bools) -> bool:
        """Whether one of these slots could hold such a pod if nothing else ran there."""
        return bool((slots & (self.rooms.emptied_slots() > 0)).any())


class Reach:
    """Upper bounds: filters that look at what runs on a node are not asked."""

    def __init__(self, question: Question, *, limits: bool = True) -> None:
        """``limits``: those of ``maxNetworkCost`` to the replicas that are placed count."""
        self._question = question
        self._limits = limits
        kinds = _kinds(question)
        if len(kinds) > KINDS:
            self.kin = [self._kin(question.waiting, [pods[0] for pods in kinds])]
        else:
            self.kin = [self._kin(pods, pods[:1]) for pods in kinds]

    def helps(self, pods: Iterable[Pod]) -> bool:
        """Whether one of the waiting pods might fit on a node that these pods hold if they were gone.

        Without pods of the application itself limits are others, so that all may be.
        """
        gone = tuple(pods)
        return any(map(self._question.owns, gone)) or self.gain(gone) > 0

    def gain(self, pods: Iterable[Pod]) -> int:
        """How many might at most, on the nodes that these pods hold."""
        gone = tuple(pods)
        total = 0
        for kin in self.kin:
            slots, room = kin.rooms.without(gone)
            total += min(int(room[kin.allowed[slots]].sum()), len(kin.pods))
        return total

    def _kin(self, pods: Sequence[Pod], examples: Sequence[Pod]) -> Kin:
        engine = self._question.trials.engine
        nodes = Nodes(engine.cluster, np.arange(engine.cluster.capacity))
        possible = np.zeros(engine.cluster.capacity, dtype=np.bool_)
        allowed = possible.copy()
        for pod in examples:
            here = lasting(self._question, pod)
            possible |= here
            for plugin in engine.profile.filters:
                if self._limits and isinstance(plugin, DependencyCost) and plugin.concerns(pod):
                    here = here & plugin.filter(CycleState(), pod, nodes)
            allowed |= here
        asked = replace(self._question, waiting=tuple(pods))
        return Kin(tuple(pods), Rooms(asked), possible, allowed)


def _kinds(question: Question) -> list[tuple[Pod, ...]]:
    """The pods that wait, parted by what they need and by their workload."""
    application = question.application
    kinds: dict[tuple[PodSpec, str | None], list[Pod]] = {}
    for pod in question.waiting:
        workload = None if application is None else application.workload_of(pod)
        kinds.setdefault((pod.spec, workload), []).append(pod)
    return [tuple(pods) for pods in kinds.values()]
