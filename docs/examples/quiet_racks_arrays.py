"""The policy of quiet_racks.py in the array form, with arguments."""

from collections.abc import Hashable

import numpy as np
from msgspec import Struct, field

from closeby.plugin import (
    Bools,
    CycleState,
    Filter,
    Handle,
    Node,
    NodeColumn,
    Nodes,
    NormalizeScore,
    Pod,
    Rejection,
    Scores,
)


class QuietRacksArguments(Struct, frozen=True, forbid_unknown_fields=True):
    noisy_label: str = field(default="noisy", name="noisyLabel")
    power_annotation: str = field(default="power-draw", name="powerAnnotation")


class QuietRacks(Filter, NormalizeScore):
    name = "quiet-racks"
    reason = "RackTooNoisy"
    Arguments = QuietRacksArguments

    def __init__(self, arguments: QuietRacksArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._label = arguments.noisy_label
        self._annotation = arguments.power_annotation
        self._watts = NodeColumn(handle.cluster, self._watts_of)

    def class_key(self, pod: Pod) -> Hashable:
        return pod.labels.get("quiet")

    def concerns(self, pod: Pod) -> bool:
        return pod.labels.get("quiet") == "required"

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        noisy = nodes.label_column(self._label).code("true")
        return nodes.all(True) if noisy is None else np.not_equal(nodes.label_codes(self._label), noisy)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(self.reason, "the rack is noisy, and the pod asks for quiet")

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        return -self._watts.figures(nodes, lambda watts: np.nan if watts is None else watts)

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        least, most = np.nanmin(scores, initial=np.inf), np.nanmax(scores, initial=-np.inf)
        if not least < most:
            return np.where(np.isnan(scores), 0.0, 100.0)
        return np.nan_to_num(100.0 * (scores - least) / (most - least))

    def _watts_of(self, node: Node) -> float | None:
        watts = node.annotations.get(self._annotation)
        return None if watts is None else float(watts)
