"""Says which gangs some pods of one owner are, and which of the pods belong to none. Pure computation.

The rules are the simulator's (``reading.dialects.gangs``). Only what a live cluster adds is here: pods that
are there already, and owners that closeby can't count the pods of.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.controllers.grouping.owners import Lineage, Ref
from closeby.objects.groups import GangTemplates, PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.objects.workloads import PodSet, Workload, names_of, set_of
from closeby.reading.common.podgroups import with_condition
from closeby.reading.decoding.keys import ROLE_TOPOLOGY, members_apart
from closeby.reading.dialects import kai
from closeby.reading.dialects.gangs import gangs_of, read_ask
from closeby.reading.dialects.grouping import is_gated
from closeby.reading.dialects.kueue import POD_GROUP_SIZE, Queues
from closeby.reading.dialects.loose import loose_gangs
from closeby.reading.dialects.upstream import WORKLOAD_VERSION, referred_gangs

_LONGEST_NUMBER: Final = 9
NO_WORKLOADS: Final[Mapping[str, GangTemplates]] = {}
#: Of pods whose Workload is not there.
_LACKING: Final = Reason.GANG_INCOMPLETE


class PlannedGang(Struct, frozen=True):
    """A gang as it should be, named as its workload wants it, and its pods: uid to subgroup."""

    group: PodGroup
    members: Mapping[str, str | None]

    @property
    def blocked(self) -> bool:
        """Whether what was asked for makes no sense, so that its pods must not be placed."""
        return any(one.blocking for one in self.group.conditions)


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be said about the pods of one owner."""

    gangs: tuple[PlannedGang, ...] = ()
    #: Uids of pods that belong to no gang.
    alone: frozenset[str] = frozenset()
    #: Uids of pods of which nothing can be said: they go on waiting.
    waiting: frozenset[str] = frozenset()
    #: What is to be said where no gang carries it.
    conditions: tuple[Condition, ...] = ()

    @property
    def wrong(self) -> Mapping[str, str]:
        """By uid what keeps pods waiting until it is corrected: a reason token, and what is wrong."""
        found: dict[str, str] = {}
        for gang in self.gangs:
            if (one := next((one for one in gang.group.conditions if one.blocking), None)) is not None:
                found |= dict.fromkeys(gang.members, f"{one.reason}: {one.object} {one.located()}")
        for one in self.conditions[:1]:
            found |= dict.fromkeys(self.waiting, f"{one.reason}: {one.located()}")
        return found


def plan_of(
    lineage: Lineage,
    pods: Sequence[Pod],
    queues: Queues,
    workloads: Mapping[str, GangTemplates] = NO_WORKLOADS,
) -> Plan:
    """The gangs of the unfinished ``pods`` that were made for ``lineage``; all of them are of one namespace.

    Pods that name a group already are members of nothing here, but tell how large their owner's gangs are.
    """
    pods = sorted(pods, key=lambda pod: pod.name)
    if lineage.workload is not None:
        return _of_workload(lineage, lineage.workload, pods, queues)
    if lineage.owner.api_version == WORKLOAD_VERSION and not lineage.owner.uid:
        return _of_referring(pods, workloads)
    if not lineage.owner.uid:
        return _of_plain(pods, queues)
    asking = {pod.uid for pod in pods if _asks(pod.annotations)}
    if lineage.gone:
        return Plan(alone=frozenset(pod.uid for pod in pods) - asking, waiting=frozenset(asking))
    members = pods if _asks(lineage.annotations) else [pod for pod in pods if pod.uid in asking]
    if not members:
        return Plan(alone=frozenset(pod.uid for pod in pods))
    asked = gangs_of(_stand_in(lineage.owner, lineage.annotations, members), queues)
    gangs = tuple(
        PlannedGang(_judged(gang.group, members), {pod.uid: None for pod in members}) for gang in asked.gangs
    )
    return _plan(gangs, pods, asked.conditions)


def _of_workload(lineage: Lineage, workload: Workload, pods: Sequence[Pod], queues: Queues) -> Plan:
    sets = workload.pod_sets
    by_name = names_of(sets) if len(sets) > 1 else {}
    position = {pod.uid: set_of(pod, workload, by_name) for pod in pods}
    workload = msgspec.structs.replace(
        workload,
        annotations={**lineage.annotations, **workload.annotations},
        pod_sets=tuple(_made_at_once(_still_to_run(one)) for one in _of_our_scheduler(sets, pods)),
    )
    asked = gangs_of(workload, queues)
    gangs = []
    placed: set[str] = set()
    for gang in asked.gangs:
        members = {
            uid: gang.members[place]
            for uid, place in position.items()
            if place is not None and place in gang.members
        }
        if len(asked.gangs) == 1:
            members |= {uid: None for uid, place in position.items() if place is None}
        placed |= members.keys()
        group = msgspec.structs.replace(gang.group, min_member=max(1, gang.group.min_member))
        gangs.append(PlannedGang(_distinct(group, workload), members))
    asking = [pod for pod in pods if pod.uid not in placed and _asks(pod.annotations)]
    if asking:
        # It was written on the pods after their template was read.
        more = gangs_of(_stand_in(lineage.owner, {}, asking), queues)
        gangs += [
            PlannedGang(_judged(one.group, asking), {pod.uid: None for pod in asking}) for one in more.gangs
        ]
    return _plan(tuple(gangs), pods, asked.conditions)


