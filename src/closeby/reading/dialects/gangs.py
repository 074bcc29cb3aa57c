"""The gangs that workload objects and plain pods ask for by their annotations, without a PodGroup object.

What is written at the workload holds for all of its pods; what is written at a pod template holds for the
pods of that template, and makes them a subgroup where the workload has several templates.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import Layer, PodGroup, SubGroup, TopologyConstraint
from closeby.objects.reasons import Condition, Reason, few, invalid
from closeby.objects.topologies import ResourceFlavor
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.dividing import divided, with_shared_minimum
from closeby.reading.common.layers import layer_problems, size_of
from closeby.reading.common.podgroups import STRATEGY_FIELD, PlacementAsk, with_condition, with_strategy
from closeby.reading.decoding.keys import (
    GANG,
    KAI_SEGMENT,
    KAI_TOPOLOGY,
    PLACEMENT_STRATEGY,
    QUEUE_NAME,
    ROLE_TOPOLOGY,
    members_apart,
    wish_conditions,
)
from closeby.reading.decoding.preemption_requests import delay_problems, preemption_delay, protection_request
from closeby.reading.dialects import kai, kubeflow, kueue, slurm, volcano
from closeby.reading.dialects.kueue import GET_QUEUES, Choices, Queues
from closeby.reading.dialects.slices import OF_FLAVOR

#: Kinds whose pods can do nothing without one another: they are gangs without being asked. (So is Volcano's
#: Job, which declares its gang itself.)
BY_NATURE: Final = frozenset({"JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", *kubeflow.KINDS})
#: Kinds that Kueue admits as a whole; it lets the pods of others in one by one.
_ADMITTED_WHOLE: Final = frozenset({"Job", "JobSet", "StatefulSet", "LeaderWorkerSet"})
_ADMITTED_SUFFIX: Final = "Job"
#: Who reads a placement from annotations, by the domain of its keys.
_ASKS: Final = {"kai.scheduler": kai.ask, "kueue.x-k8s.io": kueue.ask, "volcano.sh": volcano.ask}


class Gang(Struct, frozen=True):
    """A gang and the pod sets (by position in the workload) that belong to it, each with its subgroup."""

    group: PodGroup
    members: Mapping[int, str | None]


class AskedGang(Struct, frozen=True, kw_only=True):
    """What a workload asks for."""

    gangs: tuple[Gang, ...] = ()
    #: Whose labels and tolerations Kueue may give the pods of each pod set, by position: the choices, best
    #: first. The gangs are as with the first ones.
    choices: Mapping[int, Choices] = {}
    #: What is reported where no gang carries it.
    conditions: tuple[Condition, ...] = ()


def read_ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What annotations ask for, in the words of one scheduler; those of several are refused.

    Our own annotations may add to them what they do not say.
    """
    found, ours = _read_ask(annotations, owner, part), slurm.ask(annotations, owner, part)
    return found if not ours.given else ours if not found.given else _merged(found, ours, owner, part)


def _merged(found: PlacementAsk, ours: PlacementAsk, owner: str, part: str) -> PlacementAsk:
    conditions = found.conditions + ours.conditions
    if (found.constraint and ours.constraint) or (found.layers and ours.layers):
        message = "asks for placement in annotations of closeby.dev and in those of another scheduler"
        twice = invalid(owner, part, message, "keep one of them", blocking=True)
        return PlacementAsk(conditions=(*conditions, twice))
    return msgspec.structs.replace(
        found,
        constraint=found.constraint or ours.constraint,
        layers=found.layers or ours.layers,
        conditions=conditions,
    )


def _read_ask(annotations: Mapping[str, str], owner: str, part: str) -> PlacementAsk:
    asks = {called: ask(annotations, owner, part) for called, ask in _ASKS.items()}
    given = {called: ask for called, ask in asks.items() if ask.given}
    if len(given) < 2:
        return next(iter(given.values()), PlacementAsk())
    condition = invalid(
        owner,
        part,
        f"asks for placement in the words of several schedulers: {some(list(given))}",
        "keep the annotations of one of them",
        blocking=True,
    )
    return PlacementAsk(conditions=(condition,))


