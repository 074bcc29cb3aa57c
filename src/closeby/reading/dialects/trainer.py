"""Kubeflow Trainer v2 (``trainer.kubeflow.org``): a ``TrainJob`` and its runtime make a JobSet."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.reasons import Condition, invalid
from closeby.objects.words import guess
from closeby.objects.workloads import TrainingRuntime, TrainJob, Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import VOLCANO_MODE, VOLCANO_TIER
from closeby.reading.decoding.owners import StatusWire, count, finished
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, namespace_of, object_id
from closeby.reading.dialects.jobset import read_job_set

GET_RUNTIMES: Final = "kubectl get clustertrainingruntimes,trainingruntimes -A -o yaml"
_CLUSTER_WIDE: Final = "ClusterTrainingRuntime"
#: The job whose pods are the nodes of the training, and its container.
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
_NODE: Final = "node"
_LAUNCHER: Final = "launcher"


class RuntimeRefWire(Wire, gc=False):
    """``runtimeRef``."""

    name: str = ""
    kind: str | None = None


class TrainerWire(Wire):
    """``trainer``."""

    num_nodes: int | None = None
    resources_per_node: dict[str, Any] | None = None


class TrainJobSpecWire(Wire):
    """``spec`` of a TrainJob."""

    runtime_ref: RuntimeRefWire | None = None
    trainer: TrainerWire | None = None
    suspend: bool | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    runtime_patches: list[Any] | None = None
    #: What earlier releases had in its place.
    pod_template_overrides: list[Any] | None = None
    pod_spec_overrides: list[Any] | None = None


class TrainJobWire(ObjectWire):
    """The object."""

    spec: TrainJobSpecWire | None = None
    status: StatusWire | None = None


class RuntimeSpecWire(Wire):
    """``spec`` of a runtime."""

    ml_policy: dict[str, Any] | None = None
    pod_group_policy: dict[str, Any] | None = None
    template: dict[str, Any] | None = None


def read_train_job(document: Document, reading: DocumentReading) -> TrainJob:
    """A TrainJob, whose pods its runtime shows.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(TrainJobWire)
    spec = wire.spec or TrainJobSpecWire()
    trainer, ref = spec.trainer or TrainerWire(), spec.runtime_ref or RuntimeRefWire()
    count(trainer.num_nodes, ("spec", "trainer", "numNodes"))
    patches = {
        "runtimePatches": spec.runtime_patches,
        "podTemplateOverrides": spec.pod_template_overrides,
        "podSpecOverrides": spec.pod_spec_overrides,
    }
    return TrainJob(
        namespace=namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        labels={**wire.meta.label_map, **(spec.labels or {})},
        annotations={**wire.meta.annotation_map, **(spec.annotations or {})},
        runtime_kind=ref.kind or _CLUSTER_WIDE,
        runtime=ref.name,
        nodes=trainer.num_nodes,
        resources=trainer.resources_per_node,
        suspended=bool(spec.suspend),
        over=finished(wire.status) or wire.meta.deletion_timestamp is not None,
        jobs=tuple((wire.status or StatusWire()).jobs_status or ()),
        patched=next((field for field, asked in patches.items() if asked), ""),
    )


