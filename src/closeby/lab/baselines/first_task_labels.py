"""first-task-labels: the Volcano network-topology proposal as published, without any look-ahead.

Each task of a job goes to the node with the greatest ``weight x (K - i)``, i the first of K label keys
(nearest first) on which it equals the node of the job's first placed task. Where the first task goes decides
all, without a check whether the rest fits there: the drawback that the proposal names itself, which
closeby's plugin ``network-topology`` removes.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Scores
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate, Handle, PartView, PlacementGenerate, Scope, Score
from closeby.scheduling.plugin_helpers import lots, wherever_allowed
from closeby.scheduling.plugin_view import CycleState, Nodes

#: Greatest part of a score that is drawn, less than any label's.
_DRAWN: Final = 1e-6


class FirstTaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``keys``: label keys, nearest first; none: the levels of the only topology above the node.

    ``seed``: of the draws among nodes that score alike, of which Volcano takes any.
    """

    keys: tuple[str, ...] = ()
    seed: int = 0


class FirstTaskLabels(PlacementGenerate, Score):
    """Scores nodes by the labels that they share with the node of the gang's first task."""

    name: ClassVar[str] = "first-task-labels"
    Arguments = FirstTaskArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    # Far above other scorers, whose say is then only among equal labels.
    default_weight: ClassVar[float] = 100.0

    def __init__(self, arguments: FirstTaskArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._keys = arguments.keys
        self._seed = arguments.seed

    def scores(self, pod: Pod) -> bool:
        """Only for members of a gang."""
        return pod.group is not None

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """100 x (K - i) / K for the first key on which the nodes agree; the least of it is drawn."""
        scores = _DRAWN * lots(self._seed, pod, nodes)
        record = state.anchors[0] if state.anchors else state.placed[0][1] if state.placed else None
        if record is None:
            return scores
        keys = self._keys or self._levels()
        labels = self.handle.cluster.labels.labels(record)
        open_ = np.ones(len(nodes), dtype=np.bool_)
        for index, key in enumerate(keys):
            value = labels.get(key)
            if not value:  # A missing or empty value never matches.
                continue
            matches = open_ & (nodes.label_codes(key) == nodes.label_column(key).code(value))
            scores[matches] += (100.0 - _DRAWN) * (len(keys) - index) / len(keys)
            open_ &= ~matches
        return scores

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Anywhere; the domains of a level that is required, the tightest first."""
        return wherever_allowed(part)

    def _levels(self) -> tuple[str, ...]:
        tree = self.handle.topologies.only_tree()
        return () if tree is None else tuple(level.node_label for level in reversed(tree.levels))
