"""The simple form of a plugin: judge one node at a time, in plain Python.

Start here when writing a policy; ``docs/writing-a-plugin.md`` shows how. A loop over nodes costs about a
microsecond per node and question. Results are kept per class of pods as for any plugin, so that is paid once
per class; when it is still too slow, move to the array form of the same extension point.
"""

import math
from collections.abc import Hashable
from typing import TypeAlias

import numpy as np

from closeby.objects.arrays import Bools, Scores
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, NormalizeScore, Plugin, Score
from closeby.scheduling.plugin_view import CycleState, Nodes

#: True lets the pod go there; False, a sentence that says why not, or a whole ``Rejection`` do not.
Verdict: TypeAlias = bool | str | Rejection


class _SafeKey(Plugin):
    """Shares results only among pods that come from one template."""

    def class_key(self, pod: Pod) -> Hashable:
        """All that a template decides; not the name, uid, index, rank or times.

        Return something narrower (``None`` when only the node matters) and more pods share one answer; return
        ``pod.uid`` when each pod is judged by itself.
        """
        return (
            pod.namespace,
            pod.spec,
            frozenset(pod.labels.items()),
            frozenset(pod.annotations.items()),
            pod.group,
            pod.subgroup,
            pod.owner,
        )


class ScalarFilter(_SafeKey, Filter):
    """Says for one pod and one node whether they go together.

    ``reason`` is the token of all its refusals. Where it is None, ``filter_node`` gives rejections with
    tokens of their own, and what it refuses without one counts as ``RefusedByPlugin``. Declare
    ``filter_scope = Scope.PER_NODE`` when the answer depends on the pods that are on the node.
    """

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        """Whether the pod may go to the node: True, or why not."""
        raise NotImplementedError

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        """``filter_node`` for each node; shape (len(nodes),)."""
        verdicts = (node is not None and self._rejection(pod, node) is None for node in nodes)
        return np.fromiter(verdicts, dtype=np.bool_, count=len(nodes))

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        """What ``filter_node`` gave as the reason."""
        found = self._rejection(pod, self.handle.cluster.node_at(slot))
        return found or self._refused()

    def _rejection(self, pod: Pod, node: Node) -> Rejection | None:
        verdict: object = self.filter_node(pod, node)
        if isinstance(verdict, Rejection):
            return verdict
        if isinstance(verdict, str):
            return self._refused(verdict)
        if not isinstance(verdict, bool | np.bool_):
            kind = type(verdict).__name__
            raise TypeError(f"{self.name}.filter_node must return a bool, a str or a Rejection, not {kind}")
        return None if verdict else self._refused()

    def _refused(self, why: str = "") -> Rejection:
        return Rejection(self.reason or Reason.REFUSED_BY_PLUGIN, why or f"{self.name} refuses it")


class ScalarScore(_SafeKey, Score):
    """Says how good one node is for one pod.

    Declare ``score_scope = Scope.PER_NODE`` when the answer depends on the pods that are on the node, and
    ``Scope.PER_PLACEMENT`` when it depends on where other pods were placed.
    """

    def score_node(self, pod: Pod, node: Node) -> float:
        """From 0 to ``max_score``; higher is better."""
        raise NotImplementedError

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """``score_node`` for each node, 0 for a slot without a node; shape (len(nodes),)."""
        scores = (0.0 if node is None else self.score_node(pod, node) for node in nodes)
        return np.fromiter(scores, dtype=np.float64, count=len(nodes))


class ScalarCost(_SafeKey, NormalizeScore):
    """Says what one node costs for one pod, in any unit: the cheapest feasible node scores 100, the dearest
    0.

    A node whose cost is unknown (None) scores 0. When all known costs are equal, they score 100. Scopes are
    as for ``ScalarScore``.
    """

    def cost_node(self, pod: Pod, node: Node) -> float | None:
        """Lower is better; None when unknown."""
        raise NotImplementedError

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """Minus ``cost_node`` for each node, NaN where it is unknown; shape (len(nodes),)."""
        costs = (self._cost(pod, node) for node in nodes)
        return -np.fromiter(costs, dtype=np.float64, count=len(nodes))

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        """Spread the known costs over 0..``max_score``."""
        known = np.isfinite(scores)
        normalized = np.zeros(len(scores))
        if known.any():
            least, most = scores[known].min(), scores[known].max()
            part = (scores[known] - least) / (most - least) if most > least else 1.0
            normalized[known] = self.max_score * part
        return normalized

    def _cost(self, pod: Pod, node: Node | None) -> float:
        cost = None if node is None else self.cost_node(pod, node)
        return math.nan if cost is None else cost
