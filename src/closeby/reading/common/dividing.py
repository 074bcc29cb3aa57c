"""How the pod sets of a workload divide its gang: into subgroups where they ask for different things, and
each of these, or the gang as a whole, into segments.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted
from closeby.objects.groups import Layer, PodGroup, Remainder, SubGroup, TopologyConstraint
from closeby.objects.reasons import Condition, invalid
from closeby.objects.words import plural
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.podgroups import PlacementAsk
from closeby.reading.decoding.keys import KUEUE_GROUP

#: Pod sets that Kueue lets share a group: a leader and its workers.
_TOGETHER = 2


class _Own(Struct, frozen=True):
    """What a pod set asks for itself."""

    constraint: TopologyConstraint | None = None
    layers: tuple[Layer, ...] = ()


def divided(
    workload: Workload,
    group: PodGroup,
    sets: Mapping[int, PodSet],
    owner_ask: PlacementAsk,
    asks: Mapping[int, PlacementAsk],
) -> PodGroup:
    """``group`` with its constraint, layers and subgroups, as asked for at the workload and its pod sets."""
    constraint = owner_ask.constraint or group.constraint
    layers = owner_ask.layers or group.layers or workload.layers
    subgroups = group.subgroups
    own = {i: _Own(asks[i].constraint, asks[i].layers or pods.layers) for i, pods in sets.items()}
    together = {i: ask.together for i, ask in asks.items() if ask.together}
    one_template = len({pods.path for pods in sets.values()}) == 1
    conditions = () if one_template else tuple(_wrongly_together(workload, sets, asks))
    first = next(iter(own.values()))
    whole = one_template or (len(set(together.values())) == 1 and together.keys() == sets.keys())
    if not subgroups and whole and (constraint is None or first.constraint in (None, constraint)):
        # Of one template: without a leaderTemplate a leader and its workers have one, and belong together.
        constraint = constraint or first.constraint
        if all(one.layers == first.layers for one in own.values()):
            layers = layers or first.layers
        else:  # The workers alone have segments.
            subgroups = _subgroups((), sets, {i: _Own(layers=one.layers) for i, one in own.items()}, {})
    elif subgroups or any(one != _Own() and one != _Own(constraint) for one in own.values()):
        subgroups = _subgroups(subgroups, sets, own, together)
    twice = next((pods.layers for i, pods in sets.items() if asks[i].layers and pods.layers), ())
    if (layers and subgroups) or twice:
        conditions += (_both(workload, twice or layers),)
        layers = ()
    group = msgspec.structs.replace(
        group,
        constraint=constraint,
        layers=layers,
        subgroups=subgroups,
        conditions=group.conditions + conditions,
    )
    return _counted(group, workload, sets)


def _subgroups(
    declared: Sequence[SubGroup],
    sets: Mapping[int, PodSet],
    own: Mapping[int, _Own],
    together: Mapping[int, str],
) -> tuple[SubGroup, ...]:
    """One subgroup for each pod set, below one for those that are together; where the kind declares minima, a
    set without one may stay empty.
    """
    known = {subgroup.name: subgroup for subgroup in declared}
    taken = {pods.name for pods in sets.values()}
    parents = {
        name: name if name not in taken else f"{name}-group" for name in dict.fromkeys(together.values())
    }
    above = {subgroup.parent for subgroup in declared}
    found = [subgroup for subgroup in declared if subgroup.name in above]
    found += [
        SubGroup(name=parents[name], min_member=0, constraint=own[i].constraint)
        for name, i in {name: i for i, name in reversed(list(together.items()))}.items()
    ]
    for i, pods in sets.items():
        one = known.get(pods.name) or SubGroup(name=pods.name, min_member=0 if declared else pods.replicas)
        if i in together:
            one = msgspec.structs.replace(one, parent=parents[together[i]])
        elif own[i].constraint is not None:
            one = msgspec.structs.replace(one, constraint=own[i].constraint)
        found.append(msgspec.structs.replace(one, layers=own[i].layers or one.layers))
    return tuple(found)


def with_shared_minimum(group: PodGroup, sets: Mapping[int, PodSet]) -> PodGroup:
    """The gang with subgroups that need no more pods than it does: leading roles all of theirs, then
    the others what is left, in whole segments.
    """
    left, least = group.min_member, dict[str, int]()
    for pods in sorted(sets.values(), key=lambda one: one.part):
        least[pods.name] = least.get(pods.name, 0) + min(max(left, 0), pods.replicas)
        left -= pods.replicas
    subgroups = []
    for one in group.subgroups:
        number = min(one.min_member, least.get(one.name, one.min_member))
        if one.layers and one.layers[0].size:
            number = min(-(-number // one.layers[0].size) * one.layers[0].size, one.min_member)
        subgroups.append(msgspec.structs.replace(one, min_member=number))
    return msgspec.structs.replace(group, subgroups=tuple(subgroups))


def _wrongly_together(
    workload: Workload, sets: Mapping[int, PodSet], asks: Mapping[int, PlacementAsk]
) -> Iterator[Condition]:
    """What Kueue refuses of pod sets with the name of a group."""
    groups: dict[str, list[int]] = {}
    for i, ask in asks.items():
        if ask.together:
            groups.setdefault(ask.together, []).append(i)
    for name, members in groups.items():
        field = f'{sets[members[0]].path}.metadata.annotations["{KUEUE_GROUP}"]'
        message = remedy = ""
        if len(members) != _TOGETHER:
            message = f"{plural(len(members), 'pod set')} of the group {quoted(name)} are not two"
            remedy = "give the name to the leader and to its workers alone"
        elif all(sets[i].replicas != 1 for i in members):
            message = f"no pod set of the group {quoted(name)} has one replica"
            remedy = "let one of the two be the leader"
        elif len({asks[i].constraint for i in members}) > 1:
            message = f"the pod sets of the group {quoted(name)} ask for different topologies"
            remedy = "give both the same required or preferred level"
        if message:
            yield invalid(workload.id, field, message, remedy, blocking=True)


def _both(workload: Workload, layers: Sequence[Layer]) -> Condition:
    field = layers[0].written.required or "metadata.annotations"
    message = "divides all pods into segments, while parts of them ask for places of their own"
    remedy = "ask for segments in the pod templates"
    return invalid(workload.id, field, message, remedy, blocking=True)


def _counted(group: PodGroup, workload: Workload, sets: Mapping[int, PodSet]) -> PodGroup:
    """The group without layers into which its pods can't be divided, and why."""
    if group.source.startswith("Pod "):
        # Of pods whose number is not known.
        return group
    replicas = {pods.name: pods.replicas for pods in sets.values()}
    conditions = []
    subgroups = []
    for one in group.subgroups:
        wrong = _wrong_size(one.layers, replicas.get(one.name, 0), workload)
        conditions += wrong
        subgroups.append(msgspec.structs.replace(one, layers=()) if wrong else one)
    wrong = _wrong_size(group.layers, sum(replicas.values()), workload)
    return msgspec.structs.replace(
        group,
        layers=() if wrong else group.layers,
        subgroups=tuple(subgroups),
        conditions=(*group.conditions, *conditions, *wrong),
    )


def _wrong_size(layers: Sequence[Layer], pods: int, workload: Workload) -> list[Condition]:
    for one in layers:
        remedy = ""
        if one.size > pods:
            message = f"segments of {one.size} pods are larger than the {plural(pods, 'pod')} that there are"
            remedy = f"give a size of at most {pods}, or more pods" if pods else "give it pods"
        elif one.size and one.remainder is Remainder.FORBID and pods % one.size:
            message = f"{pods} pods can't be divided into segments of {one.size}"
            remedy = f"give a size that divides {pods}, or {pods - pods % one.size + one.size} pods"
        if remedy and pods:
            return [invalid(workload.id, one.written.required, message, remedy, blocking=True)]
    return []
