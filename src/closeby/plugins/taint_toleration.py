"""TaintToleration: taints keep away, or discourage, pods that do not tolerate them."""

from collections.abc import Hashable

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Scores
from closeby.objects.bounds import some
from closeby.objects.nodes import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Node,
    Taint,
    describe,
    tolerated,
)
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Handle, NormalizeScore, PreScore
from closeby.scheduling.plugin_view import CycleState, NodeColumn, Nodes

Taints = tuple[Taint, ...]


class TaintToleration(Filter, PreScore, NormalizeScore):
    """Upstream's plugin of that name.

    The score counts the PreferNoSchedule taints that the pod does not tolerate: 100 without any, 0 on the
    nodes with the most.
    """

    name = "TaintToleration"
    shares_by_spec = True
    reason = Reason.TAINT_NOT_TOLERATED
    default_weight = 3.0

    def __init__(self, arguments: Struct, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._repelling = NodeColumn(handle.cluster, _repelling)
        self._discouraging = NodeColumn(handle.cluster, _discouraging)

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.tolerations

    def concerns(self, pod: Pod) -> bool:
        return not _tolerates_all(pod, (NO_SCHEDULE, NO_EXECUTE))

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        tolerations = pod.spec.tolerations
        return self._repelling.flags(nodes, lambda taints: all(tolerated(tolerations, t) for t in taints))

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        taints = [
            describe(taint)
            for taint in _repelling(self.handle.cluster.node_at(slot))
            if not tolerated(pod.spec.tolerations, taint)
        ]
        noun = "taint" if len(taints) == 1 else "taints"
        return Rejection(Reason.TAINT_NOT_TOLERATED, f"{noun} {some(taints)} not tolerated")

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        return any(self._discouraging.values)

    def scores(self, pod: Pod) -> bool:
        return not _tolerates_all(pod, (PREFER_NO_SCHEDULE,))

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        tolerations = pod.spec.tolerations
        return self._discouraging.figures(
            nodes, lambda taints: -float(sum(not tolerated(tolerations, taint) for taint in taints))
        )

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        most = -float(scores.min(initial=0.0))
        if most == 0:
            return np.full(len(scores), 100.0)
        kept: Scores = 100.0 + scores * 100.0 / most
        return kept


def _repelling(node: Node) -> Taints:
    return tuple([taint for taint in node.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)])


def _discouraging(node: Node) -> Taints:
    return tuple([taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE])


def _tolerates_all(pod: Pod, effects: tuple[str, ...]) -> bool:
    """Whether tolerations without a key cover every taint of these effects."""
    covered = {t.effect for t in pod.spec.tolerations if not t.key and t.operator == "Exists"}
    return "" in covered or covered.issuperset(effects)
