"""How good the places of gangs and applications are, as data: measures, orders, and what traffic costs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field

from closeby.applications.registry import Application, unknown_dependencies, workload_name
from closeby.applications.traffic import EdgeCost
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.bounds import some
from closeby.objects.pods import Pod, gang_key
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import guess, natural_key
from closeby.plugins.registry import dependency_cost
from closeby.quality.gangs import GangGauge, GangMeasures, Members
from closeby.quality.traffic import traffic_measures
from closeby.simulator.runs import Run
from closeby.topology.tree import Tree

T = TypeVar("T")


class QualityEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How close the placed members of one gang are; what has a value a level is by its short name.

    Six digits are shown. ``null`` is unknown. The seconds and slowdowns are modelled.
    """

    #: By level: domains used, over the fewest that could hold the gang on an empty cluster; 1 is ideal.
    excess_span: Mapping[str, float | None]
    #: By level: pairs of members that are in different domains.
    cross_pairs: Mapping[str, int]
    #: Pairs of members.
    pairs: int
    #: Edges of the tree between two members, mean over all pairs.
    mean_distance: float | None
    #: Edges of the tree between the two members that are farthest apart.
    diameter: int
    #: By level: edges of the ring of ranks that leave a domain.
    ring_crossings: Mapping[str, int]
    #: Edges of the tree that the ring of ranks runs over.
    ring_hops: int
    #: The fewest that it could run over with another order of ranks.
    least_ring_hops: int
    #: By level: domains that a data- or pipeline-parallel group of the gang touches; the greatest of them.
    group_spread: Mapping[str, float]
    #: Modelled: an all-reduce over the ring of ranks while all nodes of the cluster send.
    all_reduce_seconds: float
    #: Modelled: the same among the flows that were there.
    contended_all_reduce_seconds: float
    #: Modelled: the same on an ideal placement on an empty cluster.
    ideal_all_reduce_seconds: float | None
    #: Modelled: times that communication takes longer than on an ideal placement.
    slowdown: float | None
    #: Modelled: times that the whole job takes longer than on an ideal placement.
    job_slowdown: float | None


def gang_qualities(run: Run) -> dict[str, QualityEntry]:
    """The quality of each gang that has placed members, by ``namespace/name``.

    Gangs that are in one topology are measured together, so that they share its links.
    """
    gauge = GangGauge(run.engine.cluster)
    by_tree: dict[str, tuple[Tree, dict[str, Members]]] = {}
    members = _members(run)
    for group in run.groups:
        if group.key in members:
            tree = run.tree_of(group) or run.engine.topologies.flat()
            by_tree.setdefault(tree.name, (tree, {}))[1][group.key] = members[group.key]
    entries: dict[str, QualityEntry] = {}
    for tree, gangs in by_tree.values():
        measured = gauge.measure(tree, tuple(gangs.values()))
        entries |= {
            key: _measures(found, tree)
            for key, found in zip(gangs, measured, strict=True)
            if found is not None
        }
    return entries


def _members(run: Run) -> dict[str, Members]:
    """Placed members of each gang with their slots, by rank; those without one last."""
    found: dict[str, list[tuple[tuple[object, ...], Pod, int]]] = {}
    for pod in run.pods:
        slot = run.engine.cluster.placement(pod.uid)
        if pod.group is not None and slot is not None:
            binding = run.bindings.get(pod.uid)
            rank = run.engine.state.rank(pod) if binding is None else binding.rank
            place = (0, rank) if rank is not None else (1, natural_key(pod.name))
            found.setdefault(gang_key(pod), []).append((place, pod, slot))
    return {
        key: [(pod, slot) for _, pod, slot in sorted(rows, key=lambda row: row[0])]
        for key, rows in found.items()
    }


def _by_level(tree: Tree, levels: Iterable[str], values: Iterable[T]) -> Iterator[tuple[str, T]]:
    """A measure by level, without levels of which no node carries the label."""
    named = zip(levels, values, tree.carried, strict=True)
    return ((name, value) for name, value, carried in named if carried)


