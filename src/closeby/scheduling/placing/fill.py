"""Placing the pods of one part inside one candidate: by descent, by trial for unequal pods, or pod by pod."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Final

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools
from closeby.objects.groups import Strategy
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import EVERYWHERE, Distinctions, NodeSet, mean_scores, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.by_score import ByScore
from closeby.scheduling.placing.descent import descend
from closeby.scheduling.placing.mutual import Mutual
from closeby.scheduling.placing.statement import Checkpoint, Statement
from closeby.scheduling.placing.sums import Sums
from closeby.scheduling.placing.trial import Trial
from closeby.scheduling.placing.unequal import UnequalFill
from closeby.scheduling.solving.best_fit import Fit
from closeby.scheduling.solving.program import Verdict
from closeby.scheduling.steps import Budget
from closeby.topology.tree import Domain, Tree

#: Steps for each further kind of pods in one candidate.
_PER_KIND: Final = 100


class Filler:
    """Fills candidates on one statement."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        table: ClassTable,
        statement: Statement,
        flat_tree: Callable[[], Tree],
        before_pod: Callable[[Pod], None] | None,
        pod_by_pod: bool,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._statement = statement
        self._state = statement.state
        #: Gives the nodes where neither candidate nor scope names a tree.
        self._flat_tree = flat_tree
        self._before_pod = before_pod
        self._one_by_one = pod_by_pod

    def fill(
        self,
        pods: Sequence[Pod],
        candidate: Candidate | None,
        scope: NodeSet,
        strategy: Strategy,
        budget: Budget,
    ) -> bool:
        """Place all pods inside a candidate (None: anywhere in the scope); False leaves nothing placed."""
        demand = self._table.shares(pods)
        self._state.steps.take(_PER_KIND * len(demand[1:]))
        inside = scope if candidate is None else scope.narrowed(candidate, self._cluster.capacity)
        tree = inside.tree or self._flat_tree()
        mark = self._statement.checkpoint()
        if self._table.affect_each_other(demand):
            return self._mutually(pods, candidate, inside, strategy, tree, budget)
        if any(self._must_go_by_score(share) for share in demand):
            if self._by_score.place(pods, candidate, inside, strategy, tree):
                return True
            self._statement.rollback(mark)
            beyond = any(share.reaches_beyond for share in demand)
            if beyond and candidate is not None:
                # What was planned did not know that pods take volumes from each other.
                if self._by_score.place(pods, None, inside, strategy, tree):
                    return True
                self._statement.rollback(mark)
            if beyond or any(share.pod_class.blind_filters for share in demand):
                if self.sums.decide(demand, tree, inside, budget).verdict is Verdict.INFEASIBLE:
                    return False
                if self._one_after_another(demand, inside, tree, budget):
                    return True
                self._statement.rollback(mark)
                budget.spent = True  # Other nodes for the first pods might have let the last ones in.
                return False
        if len(demand) == 1:
            done = self._by_descent(demand[0], candidate, inside, strategy, tree)
        else:
            done = self._unequal(demand, candidate, inside, strategy, tree, budget)
        if not done:
            self._statement.rollback(mark)
        return done

    def counts_exactly(self, demand: Sequence[Share]) -> bool:
        """Whether what is counted of pods can also be placed, wherever the first of them go."""
        beyond = any(share.pod_class.blind_filters or share.reaches_beyond for share in demand)
        return not beyond and not self._table.affect_each_other(demand)

    def fits_nowhere(self, demand: Sequence[Share]) -> bool:
        """Whether unequal pods certainly don't fit beside each other in the whole cluster."""
        if not self.counts_exactly(demand):
            return False
        fit = self.sums.decide(demand, self._flat_tree(), EVERYWHERE, Budget(self._state.steps))
        return fit.verdict is Verdict.INFEASIBLE

    def at_once(self, share: Share) -> bool:
        """Whether equal pods need not be placed one by one."""
        return not self._must_go_by_score(share)

    def in_turn(self, pods: Sequence[Pod]) -> tuple[Share, ...]:
        """Pods by class; only runs of equal ones, in the order given, where they must go pod by pod."""
        shares = self._table.shares(pods)
        if len(shares) < 2 or not any(self._must_go_by_score(share) for share in shares):
            return shares
        class_of = {pod.uid: share.pod_class for share in shares for pod in share.pods}
        runs = groupby(pods, key=lambda pod: class_of[pod.uid])
        return tuple(Share(pod_class, tuple(run)) for pod_class, run in runs)

    def ways(
        self,
        pods: Sequence[Pod],
        candidate: Candidate | None,
        scope: NodeSet,
        budget: Budget,
        apart: Distinctions,
    ) -> Iterator[None]:
        """Every way to place all pods inside a candidate, one at a time, as far as the budget goes.

        Nodes that differ as ``apart`` says make different ways.
        """
        demand = self._table.shares(pods)
        if not self.counts_exactly(demand):
            budget.spent = True
            return
        inside = scope if candidate is None else scope.narrowed(candidate, self._cluster.capacity)
        yield from self._trial(demand, inside, inside.tree or self._flat_tree(), budget).ways(apart=apart)

    def _mutually(
        self,
        pods: Sequence[Pod],
        candidate: Candidate | None,
        inside: NodeSet,
        strategy: Strategy,
        tree: Tree,
        budget: Budget,
    ) -> bool:
        """Pods that count for each other; by score where a score depends on what was just placed."""
        demand = self._table.beside_each_other(pods)
        mutual = Mutual(
            cluster=self._cluster,
            table=self._table,
            statement=self._statement,
            demand=demand,
            inside=inside,
            tree=tree,
            strategy=strategy,
        )
        at_once = len(demand) == 1 and not demand[0].reaches_beyond
        mark = self._statement.checkpoint()
        by_score: bool | None = None
        for meeting in mutual.meetings():
            fit = Fit(Verdict.UNDECIDED)
            if len(demand) > 1:  # Of equal pods the limits say as much.
                vain = mutual.in_vain(meeting)
                fit = Fit(Verdict.INFEASIBLE) if vain else mutual.decide(meeting, self.sums, budget)
            if fit.verdict is Verdict.INFEASIBLE:
                if not budget.take_candidate():
                    break
                continue
            if by_score is None:
                by_score = any(self._must_go_by_score(share) for share in demand)
            if by_score and self._by_score.place(pods, candidate, meeting, strategy, tree):
                return True
            self._statement.rollback(mark)
            if any(share.pod_class.blind_filters for share in demand):
                budget.spent = True  # Other nodes for the first pods might have let the last ones in.
                continue
            settled = mutual.share_out(meeting) if at_once else None
            if settled or (settled is None and mutual.search(meeting, fit, budget)):
                return True
            if not budget.take_candidate():
                break
        return False

    def _by_descent(
        self,
        share: Share,
        candidate: Candidate | None,
        inside: NodeSet,
        strategy: Strategy,
        tree: Tree,
    ) -> bool:
        """Equal pods: exact, since every pod placed on a node leaves room for one fewer there."""
        mark = self._statement.checkpoint()
        left = share.pods
        steps = 0
        for domain, fill_level in _outward(candidate, inside, tree):
            counts = scoped_counts(self._table, share.pod_class, tree, inside, self._cluster.capacity)
            taken = min(len(left), counts.inside(domain))
            if not taken:
                continue
            means = mean_scores(self._table, self._state, ((share, counts),))
            fill = descend(counts, domain, taken, strategy, means, fill_level)
            positions, takes = fill.in_topology_order()
            self._statement.assume(left[:taken], np.repeat(tree.slot_at[positions], takes))
            steps += 1
            left = left[taken:]
            if not left:
                break
        if left:
            return False
        if steps > 1:
            self._in_topology_order(mark, share.pods, tree)
        return True

    def _unequal(
        self,
        demand: Sequence[Share],
        candidate: Candidate | None,
        inside: NodeSet,
        strategy: Strategy,
        tree: Tree,
        budget: Budget,
    ) -> bool:
        """Unequal pods, in the fewest domains; those that spread each kind by itself, where they fit so."""
        counts = [
            scoped_counts(self._table, share.pod_class, tree, inside, self._cluster.capacity)
            for share in demand
        ]
        domain = inside.domain_in(tree)
        room = {id(share): one.inside(domain) for share, one in zip(demand, counts, strict=True)}
        hardest_first = sorted(demand, key=lambda share: room[id(share)] / len(share.pods))
        mark = self._statement.checkpoint()
        if strategy is Strategy.SPREAD:
            if all(self._by_descent(one, candidate, inside, strategy, tree) for one in hardest_first):
                return True
            self._statement.rollback(mark)
        fill = UnequalFill(
            table=self._table,
            statement=self._statement,
            sums=self.sums,
            demand=demand,
            counts=counts,
            domain=domain,
        )
        verdict = fill.place(candidate, budget)
        if verdict is Verdict.FEASIBLE:
            return True
        self._statement.rollback(mark)
        if verdict is Verdict.INFEASIBLE:
            return False
        return any(True for _ in self._trial(hardest_first, inside, tree, budget).ways())

    def _one_after_another(
        self, demand: Sequence[Share], inside: NodeSet, tree: Tree, budget: Budget
    ) -> bool:
        """Pods that take volumes from each other: the hardest first, by a bounded search over all nodes.

        Only where each has claims of its own: a placement then leaves less room, and no other needs.
        """
        keys = [
            (pod.namespace, one.of(pod.name))
            for share in demand
            for pod in share.pods
            for one in pod.spec.claims
        ]
        if any(share.pod_class.blind_filters for share in demand) or len(set(keys)) < len(keys):
            return False
        hardest_first = sorted(demand, key=lambda share: share.pod_class.total / len(share.pods))
        trial = self._trial(hardest_first, inside, tree, budget)
        return any(True for _ in trial.ways(each_node=True))

    def _trial(
        self,
        demand: Sequence[Share],
        inside: NodeSet,
        tree: Tree,
        budget: Budget,
    ) -> Trial:
        slots = tree.slot_at[slice(*tree.span(inside.domain_in(tree)))]
        mask = inside.mask_for(tree, self._cluster.capacity)
        return Trial(
            cluster=self._cluster,
            table=self._table,
            statement=self._statement,
            demand=demand,
            slots=slots if mask is None else slots[mask[slots]],
            budget=budget,
        )

    def best_node(self, pod: Pod, allowed: Bools | None) -> int | None:
        """The feasible slot with the greatest total, of equals the first by name; None if there is none."""
        return self._by_score.best_node(pod, allowed)

    @cached_property
    def sums(self) -> Sums:
        """What sums of resources say about unequal pods."""
        return Sums(self._cluster, self._table)

    @cached_property
    def _by_score(self) -> ByScore:
        return ByScore(
            cluster=self._cluster,
            table=self._table,
            statement=self._statement,
            flat_tree=self._flat_tree,
            before_pod=self._before_pod,
        )

    def _must_go_by_score(self, share: Share) -> bool:
        if self._one_by_one or share.pod_class.blind_filters or share.reaches_beyond:
            return True
        # The pods themselves are asked: their class may have been made for a pod of no gang or of another.
        return any(
            plugin.scores_any
            and any(plugin.scores(pod) for pod in self._table.told_apart(plugin, share.pods))
            for plugin in self._table.per_placement
        )

    def _in_topology_order(self, mark: Checkpoint, pods: Sequence[Pod], tree: Tree) -> None:
        """Give equal pods that were placed in several steps their slots in topology order."""
        slots = np.concatenate([batch.slots for batch in self._statement.since(mark)])
        self._statement.rollback(mark)
        self._statement.assume(pods, slots[np.argsort(tree.position_of[slots], kind="stable")])


def _outward(candidate: Candidate | None, inside: NodeSet, tree: Tree) -> Iterator[tuple[Domain, int | None]]:
    """Domains to fill one after another: from where members already are up to the whole candidate."""
    target = inside.domain_in(tree)
    fill_level = None if candidate is None else candidate.fill_level
    start = None if candidate is None else candidate.outward_from
    if start is not None:
        for level in range(start.level, target.level, -1):
            yield tree.ancestor(start, level), fill_level if (fill_level or -1) > level else None
    yield target, fill_level
