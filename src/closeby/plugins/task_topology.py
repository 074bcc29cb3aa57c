"""task-topology: tasks of a gang with traffic share a node, bucket by bucket (Volcano task-topology).

Annotations of the PodGroup say which roles belong together and which apart. Their tasks are sorted into
buckets once a cycle, which fixes the order of placing; a node scores by how much of a task's bucket it holds
and would still take. Unlike the proposal's, its counts include running tasks and are undone exactly.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import ClassVar, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from closeby.applications.buckets import Buckets, RolePlacements, make_buckets
from closeby.objects.arrays import Counts, Ints, Scores
from closeby.objects.groups import PodGroup, RoleRules
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Condition
from closeby.reading.configuration import GREATEST_WEIGHT
from closeby.reading.dialects.task_topology import asks_for_rules, read_rules
from closeby.scheduling.extension import Handle, MemberSort, Reserve, Scope, Score, Undo
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.services import Traffic, TrafficCost
from closeby.topology.costs import EdgeCosts, edge_costs
from closeby.topology.tree import Tree

#: Runs of equal tasks of a bucket that are counted beside one of its tasks; most buckets have a run a role.
MOST_BESIDE: Final = 32


class TaskTopologyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The name is the proposal's."""

    weight: float = field(default=1.0, name="task-topology.weight")

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= GREATEST_WEIGHT:
            allowed = f"a number from 0 to {GREATEST_WEIGHT:,}"
            raise ValueError(f"task-topology.weight must be {allowed}, not {self.weight!r}")


class _Plan(NamedTuple):
    """What was worked out about the gang of the present cycle."""

    group: PodGroup
    running: tuple[tuple[Pod, int], ...]
    rules: RoleRules
    buckets: Buckets
    placements: RolePlacements


