"""Which gang and subgroup a live pod belongs to, beyond what its record says by itself.

A live scheduler makes no gangs: whoever makes pods, or a controller, writes PodGroups. A pod that asks for
one and has none waits.
"""

import msgspec

from closeby.objects.labels import TASK_SPEC
from closeby.objects.pods import Pod
from closeby.reading.dialects.gangs import read_ask


def in_its_task(pod: Pod) -> Pod:
    """A member of a Volcano job is in the subgroup of its task, for which the PodGroup may have a minimum."""
    if pod.group is None or pod.subgroup is not None:
        return pod
    task = pod.annotations.get(TASK_SPEC) or pod.labels.get(TASK_SPEC)
    return msgspec.structs.replace(pod, subgroup=task) if task else pod


def held_for_its_gang(pod: Pod) -> Pod:
    """A pod whose annotations ask for a gang's placement, and that names no gang, waits until it does.

    Placed alone it would break what it requires.
    """
    if pod.group is not None:
        return pod
    ask = read_ask(pod.annotations, f"Pod/{pod.key}")
    required = ask.constraint is not None and ask.constraint.required is not None
    if not required and not any(one.blocking for one in ask.conditions):
        return pod
    lack = "annotations that require a placement, without a PodGroup"
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, unsupported=(*pod.spec.unsupported, lack))
    )