def read_runtime(document: Document, reading: DocumentReading) -> TrainingRuntime:
    """A TrainingRuntime or a ClusterTrainingRuntime.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[RuntimeSpecWire])
    spec = wire.spec or RuntimeSpecWire()
    policy, learning = spec.pod_group_policy or {}, spec.ml_policy or {}
    return TrainingRuntime(
        kind=document.kind,
        namespace="" if document.kind == _CLUSTER_WIDE else namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        nodes=_number(learning.get("numNodes")),
        launches="mpi" in learning,
        launcher_is_node=_mapping(learning.get("mpi")).get("runLauncherAsNode") is True,
        network_topology=_mapping(_mapping(policy.get("volcano")).get("networkTopology")),
        template=spec.template or {},
    )


def job_sets_of(
    jobs: Iterable[TrainJob],
    runtimes: Iterable[TrainingRuntime],
    there: Iterable[Workload],
    reading: DocumentReading,
) -> Iterator[Workload | Condition]:
    """The JobSet of each TrainJob that is not there yet, or why it is not known.

    Raises:
        FieldError: a value of a runtime's template can't be read.
    """
    known = {(one.kind, one.namespace, one.name): one for one in runtimes}
    existing = {(one.namespace, one.name) for one in there if one.kind == "JobSet"}
    for job in jobs:
        if job.over or (job.namespace, job.name) in existing:
            continue
        namespace = "" if job.runtime_kind == _CLUSTER_WIDE else job.namespace
        runtime = known.get((job.runtime_kind, namespace, job.runtime))
        called = object_id("TrainJob", job.namespace, job.name)
        if runtime is None:
            near = [name for kind, space, name in known if (kind, space) == (job.runtime_kind, namespace)]
            message = (
                f"{job.runtime_kind} {quoted(job.runtime)} is not in the input, so its pods are not known"
            )
            remedy = f"{guess(job.runtime, near)}add what {GET_RUNTIMES} prints"
            yield invalid(called, "spec.runtimeRef.name", message, remedy)
            continue
        document = Document(
            file="TrainJob",
            number=1,
            api_version="jobset.x-k8s.io/v1alpha2",
            kind="JobSet",
            value=_job_set(job, runtime),
        )
        try:
            job_set = read_job_set(document, reading)
        except FieldError as error:
            place = field_path(("spec", "template", *error.path))
            message = f"in {job.runtime_kind} {quoted(job.runtime)}: {place} {error.message}"
            raise FieldError(("spec", "runtimeRef", "name"), message, error.remedy) from error
        yield _held(job, job_set)


def _held(job: TrainJob, workload: Workload) -> Workload:
    """Pods whose templates are patched wait: what they would ask for is not known."""
    if not job.patched:
        return workload
    lack = f"TrainJob/{job.name} spec.{job.patched}"
    sets = []
    for pods in workload.pod_sets:
        spec = msgspec.structs.replace(
            pods.template.spec, unsupported=(*pods.template.spec.unsupported, lack)
        )
        template = msgspec.structs.replace(pods.template, spec=spec)
        sets.append(msgspec.structs.replace(pods, template=template))
    return msgspec.structs.replace(workload, pod_sets=tuple(sets))


def _job_set(job: TrainJob, runtime: TrainingRuntime) -> dict[str, object]:
    template = _mapping(runtime.template)
    metadata, spec = _mapping(template.get("metadata")), _mapping(template.get("spec"))
    annotations = {**_mapping(metadata.get("annotations")), **job.annotations}
    if runtime.network_topology:
        topology = runtime.network_topology
        annotations.setdefault(VOLCANO_MODE, str(topology.get("mode") or "hard"))
        if topology.get("highestTierAllowed") is not None:
            annotations.setdefault(VOLCANO_TIER, str(topology["highestTierAllowed"]))
    jobs = _each(spec.get("replicatedJobs"), lambda one: _replicated(one, job, runtime))
    return {
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": {**_mapping(metadata.get("labels")), **job.labels},
            "annotations": annotations,
        },
        "spec": {**spec, "replicatedJobs": jobs, "suspend": job.suspended},
        "status": {"replicatedJobsStatus": list(job.jobs)},
    }


def _replicated(value: object, job: TrainJob, runtime: TrainingRuntime) -> Mapping[str, object]:
    """A replicated job; that of the trainer has as many pods as the training has nodes, less the launcher
    that is one of them.
    """
    one = _mapping(value)
    template = _mapping(one.get("template"))
    labels = _mapping(_mapping(template.get("metadata")).get("labels"))
    spec = _mapping(template.get("spec"))
    # With MPI the trainer's step is the launcher, and the nodes are another job.
    step = labels.get(_STEP) == _TRAINER
    of_nodes = one.get("name") == _NODE if runtime.launches else step
    nodes = job.nodes if job.nodes is not None else runtime.nodes
    if of_nodes and nodes is not None:
        nodes = max(nodes - 1, 1) if runtime.launcher_is_node else nodes
        spec = {**spec, "parallelism": nodes, "completions": nodes}
    if job.resources is not None and (of_nodes or step):
        named = {_NODE, _LAUNCHER} if runtime.launcher_is_node else {_NODE}
        pods = _mapping(spec.get("template"))
        inner = _mapping(pods.get("spec"))
        containers = _each(
            inner.get("containers"),
            lambda one: (
                {**_mapping(one), "resources": job.resources} if _mapping(one).get("name") in named else one
            ),
        )
        spec = {**spec, "template": {**pods, "spec": {**inner, "containers": containers}}}
    return {**one, "template": {**template, "spec": spec}}


def _each(value: object, change: Callable[[object], object]) -> object:
    """A list of changed values; what is none is left to the reader of the JobSet, which refuses it."""
    return [change(one) for one in value] if isinstance(value, list) else value


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
