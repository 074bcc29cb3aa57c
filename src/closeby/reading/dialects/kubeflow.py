"""Reads Kubeflow's training jobs (``kubeflow.org``): PyTorchJob, MPIJob and their kin.

Each holds a mapping from role (Master, Worker, Launcher, ...) to a number of pods.
"""

import msgspec
from msgspec import field

from closeby.objects.workloads import Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.owners import (
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
from closeby.reading.decoding.wire import ObjectWire, Wire


class ReplicaSpecWire(Wire):
    """One role."""

    replicas: int | None = None
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


#: Kind to the field that holds its roles, as the attribute of ``SpecWire`` and as written.
_ROLES = {
    "PyTorchJob": ("pytorch", "pytorchReplicaSpecs"),
    "MPIJob": ("mpi", "mpiReplicaSpecs"),
    "TFJob": ("tensorflow", "tfReplicaSpecs"),
    "JAXJob": ("jax", "jaxReplicaSpecs"),
    "PaddleJob": ("paddle", "paddleReplicaSpecs"),
    "XGBoostJob": ("xgboost", "xgbReplicaSpecs"),
}
KINDS = tuple(_ROLES)


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
    attribute, field_name = _ROLES[document.kind]
    roles: Roles = getattr(spec, attribute) or {}
    over = finished(wire.status)
    pod_sets = []
    for role, replica_spec in roles.items():
        path = ("spec", field_name, role)
        replicas = count(replica_spec.replicas, (*path, "replicas"))
        names = numbered(f"{owner.name}-{role.lower()}", 0 if over else replicas)
        pods = owner.pod_set(role.lower(), names, replica_spec.template, (*path, "template"))
        at_start = _at_start(spec, role.lower(), ("spec", "elasticPolicy", "minReplicas"))
        part = part_of_role(role)
        pods = msgspec.structs.replace(with_role(pods), part=part, indexed=True, at_start=at_start)
        pod_sets.append(pods)
    at_most(sum(pods.replicas for pods in pod_sets), ("spec", field_name))
    policy = spec.run_policy or RunPolicyWire()
    asked = policy.scheduling_policy
    gang = None if asked is None else owner.gang(pod_sets, asked.min_available, asked.priority_class)
    return owner.workload(pod_sets, suspended=bool(policy.suspend), gang=gang)


def _at_start(spec: SpecWire, role: str, path: Path) -> int | None:
    if role == "launcher" and spec.launcher_creation_policy == "WaitForWorkersReady":
        return 0
    least = spec.elastic_policy.min_replicas if spec.elastic_policy else None
    return count(least, path) if role == "worker" and least is not None else None
