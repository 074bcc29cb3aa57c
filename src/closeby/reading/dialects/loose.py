"""Gangs of pods whose owner is not in the input, or that have none: their own annotations say what they ask.

Pods of one owner are one gang, and so are the plain pods that Kueue groups by a label; a plain pod that asks
for placement alone is a gang of one.
"""

from collections.abc import Iterable

import msgspec

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.podgroups import with_condition
from closeby.reading.dialects.gangs import gangs_of, read_ask
from closeby.reading.dialects.kueue import POD_GROUP_NAME, POD_GROUP_SIZE, Queues


def loose_gangs(pods: Iterable[Pod], queues: Queues) -> tuple[tuple[PodGroup, tuple[Pod, ...]], ...]:
    """The gangs among pods without a group, each with its members in the order of their names."""
    candidates: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        name = pod.labels.get(POD_GROUP_NAME)
        if name:
            candidates.setdefault((pod.namespace, "Pod", name), []).append(pod)
        elif pod.annotations and read_ask(pod.annotations, "").given:
            kind, _, owner = pod.owner.partition("/")
            candidates.setdefault((pod.namespace, kind or "Pod", owner or pod.name), []).append(pod)
    return tuple(
        (_judged(gang.group, members), tuple(members))
        for members in candidates.values()
        for gang in gangs_of(_owner(members), queues).gangs
    )


def _owner(members: list[Pod]) -> Workload:
    """A stand-in for the owner that is not there."""
    first = members[0]
    grouped = first.labels.get(POD_GROUP_NAME)
    kind, _, owner = first.owner.partition("/")
    name = grouped or owner or first.name
    created = [pod.created for pod in members if pod.created is not None]
    pods = PodSet(
        name=name,
        replicas=len(members),
        template=msgspec.structs.replace(first, group=None),
        template_annotations=first.annotations,
        template_labels=first.labels,
    )
    return Workload(
        kind="Pod" if grouped or not kind else kind,
        namespace=first.namespace,
        name=name if grouped or kind else first.name,
        created=min(created, default=None),
        pod_sets=(pods,),
        gang=PodGroup(
            namespace=first.namespace,
            name=name,
            min_member=_size(first, len(members)),
            created=min(created, default=None),
            source="Pod annotations",
        ),
    )


def _size(pod: Pod, members: int) -> int:
    """The size in Kueue's annotation, else the number of members."""
    text = pod.annotations.get(POD_GROUP_SIZE, "")
    return int(text) if text.isdecimal() and len(text) < 10 else members


def _judged(group: PodGroup, members: list[Pod]) -> PodGroup:
    """Refuses a gang whose members contradict each other."""
    asks = {read_ask(pod.annotations, "").wanted for pod in members}
    if len(asks) == 1:
        return group
    return with_condition(
        group,
        Reason.INVALID_SPEC,
        "metadata.annotations",
        f"its {len(members)} pods ask for different placements",
        "give all of them the same annotations",
    )
