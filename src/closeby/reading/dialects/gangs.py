"""The gangs that workload objects and plain pods ask for by their annotations, without a PodGroup object.

What is written at the workload holds for all of its pods; what is written at a pod template holds for the
pods of that template, and makes them a subgroup where the workload has several templates.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import PodGroup, SubGroup, TopologyConstraint
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import ResourceFlavor
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.keys import PLACEMENT_STRATEGY, ROLE_TOPOLOGY, members_apart, wish_conditions
from closeby.reading.dialects import kai, kueue
from closeby.reading.dialects.kueue import QUEUE_NAME, Queues
from closeby.reading.dialects.podgroups import STRATEGY_FIELD, PlacementAsk, with_condition, with_strategy

#: Kinds that Kueue admits as a whole; it lets the pods of others in one by one.
_ADMITTED_WHOLE: Final = frozenset({"Job", "JobSet", "StatefulSet", "LeaderWorkerSet"})
_ADMITTED_SUFFIX: Final = "Job"


class Gang(Struct, frozen=True):
    """A gang and the pod sets (by position in the workload) that belong to it, each with its subgroup."""

    group: PodGroup
    members: Mapping[int, str | None]


class AskedGang(Struct, frozen=True, kw_only=True):
    """What a workload asks for."""

    gangs: tuple[Gang, ...] = ()
    #: Whose labels and tolerations Kueue would give the pods.
    flavor: ResourceFlavor | None = None
    #: What is reported where no gang carries it.
    conditions: tuple[Condition, ...] = ()


def read_ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What annotations ask for, in KAI's or Kueue's words; both at once is refused."""
    asks = [
        ask for ask in (kai.ask(annotations, owner, part), kueue.ask(annotations, owner, part)) if ask.given
    ]
    if len(asks) < 2:
        return asks[0] if asks else PlacementAsk()
    condition = Condition(
        reason=Reason.INVALID_SPEC,
        object=owner,
        field=part,
        message="asks for placement in the words of two schedulers, kai.scheduler and kueue.x-k8s.io",
        remedy="keep the annotations of one of them",
        blocking=True,
    )
    return PlacementAsk(conditions=(condition,))


def gangs_of(workload: Workload, queues: Queues) -> AskedGang:
    """The gangs of a workload, called like it, for its pod sets that name no PodGroup themselves."""
    queue = _queue(workload)
    flavor = queues.flavor(workload.namespace, queue) if queue else None
    wishes = wish_conditions(workload.annotations, workload.id)
    wishes += wish_conditions(workload.labels, workload.id, "metadata.labels")
    owner_ask = read_ask(workload.annotations, workload.id)
    by_gang: dict[str, dict[int, PodSet]] = {}
    named = set()
    for position, pods in enumerate(workload.pod_sets):
        if pods.template.group is None:
            by_gang.setdefault(pods.gang or workload.name, {})[position] = pods
        else:
            named.add(pods.template.group)
    gangs = []
    for name, sets in by_gang.items():
        asks = {i: read_ask(p.template_annotations, workload.id, _part(p)) for i, p in sets.items()}
        if owner_ask.given or any(ask.given for ask in asks.values()) or _is_gang(workload, queue):
            gang = _gang(workload, name, sets, owner_ask, asks)
            gangs.append(_with_queue(gang, workload, queue, queues, flavor))
    conditions = wishes + _template_wishes(workload)
    if gangs:
        carrying = tuple(Gang(_extended(gang.group, conditions), gang.members) for gang in gangs)
        return AskedGang(gangs=carrying, flavor=flavor)
    if named and owner_ask.given:
        conditions += (*owner_ask.conditions, _overruled(workload, named))
    return AskedGang(flavor=flavor, conditions=conditions)


def _gang(
    workload: Workload,
    name: str,
    sets: Mapping[int, PodSet],
    owner_ask: PlacementAsk,
    asks: Mapping[int, PlacementAsk],
) -> Gang:
    """The gang of some pod sets."""
    group = workload.gang or PodGroup(
        namespace=workload.namespace,
        name=name,
        min_member=sum(pods.replicas for pods in sets.values()),
        created=workload.created,
        annotations=workload.annotations,
        members_apart=members_apart(workload.annotations),
        source=f"{workload.kind} annotations",
    )
    constraint = owner_ask.constraint
    subgroups = group.subgroups
    own = {i: ask.constraint for i, ask in asks.items()}
    if not subgroups and constraint is None and len(sets) == 1:
        (constraint,) = own.values()
    elif any(one is not None and one != constraint for one in own.values()) or subgroups:
        subgroups = _subgroups(subgroups, sets, own)
    ordinary = [ask for ask in (owner_ask, *asks.values()) if ask.given]
    placed = constraint is not None or any(one is not None for one in own.values())
    anywhere = owner_ask.unconstrained or all(ask.unconstrained for ask in asks.values())
    group = msgspec.structs.replace(
        group,
        constraint=constraint,
        subgroups=subgroups,
        wants_closeness=placed or not anywhere,
        conditions=group.conditions + tuple(one for ask in ordinary for one in ask.conditions),
    )
    strategy = workload.annotations.get(PLACEMENT_STRATEGY)
    group = with_strategy(group, strategy, STRATEGY_FIELD, owner=workload.id)
    group = _with_batch_minimum(group, workload)
    names = {subgroup.name for subgroup in subgroups}
    return Gang(group, {i: pods.name if pods.name in names else None for i, pods in sets.items()})


