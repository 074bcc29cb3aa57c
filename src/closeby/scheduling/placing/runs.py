"""Equal pods that go one after another to the node that scores best, without asking plugins after each.

It comes out as if each pod were placed by itself. What a node scores by its own use is worked out for several
pods more at once; scores that depend on what was just placed say how they go on (``Score.repeats``).
"""

from collections.abc import Sequence
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Counts, Ints, Scores
from closeby.objects.pods import Pod
from closeby.scheduling.by_domain import DomainFilter
from closeby.scheduling.extension import NormalizeScore, PreScore, Scope, Score
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import check_scores, plugin_scores
from closeby.scheduling.judging.pod_classes import PodClass, masks_of
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.repeats import UNSCORED, Repeats

#: For how many pods more at least a node's own scores are worked out at once; how many scores of all nodes.
FEWEST_AHEAD: Final = 8
MOST_AHEAD: Final = 20_000


class PodRun:
    """Some nodes and their scores while equal pods come to them; nothing is placed by it."""

    def __init__(
        self,
        own: "_OwnScores",
        scorers: Sequence["_Scorer"],
        slots: Ints,
        room: Counts,
        closing: Sequence[NDArray[np.int32]],
    ) -> None:
        """``slots``: where such pods fit, of equal nodes the first one first; see ``run_of``.

        ``closing``: domains of the nodes, 0 for none, each of which takes one such pod.
        """
        self._slots = slots
        self._own = own
        self._scorers = scorers
        #: How many more such pods each node takes, and how many came.
        self._room = room
        self._taken = np.zeros(len(slots), dtype=np.int64)
        self._closing = list(closing)

    def choose(self, count: int) -> list[int]:
        """The slots of so many pods, in their order; fewer when no node is left."""
        chosen: list[int] = []
        own = self._own
        added = self._added()
        total = own.totals + added
        while len(total) and len(chosen) < count:
            at = int(total.argmax())
            if total.item(at) == -inf:
                break
            chosen.append(self._slots.item(at))
            moved = False
            for scorer in self._scorers:
                moved |= scorer.place(at)
            taken = self._taken.item(at) + 1
            self._taken[at] = taken
            closed = self._closed(at, full=taken == self._room.item(at))
            if closed is None:
                own.follow(at, taken)
            else:
                moved |= self._close(closed)
            if moved:
                added = self._added()
                total = own.totals + added
            elif closed is None:
                total[at] = own.totals[at] + added[at]
            else:
                total[closed] = -inf
        return chosen

    def _closed(self, at: int, *, full: bool) -> Ints | None:
        """The nodes that take no more such pods once one has come to one of them; None for none."""
        same = [(codes == code).nonzero()[0] for codes in self._closing if (code := codes.item(at))]
        if not same:
            return np.array([at]) if full else None
        return same[0] if len(same) == 1 else np.unique(np.concatenate(same))

    def _close(self, closed: Ints) -> bool:
        """Nodes take no more such pods; whether they were left out, so that others may score otherwise."""
        new = closed[self._own.totals[closed] > -inf]
        self._own.totals[new] = -inf
        ignored = [scorer.may_ignore(new) for scorer in self._scorers]
        if all(ignored):
            return False
        self._keep(np.flatnonzero(self._own.totals > -inf))
        return True

    def _added(self) -> Scores:
        """What the scores add that depend on more than the node itself."""
        if not self._scorers:
            return np.zeros(len(self._slots))
        total = self._scorers[0].points
        for scorer in self._scorers[1:]:
            total = total + scorer.points
        return total

    def _keep(self, kept: Ints) -> None:
        self._slots, self._room, self._taken = self._slots[kept], self._room[kept], self._taken[kept]
        self._closing = [codes[kept] for codes in self._closing]
        self._own.keep(kept)
        for scorer in self._scorers:
            scorer.keep(kept)


