"""Reads Volcano's ``Job`` (``batch.volcano.sh``): tasks with roles that start as one gang."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from closeby.objects.groups import Layer, PodGroup, SubGroup
from closeby.objects.labels import TASK_SPEC
from closeby.objects.reasons import Condition, few, invalid
from closeby.objects.words import plural
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.podgroups import PlacementAsk
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import STRICT_NUMA, with_queue
from closeby.reading.decoding.owners import CLAIMS, Owner, at_most, count, numbered
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, object_id
from closeby.reading.dialects.volcano import (
    NetworkTopologyWire,
    partition,
    task_subgroups,
    topology_wish,
    whole_segments,
)


class PartitionPolicyWire(Wire):
    """``partitionPolicy``."""

    total_partitions: int | None = None
    partition_size: int | None = None
    min_partitions: int | None = None
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
    queue: str | None = None
    volumes: list[VolumeWire] | None = None


class StateWire(Wire, gc=False):
    """``status.state``."""

    phase: str | None = None


class StatusWire(Wire):
    """``status``."""

    state: StateWire | None = None
    succeeded: int | None = None
    #: Pods by task and, below ``phase``, by their phase.
    task_status_count: dict[str, dict[str, dict[str, int]]] | None = None


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
    status = wire.status or StatusWire()
    state = status.state
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
        phases = (status.task_status_count or {}).get(name, {}).get("phase", {})
        only = status.succeeded if len(spec.tasks or ()) == 1 else None
        pods = msgspec.structs.replace(
            _with_role(pods),
            part=i,
            at_start=at_start,
            completed=phases.get("Succeeded", only or 0),
            active=phases.get("Running", 0) + phases.get("Pending", 0),
            kept=("Succeeded", "Failed"),
        )
        pod_sets.append(pods)
    owner.distinct([pods.name for pods in pod_sets], ("spec", "tasks"))
    at_most(sum(pods.replicas for pods in pod_sets), ("spec", "tasks"))
    workload = owner.workload(pod_sets, gang=_gang(owner, spec, pod_sets, over=over))
    return msgspec.structs.replace(workload, annotations=with_queue(workload.annotations, spec.queue))


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
    given = any(task.min_available is not None for task in tasks)
    minima = {
        pods.name: pods.replicas if task.min_available is None else task.min_available
        for task, pods in zip(tasks, pod_sets, strict=True)
    }
    # As Volcano's webhook completes it, of 0 too.
    minimum = spec.min_available or sum(minima.values())
    wish = topology_wish(spec.network_topology, name, "spec.networkTopology")
    conditions = wish.conditions
    if not over:
        conditions += _too_many(name, spec, [count(task.replicas, ()) for task in tasks])
    parts = {
        pods.name: _partition(name, i, task)
        for i, (task, pods) in enumerate(zip(tasks, pod_sets, strict=True))
        if task.partition_policy is not None
    }
    conditions += tuple(one for part in parts.values() for one in part.conditions)
    layers = {task: part.layers for task, part in parts.items() if part.layers}
    group = owner.gang(pod_sets, minimum, spec.priority_class_name)
    subgroups = task_subgroups(minimum, minima) if given else ()
    if layers and len(pod_sets) == 1 and not subgroups:
        (own,) = layers.values()
        group = msgspec.structs.replace(
            group, layers=own, min_member=min(total, whole_segments(minimum, own[0].size))
        )
    elif layers:
        subgroups = _divided(subgroups, pod_sets, layers, minimum)
    return checked(
        msgspec.structs.replace(group, constraint=wish.constraint, subgroups=subgroups, conditions=conditions)
    )


def _partition(owner: str, index: int, task: TaskWire) -> PlacementAsk:
    """The layer of a task's partitions, or what Volcano's webhook refuses of them."""
    policy, field = task.partition_policy or PartitionPolicyWire(), f"spec.tasks[{index}].partitionPolicy"
    total, size, least = policy.total_partitions, policy.partition_size, policy.min_partitions or 0
    replicas = count(task.replicas, ())

    def refused(at: str, message: str, remedy: str) -> PlacementAsk:
        return PlacementAsk(conditions=(invalid(owner, f"{field}.{at}", message, remedy, blocking=True),))

    if size is None or size < 1:
        return refused("partitionSize", "must be at least 1", "give the pods of each partition")
    if total is None or total * size != replicas:
        message = (
            f"{total or 0} partitions of {plural(size, 'pod')} are not the {plural(replicas, 'replica')}"
        )
        return refused("totalPartitions", message, "let totalPartitions x partitionSize be the replicas")
    if least > total:
        return refused("minPartitions", f"{least} is more than the {total} that there are", "lower it")
    return partition(policy.network_topology, size, least, owner, field)


def _divided(
    subgroups: tuple[SubGroup, ...],
    pod_sets: Sequence[PodSet],
    layers: Mapping[str, tuple[Layer, ...]],
    minimum: int,
) -> tuple[SubGroup, ...]:
    """A subgroup for each task, of which some are divided; without minima of tasks the first ones make up the
    job's minimum, in whole partitions.
    """
    least = {one.name: one.min_member for one in subgroups}
    found, left = [], minimum
    for pods in pod_sets:
        own = layers.get(pods.name, ())
        needed = least[pods.name] if least else min(pods.replicas, left)
        if own:
            needed = min(pods.replicas, max(whole_segments(needed, own[0].size), _at_least(own[0])))
        found.append(SubGroup(name=pods.name, min_member=needed, layers=own))
        left = max(0, left - needed)
    return tuple(found)


def _at_least(layer: Layer) -> int:
    return (layer.min_segments or 0) * layer.size


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