def _subgroups(
    declared: Sequence[SubGroup],
    sets: Mapping[int, PodSet],
    constraints: Mapping[int, TopologyConstraint | None],
) -> tuple[SubGroup, ...]:
    """One subgroup for each pod set; where the kind declares minima, a set without one may stay empty."""
    minima = {subgroup.name: subgroup.min_member for subgroup in declared}
    return tuple(
        SubGroup(
            name=pods.name,
            min_member=minima.get(pods.name, 0) if declared else pods.replicas,
            constraint=constraints[i],
        )
        for i, pods in sets.items()
    )


def _with_batch_minimum(group: PodGroup, workload: Workload) -> PodGroup:
    text = workload.annotations.get(kai.BATCH_MIN_MEMBER)
    if text is None:
        return group
    if text.isdecimal() and 0 < int(text) < 2**31:
        return msgspec.structs.replace(group, min_member=int(text))
    field = f'metadata.annotations["{kai.BATCH_MIN_MEMBER}"]'
    message, remedy = f"{quoted(text)} is not a number of pods", "give a whole number of at least 1"
    return with_condition(group, Reason.INVALID_SPEC, field, message, remedy, owner=workload.id)


def _with_queue(
    gang: Gang, workload: Workload, queue: str | None, queues: Queues, flavor: ResourceFlavor | None
) -> Gang:
    """Constraints that name no topology get the queue's; where there is none that is reported."""
    group = gang.group
    constraints = [group.constraint, *(one.constraint for one in group.subgroups)]
    if queue is None or all(one is None or one.topology for one in constraints):
        return gang
    if flavor is None or flavor.topology_name is None:
        message = (
            f"{queues.missing(workload.namespace, queue)}, so the topology is the one that has the level"
        )
        remedy = "add the queue's objects to the input"
        field = f'metadata.labels["{QUEUE_NAME}"]'
        group = with_condition(
            group, Reason.INVALID_SPEC, field, message, remedy, blocking=False, owner=workload.id
        )
        return Gang(group, gang.members)
    name = flavor.topology_name
    subgroups = tuple(
        msgspec.structs.replace(one, constraint=_named(one.constraint, name)) for one in group.subgroups
    )
    group = msgspec.structs.replace(group, constraint=_named(group.constraint, name), subgroups=subgroups)
    return Gang(group, gang.members)


def _named(constraint: TopologyConstraint | None, topology: str) -> TopologyConstraint | None:
    if constraint is None or constraint.topology:
        return constraint
    return msgspec.structs.replace(constraint, topology=topology)


def _is_gang(workload: Workload, queue: str | None) -> bool:
    """Whether the workload starts as a gang although no constraint asks for closeness."""
    whole = workload.kind in _ADMITTED_WHOLE or workload.kind.endswith(_ADMITTED_SUFFIX)
    return (
        workload.gang is not None
        or kai.BATCH_MIN_MEMBER in workload.annotations
        or any(key in workload.annotations for key in ROLE_TOPOLOGY)
        or (queue is not None and whole)
    )


def _queue(workload: Workload) -> str | None:
    """Kueue's queue: of the workload, or of its first template that names one."""
    labels = [workload.labels, *(pods.template_labels for pods in workload.pod_sets)]
    return next((one[QUEUE_NAME] for one in labels if one.get(QUEUE_NAME)), None)


def _template_wishes(workload: Workload) -> tuple[Condition, ...]:
    found: tuple[Condition, ...] = ()
    for pods in workload.pod_sets:
        found += wish_conditions(pods.template_annotations, workload.id, _part(pods))
        found += wish_conditions(pods.template_labels, workload.id, f"{pods.path}.metadata.labels")
    return found


def _part(pods: PodSet) -> str:
    return f"{pods.path}.metadata.annotations"


def _extended(group: PodGroup, conditions: tuple[Condition, ...]) -> PodGroup:
    return msgspec.structs.replace(group, conditions=group.conditions + conditions)


def _overruled(workload: Workload, groups: set[str]) -> Condition:
    return Condition(
        reason=Reason.INVALID_SPEC,
        object=workload.id,
        field="metadata.annotations",
        message=f"asks for placement, but its pods belong to PodGroup {some(sorted(groups))}",
        remedy="write the constraint in the PodGroup",
    )