def gangs_of(
    workload: Workload, queues: Queues, instead: Mapping[int, PlacementAsk] | None = None
) -> AskedGang:
    """The gangs of a workload, called like it, for its pod sets that name no PodGroup themselves.

    ``instead``: what some of them ask for, whatever the annotations of their templates say.
    """
    queue = _queue(workload)
    wishes = wish_conditions(workload.annotations, workload.id)
    wishes += wish_conditions(workload.labels, workload.id, "metadata.labels")
    wishes += delay_problems(workload.annotations, workload.id)
    owner_ask = read_ask(workload.annotations, workload.id)
    by_gang: dict[str, dict[int, PodSet]] = {}
    named = set()
    overruled: list[Condition] = []
    for position, pods in enumerate(workload.pod_sets):
        ref = pods.template.workload_ref
        given = pods.template.group or (None if ref is None else ref.gang)
        if given is None:
            by_gang.setdefault(pods.gang or workload.name, {})[position] = pods
        else:
            named.add(given)
            ask = read_ask(_annotations(workload, pods), workload.id, _part(pods))
            overruled += [_overruled(workload, {given}, _part(pods))] if ask.given else []
    choices = _choices(workload, queue, queues, owner_ask)
    first = {i: one[0] for i, one in choices.items()}
    gangs = []
    for name, sets in by_gang.items():
        gang = _gang_of(workload, name, sets, owner_ask, queue, instead or {})
        if gang is not None:
            gang = Gang(in_flavors(gang.group, gang.members, first), gang.members)
            gangs.append(_with_queue(gang, workload, queue, queues))
    conditions = wishes + _template_wishes(workload) + few(overruled)
    if gangs:
        carrying = tuple(Gang(_extended(gang.group, conditions), gang.members) for gang in gangs)
        return AskedGang(gangs=carrying, choices=choices)
    if named and owner_ask.given:
        conditions += (*owner_ask.conditions, _overruled(workload, named))
    return AskedGang(choices=choices, conditions=conditions)


def _choices(
    workload: Workload, queue: str | None, queues: Queues, owner_ask: PlacementAsk
) -> dict[int, Choices]:
    """The flavors that Kueue may give each pod set, where it is known which."""
    if queue is None or not queues.local:
        return {}
    found = {}
    for i, pods in enumerate(workload.pod_sets):
        placed = owner_ask.given or read_ask(_annotations(workload, pods), workload.id).given
        choices = queues.choices(workload.namespace, queue, pods.template.spec, placed=placed)
        if choices:
            found[i] = choices
    return found


def _gang_of(
    workload: Workload,
    name: str,
    sets: Mapping[int, PodSet],
    owner_ask: PlacementAsk,
    queue: str | None,
    instead: Mapping[int, PlacementAsk],
) -> Gang | None:
    """The gang of some pod sets, if they are one."""
    asks = {
        i: instead.get(i) or read_ask(_annotations(workload, p), workload.id, _part(p))
        for i, p in sets.items()
    }
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


def _annotations(workload: Workload, pods: PodSet) -> Mapping[str, str]:
    """Those of a template; KAI's topology for its segments may be named at the workload."""
    annotations, topology = pods.template_annotations, workload.annotations.get(KAI_TOPOLOGY)
    if topology is None or KAI_SEGMENT not in annotations:
        return annotations
    return {KAI_TOPOLOGY: topology, **annotations}


def _gang(
    workload: Workload,
    name: str,
    sets: Mapping[int, PodSet],
    owner_ask: PlacementAsk,
    asks: Mapping[int, PlacementAsk],
    alone: Set[int],
) -> Gang:
    """The gang of some pod sets; it waits for no pods of those that are to start ``alone``."""
    group = (
        workload.gangs.get(name)
        or workload.gang
        or PodGroup(
            namespace=workload.namespace,
            name=name,
            min_member=sum(pods.replicas for pods in sets.values()),
            created=workload.created,
            annotations=workload.annotations,
            members_apart=members_apart(workload.annotations),
            protected_by=protection_request(workload.annotations, workload.labels),
            preemption_delay=preemption_delay(workload.annotations),
            source=f"{workload.kind} annotations",
        )
    )
    group = divided(workload, group, sets, owner_ask, asks)
    ordinary = [ask for ask in (owner_ask, *asks.values()) if ask.given]
    placed = group.constraint is not None or any(one.constraint is not None for one in group.subgroups)
    anywhere = owner_ask.unconstrained or all(ask.unconstrained for ask in asks.values())
    group = msgspec.structs.replace(
        group,
        wants_closeness=placed or not anywhere,
        conditions=group.conditions + tuple(one for ask in ordinary for one in ask.conditions),
    )
    if not group.sizes:
        own_sizes = (one for i, pods in sets.items() if i not in alone for one in pods.sizes)
        group = msgspec.structs.replace(group, sizes=tuple(own_sizes))
    strategy = workload.annotations.get(PLACEMENT_STRATEGY)
    group = with_strategy(group, strategy, STRATEGY_FIELD, owner=workload.id)
    group = _with_batch_minimum(group, workload)
    if name not in workload.gangs and not (workload.gang and workload.gang.subgroups):
        group = with_shared_minimum(group, sets)
    names = {subgroup.name for subgroup in group.subgroups}
    members = {i: pods.name if pods.name in names else None for i, pods in sets.items()}
    starting = {i: 0 if i in alone else pods.starting for i, pods in sets.items()}
    late = any(starting[i] < pods.replicas for i, pods in sets.items())
    group = _at_start(group, members, starting) if late else group
    if group.layers or any(one.layers for one in group.subgroups):
        group = msgspec.structs.replace(group, conditions=group.conditions + layer_problems(group))
    return Gang(group, members)


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


