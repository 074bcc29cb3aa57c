"""What is computed of nodes for equal pods: totals of their scores, and sums of how many fit.

A score that breaks its promise (``Score.max_score``) would outweigh all others or, as NaN, decide by chance,
so it is refused here, where all scores pass.
"""

from collections.abc import Iterator, Sequence
from sys import float_info
from typing import Final, Protocol

import numpy as np

from closeby.errors import ScoreError
from closeby.objects.arrays import Bools, Counts, Ints, Scores
from closeby.objects.pods import Pod
from closeby.scheduling.extension import NormalizeScore, PreScore, Scope, Score
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree


class DomainCounts:
    """How many pods of one class fit in every domain of one tree.

    Exact for equal pods, since each pod placed on a node leaves room for exactly one fewer there.
    """

    __slots__ = ("_of", "total", "tree")

    def __init__(self, tree: Tree, fits: Counts) -> None:
        """``fits`` has shape (slots,)."""
        self.tree = tree
        #: per level, ending with single nodes (by position)
        self._of = tree.sums_by_level(fits.take(tree.slot_at))
        self.total = int(self._of[0].sum())

    def of(self, level: int) -> Counts:
        """Counts of all domains of a level; ``tree.node_level`` gives single nodes by position.

        ``ROOT_LEVEL`` gives one count, the whole cluster's.
        """
        return np.asarray([self.total]) if level == ROOT_LEVEL else self._of[level]

    def inside(self, domain: Domain) -> int:
        """Count of one domain."""
        return self.total if domain.level == ROOT_LEVEL else int(self._of[domain.level][domain.index])

    def add(self, slots: Ints, change: Counts) -> None:
        """Change the counts of single nodes (each slot at most once) and of all domains that hold them."""
        positions = self.tree.position_of[slots]
        inside = positions < self.tree.size
        if not inside.all():
            positions, change = positions[inside], change[inside]
        self._of[-1][positions] += change
        for level, sums in enumerate(self._of[:-1]):
            np.add.at(sums, self.tree.owners(positions, level), change)
        self.total += int(change.sum())


Weighted = tuple[Score, float]


class MeanScores(Protocol):
    """How well pods score in domains that are equal otherwise."""

    def __call__(self, level: int, domains: Ints, *, by_use: bool = False) -> Scores | None:
        """The mean score in some domains of a level; None where nothing tells nodes apart.

        Unless ``by_use``, where nothing does but how much of them is used: to compare many domains for that
        would cost more than it tells, as they are equally tight.
        """
        ...


#: How far a score may be outside its range, over its maximum: shares that are added up round.
ROUNDING: Final = 1e-9
#: Two such scores may be outside, one above and one below.
_SLACK: Final = 4 * ROUNDING


def active_scorers(scorers: Sequence[Weighted], state: CycleState, pod: Pod) -> list[Weighted]:
    """The scorers that tell nodes apart for this pod."""
    return [
        (plugin, weight)
        for plugin, weight in scorers
        if weight
        and plugin.minds(pod)
        and plugin.scores(pod)
        and not (isinstance(plugin, PreScore) and not plugin.pre_score(state, pod))
    ]


def plugin_scores(
    scorers: Sequence[Weighted], state: CycleState, pod: Pod, nodes: Nodes, counted: Bools | None = None
) -> Iterator[tuple[Score, float, Scores]]:
    """Each plugin's scores (normalised over ``nodes``) with its weight.

    ``nodes`` all passed the filters, or those of ``counted`` did and the others' scores are not used.

    Raises:
        ScoreError: a plugin's scores are not what they must be.
    """
    for plugin, weight in scorers:
        scores = plugin.score(state, pod, nodes)
        if isinstance(plugin, NormalizeScore) and len(nodes):
            scores = plugin.normalize(state, pod, scores)
        check_scores(plugin, pod, nodes, scores, counted)
        yield plugin, weight, scores


def total_scores(scorers: Sequence[Weighted], state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
    """Weighted sum over the scorers; shape (len(nodes),)."""
    total = np.zeros(len(nodes))
    for plugin, weight, scores in plugin_scores(scorers, state, pod, nodes):
        total += scores * (weight * 100.0 / plugin.max_score)
    return total


def greatest_sum(scorers: Sequence[Weighted]) -> float | None:
    """What the scorers add to a node's total at most, the least being 0; None where that is not known."""
    if any(plugin.unbounded or isinstance(plugin, NormalizeScore) for plugin, _ in scorers):
        return None
    return sum(weight for _, weight in scorers) * 100.0 * (1 + _SLACK)


def check_scores(plugin: Score, pod: Pod, nodes: Nodes, scores: object, counted: Bools | None = None) -> None:
    """Raises ``ScoreError`` unless scores have the shape and range that they must."""
    if not isinstance(scores, np.ndarray) or scores.shape != (len(nodes),) or scores.dtype.kind not in "fiub":
        raise ScoreError(plugin, _misshapen(plugin, pod, len(nodes), scores))
    if not len(scores):
        return
    least, most = _range(plugin)
    if len(scores) == 1:
        lowest = highest = scores.item()
    else:
        # NaN is both, and fails either comparison. Min and max themselves take three times as long.
        lowest, highest = scores.item(scores.argmin()), scores.item(scores.argmax())
    if lowest >= least and highest <= most:
        return
    outside = ~((scores >= least) & (scores <= most))
    if counted is not None:
        outside &= counted
    every = list(nodes) if outside.any() else []
    found = [(every[at], float(scores[at])) for at in np.flatnonzero(outside).tolist()]
    faults = [(node.name, value) for node, value in found if node is not None]
    if faults:
        raise ScoreError(plugin, _out_of_range(plugin, pod, *faults[0], len(faults)))


def _range(plugin: Score) -> tuple[float, float]:
    if plugin.unbounded:
        return -float_info.max, float_info.max
    slack = ROUNDING * plugin.max_score
    return -slack, plugin.max_score + slack


def _out_of_range(plugin: Score, pod: Pod, node: str, value: float, count: int) -> str:
    allowed = (
        "must be finite" if plugin.unbounded else f"must be between 0 and its max_score, {plugin.max_score:g}"
    )
    others = f", one of {count:,} such nodes" if count > 1 else ""
    return f"{plugin.name} gives pod {pod.key} the score {value:g} on node {node}{others}: a score {allowed}"


def _misshapen(plugin: Score, pod: Pod, count: int, scores: object) -> str:
    given = type(scores).__name__
    if isinstance(scores, np.ndarray):
        given = f"an array of {scores.dtype} of shape {scores.shape}"
    return (
        f"{plugin.name} scores pod {pod.key} with {given}: it must be one number for each of {count:,} "
        f"nodes, an array of float64 of shape ({count},)"
    )


def cacheable(plugin: Score) -> bool:
    """Whether a node's score depends on that node alone, so that it can be kept until the node is touched."""
    return plugin.score_scope is not Scope.PER_PLACEMENT and not isinstance(plugin, NormalizeScore)