class _OwnScores:
    """Totals of the scores that depend on a node alone, with the pods that come to it."""

    def __init__(
        self, cluster: Cluster, pod_class: PodClass, totals: Scores, slots: Ints, expected: int
    ) -> None:
        """``totals`` are those of now, ``expected`` how many pods come to all of the slots."""
        #: (nodes,) of those that are left, as they are now.
        self.totals = totals
        self._cluster = cluster
        self._class = pod_class
        self._slots = slots
        self._blank = CycleState()
        #: The place of each node among those of the beginning, and what each of these will score, with the
        #: next pod last; empty when it must be worked out.
        self._place = np.arange(len(slots))
        self._ahead: list[list[float]] = []
        spread = max(FEWEST_AHEAD, 2 * expected // max(len(slots), 1))
        self._depth = max(1, min(spread, MOST_AHEAD // max(len(slots), 1), expected))

    def follow(self, at: int, taken: int) -> None:
        """So many pods have come to a node."""
        place = self._place.item(at)
        if not self._ahead:
            self._ahead = self._worked_out(self._slots, np.arange(taken, taken + self._depth))
        ahead = self._ahead[place]
        if not ahead:
            numbers = np.arange(taken, taken + 2 * max(taken, FEWEST_AHEAD))
            (ahead,) = self._worked_out(self._slots[place : place + 1], numbers)
            self._ahead[place] = ahead
        self.totals[at] = ahead.pop()

    def keep(self, kept: Ints) -> None:
        """The others take no more pods."""
        self.totals, self._place = self.totals[kept], self._place[kept]

    def _worked_out(self, slots: Ints, numbers: Ints) -> list[list[float]]:
        """The totals of nodes with so many pods more, the last number first."""
        size = len(slots), len(numbers)
        every, more = np.repeat(slots, size[1]), np.tile(numbers[::-1], size[0])
        pod = self._class.pod
        nodes = Nodes(self._cluster, every, (self._cluster.demand(pod.spec), more))
        fitting = more < self._class.fits[every]
        total = np.zeros(len(every))
        for plugin, weight, scores in plugin_scores(self._class.steady[1], self._blank, pod, nodes, fitting):
            total += scores * (weight * 100.0 / plugin.max_score)
        found: list[list[float]] = total.reshape(size).tolist()
        return found


class _Scorer:
    """What one plugin adds to the totals of nodes."""

    def __init__(
        self,
        cluster: Cluster,
        plugin: Score,
        weight: float,
        repeats: Repeats,
        pod: Pod,
        state: CycleState,
        slots: Ints,
    ) -> None:
        self._cluster = cluster
        self._plugin = plugin
        self._factor = weight * 100.0 / plugin.max_score
        self._repeats = repeats
        self._pod = pod
        self._state = state
        self._slots = slots
        #: (nodes,) what it adds now.
        self.points = self._checked()

    def place(self, at: int) -> bool:
        """A pod came to a node; whether the points of any changed."""
        moved = self._repeats.place(at)
        if moved:
            self.points = self._scores() * self._factor
        return moved

    def may_ignore(self, closed: Ints) -> bool:
        """Whether the others score the same without nodes that take no more pods."""
        return not isinstance(self._plugin, NormalizeScore) or self._repeats.may_ignore(closed)

    def keep(self, kept: Ints) -> None:
        """Only these nodes are left."""
        self._slots = self._slots[kept]
        self._repeats.keep(kept)
        self.points = self._checked()

    def _checked(self) -> Scores:
        scores = self._scores()
        check_scores(self._plugin, self._pod, Nodes(self._cluster, self._slots), scores)
        return scores * self._factor

    def _scores(self) -> Scores:
        scores = self._repeats.values
        if isinstance(self._plugin, NormalizeScore) and len(scores):
            scores = self._plugin.normalize(self._state, self._pod, scores)
        return scores


def run_of(
    cluster: Cluster,
    table: ClassTable,
    pod_class: PodClass,
    state: CycleState,
    pods: Sequence[Pod],
    slots: Ints,
) -> PodRun | None:
    """A run of equal pods on the slots where they fit; None where a plugin must be asked after each pod.

    ``pod_class`` is up to date; of equal nodes the first of the slots is taken.
    """
    totals = table.ranked(pod_class)[slots]
    if any(one.score_scope is Scope.PER_NODE and not one.scores_by_use for one, _ in pod_class.steady[1]):
        return None
    scorers: list[_Scorer] = []
    for plugin, weight in table.fleeting:
        repeats = _repeats(plugin, state, pods, Nodes(cluster, slots)) if weight else UNSCORED
        if repeats is None:
            return None
        if repeats is not UNSCORED:
            scorers.append(_Scorer(cluster, plugin, weight, repeats, pods[0], state, slots))
    own = _OwnScores(cluster, pod_class, totals, slots, len(pods))
    masks = [mask for mask in masks_of(table.domain_filters, pods[0]) if mask.closes]
    closing = [Nodes(cluster, slots).label_codes(key) for key in dict.fromkeys(mask.key for mask in masks)]
    return PodRun(own, scorers, slots, pod_class.fits[slots], closing)


def _repeats(plugin: Score, state: CycleState, pods: Sequence[Pod], nodes: Nodes) -> Repeats | None:
    pod = pods[0]
    if not plugin.scores_any or (pod.group is not None and not plugin.scores_members):
        return UNSCORED
    if plugin.score_scope is Scope.PER_PLACEMENT:
        repeats = plugin.repeats(state, pod, nodes)
        # Only filters by domain say themselves which pods are alike.
        if repeats is UNSCORED and not isinstance(plugin, DomainFilter) and any(map(plugin.scores, pods)):
            return None
        return repeats
    if plugin.score_scope is Scope.PER_NODE:
        return None  # It is normalised over all nodes, and goes by what is on each.
    if not plugin.scores(pod) or (isinstance(plugin, PreScore) and not plugin.pre_score(state, pod)):
        return UNSCORED
    return Repeats(plugin.score(state, pod, nodes))