def _with_batch_minimum(group: PodGroup, workload: Workload) -> PodGroup:
    text = workload.annotations.get(kai.BATCH_MIN_MEMBER)
    if text is None:
        return group
    least = size_of(text)
    if least is not None:
        return msgspec.structs.replace(group, min_member=least)
    field = f'metadata.annotations["{kai.BATCH_MIN_MEMBER}"]'
    message, remedy = f"{quoted(text)} is not a number of pods", "give a whole number of at least 1"
    return with_condition(group, Reason.INVALID_SPEC, field, message, remedy, owner=workload.id)


def in_flavors(
    group: PodGroup, members: Mapping[int, str | None], chosen: Mapping[int, Sequence[ResourceFlavor]]
) -> PodGroup:
    """A gang with flavors for its pod sets: constraints that leave their topology to them get theirs.

    ``members``: the subgroup of each pod set, by position.
    """
    topologies = {
        subgroup: flavor.topology_name
        for i, subgroup in members.items()
        for flavor in chosen.get(i, ())
        if flavor.topology_name
    }
    if not topologies:
        return group
    any_of_them = next(iter(topologies.values()))
    subgroups = tuple(_named(one, topologies.get(one.name, any_of_them)) for one in group.subgroups)
    return msgspec.structs.replace(_named(group, any_of_them), subgroups=subgroups)


def _with_queue(gang: Gang, workload: Workload, queue: str | None, queues: Queues) -> Gang:
    """It is reported where only the queue could say which of several topologies is meant, and is not there to
    say it.
    """
    group = gang.group
    places = [*_places(group), *(place for one in group.subgroups for place in _places(one))]
    levels = {level for one in places if not one.topology for level in _levels(one)}
    shared = sorted(levels & set(queues.shared_levels))
    if queue is None or not shared:
        return gang
    message = (
        f"several topologies have a level {shared[0]}, and the queue does not say which is meant: "
        f"{queues.missing(workload.namespace, queue)}"
    )
    group = with_condition(
        group,
        Reason.TOPOLOGY_NOT_FOUND,
        f'metadata.labels["{QUEUE_NAME}"]',
        message,
        f"add what {GET_QUEUES} prints",
        blocking=False,
        owner=workload.id,
    )
    return Gang(group, gang.members)


def _places(one: PodGroup | SubGroup) -> tuple[TopologyConstraint | Layer, ...]:
    """All that names a level."""
    return (*(() if one.constraint is None else (one.constraint,)), *one.layers)


def _levels(place: TopologyConstraint | Layer) -> set[str]:
    if isinstance(place, Layer):
        return {place.level}
    return {level for level in (place.required, place.preferred) if level}


_Part = TypeVar("_Part", PodGroup, SubGroup)
_Place = TypeVar("_Place", TopologyConstraint, Layer)


def _named(one: _Part, topology: str) -> _Part:
    """A gang or subgroup whose levels are those of a flavor's topology, unless they name one themselves."""
    constraint = None if one.constraint is None else _of(one.constraint, topology)
    layers = tuple(_of(layer, topology) for layer in one.layers)
    return msgspec.structs.replace(one, constraint=constraint, layers=layers)


def _of(place: _Place, topology: str) -> _Place:
    if place.topology and place.written.topology != OF_FLAVOR:
        return place
    return msgspec.structs.replace(place, topology=topology)


def _is_gang(workload: Workload, queue: str | None) -> bool:
    """Whether the workload starts as a gang although no constraint asks for closeness."""
    whole = workload.kind in _ADMITTED_WHOLE or workload.kind.endswith(_ADMITTED_SUFFIX)
    declared = workload.gang is not None or bool(workload.gangs)
    return declared or (queue is not None and whole)


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


def _overruled(workload: Workload, groups: set[str], part: str = "metadata.annotations") -> Condition:
    return invalid(
        workload.id,
        part,
        f"asks for placement, but its pods belong to PodGroup {some(sorted(groups))}",
        "write the constraint in the PodGroup",
    )