class TaskTopology(MemberSort, Score, Reserve, TrafficCost):
    """Keeps the buckets of the gang that is being placed; gangs without annotations are left alone."""

    name: ClassVar[str] = "task-topology"
    Arguments = TaskTopologyArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    max_score: ClassVar[float] = 1.0
    unbounded: ClassVar[bool] = True
    #: One task more of the bucket on a node counts for more than the whole ranges of load, balance, images
    #: and distance together, so that those decide only among nodes that are alike for the bucket, as in the
    #: proposal's example.
    default_weight: ClassVar[float] = 5.0

    def __init__(self, arguments: TaskTopologyArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._weight = arguments.weight
        #: One gang is placed at a time; None while it has no rules.
        self._plan: _Plan | None = None
        self._edges: tuple[Tree | None, int, EdgeCosts] | None = None

    # The order of the members

    def member_order(
        self, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[tuple[Pod, int]]
    ) -> tuple[Pod, ...] | None:
        """Bucket by bucket, the bigger first; this begins the gang's cycle."""
        self._plan = _plan(group, waiting, tuple(running))
        return None if self._plan is None else self._plan.buckets.order

    def gang_conditions(
        self, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[tuple[Pod, int]]
    ) -> tuple[Condition, ...]:
        """What is wrong with the annotations, once the gang is complete: until then roles may be missing."""
        if not asks_for_rules(group) or len(waiting) + len(running) < group.min_member:
            return ()
        return read_rules(group, _sizes(waiting, running)).conditions

    def buckets(
        self, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[tuple[Pod, int]]
    ) -> tuple[tuple[Pod, ...], ...] | None:
        """The buckets in the order in which they were made."""
        known, runs = self._plan, tuple(running)
        if known is None or known.group != group or known.running != runs or known.buckets.order != waiting:
            known = _plan(group, waiting, runs)
        return None if known is None or not known.buckets.members else known.buckets.members

    # The score of a node

    @property
    def scores_any(self) -> bool:
        """Only while a gang with rules is placed."""
        return self._plan is not None

    def scores(self, pod: Pod) -> bool:
        """Only tasks that are in a bucket of the gang that is being placed."""
        return self._plan is not None and pod.uid in self._plan.buckets.bucket_of

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """Tasks of the bucket that are there and those that fit beside each other, minus those that repel.

        As the proposal's tables give it: not normalised. 0 where the task itself does not fit; less than 0
        where more tasks repel it than are there or would be.
        """
        if self._plan is None or not self.scores(pod):
            return np.zeros(len(nodes))
        placements = self._plan.placements
        fitting = self._fitting(pod, placements.beside(pod), nodes)
        there = self._spread(placements.bucket_on(self._plan.buckets.bucket_of[pod.uid]), nodes)
        for repelling in placements.repelling(pod.role):
            there -= self._spread(repelling, nodes)
        score: Scores = self._weight * np.where(fitting > 0, there + fitting, 0.0)
        return score

    def _fitting(self, pod: Pod, others: Iterable[tuple[PodSpec, int]], nodes: Nodes) -> Counts:
        """How many fit into what is free: the task, then the others in their order; 0 where it does not.

        Of others of very many kinds only the first are looked at.
        """
        cluster = self.handle.cluster
        free: dict[int, Counts] = {}

        def take(spec: PodSpec, count: int) -> Counts:
            demand = cluster.demand(spec)
            free.update({row: cluster.free(row, nodes.index) for row in demand.rows if row not in free})
            room = np.minimum(demand.pods_that_fit(free), count)
            for row, amount in zip(demand.rows, demand.amounts, strict=True):
                free[row] -= room * amount
            return room

        itself = take(pod.spec, 1)
        total = itself.copy()
        for spec, count in islice(others, MOST_BESIDE):
            total += take(spec, count)
        return total * itself

    def _spread(self, counts: Mapping[int, int], nodes: Nodes) -> Scores:
        """Counts by slot as an array over the nodes."""
        by_slot = np.zeros(self.handle.cluster.capacity)
        by_slot[list(counts)] = list(counts.values())
        found: Scores = by_slot[nodes.index]
        return found

    # Counts of placed tasks

    @property
    def idle(self) -> bool:
        """Only a gang with rules has counts."""
        return self._plan is None

    def pod_assumed(self, pod: Pod, slot: int) -> Undo | None:
        """Count a task of the gang that is being placed; those that run already came with the members."""
        if self._plan is None or not self._plan.placements.awaits(pod):
            return None
        placements = self._plan.placements
        placements.place(pod, slot)
        return lambda: placements.take_back(pod, slot)

    def pod_forgotten(self, pod: Pod, slot: int) -> Undo | None:
        """Nothing to do: the gang's next cycle begins with the members that run then."""
        return None

    # Traffic

    def traffic(self, state: CycleState, pods: tuple[Pod, ...]) -> Traffic | None:
        """Weight of each pair of roles times the number of tree edges between the nodes of two pods."""
        plan = self._plan_of(state)
        if plan is None or not plan.rules.traffic:
            return None
        roles = sorted({role for pair in plan.rules.traffic for role in pair})
        kind_of = {role: kind for kind, role in enumerate(roles)}
        silent = len(roles)
        weights = np.zeros((silent + 1, silent + 1))
        for one, kind in kind_of.items():
            weights[kind, :silent] = [plan.rules.weight(one, other) for other in roles]
        edges = self._edges_of(state.tree)
        own = {pod.uid for pod in pods}
        before = [
            (kind_of.get(role, silent), slot)
            for uid, role, slot in plan.placements.placed()
            if uid not in own
        ]
        return Traffic(
            kinds=np.asarray([kind_of.get(pod.role, silent) for pod in pods], dtype=np.intp),
            locations=edges.group_of,
            between=edges.between,
            weights=weights,
            limits=np.full_like(weights, np.inf),
            unknown=np.zeros(edges.between.shape, dtype=np.bool_),
            standing=_standing(before, weights, edges),
        )

    def forbids_moves(self, state: CycleState) -> bool:
        """Where roles must be kept apart, and where the traffic among those that belong together is not
        given.

        Scores weigh that against the traffic, of these roles as of an application; moves would not.
        """
        plan = self._plan_of(state)
        if plan is None:
            return False
        return bool(plan.rules.anti_affinity or (plan.rules.affinity and not plan.rules.traffic))

    def _plan_of(self, state: CycleState) -> _Plan | None:
        """The plan, if it is that of the gang of this cycle."""
        plan = self._plan
        return plan if plan and state.group and plan.group.key == state.group.key else None

    def _edges_of(self, tree: Tree | None) -> EdgeCosts:
        capacity = self.handle.cluster.capacity
        if self._edges is None or self._edges[0] is not tree or self._edges[1] != capacity:
            self._edges = tree, capacity, edge_costs(tree, capacity)
        return self._edges[2]


def _plan(group: PodGroup, waiting: tuple[Pod, ...], running: tuple[tuple[Pod, int], ...]) -> _Plan | None:
    """The plan of a gang; None when it has no rules or something is wrong with them."""
    if not asks_for_rules(group):
        return None
    sizes = _sizes(waiting, running)
    rules = read_rules(group, sizes).rules
    if rules is None:
        return None
    rules = rules.by_traffic(sizes)
    buckets = make_buckets(rules, waiting, running)
    return _Plan(group, running, rules, buckets, RolePlacements(rules, buckets, waiting, running))


def _standing(placed: Sequence[tuple[int, int]], weights: Scores, edges: EdgeCosts) -> Scores:
    """Cost of a pod of each kind on each slot because of pods placed before; shape (K, slots)."""
    if not placed:
        return np.zeros((len(weights), len(edges.group_of)))
    kinds: Ints = np.asarray([kind for kind, _ in placed], dtype=np.intp)
    slots: Ints = np.asarray([slot for _, slot in placed], dtype=np.intp)
    groups = edges.group_of[slots]
    counts = np.zeros((len(weights), len(edges.between)))
    np.add.at(counts, (kinds, groups), 1.0)
    standing: Scores = (weights @ counts @ edges.between)[:, edges.group_of]
    # On the very node of a pod traffic with it costs nothing.
    for row, saved in zip(standing, weights[:, kinds] * edges.between[groups, groups], strict=True):
        np.subtract.at(row, slots, saved)
    return standing


def _sizes(waiting: Iterable[Pod], running: Iterable[tuple[Pod, int]]) -> Counter[str]:
    """Number of the gang's pods by role."""
    sizes = Counter(pod.role for pod in waiting)
    sizes.update(pod.role for pod, _ in running)
    sizes.pop("", None)
    return sizes
