"""What an item could ask for instead, so that it fits now."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.applications.registry import Edge
from closeby.objects.applications import AppGroup
from closeby.objects.groups import PodGroup, SizeField, SubGroup
from closeby.objects.nodes import Node, Taint, keeps_off
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.quantities import format_amount
from closeby.objects.selectors import matches
from closeby.objects.words import joined, names_text, natural_key
from closeby.plugins.node_unschedulable import CORDON
from closeby.reading.dialects.kai import BATCH_MIN_MEMBER
from closeby.scheduling.fork import Change
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.constraints import level_meant
from closeby.whatif.records import Counterfactual, Fields, Kind
from closeby.whatif.segments import segments_relaxed, whole_segments
from closeby.whatif.trials import LesserRequest, Question, TrialResult, largest_feasible, smallest_sufficient

_TOPOLOGY = "topologyConstraint.topology"
REQUIRED = "topologyConstraint.requiredTopologyLevel"
_PREFERRED = "topologyConstraint.preferredTopologyLevel"

#: Edges with limits that are named, and that are tried one by one: those at which most pods wait.
NAMED = 4
EDGES = 16
#: Begins the keys of taints that Kubernetes sets and removes.
SYSTEM_TAINTS = "node.kubernetes.io/"
#: Amounts are found to within this part of what is asked for now.
STEPS = 64
#: Fields of a workload that say how many members there are of which is tried what fewer would do.
SIZES = 6
#: Where gangs are made from says which field holds their minimum: the kind of a workload, or an API version.
_MINIMUM_FIELDS = {
    "Deployment": "replicas",
    "Job": "parallelism",
    "LeaderWorkerSet": "leaderWorkerTemplate.size",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "batch.volcano.sh/v1alpha1": "minAvailable",
    "scheduling.k8s.io/v1alpha1": "minCount",
    "scheduling.k8s.io/v1alpha2": "schedulingPolicy.gang.minCount",
    "scheduling.k8s.io/v1alpha3": "schedulingPolicy.gang.minCount",
    "scheduling.k8s.io/v1beta1": "schedulingPolicy.gang.minCount",
}


def gang_relaxed(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The least that a gang would have to give up of its levels, segments and members."""
    yield from _levels(question, group)
    if any(one.constraint is not None and one.constraint.required for one in group.subgroups):
        change = Change(groups=(replace(group, subgroups=tuple(map(_loose, group.subgroups))),))
        condition = "now if its subgroups only prefer their levels"
        yield from question.first(LesserRequest(change, condition, {f"subGroups[*].{REQUIRED}": None}))
    yield from segments_relaxed(question, group)
    yield from _fewer_members(question, group)


