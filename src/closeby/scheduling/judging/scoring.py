"""Totals of node scores: the weighted sum of each plugin's value x 100 / its maximum."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.scheduling.extension import NormalizeScore, PreScore, Scope, Score
from closeby.scheduling.nodes_view import Nodes
from closeby.scheduling.state import CycleState

Scores = NDArray[np.float64]
Weighted = tuple[Score, float]


def active_scorers(scorers: Sequence[Weighted], state: CycleState, pod: Pod) -> list[Weighted]:
    """The scorers that tell nodes apart for this pod."""
    return [
        (plugin, weight)
        for plugin, weight in scorers
        if weight
        and plugin.scores(pod)
        and not (isinstance(plugin, PreScore) and not plugin.pre_score(state, pod))
    ]


def plugin_scores(
    scorers: Sequence[Weighted], state: CycleState, pod: Pod, nodes: Nodes
) -> Iterator[tuple[Score, float, Scores]]:
    """Each plugin's scores (normalised over ``nodes``) with its weight; ``nodes`` all passed the filters."""
    for plugin, weight in scorers:
        scores = plugin.score(state, pod, nodes)
        if isinstance(plugin, NormalizeScore) and len(nodes):
            scores = plugin.normalize(state, pod, scores)
        yield plugin, weight, scores


def total_scores(scorers: Sequence[Weighted], state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
    """Weighted sum over the scorers; shape (len(nodes),)."""
    total = np.zeros(len(nodes))
    for plugin, weight, scores in plugin_scores(scorers, state, pod, nodes):
        total += scores * (weight * 100.0 / plugin.max_score)
    return total


def cacheable(plugin: Score) -> bool:
    """Whether a node's score depends on that node alone, so that it can be kept until the node is touched."""
    return plugin.score_scope is not Scope.PER_PLACEMENT and not isinstance(plugin, NormalizeScore)
