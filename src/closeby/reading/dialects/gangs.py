"""The gangs that workload objects and plain pods ask for by their annotations, without a PodGroup object.

What is written at the workload holds for all of its pods; what is written at a pod template holds for the
pods of that template, and makes them a subgroup where the workload has several templates.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import PodGroup, SubGroup, TopologyConstraint
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import ResourceFlavor
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.keys import (
    GANG,
    PLACEMENT_STRATEGY,
    ROLE_TOPOLOGY,
    members_apart,
    wish_conditions,
)
from closeby.reading.dialects import kai, kubeflow, kueue
from closeby.reading.dialects.kueue import GET_QUEUES, QUEUE_NAME, Queues
from closeby.reading.dialects.podgroups import STRATEGY_FIELD, PlacementAsk, with_condition, with_strategy

#: Kinds whose pods can do nothing without one another: they are gangs without being asked. (So is Volcano's
#: Job, which declares its gang itself.)
BY_NATURE: Final = frozenset({"JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", *kubeflow.KINDS})
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
        ref = pods.template.workload_ref
        given = pods.template.group or (None if ref is None else ref.gang)
        if given is None:
            by_gang.setdefault(pods.gang or workload.name, {})[position] = pods
        else:
            named.add(given)
    gangs = []
    for name, sets in by_gang.items():
        gang = _gang_of(workload, name, sets, owner_ask, queue)
        if gang is not None:
            gangs.append(_with_queue(gang, workload, queue, queues, flavor))
    conditions = wishes + _template_wishes(workload)
    if gangs:
        carrying = tuple(Gang(_extended(gang.group, conditions), gang.members) for gang in gangs)
        return AskedGang(gangs=carrying, flavor=flavor)
    if named and owner_ask.given:
        conditions += (*owner_ask.conditions, _overruled(workload, named))
    return AskedGang(flavor=flavor, conditions=conditions)


def _gang_of(
    workload: Workload, name: str, sets: Mapping[int, PodSet], owner_ask: PlacementAsk, queue: str | None
) -> Gang | None:
    """The gang of some pod sets, if they are one."""
    asks = {i: read_ask(p.template_annotations, workload.id, _part(p)) for i, p in sets.items()}
    choices = {i: _choice(workload, pods) for i, pods in sets.items()}
    alone = {i for i, choice in choices.items() if choice == "false"}
    keys = (kai.BATCH_MIN_MEMBER, *ROLE_TOPOLOGY)
    asked = owner_ask.given or any(ask.given for ask in asks.values())
    asked = asked or any(key in workload.annotations for key in keys)
    members = {i: pods for i, pods in sets.items() if asked or i not in alone}
    told = asked or _is_gang(workload, queue) or any(choices[i] is not None for i in members)
    if not members or not (told or workload.kind in BY_NATURE):
        return None
    gang = _gang(workload, name, members, owner_ask, {i: asks[i] for i in members}, alone)
    group = msgspec.structs.replace(gang.group, by_nature="" if told else workload.kind)
    return Gang(_with_choices(group, workload, members, alone), gang.members)


def _gang(
    workload: Workload,
    name: str,
    sets: Mapping[int, PodSet],
    owner_ask: PlacementAsk,
    asks: Mapping[int, PlacementAsk],
    alone: Set[int],
) -> Gang:
    """The gang of some pod sets; it waits for no pods of those that are to start ``alone``."""
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
    if not subgroups and constraint is None and len({pods.path for pods in sets.values()}) == 1:
        # Of one template: without a leaderTemplate a leader and its workers have one, and belong together.
        constraint = next(iter(own.values()))
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
    if not group.sizes:
        own_sizes = (one for i, pods in sets.items() if i not in alone for one in pods.sizes)
        group = msgspec.structs.replace(group, sizes=tuple(own_sizes))
    strategy = workload.annotations.get(PLACEMENT_STRATEGY)
    group = with_strategy(group, strategy, STRATEGY_FIELD, owner=workload.id)
    group = _with_batch_minimum(group, workload)
    names = {subgroup.name for subgroup in subgroups}
    members = {i: pods.name if pods.name in names else None for i, pods in sets.items()}
    starting = {i: 0 if i in alone else pods.starting for i, pods in sets.items()}
    late = any(starting[i] < pods.replicas for i, pods in sets.items())
    return Gang(_at_start(group, members, starting) if late else group, members)


def _at_start(group: PodGroup, members: Mapping[int, str | None], starting: Mapping[int, int]) -> PodGroup:
    """The gang with minima that the pods can reach which are there at its start."""
    by_subgroup = {members[i]: number for i, number in starting.items()}
    return msgspec.structs.replace(
        group,
        min_member=max(1, min(group.min_member, sum(starting.values()))),
        subgroups=tuple(
            msgspec.structs.replace(one, min_member=min(one.min_member, by_subgroup.get(one.name, 0)))
            for one in group.subgroups
        ),
    )


def _choice(workload: Workload, pods: PodSet) -> str | None:
    """What is said about whether some pods are a gang: at their template, else at the workload."""
    return pods.template_annotations.get(GANG, workload.annotations.get(GANG))


def _with_choices(
    group: PodGroup, workload: Workload, sets: Mapping[int, PodSet], alone: Set[int]
) -> PodGroup:
    """Refuses what is neither true nor false, and a minimum for pods that are no gang."""
    places = {"metadata.annotations": workload.annotations}
    places |= {_part(pods): pods.template_annotations for pods in sets.values()}
    for part, annotations in places.items():
        text = annotations.get(GANG)
        if text in (None, "true", "false"):
            continue
        message, remedy = f"{GANG}: {quoted(text or '')} is neither true nor false", 'write "true" or "false"'
        group = with_condition(
            group, Reason.INVALID_SPEC, f'{part}["{GANG}"]', message, remedy, owner=workload.id
        )
    if alone and kai.BATCH_MIN_MEMBER in workload.annotations:
        message, remedy = f"contradicts {GANG}: false", "take out one of the two"
        field = f'metadata.annotations["{kai.BATCH_MIN_MEMBER}"]'
        group = with_condition(group, Reason.INVALID_SPEC, field, message, remedy, owner=workload.id)
    return group


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
    """Constraints that name no topology get the queue's; it is reported where only the queue could say which
    of several topologies is meant, and is not there to say it.
    """
    group = gang.group
    constraints = [group.constraint, *(one.constraint for one in group.subgroups)]
    if queue is None or all(one is None or one.topology for one in constraints):
        return gang
    if flavor is None or flavor.topology_name is None:
        levels = {level for one in constraints if one and not one.topology for level in _levels(one)}
        shared = sorted(levels & set(queues.shared_levels))
        if not shared:
            return gang
        message = (
            f"several topologies have a level {shared[0]}, and the queue does not say which is meant: "
            f"{queues.missing(workload.namespace, queue)}"
        )
        field = f'metadata.labels["{QUEUE_NAME}"]'
        group = with_condition(
            group,
            Reason.TOPOLOGY_NOT_FOUND,
            field,
            message,
            f"add what {GET_QUEUES} prints",
            blocking=False,
            owner=workload.id,
        )
        return Gang(group, gang.members)
    name = flavor.topology_name
    subgroups = tuple(
        msgspec.structs.replace(one, constraint=_named(one.constraint, name)) for one in group.subgroups
    )
    group = msgspec.structs.replace(group, constraint=_named(group.constraint, name), subgroups=subgroups)
    return Gang(group, gang.members)


def _levels(constraint: TopologyConstraint) -> set[str]:
    return {level for level in (constraint.required, constraint.preferred) if level}


def _named(constraint: TopologyConstraint | None, topology: str) -> TopologyConstraint | None:
    if constraint is None or constraint.topology:
        return constraint
    return msgspec.structs.replace(constraint, topology=topology)


def _is_gang(workload: Workload, queue: str | None) -> bool:
    """Whether the workload starts as a gang although no constraint asks for closeness."""
    whole = workload.kind in _ADMITTED_WHOLE or workload.kind.endswith(_ADMITTED_SUFFIX)
    return workload.gang is not None or (queue is not None and whole)


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