def _levels(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The next coarser level at which it fits, else whether it does where no level is required."""
    constraint, levels = group.constraint, question.levels
    if constraint is None or constraint.required is None:
        return
    asked, here = constraint.required, constraint.topology
    wishes: list[LesserRequest] = []

    def wish(condition: str, fields: Fields, **changed: str | None) -> None:
        change = Change(groups=(replace(group, constraint=replace(constraint, **changed)),))
        wishes.append(LesserRequest(change, f"now if {condition}", fields))

    if levels is None or levels.required is None:  # To prefer what does not exist would say nothing.
        topologies = question.trials.engine.topologies
        having = topologies.having_level(asked)
        if here not in (None, *topologies.usable()) and len(having) == 1:
            how = f"topology {having[0]} is named instead of {here}"
            wish(how, {_TOPOLOGY: having[0]}, topology=having[0])
        meant = level_meant(topologies, asked, here)
        if meant is not None:
            wish(f"{meant} is required instead of {asked}", {REQUIRED: meant}, required=meant)
        wish(f"{asked} is not required", {REQUIRED: None}, required=None)
    else:
        tree, names = levels.tree, levels.tree.level_names
        asked, named = names[levels.required], {} if here else {_TOPOLOGY: tree.name}
        for level in range(levels.required - 1, -1, -1):
            label, how = tree.levels[level].node_label, f"{names[level]} is required instead of {asked}"
            wish(how, named | {REQUIRED: label}, topology=tree.name, required=label)
        preferred = constraint.preferred or constraint.required
        fields = {REQUIRED: None, _PREFERRED: preferred}
        wish(f"{asked} is preferred, not required", fields, required=None, preferred=preferred)
    found = question.first(*wishes)
    yield from found
    if not found and question.complete:
        yield Counterfactual(
            kind=Kind.RELAXED,
            fits=False,
            sentence=f"Dropping the required level {asked} would not help now.",
            change={REQUIRED: None},
        )


def _loose(subgroup: SubGroup) -> SubGroup:
    """With its required level preferred, unless another one is."""
    asked = subgroup.constraint
    if asked is None or asked.required is None:
        return subgroup
    return replace(
        subgroup, constraint=replace(asked, required=None, preferred=asked.preferred or asked.required)
    )


# How many members


class _Fewer(NamedTuple):
    """Fewer members that fit, and what would have to be written for that."""

    number: int
    fields: dict[str, int]
    result: TrialResult


def _fewer_members(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The most members at once that are found to fit as it is, by the fields that say how many there are."""
    if group.subgroups or question.needed < 2:
        return
    if group.sizes and BATCH_MIN_MEMBER not in group.annotations:
        fields = sorted(group.sizes, key=lambda one: -one.value * one.each)[:SIZES]
        alone = (_fewer(question, group, [one], one.value) for one in fields)
        found = max(filter(None, alone), key=lambda one: one.number, default=None)
        if found is None and len(fields) > 1:
            # Of the fields of one role the one of which a unit is the fewest pods.
            units = {one.role or one.path: one for one in sorted(fields, key=lambda one: -one.each)}
            found = _fewer(question, group, list(units.values()), max(one.value for one in fields))
    else:

        def tried(number: int) -> TrialResult | None:
            return question.tried(Change(groups=(replace(group, min_member=number),)))

        numbers = range(question.there + 1, group.min_member)
        best = largest_feasible([one for one in numbers if whole_segments(group, one)], tried)
        found = None if best is None else _Fewer(best[0], {_minimum_field(group): best[0]}, best[1])
    if found is None:
        return
    written = ", ".join(f"{field} {number}" for field, number in found.fields.items())
    fit = f"{found.number} of its {group.min_member} members fit now ({written})"
    answer = question.answer(Kind.RELAXED, Change(), found.result, "", fields=found.fields)
    yield replace(answer, sentence=f"{fit}: {found.result.text}.")


def _fewer(question: Question, group: PodGroup, sizes: Sequence[SizeField], steps: int) -> _Fewer | None:
    """The most members that fit if these fields are lower by about the same share, none of them below 1."""

    def values(step: int) -> list[int]:
        return [max(1, one.value * step // steps) for one in sizes]

    def number(step: int) -> int:
        less = ((one.value - value) * one.each for one, value in zip(sizes, values(step), strict=True))
        return group.min_member - sum(less)

    def tried(step: int) -> TrialResult | None:
        gone: list[Pod] = []
        for one, value in zip(sizes, values(step), strict=True):
            less = (one.value - value) * one.each if one.role else 0
            pods = [pod for pod in question.waiting if pod.role == one.role]
            if less > len(pods):  # Those that run would have to go.
                return None
            gone += sorted(pods, key=lambda pod: natural_key(pod.name))[len(pods) - less :]
        change = Change(groups=(replace(group, min_member=number(step)),), gone=tuple(gone))
        return question.tried(change)

    possible = [
        step
        for step in range(1, steps)
        if question.there < number(step) < group.min_member and whole_segments(group, number(step))
    ]
    best = largest_feasible(possible, tried)
    if best is None:
        return None
    step, result = best
    lower = zip(sizes, values(step), strict=True)
    return _Fewer(number(step), {one.path: value for one, value in lower if value < one.value}, result)


def _minimum_field(group: PodGroup) -> str:
    """The field that says how many members start at once: of its workload, if that is no PodGroup."""
    if BATCH_MIN_MEMBER in group.annotations:
        return BATCH_MIN_MEMBER
    kind, _, made = group.source.partition(" ")
    return _MINIMUM_FIELDS.get(kind, "pods") if made else _MINIMUM_FIELDS.get(group.source, "minMember")


# Nodes, and other pods


def other_nodes(question: Question) -> Iterator[Counterfactual]:
    """Without its choice of nodes, what it requires of other pods, and if it tolerated all taints."""
    specs = {pod.spec for pod in question.waiting}
    affinities = [spec.pod_affinity for spec in specs if spec.pod_affinity is not None]
    spread = [one for spec in specs for one in spec.topology_spread if one.hard]

    def without_terms(condition: str, field: str, **changed: object) -> tuple[Counterfactual, ...]:
        def loose(pod: Pod) -> Pod:
            found = pod.spec.pod_affinity
            return pod if found is None else _with(pod, pod_affinity=replace(found, **changed))

        fields = {f"affinity.{field}.requiredDuringSchedulingIgnoredDuringExecution": None}
        return question.first(LesserRequest(question.changed(loose), f"now without its {condition}", fields))

    if any(spec.node_selector or spec.required_affinity is not None for spec in specs):
        anywhere = question.changed(lambda pod: _with(pod, node_selector=(), required_affinity=None))
        fields: Fields = {"nodeSelector": None, "affinity.nodeAffinity": None}
        yield from question.first(
            LesserRequest(anywhere, "now without its node selector and affinity", fields)
        )
    if any(one.required for one in affinities):
        yield from without_terms("required pod affinity", "podAffinity", required=())
    if any(one.forbidden for one in affinities):
        found = without_terms("required pod anti-affinity", "podAntiAffinity", forbidden=())
        yield from found or _one_each(question)
    yield from _less_spread(question, spread=bool(spread), domains=any(one.min_domains > 1 for one in spread))
    yield from _tolerating(question)


def _with(pod: Pod, **changed: object) -> Pod:
    return replace(pod, spec=replace(pod.spec, **changed))


def _less_spread(question: Question, *, spread: bool, domains: bool) -> Iterator[Counterfactual]:
    """With fewer ``domains`` of its topology spread, else without it."""

    def wish(condition: str, field: str, value: str | None, **changed: object) -> LesserRequest:
        def loose(pod: Pod) -> Pod:
            terms = tuple(replace(one, **changed) for one in pod.spec.topology_spread)
            return _with(pod, topology_spread=terms)

        fields = {f"topologySpreadConstraints[*].{field}": value}
        return LesserRequest(question.changed(loose), f"now without {condition}", fields)

    fewer = wish("minDomains of its topology spread", "minDomains", None, min_domains=1)
    how = "its topology spread constraints that say DoNotSchedule"
    none = wish(how, "whenUnsatisfiable", "ScheduleAnyway", hard=False)
    yield from question.first(*([fewer] if domains else []), *([none] if spread else []))


def _one_each(question: Question) -> Iterator[Counterfactual]:
    """Why dropping its anti-affinity does not help one pod: others like it have it too."""
    pod = question.waiting[0]
    forbidden = () if pod.spec.pod_affinity is None else pod.spec.pod_affinity.forbidden
    for one in forbidden:
        if matches(one.of_pod(pod.namespace, pod.labels).selector, pod.labels):
            key = one.topology_key
            nodes = (node for node in question.trials.engine.cluster.nodes if node is not None)
            values = len({node.labels[key] for node in nodes if key in node.labels})
            sentence = (
                f"Its required pod anti-affinity allows one such pod per {key}, and there "
                f"{'is' if values == 1 else 'are'} {values:,} of them: add nodes, or drop the anti-affinity "
                "of all these pods."
            )
            yield Counterfactual(kind=Kind.RELAXED, fits=False, sentence=sentence)
            return


def _tolerating(question: Question) -> Iterator[Counterfactual]:
    """The fewest taints, of the nodes that it would use if it tolerated all, and whether cordoned nodes."""
    cluster = question.trials.engine.cluster
    if not any(node is not None and (node.taints or node.unschedulable) for node in cluster.nodes):
        return

    def change(keys: Sequence[str]) -> Change:
        """The empty key stands for all."""
        more = tuple(Toleration(key=key, operator="Exists") for key in keys)
        return question.changed(lambda pod: _with(pod, tolerations=(*pod.spec.tolerations, *more)))

    result = question.tried(change([""]))
    if result is None:
        return
    against = {
        one.key
        for name in result.nodes
        for one in _taints(cluster.node_at(cluster.slot_of(name)))
        if _keeps_out(one, question.waiting)
    }
    keys = sorted(against, key=lambda key: (key == CORDON.key, key))
    # A gang that fits has what it needs, an application has more or less of it.
    easiest = result
    keys, least = smallest_sufficient(keys, result, lambda some: question.as_many(change(some), easiest))
    taints = [key for key in keys if key != CORDON.key]
    named = [f"taints ({', '.join(taints)})"] if taints else []
    named += ["cordoned nodes"] if len(taints) < len(keys) else []
    condition = f"now if it tolerates {' and '.join(named) or 'all taints'}"
    fields = {"tolerations": ", ".join(keys) or "all"}
    yield question.answer(Kind.RELAXED, change(keys or [""]), least, condition, fields=fields)
    yield from _opened(question, least)


def _taints(node: Node) -> tuple[Taint, ...]:
    """With that of cordoned nodes."""
    return (*node.taints, *((CORDON,) if node.unschedulable and CORDON not in node.taints else ()))


def _opened(question: Question, result: TrialResult) -> Iterator[Counterfactual]:
    """The nodes that it would use if it tolerated them, uncordoned and without the taints against it.

    Taints that Kubernetes sets itself are not removed by hand; only cordons are.
    """
    cluster = question.trials.engine.cluster
    opened: list[Node] = []
    commands: dict[str, list[str]] = {}
    for node in (cluster.node_at(cluster.slot_of(name)) for name in result.nodes):
        against = [one for one in _taints(node) if _keeps_out(one, question.waiting)]
        if any(one.key.startswith(SYSTEM_TAINTS) for one in against if one != CORDON):
            return
        for taint in sorted(against, key=lambda one: one != CORDON):
            value = f"={taint.value}" if taint.value else ""
            command = f"kubectl taint nodes {{}} {taint.key}{value}:{taint.effect}-"
            commands.setdefault("kubectl uncordon {}" if taint == CORDON else command, []).append(node.name)
        if against:
            left = tuple(one for one in node.taints if one not in against and one != CORDON)
            opened.append(replace(node, taints=left, unschedulable=False))
    change = Change(nodes=tuple(opened))
    found = question.tried(change) if opened else None
    if found is None:
        return
    command = " && ".join(text.format(" ".join(names)) for text, names in commands.items())
    alone = len(opened) == 1
    uncordoned = "is uncordoned" if alone else "are uncordoned"
    untainted = "loses its taints" if alone else "lose their taints"
    how = [uncordoned] * ("kubectl uncordon {}" in commands)
    how += [untainted] * any(text.startswith("kubectl taint") for text in commands)
    which = "this node" if alone else f"these {len(opened):,} nodes"
    condition = f"now if {which} {' and '.join(how)} ({command})"
    yield replace(question.answer(Kind.RELAXED, change, found, condition), command=command)


def _keeps_out(taint: Taint, pods: Collection[Pod]) -> bool:
    """Whether a taint keeps one of these pods from a node."""
    return any(keeps_off(taint, one.tolerations) for one in {pod.spec for pod in pods})


# Applications


def smaller(question: Question) -> Iterator[Counterfactual]:
    """For each set of equal pods and each resource, the greatest request found with which most fit."""
    equal: dict[PodSpec, list[Pod]] = {}
    for pod in question.waiting:
        equal.setdefault(pod.spec, []).append(pod)
    for spec, pods in equal.items():
        for resource, asked in spec.requests:
            if asked > 0:
                yield from _less(question, pods, resource, asked)


def _less(question: Question, pods: Sequence[Pod], resource: str, asked: int) -> Iterator[Counterfactual]:
    def change(amount: int) -> Change:
        others = [one for one in pods[0].spec.requests if one[0] != resource]
        requests = tuple(sorted([*others, *([(resource, amount)] if amount else [])]))
        return Change(waiting=tuple(_with(pod, requests=requests) for pod in pods))

    least = question.tried(change(0))
    if least is None:
        return
    # A round step: a power of ten of what is counted in thousands, of two for bytes, at most a 64th.
    unit, base = 1, 2 if asked % 1024 == 0 else 10
    while unit * base * STEPS <= asked:
        unit *= base
    steps = range(unit, (asked - 1) // unit * unit + 1, unit)
    found = largest_feasible(steps, lambda one: question.as_many(change(one), least))
    if found is None:
        return  # To do without altogether would be another job.
    amount, result = found
    everybody = len(pods) == len(question.waiting)
    names = "each" if everybody else f"each of {names_text([pod.name for pod in pods])}"
    if len(pods) == 1:
        names = "it" if everybody else pods[0].name
    less = f"only {format_amount(resource, amount)} {resource}"
    condition = f"now if {names} asks for {less} instead of {format_amount(resource, asked)}"
    written = f"{amount}m" if resource == "cpu" else amount
    fields = {f"pods[{one.name}].requests[{resource}]": written for one in pods}
    yield question.answer(Kind.RELAXED, change(amount), result, condition, fields=fields)


def farther(question: Question) -> Iterator[Counterfactual]:
    """For each edge the least ``maxNetworkCost`` with which most of what waits fits, else one for all edges.

    Where only places at an unknown distance are left, the limit would have to go.
    """
    limited = _limited(question)
    if len(limited) > EDGES:  # Too many to try each of them first.
        together = tuple(_raised(question, limited))
        yield from together
        if not together or together[0].fits:
            return
    whole = len(limited) > EDGES
    for edge in limited[:EDGES]:
        for found in _raised(question, (edge,)):
            whole |= found.fits
            yield found
    if len(limited) > 1 and not whole:
        yield from _raised(question, limited)


def _limited(question: Question) -> tuple[Edge, ...]:
    """The edges with a limit at which something waits."""
    application = question.application
    if application is None:
        return ()
    ends = Counter(application.workload_of(pod) for pod in question.waiting)
    found = [edge for edge in application.edges if edge.limit is not None]
    found.sort(key=lambda edge: -(ends[edge.caller] + ends[edge.callee]))
    return tuple(edge for edge in found if ends[edge.caller] + ends[edge.callee])


def _raised(question: Question, edges: tuple[Edge, ...]) -> Iterator[Counterfactual]:
    application = question.application
    if application is None:
        return

    def change(limit: int | None) -> Change:
        return Change(applications=(_allowing(application.group, edges, limit),))

    least = question.tried(change(None))
    if least is None:
        return
    costs = _costs(question, min(edge.limit or 0 for edge in edges))
    found = largest_feasible(costs[::-1], lambda one: question.as_many(change(one), least))
    limit, result = (None, least) if found is None else found
    lifted = [edge for edge in edges if limit is None or (edge.limit or 0) < limit]
    fields = {f"dependencies[{one.caller} -> {one.callee}].maxNetworkCost": limit for one in lifted}
    names = joined([f"{edge.caller} → {edge.callee}" for edge in lifted], NAMED)
    condition = f"without the maxNetworkCost of {names}"
    if limit is not None:
        asked = {edge.limit for edge in lifted}
        instead = f" instead of {asked.pop():,}" if len(asked) == 1 else ""
        condition = f"if maxNetworkCost of {names} is {limit:,}{instead}"
    yield question.answer(Kind.RELAXED, change(limit), result, f"now {condition}", fields=fields)


def _allowing(group: AppGroup, edges: Collection[Edge], limit: int | None) -> AppGroup:
    """The application with limits that are at least so high on some edges; None: with none there."""
    ends = {(edge.caller, edge.callee) for edge in edges}
    workloads = []
    for workload in group.workloads:
        needs = list(workload.dependencies)
        for at, one in enumerate(needs):
            if (workload.name, one.workload) in ends and one.max_network_cost is not None:
                most = None if limit is None else max(limit, one.max_network_cost)
                needs[at] = replace(one, max_network_cost=most)
        workloads.append(replace(workload, dependencies=tuple(needs)))
    return replace(group, workloads=tuple(workloads))


def _costs(question: Question, above: int) -> list[int]:
    """The costs between two nodes that are known and above a limit, in whole numbers."""
    offered = question.trials.engine.profile.dependency_costs
    answers = (plugin.traffic(CycleState(), question.waiting) for plugin in offered)
    traffic = next((one for one in answers if one is not None), None)
    if traffic is None:
        return []
    known = np.unique(traffic.between[~traffic.unknown])
    return sorted({math.ceil(cost) for cost in known[known > above].tolist()})
