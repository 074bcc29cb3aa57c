"""Reads Kubeflow's training jobs (``kubeflow.org``): PyTorchJob, MPIJob and their kin.

Each holds a mapping from role (Master, Worker, Launcher, ...) to a number of pods.
"""

from collections.abc import Sequence

import msgspec
from msgspec import field

from closeby.objects.bounds import shown
from closeby.objects.groups import SizeField
from closeby.objects.reasons import MOST_CONDITIONS, invalid
from closeby.objects.words import similar
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.owners import (
    CountsWire,
    Owner,
    StatusWire,
    at_most,
    count,
    finished,
    numbered,
    with_role,
)
from closeby.reading.decoding.pods import TemplateWire, part_of_role
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, object_id


class ReplicaSpecWire(Wire):
    """One role."""

    replicas: int | None = None
    restart_policy: str | None = None
    template: TemplateWire | None = None


class SchedulingPolicyWire(Wire, gc=False):
    """``runPolicy.schedulingPolicy``: who writes it wants a gang."""

    min_available: int | None = None
    priority_class: str | None = None


class RunPolicyWire(Wire):
    """``runPolicy``."""

    suspend: bool | None = None
    scheduling_policy: SchedulingPolicyWire | None = None


class ElasticPolicyWire(Wire, gc=False):
    """``elasticPolicy`` of a PyTorchJob."""

    min_replicas: int | None = None


Roles = dict[str, ReplicaSpecWire]


class SpecWire(Wire):
    """``spec``; each kind has one of the mappings."""

    pytorch: Roles | None = field(name="pytorchReplicaSpecs", default=None)
    mpi: Roles | None = field(name="mpiReplicaSpecs", default=None)
    tensorflow: Roles | None = field(name="tfReplicaSpecs", default=None)
    jax: Roles | None = field(name="jaxReplicaSpecs", default=None)
    paddle: Roles | None = field(name="paddleReplicaSpecs", default=None)
    xgboost: Roles | None = field(name="xgbReplicaSpecs", default=None)
    run_policy: RunPolicyWire | None = None
    elastic_policy: ElasticPolicyWire | None = None
    launcher_creation_policy: str | None = None


class TrainingJobWire(ObjectWire):
    """The object."""

    spec: SpecWire | None = None
    status: StatusWire | None = None


_MASTER_AND_WORKER = ("Master", "Worker")
#: Kind to the field that holds its roles, as the attribute of ``SpecWire`` and as written, and to the roles
#: that its controller knows, in any case.
_ROLES = {
    "PyTorchJob": ("pytorch", "pytorchReplicaSpecs", _MASTER_AND_WORKER),
    "MPIJob": ("mpi", "mpiReplicaSpecs", ("Launcher", "Worker")),
    "TFJob": ("tensorflow", "tfReplicaSpecs", ("Chief", "Evaluator", "Master", "PS", "Worker")),
    "JAXJob": ("jax", "jaxReplicaSpecs", ("Worker",)),
    "PaddleJob": ("paddle", "paddleReplicaSpecs", _MASTER_AND_WORKER),
    "XGBoostJob": ("xgboost", "xgbReplicaSpecs", _MASTER_AND_WORKER),
}
KINDS = tuple(_ROLES)
#: Where the default is not ``Never``.
_RESTART_POLICIES = {"PyTorchJob": "OnFailure", "PaddleJob": "OnFailure"}
#: Roles of which the webhooks allow one pod.
_ALONE = frozenset({("PyTorchJob", "master"), ("XGBoostJob", "master"), ("MPIJob", "launcher")})


def read_training_job(document: Document, reading: DocumentReading) -> Workload:
    """A training job with one pod set for each role, called like the role in lower case.

    An MPIJob's launcher may be created after its workers, and an elastic PyTorchJob may start with few of
    them.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(TrainingJobWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    attribute, field_name, known = _ROLES[document.kind]
    roles: Roles = getattr(spec, attribute) or {}
    over = finished(wire.status)
    counts = (wire.status.replica_statuses if wire.status else None) or {}
    unknown = [role for role in roles if role.lower() not in map(str.lower, known)]
    for role in unknown[:MOST_CONDITIONS]:
        called = object_id(document.kind, owner.namespace, owner.name)
        _note_unknown(role, known, ("spec", field_name, role), reading, called)
    pod_sets: list[PodSet] = []
    for role, replica_spec in roles.items():
        path = ("spec", field_name, role)
        if any(one.name == role.lower() for one in pod_sets):
            owner.refuse(path, "is the role of others too, in other letters")
        replicas = count(replica_spec.replicas, (*path, "replicas"))
        if replicas != 1 and (document.kind, role.lower()) in _ALONE:
            owner.refuse((*path, "replicas"), f"is {replicas}, and must be 1")
        names = numbered(f"{owner.name}-{role.lower()}", 0 if over else replicas)
        pods = owner.pod_set(role.lower(), names, replica_spec.template, (*path, "template"))
        at_start = _at_start(spec, role.lower(), ("spec", "elasticPolicy", "minReplicas"))
        part = part_of_role(role)
        restarts = replica_spec.restart_policy or _RESTART_POLICIES.get(document.kind, "Never")
        now = counts.get(role) or CountsWire()
        pods = msgspec.structs.replace(
            with_role(pods),
            part=part,
            indexed=True,
            at_start=at_start,
            after=(("worker", False),) if at_start == 0 and role.lower() == "launcher" else (),
            completed=now.succeeded or 0,
            active=now.active or 0,
            kept=("Succeeded", "Failed") if restarts == "Never" else ("Succeeded",),
        )
        size = SizeField(path=f"{field_name}.{role}.replicas", value=replicas, role=pods.template.role)
        if at_start is not None:
            size = SizeField(path="elasticPolicy.minReplicas", value=at_start)
        pods = msgspec.structs.replace(pods, sizes=(size,) if pods.starting else ())
        pod_sets.append(pods)
    at_most(sum(pods.replicas for pods in pod_sets), ("spec", field_name))
    policy = spec.run_policy or RunPolicyWire()
    asked = policy.scheduling_policy
    gang = None if asked is None else owner.gang(pod_sets, asked.min_available, asked.priority_class)
    if gang is not None and asked is not None and asked.min_available is not None:
        minimum = SizeField(path="runPolicy.schedulingPolicy.minAvailable", value=asked.min_available)
        gang = msgspec.structs.replace(gang, sizes=(minimum,))
    return owner.workload(pod_sets, suspended=bool(policy.suspend), gang=gang)


def _note_unknown(role: str, known: Sequence[str], path: Path, reading: DocumentReading, owner: str) -> None:
    """Says that a role is none of its kind's, and which one was meant."""
    kind = owner.partition("/")[0]
    meant = similar(role.lower(), [one.lower() for one in known])
    close = next((one for one in known if one.lower() == meant), None)
    remedy = f"did you mean {close}?" if close else f"known roles: {', '.join(known)}"
    message = f"is not a role of a {kind}: its controller refuses the job"
    reading.note(f"{kind} {role}", invalid(owner, shown(field_path(path)), message, remedy))


def _at_start(spec: SpecWire, role: str, path: Path) -> int | None:
    if role == "launcher" and spec.launcher_creation_policy == "WaitForWorkersReady":
        return 0
    least = spec.elastic_policy.min_replicas if spec.elastic_policy else None
    return count(least, path) if role == "worker" and least is not None else None
