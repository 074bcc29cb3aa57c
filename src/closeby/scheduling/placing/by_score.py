"""Pods that go one by one, each to its best node: where a score or filter depends on what was just placed."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import groupby

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Ints, Scores
from closeby.objects.groups import Strategy
from closeby.objects.pods import Pod, all_alike
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, mean_scores, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import Weighted, active_scorers, greatest_sum, total_scores
from closeby.scheduling.judging.pod_classes import Share, masks_of
from closeby.scheduling.placing.descent import descend
from closeby.scheduling.placing.runs import PodRun, run_of
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.plugin_view import Nodes
from closeby.topology.tree import Domain, Tree

#: Fewer equal pods than this are placed one by one: to prepare a run takes as long as two pods.
LEAST_RUN = 4
#: Nodes looked at in one go, over the pods of a run.
MOST_LOOKED_AT = 200_000


class ByScore:
    """Places pods by score on one statement."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        table: ClassTable,
        statement: Statement,
        flat_tree: Callable[[], Tree],
        before_pod: Callable[[Pod], None] | None,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._statement = statement
        self._state = statement.state
        self._flat_tree = flat_tree
        self._before_pod = before_pod

    def place(
        self,
        pods: Sequence[Pod],
        candidate: Candidate | None,
        inside: NodeSet,
        strategy: Strategy,
        tree: Tree,
    ) -> bool:
        """Each pod to its best node; where one finds none, those before it stay placed."""
        allowed = inside.allowed(self._cluster.capacity)
        if candidate is not None:
            planned = self._planned(pods, candidate, inside, strategy, tree)
            if planned is None:
                return False
            allowed = planned
        if self._before_pod is not None or len(pods) < LEAST_RUN:
            return self._singly(pods, allowed)
        return all(self._in_a_run(equal, allowed) for equal in _in_runs(pods, self._cluster))

    def _singly(self, pods: Sequence[Pod], allowed: Bools | None) -> bool:
        for pod in pods:
            if self._before_pod is not None:
                self._before_pod(pod)
            slot = self.best_node(pod, allowed)
            if slot is None:
                return False
            self._statement.assume_one(pod, slot)
        return True

    def _in_a_run(self, pods: Sequence[Pod], allowed: Bools | None) -> bool:
        """Equal pods: without asking plugins after each where that comes out the same."""
        left = pods
        if len(left) > LEAST_RUN and not self._may_run(left):
            # Once the first one is there, the others may know where to go.
            if not self._singly(left[:1], allowed):
                return False
            left = left[1:]
        nodes = self._cluster.capacity if allowed is None else int(np.count_nonzero(allowed))
        while len(left) >= LEAST_RUN and self._may_run(left):
            size = min(len(left), max(MOST_LOOKED_AT // (nodes + 200), 16))
            self._state.steps.take(60 + size * (3 + nodes // 500))
            run = self._run(left[:size], allowed)
            if run is None:
                break
            slots = run.choose(size)
            if slots:
                self._statement.assume(left[: len(slots)], np.asarray(slots, dtype=np.intp))
            if len(slots) < size:
                return False
            left = left[size:]
        return self._singly(left, allowed)

    def _may_run(self, pods: Sequence[Pod]) -> bool:
        """Whether each pod leaves room for one fewer on its node or closes its domain, and no more."""
        share = Share(self._table.of(pods[0]), tuple(pods))
        asked = bool(share.pod_class.blind_filters or self._state.more_filters or pods[0].spec.claims)
        if asked or share.reaches_beyond:
            return False
        masks = masks_of(self._table.domain_filters, pods[0])
        return all(mask.closes is not None for mask in masks) or not self._table.affect_each_other((share,))

    def _run(self, pods: Sequence[Pod], allowed: Bools | None) -> PodRun | None:
        pod_class, flat = self._table.of(pods[0]), self._flat_tree()
        feasible = pod_class.fits > 0
        if allowed is not None:
            feasible &= allowed
        slots = np.flatnonzero(feasible)
        if not flat.in_slot_order:
            slots = slots[np.argsort(flat.position_of[slots])]
        return run_of(self._cluster, self._table, pod_class, self._state, pods, slots)

    def best_node(self, pod: Pod, allowed: Bools | None) -> int | None:
        """The feasible slot with the greatest total, of equals the first by name; None if there is none."""
        self._state.steps.take(50 + self._cluster.capacity // 500)
        pod_class = self._table.of(pod)
        filters = (*pod_class.blind_filters, *self._state.more_filters)
        fleeting = active_scorers(self._table.fleeting, self._state, pod)
        ranked, reach = self._table.ranked(pod_class), greatest_sum(fleeting)
        if allowed is None and not filters and reach is not None:
            return self._best_ranked(pod, ranked, fleeting, reach)
        feasible = pod_class.fits > 0
        if allowed is not None:
            feasible &= allowed
        for plugin in filters:
            if not feasible.any():
                return None
            feasible &= plugin.filter(self._state, pod, Nodes(self._cluster))
        slots = np.flatnonzero(feasible)
        if not len(slots):
            return None
        if len(slots) == len(feasible):  # Columns as they are need not be gathered.
            totals = ranked + total_scores(fleeting, self._state, pod, Nodes(self._cluster))
            return self._best(totals, None)
        totals = ranked[slots] + total_scores(fleeting, self._state, pod, Nodes(self._cluster, slots))
        return self._best(totals, slots)

    def _best_ranked(
        self, pod: Pod, ranked: Scores, fleeting: Sequence[Weighted], reach: float
    ) -> int | None:
        """The same by totals that were kept; ``fleeting`` scorers add up to ``reach`` to them."""
        best = self._best(ranked, None) if len(ranked) else None
        if best is None or ranked[best] == -np.inf:
            return None
        if not fleeting:
            return best
        # A node further behind can't catch up.
        slots = np.flatnonzero(ranked >= ranked[best] - reach)
        if len(slots) == 1:
            return int(slots[0])
        totals = ranked[slots] + total_scores(fleeting, self._state, pod, Nodes(self._cluster, slots))
        return self._best(totals, slots)

    def _best(self, totals: Scores, slots: Ints | None) -> int:
        """The slot with the greatest total, of equals the first by name; ``slots`` None stands for all."""
        best = int(np.argmax(totals))
        flat = self._flat_tree()
        if flat.in_slot_order:
            return best if slots is None else int(slots[best])
        # Slots are given out as nodes come and go, which must not decide anything.
        equal = np.flatnonzero(totals == totals[best])
        ties = equal if slots is None else slots[equal]
        return int(ties[np.argmin(flat.position_of[ties])])

    def _planned(
        self,
        pods: Sequence[Pod],
        candidate: Candidate,
        inside: NodeSet,
        strategy: Strategy,
        tree: Tree,
    ) -> Bools | None:
        """The nodes of the fewest domains that hold the pods, so that scores choose among those only."""
        finest = tree.node_level - 1
        level = finest if candidate.fill_level is None else min(candidate.fill_level, finest)
        level = max(level, inside.domain_in(tree).level)
        allowed = np.zeros(self._cluster.capacity, dtype=np.bool_)
        for share in self._table.shares(pods):
            counts = scoped_counts(self._table, share.pod_class, tree, inside, self._cluster.capacity)
            domain = inside.domain_in(tree)
            if counts.inside(domain) < len(share.pods):
                return None
            means = mean_scores(self._table, self._state, ((share, counts),))
            positions, _ = descend(
                counts, domain, len(share.pods), strategy, means, candidate.fill_level
            ).in_topology_order()
            for owner in {
                tree.ancestor(Domain(tree.node_level, int(at)), level) for at in positions.tolist()
            }:
                allowed[tree.slots_in(owner)] = True
        mask = inside.allowed(self._cluster.capacity)
        return allowed if mask is None else allowed & mask


def _in_runs(pods: Sequence[Pod], cluster: Cluster) -> Iterator[tuple[Pod, ...]]:
    """The pods in their order, by runs of those that nothing tells apart."""
    if all_alike(pods):
        yield tuple(pods)
        return
    population = cluster.population

    def kind(pod: Pod) -> Hashable:
        labels = population.class_of(pod) if population.active else None
        return id(pod.spec), pod.namespace, labels, pod.owner, pod.group, pod.node_name

    for _, equal in groupby(pods, key=kind):
        yield tuple(equal)