def _of_plain(pods: Sequence[Pod], queues: Queues) -> Plan:
    """Pods without an owner: those that Kueue groups by a label are one gang, another is a gang of one."""
    found = loose_gangs([msgspec.structs.replace(pod, group=None) for pod in pods], queues)
    gangs = tuple(PlannedGang(group, {pod.uid: None for pod in members}) for group, members in found)
    return _plan(gangs, pods, ())


def _of_referring(pods: Sequence[Pod], workloads: Mapping[str, GangTemplates]) -> Plan:
    """Pods that refer to a Workload of Kubernetes; until it is there they wait without a PodGroup."""
    found = referred_gangs([msgspec.structs.replace(pod, group=None) for pod in pods], workloads)
    found = tuple(
        (msgspec.structs.replace(group, min_member=max(1, group.min_member)), members)
        for group, members in found
    )
    missing = [one for one in found if any(cause.reason == _LACKING for cause in one[0].conditions)]
    return Plan(
        gangs=tuple(
            PlannedGang(group, {pod.uid: None for pod in members})
            for group, members in found
            if (group, members) not in missing
        ),
        waiting=frozenset(pod.uid for _, members in missing for pod in members),
        conditions=tuple(cause for group, _ in missing for cause in group.conditions),
    )


def _plan(gangs: tuple[PlannedGang, ...], pods: Sequence[Pod], conditions: tuple[Condition, ...]) -> Plan:
    members = {uid for gang in gangs for uid in gang.members}
    alone = frozenset(pod.uid for pod in pods if pod.uid not in members)
    return Plan(gangs=gangs, alone=alone, conditions=conditions)


def _asks(annotations: Mapping[str, str]) -> bool:
    """Whether annotations make pods a gang, of whatever kind their owner is."""
    named = kai.BATCH_MIN_MEMBER in annotations or any(key in annotations for key in ROLE_TOPOLOGY)
    return named or read_ask(annotations, "").given


def _stand_in(owner: Ref, annotations: Mapping[str, str], pods: Sequence[Pod]) -> Workload:
    """A workload for an owner whose pods closeby can't count: its gang starts with one pod, and the others
    join it, unless their number is given.
    """
    first = pods[0]
    text = first.annotations.get(POD_GROUP_SIZE, "")
    size = int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else 1
    template = msgspec.structs.replace(first, group=None)
    one_set = PodSet(
        name=owner.name,
        replicas=size,
        template=template,
        template_annotations=first.annotations,
        template_labels=first.labels,
    )
    both = {**{key: first.annotations[key] for key in _ANYWHERE if key in first.annotations}, **annotations}
    created = min((pod.created for pod in pods if pod.created is not None), default=None)
    return Workload(
        kind=owner.kind,
        namespace=owner.namespace,
        name=owner.name,
        created=created,
        annotations=both,
        pod_sets=(one_set,),
        gang=PodGroup(
            namespace=owner.namespace,
            name=owner.name,
            min_member=size,
            created=created,
            annotations=both,
            members_apart=members_apart(both),
            source="Pod annotations",
        ),
    )


#: Keys that ``gangs_of`` looks for at the owner only.
_ANYWHERE: Final = (kai.BATCH_MIN_MEMBER, *ROLE_TOPOLOGY)


def _judged(group: PodGroup, members: Iterable[Pod]) -> PodGroup:
    """Refuses a gang whose members contradict each other."""
    asks = {read_ask(pod.annotations, "").wanted for pod in members}
    if len(asks) <= 1:
        return group
    return with_condition(
        group,
        Reason.INVALID_SPEC,
        "metadata.annotations",
        "its pods ask for different placements",
        "give all of them the same annotations",
    )


def _distinct(group: PodGroup, workload: Workload) -> PodGroup:
    """Refuses parts of one name, which can't be distinguished (the server can't even store them)."""
    names = [one.name for one in group.subgroups]
    if len(set(names)) == len(names):
        return group
    double = next(name for name in names if names.count(name) > 1)
    return with_condition(
        msgspec.structs.replace(group, subgroups=()),
        Reason.INVALID_SPEC,
        "spec",
        f"several of its parts are called {double}",
        "give each a name of its own",
        owner=workload.id,
    )


def _of_our_scheduler(sets: Sequence[PodSet], pods: Sequence[Pod]) -> Iterable[PodSet]:
    """No gang waits for pods whose template names another scheduler than its ``pods``, or lacks their gate.

    Where no template names theirs, an admission webhook wrote it, and all pods count.
    """
    ours = {(pod.spec.scheduler_name, is_gated(pod)) for pod in pods}
    if not any(_scheduled_by(one) in ours for one in sets):
        return sets
    return (one if _scheduled_by(one) in ours else msgspec.structs.replace(one, at_start=0) for one in sets)


def _scheduled_by(pods: PodSet) -> tuple[str, bool]:
    """The scheduler that a template names, and whether it has our gate."""
    return pods.template.spec.scheduler_name, is_gated(pods.template)


def _still_to_run(pods: PodSet) -> PodSet:
    """No more pods than are still to complete."""
    if pods.completions is None:
        return pods
    left = max(0, min(pods.replicas, pods.completions - pods.completed))
    return msgspec.structs.replace(pods, replicas=left)


def _made_at_once(pods: PodSet) -> PodSet:
    """Without those that are made only when others have a node: a gang that waited for them never started."""
    if not pods.follow:
        return pods
    return msgspec.structs.replace(pods, at_start=max(0, pods.starting - pods.follow))
