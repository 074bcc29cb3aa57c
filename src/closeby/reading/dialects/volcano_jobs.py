"""Reads Volcano's ``Job`` (``batch.volcano.sh``): tasks with roles that start as one gang."""

from collections.abc import Sequence
from typing import Final

import msgspec

from closeby.objects.groups import PodGroup
from closeby.objects.labels import TASK_SPEC
from closeby.objects.reasons import Condition, few, invalid
from closeby.objects.words import plural
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import STRICT_NUMA
from closeby.reading.decoding.owners import CLAIMS, Owner, at_most, count, numbered
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, object_id
from closeby.reading.dialects.trees import checked
from closeby.reading.dialects.volcano import (
    NetworkTopologyWire,
    policy_conditions,
    task_subgroups,
    topology_conditions,
)


class PartitionPolicyWire(Wire):
    """``partitionPolicy``."""

    network_topology: NetworkTopologyWire | None = None


class DependsOnWire(Wire):
    """``dependsOn``: the task's pods are created when those of other tasks run."""

    name: list[str] | None = None


class TaskWire(Wire):
    """``tasks[]``."""

    name: str = ""
    replicas: int | None = None
    min_available: int | None = None
    partition_policy: PartitionPolicyWire | None = None
    topology_policy: str | None = None
    depends_on: DependsOnWire | None = None
    template: TemplateWire | None = None


class VolumeWire(Wire):
    """``volumes[]``, which all pods get: a claim by its name, or one that Volcano creates."""

    volume_claim_name: str | None = None
    volume_claim: Present | None = None


class SpecWire(Wire):
    """``spec``."""

    min_available: int | None = None
    tasks: list[TaskWire] | None = None
    network_topology: NetworkTopologyWire | None = None
    priority_class_name: str | None = None
    volumes: list[VolumeWire] | None = None


class StateWire(Wire, gc=False):
    """``status.state``."""

    phase: str | None = None


class StatusWire(Wire):
    """``status``."""

    state: StateWire | None = None


class JobWire(ObjectWire):
    """The object."""

    spec: SpecWire | None = None
    status: StatusWire | None = None


_NEVER: Final = "so nothing can ever start; Volcano refuses such a job"
_OVER = ("Completed", "Failed", "Terminated", "Aborted")


def read_volcano_job(document: Document, reading: DocumentReading) -> Workload:
    """A Volcano Job with one pod set for each task; pods are called ``job-task-index``.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(JobWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    state = wire.status.state if wire.status else None
    over = state is not None and state.phase in _OVER
    claims = [CLAIMS] if any(one.volume_claim_name or one.volume_claim for one in spec.volumes or ()) else []
    pod_sets = []
    for i, task in enumerate(spec.tasks or ()):
        path = ("spec", "tasks", i)
        # Volcano calls a task without a name so.
        name = task.name or f"default{i}"
        replicas = count(task.replicas, (*path, "replicas"))
        names = numbered(f"{owner.name}-{name}", 0 if over else replicas)
        unsupported = list(claims)
        if task.topology_policy in STRICT_NUMA:
            unsupported.append(f"Job/{owner.name} {field_path((*path, 'topologyPolicy'))}")
        pods = owner.pod_set(name, names, task.template, (*path, "template"), unsupported=unsupported)
        at_start = 0 if task.depends_on and task.depends_on.name else None
        pod_sets.append(msgspec.structs.replace(_with_role(pods), part=i, at_start=at_start))
    at_most(sum(pods.replicas for pods in pod_sets), ("spec", "tasks"))
    return owner.workload(pod_sets, gang=_gang(owner, spec, pod_sets, over=over))


def _with_role(pods: PodSet) -> PodSet:
    """The pods carry their task's name as label and annotation, as Volcano writes it."""
    template = msgspec.structs.replace(
        pods.template,
        labels={**pods.template.labels, TASK_SPEC: pods.name},
        annotations={**pods.template.annotations, TASK_SPEC: pods.name},
        role=pods.name,
    )
    return msgspec.structs.replace(pods, template=template, indexed=True)


def _gang(owner: Owner, spec: SpecWire, pod_sets: list[PodSet], *, over: bool) -> PodGroup:
    name = object_id("Job", owner.namespace, owner.name)
    tasks = spec.tasks or []
    total = sum(pods.replicas for pods in pod_sets)
    minimum = total if spec.min_available is None else spec.min_available
    given = any(task.min_available is not None for task in tasks)
    minima = {
        pods.name: pods.replicas if task.min_available is None else task.min_available
        for task, pods in zip(tasks, pod_sets, strict=True)
    }
    conditions = topology_conditions(spec.network_topology, name, "spec.networkTopology")
    if not over:
        conditions += _too_many(name, spec, [count(task.replicas, ()) for task in tasks])
    for i, task in enumerate(tasks):
        if task.partition_policy is not None:
            field = f"spec.tasks[{i}].partitionPolicy"
            conditions += policy_conditions(task.partition_policy.network_topology, name, field)
    group = owner.gang(pod_sets, minimum, spec.priority_class_name)
    subgroups = task_subgroups(minimum, minima) if given else ()
    return checked(msgspec.structs.replace(group, subgroups=subgroups, conditions=conditions))


def _too_many(name: str, spec: SpecWire, replicas: Sequence[int]) -> tuple[Condition, ...]:
    """Minima that the replicas never reach, which Volcano's webhook refuses."""
    found = []
    remedy = "ask for no more than that, or raise the replicas"
    if spec.min_available is not None and spec.min_available > sum(replicas):
        all_of_them = plural(sum(replicas), "replica")
        message = f"{spec.min_available} is more than the {all_of_them} of all tasks, {_NEVER}"
        found.append(invalid(name, "spec.minAvailable", message, remedy, blocking=True))
    for i, (task, most) in enumerate(zip(spec.tasks or (), replicas, strict=True)):
        if task.min_available is not None and task.min_available > most:
            field = f"spec.tasks[{i}].minAvailable"
            message = f"{task.min_available} is more than the {plural(most, 'replica')} of the task, {_NEVER}"
            found.append(invalid(name, field, message, remedy, blocking=True))
    return few(found)