def _measures(found: GangMeasures, tree: Tree) -> QualityEntry:
    levels = found.levels
    return QualityEntry(
        excess_span=dict(_by_level(tree, levels, map(six_digits, found.excess_span))),
        cross_pairs=dict(_by_level(tree, levels, found.cross_pairs)),
        pairs=found.pairs,
        mean_distance=six_digits(found.mean_distance),
        diameter=found.diameter,
        ring_crossings=dict(_by_level(tree, levels, found.ring_crossings)),
        ring_hops=found.ring_hops,
        least_ring_hops=found.least_ring_hops,
        group_spread=dict(_by_level(tree, levels, found.group_spread)),
        all_reduce_seconds=_digits(found.all_reduce),
        contended_all_reduce_seconds=_digits(found.contended_all_reduce),
        ideal_all_reduce_seconds=six_digits(found.ideal_all_reduce),
        slowdown=six_digits(found.slowdown),
        job_slowdown=six_digits(found.job_slowdown),
    )


def six_digits(value: float | None) -> float | None:
    """A measure as it is written, to six digits."""
    return None if value is None else _digits(value)


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


#: Where costs come from.
NETWORK: Final = "network"
TREE: Final = "tree"
#: Workloads among which the one that was meant is looked for.
_MOST_GUESSED: Final = 200
#: Whole numbers are written without a fraction.
Cost = int | float


class EdgeEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One dependency. ``cost`` sums over pairs of placed replicas, ``weight`` counted."""

    #: The workload that calls.
    caller: str = field(name="from")
    #: The workload that is called.
    callee: str = field(name="to")
    #: By how much its pairs count.
    weight: Cost
    #: The limit that the AppGroup sets; null where it sets none.
    max_network_cost: int | None
    #: Pairs of placed replicas.
    pairs: int
    #: Pairs of which the cost is not known.
    unknown: int
    #: Pairs that are farther apart than the limit.
    over: int
    #: What its pairs cost in all, with the weight; one of unknown cost counts with what stands in for it.
    cost: Cost


class AppGroupEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One AppGroup. ``cost`` sums over dependency edges and placed replica pairs."""

    namespace: str
    name: str
    #: The workloads in the order in which they are scheduled: `podName` and `index`, from 1.
    topology_order: tuple[Mapping[str, str | int], ...]
    #: Sum over dependencies and pairs of placed replicas; null where it is not usable.
    cost: Cost | None
    #: What is wrong or noteworthy about it.
    conditions: tuple[Condition, ...]
    #: Its dependencies.
    edges: tuple[EdgeEntry, ...] = ()
    #: Pods of it that hold a node.
    scheduled: int = 0
    #: All its pods.
    pods: int = 0
    #: What `cost` and the costs of edges are: `network` of a NetworkTopology, or `tree`, where none counts:
    #: edges between two nodes in the tree of the topology. Null where there is no cost.
    cost_source: str | None = None
    #: What its pods placed in this run would have cost one after another; null where none was.
    one_by_one: Cost | None = None
    #: What they cost where they were placed together.
    together: Cost | None = None
    #: Pairs of placed replicas with traffic.
    pairs: int = 0
    #: Share of them on one node; null where there are none.
    same_node: float | None = None
    #: Share of them in one zone.
    same_zone: float | None = None
    #: Share of them in one region.
    same_region: float | None = None
    #: Pairs that are farther apart than allowed.
    over: int = 0


def app_group_entries(run: Run) -> tuple[AppGroupEntry, ...]:
    """All AppGroups by namespace and name."""
    pods: dict[str, list[Pod]] = {}
    for pod in run.pods:
        application = run.engine.applications.of(pod)
        if application is not None:
            pods.setdefault(application.key, []).append(pod)
    return tuple(_entry(run, one, pods.get(one.key, [])) for one in run.engine.applications)


