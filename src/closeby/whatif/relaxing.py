"""What an item could ask for instead, so that it fits now."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from closeby.applications.registry import Edge
from closeby.objects.applications import AppGroup
from closeby.objects.groups import PodGroup, SubGroup, TopologyConstraint
from closeby.objects.natural import natural_key
from closeby.objects.nodes import Node, Taint, keeps_off
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.quantities import format_amount
from closeby.objects.words import names_text
from closeby.plugins.node_unschedulable import CORDON
from closeby.scheduling.fork import Change
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.constraints import level_meant
from closeby.whatif.members import fewer_members
from closeby.whatif.questions import Fields, Question, farthest, fewest, joined
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.segments import segments_relaxed
from closeby.whatif.trials import TrialResult
from closeby.whatif.without_terms import without_terms

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


def gang_relaxed(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The least that a gang would have to give up of its levels, segments and members."""
    yield from _levels(question, group)
    yield from _subgroups(question, group)
    yield from segments_relaxed(question, group)
    yield from fewer_members(question, group)


def _levels(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The next coarser level at which it fits, else whether it does where no level is required."""
    constraint, levels = group.constraint, question.levels
    if constraint is None or constraint.required is None:
        return
    asked, preferred = constraint.required, constraint.preferred
    wishes: list[tuple[TopologyConstraint, str, Fields]] = []
    if levels is not None and levels.required is not None:
        tree, names = levels.tree, levels.tree.level_names
        asked = names[levels.required]
        for level in range(levels.required - 1, -1, -1):
            label = tree.levels[level].node_label
            fields = {} if constraint.topology else {_TOPOLOGY: tree.name}
            coarser = replace(constraint, topology=tree.name, required=label)
            how = f"if {names[level]} is required instead of {asked}"
            wishes.append((coarser, how, fields | {REQUIRED: label}))
    if levels is None:  # To prefer what does not exist would say nothing.
        how, fields = "is not required", {}
        topologies = question.trials.engine.topologies
        having = topologies.having_level(constraint.required)
        if constraint.topology not in (None, *topologies.usable()) and len(having) == 1:
            right = replace(constraint, topology=having[0])
            condition = f"if topology {having[0]} is named instead of {constraint.topology}"
            wishes.append((right, condition, {_TOPOLOGY: having[0]}))
        meant = level_meant(topologies, constraint.required, constraint.topology)
        if meant is not None:
            right = replace(constraint, required=meant)
            wishes.append((right, f"if {meant} is required instead of {asked}", {REQUIRED: meant}))
    else:
        preferred = preferred or constraint.required
        how, fields = "is preferred, not required", {_PREFERRED: preferred}
    loose = replace(constraint, required=None, preferred=preferred)
    wishes.append((loose, f"if {asked} {how}", {REQUIRED: None, **fields}))
    for wish, condition, written in wishes:
        change = Change(groups=(replace(group, constraint=wish),))
        found = tuple(question.relaxed(change, f"now {condition}", written))
        if found:
            yield from found
            return
    if not question.trials.spent and group.min_member <= question.there + len(question.waiting):
        yield Counterfactual(
            kind=Kind.RELAXED,
            fits=False,
            sentence=f"Dropping the required level {asked} would not help now.",
            change={REQUIRED: None},
        )


def _subgroups(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """Without what its subgroups require for themselves."""
    if any(one.constraint is not None and one.constraint.required for one in group.subgroups):
        change = Change(groups=(replace(group, subgroups=tuple(map(_loose, group.subgroups))),))
        condition = "now if its subgroups only prefer their levels"
        yield from question.relaxed(change, condition, {f"subGroups[*].{REQUIRED}": None})


def _loose(subgroup: SubGroup) -> SubGroup:
    constraint = subgroup.constraint
    if constraint is None or constraint.required is None:
        return subgroup
    return replace(subgroup, constraint=only_preferred(constraint))


def other_nodes(question: Question) -> Iterator[Counterfactual]:
    """Without its choice of nodes, and if it tolerated all taints."""
    specs = {pod.spec for pod in question.waiting}
    if any(spec.node_selector or spec.required_affinity is not None for spec in specs):
        change = Change(waiting=tuple(map(anywhere, question.waiting)))
        fields = {"nodeSelector": None, "affinity.nodeAffinity": None}
        yield from question.relaxed(change, "now without its node selector and affinity", fields)
    yield from without_terms(question)
    yield from _tolerating(question)


def _tolerating(question: Question) -> Iterator[Counterfactual]:
    """The fewest taints, of the nodes that it would use if it tolerated all, and whether cordoned nodes."""
    cluster = question.trials.engine.cluster
    if not any(node is not None and (node.taints or node.unschedulable) for node in cluster.nodes):
        return

    def change(keys: Sequence[str]) -> Change:
        return Change(waiting=tuple(tolerant(pod, keys) for pod in question.waiting))

    result = question.tried(change([""]))
    if result is None:
        return
    keys = taints_against(question, (one.node for one in result.bindings))
    number = len(question.got(result))

    def enough(some: Sequence[str]) -> TrialResult | None:
        fewer = question.tried(change(some))
        # A gang that fits has what it needs, an application has more or less of it.
        few = question.has_parts and fewer is not None and len(question.got(fewer)) < number
        return None if few else fewer

    keys, least = fewest(keys, result, enough)
    condition = f"now if it tolerates {taints_text(keys) or 'all taints'}"
    fields = {"tolerations": ", ".join(keys) or "all"}
    yield question.answer(Kind.RELAXED, change(keys or [""]), least, condition, fields=fields)
    yield from _opened(question, least)


def taints_against(question: Question, nodes: Iterable[str]) -> list[str]:
    """The keys of the taints of nodes that keep pods out, with that of cordoned nodes as the last."""
    cluster = question.trials.engine.cluster
    found: set[str] = set()
    for name in nodes:
        node = cluster.node_at(cluster.slot_of(name))
        taints = (*node.taints, *((CORDON,) if node.unschedulable else ()))
        found.update(one.key for one in taints if keeps_out(one, question.waiting))
    return sorted(found, key=lambda key: (key == CORDON.key, key))


def taints_text(keys: Sequence[str]) -> str:
    """``taints (team) and cordoned nodes``; empty where there are none."""
    named = [key for key in keys if key != CORDON.key]
    said = [f"taints ({', '.join(named)})"] if named else []
    said += ["cordoned nodes"] if CORDON.key in keys else []
    return " and ".join(said)


def only_preferred(constraint: TopologyConstraint) -> TopologyConstraint:
    """The constraint with its required level preferred, unless another one is."""
    return replace(constraint, required=None, preferred=constraint.preferred or constraint.required)


def _opened(question: Question, result: TrialResult) -> Iterator[Counterfactual]:
    """The nodes that it would use if it tolerated them, uncordoned and without the taints against it.

    Taints that Kubernetes sets itself are not removed by hand; only cordons are.
    """
    cluster = question.trials.engine.cluster
    used = sorted({one.node for one in result.bindings}, key=natural_key)
    closed = [cluster.node_at(cluster.slot_of(name)) for name in used]
    opened: dict[str, Node] = {}
    commands: dict[str, list[str]] = {}
    for node in closed:
        against = [one for one in node.taints if one != CORDON and keeps_out(one, question.waiting)]
        if any(one.key.startswith(SYSTEM_TAINTS) for one in against):
            return
        cordoned = node.unschedulable or CORDON in node.taints
        if cordoned and keeps_out(CORDON, question.waiting):
            commands.setdefault("kubectl uncordon {}", []).append(node.name)
        elif not against:
            continue
        for taint in against:
            value = f"={taint.value}" if taint.value else ""
            removal = f"kubectl taint nodes {{}} {taint.key}{value}:{taint.effect}-"
            commands.setdefault(removal, []).append(node.name)
        left = tuple(one for one in node.taints if one not in against and one != CORDON)
        opened[node.name] = replace(node, taints=left, unschedulable=False)
    change = Change(nodes=tuple(opened.values()))
    found = question.tried(change) if opened else None
    if found is None:
        return
    command = " && ".join(text.format(" ".join(names)) for text, names in commands.items())
    which = "this node" if len(opened) == 1 else f"these {len(opened):,} nodes"
    how = " and ".join(
        ["is uncordoned" if len(opened) == 1 else "are uncordoned"] * ("kubectl uncordon {}" in commands)
        + ["loses its taints" if len(opened) == 1 else "lose their taints"]
        * any(text.startswith("kubectl taint") for text in commands)
    )
    answer = question.answer(Kind.RELAXED, change, found, f"now if {which} {how} ({command})")
    yield replace(answer, command=command)


def keeps_out(taint: Taint, pods: Collection[Pod]) -> bool:
    """Whether a taint keeps one of these pods from a node."""
    return any(keeps_off(taint, one.tolerations) for one in {pod.spec for pod in pods})


def anywhere(pod: Pod) -> Pod:
    """A pod without its choice of nodes."""
    return replace(pod, spec=replace(pod.spec, node_selector=(), required_affinity=None))


def tolerant(pod: Pod, keys: Sequence[str]) -> Pod:
    """A pod that tolerates taints with these keys besides; the empty key stands for all."""
    more = tuple(Toleration(key=key, operator="Exists") for key in keys)
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))


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
        return Change(waiting=tuple(_asking(pod, resource, amount) for pod in pods))

    least = question.tried(change(0))
    if least is None:
        return
    unit = _unit(asked)
    steps = range(unit, (asked - 1) // unit * unit + 1, unit)
    found = farthest(steps, lambda one: _as_many(question, change(one), least))
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


def _as_many(question: Question, change: Change, easiest: TrialResult) -> TrialResult | None:
    """What comes of a change, if as many pods get a node as with the easiest one."""
    result = question.tried(change)
    return result if result is not None and len(question.got(result)) >= len(question.got(easiest)) else None


def _asking(pod: Pod, resource: str, amount: int) -> Pod:
    others = (one for one in pod.spec.requests if one[0] != resource)
    requests = tuple(sorted((*others, (resource, amount)))) if amount else tuple(others)
    return replace(pod, spec=replace(pod.spec, requests=requests))


def _unit(asked: int) -> int:
    """A round step: a power of ten of what is counted in thousands, of two for bytes, at most a 64th."""
    unit, base = 1, 2 if asked % 1024 == 0 else 10
    while unit * base * STEPS <= asked:
        unit *= base
    return unit


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
    found = farthest(costs[::-1], lambda one: _as_many(question, change(one), least))
    limit, result = (None, least) if found is None else found
    lifted = [edge for edge in edges if limit is None or (edge.limit or 0) < limit]
    fields = {f"dependencies[{one.caller} -> {one.callee}].maxNetworkCost": limit for one in lifted}
    condition = f"now {_condition(lifted, limit)}"
    yield question.answer(Kind.RELAXED, change(limit), result, condition, fields=fields)


def _condition(edges: Collection[Edge], limit: int | None) -> str:
    names = [f"{edge.caller} → {edge.callee}" for edge in edges]
    if len(names) > NAMED:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    if limit is None:
        return f"without the maxNetworkCost of {joined(names)}"
    asked = {edge.limit for edge in edges}
    instead = f" instead of {asked.pop():,}" if len(asked) == 1 else ""
    return f"if maxNetworkCost of {joined(names)} is {limit:,}{instead}"


def _allowing(group: AppGroup, edges: Collection[Edge], limit: int | None) -> AppGroup:
    """The application with limits that are at least so high on some edges; None: with none there."""
    ends = {(edge.caller, edge.callee) for edge in edges}
    return replace(
        group,
        workloads=tuple(
            replace(
                workload,
                dependencies=tuple(
                    replace(one, max_network_cost=None if limit is None else max(limit, one.max_network_cost))
                    if (workload.name, one.workload) in ends and one.max_network_cost is not None
                    else one
                    for one in workload.dependencies
                ),
            )
            for workload in group.workloads
        ),
    )


def _costs(question: Question, above: int) -> list[int]:
    """The costs between two nodes that are known and above a limit, in whole numbers."""
    offered = question.trials.engine.profile.dependency_costs
    answers = (plugin.traffic(CycleState(), question.waiting) for plugin in offered)
    traffic = next((one for one in answers if one is not None), None)
    if traffic is None:
        return []
    known = np.unique(traffic.between[~traffic.unknown])
    return sorted({math.ceil(cost) for cost in known[known > above].tolist()})