def _entry(run: Run, application: Application, pods: Sequence[Pod]) -> AppGroupEntry:
    group = application.group
    edges = run.app_edges.get(application.key)
    outcome = run.app_outcomes.get(application.key)
    improvement = None if outcome is None else outcome.improvement
    together = None if improvement is None else improvement.final
    traffic = traffic_measures(
        application.edges, _replicas(run, application, pods), run.engine.cluster.labels, edges
    )
    conditions = [*group.conditions, *application.order.conditions, *_odd(application, pods)]
    for plugin in run.engine.profile.dependency_costs:
        conditions += plugin.unknown_costs(application)
    return AppGroupEntry(
        namespace=group.namespace,
        name=group.name,
        topology_order=tuple({"podName": name, "index": index} for name, index in application.index.items()),
        cost=None if traffic.cost is None else cost_of(traffic.cost),
        cost_source=None if traffic.cost is None else _cost_source(run, application),
        conditions=tuple(dict.fromkeys(conditions)),
        edges=() if edges is None else tuple(_edge(edge) for edge in edges),
        scheduled=sum(run.node_of(pod) is not None for pod in pods),
        pods=len(pods),
        one_by_one=None if improvement is None else cost_of(improvement.greedy),
        together=None if together is None else cost_of(together),
        pairs=traffic.pairs,
        same_node=six_digits(traffic.same_node),
        same_zone=six_digits(traffic.same_zone),
        same_region=six_digits(traffic.same_region),
        over=traffic.over,
    )


def _cost_source(run: Run, application: Application) -> str:
    return NETWORK if dependency_cost(run.engine.profile).knows_costs(application) else TREE


def _replicas(run: Run, application: Application, pods: Sequence[Pod]) -> dict[str, dict[int, int]]:
    """How many replicas of each workload are on each slot."""
    found: dict[str, dict[int, int]] = {}
    for pod in pods:
        workload, slot = application.workload_of(pod), run.engine.cluster.placement(pod.uid)
        if workload is not None and slot is not None:
            on = found.setdefault(workload, {})
            on[slot] = on.get(slot, 0) + 1
    return found


def _edge(cost: EdgeCost) -> EdgeEntry:
    return EdgeEntry(
        caller=cost.edge.caller,
        callee=cost.edge.callee,
        weight=cost_of(cost.edge.weight),
        max_network_cost=cost.edge.limit,
        pairs=cost.pairs,
        unknown=cost.unknown,
        over=cost.over,
        cost=cost_of(cost.cost),
    )


def _odd(application: Application, pods: Sequence[Pod]) -> Iterator[Condition]:
    """Pods of an undeclared workload, and missing pods."""
    owner = f"AppGroup/{application.key}"
    carried = {workload_name(pod) for pod in pods}
    if pods:
        yield from unknown_dependencies(application.group, carried)
    strangers = {pod.name: workload_name(pod) for pod in pods if application.workload_of(pod) is None}
    if strangers:
        names = some(sorted(strangers), 3)
        empty = [name for name in application.index if name not in carried]
        meant = guess(strangers[min(strangers)], empty[:_MOST_GUESSED])
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=owner,
            field="spec",
            message=f"its pods include some of no workload it names: {names}",
            remedy=f"{meant}label them {WORKLOAD_LABEL} with one of {some(application.index)}",
        )
    wanted, absent = application.group.num_members, _absent(application, carried)
    if wanted is None and absent:
        yield Condition(
            reason=Reason.GANG_INCOMPLETE,
            object=owner,
            field="spec",
            message=f"{len(pods)} members have appeared{absent}",
            remedy=f"their pods carry the label {WORKLOAD_LABEL} with that name, or are called so",
        )
    if wanted is not None and len(pods) < wanted and application.group.usable:
        label = f"none carries the label {APP_GROUP_LABEL}: {application.group.name}"
        yield Condition(
            reason=Reason.GANG_INCOMPLETE,
            object=owner,
            field="spec.numMembers",
            message=f"{len(pods)} of {wanted} members have appeared{absent}",
            remedy="those that are there are placed without the others" if pods else label,
        )


def _absent(application: Application, carried: Collection[str]) -> str:
    """Which workloads have no pod, if some have."""
    absent = [one.name for one in application.group.workloads if one.name not in carried]
    return f"; there is none of {some(absent, 3)}" if absent and carried else ""


def cost_of(value: float) -> Cost:
    """A cost as it is written."""
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded
