"""Fields that no API server knows: said with the name that was meant, in every kind that is read."""

import typing
from collections.abc import Iterator

import msgspec
import pytest

from closeby.objects.reasons import MOST_CONDITIONS
from closeby.reading import known_fields
from closeby.reading.decoding import podspecs, workloads
from closeby.reading.dialects import (
    coscheduling,
    grove,
    hypernodes,
    jobset,
    kai,
    kubeflow,
    kueue,
    leaderworkerset,
    ray,
    trainer,
    upstream,
    volcano,
    volcano_jobs,
)
from closeby.reading.known_fields import table
from closeby.reading.registry import READERS
from tests.reading.manifest_text import read, read_good

#: Kinds whose readers refuse what they do not know.
STRICT = {
    "closeby.dev",
    "scheduling.sigs.k8s.io",
    "appgroup.diktyo.x-k8s.io",
    "networktopology.diktyo.x-k8s.io",
}
CASES = [
    ("v1", "Pod", "{nodeSelectr: {a: b}}", "spec.nodeSelectr", "nodeSelector"),
    ("v1", "Pod", "{containers: [{name: a, limit: {}}]}", "spec.containers[0].limit", ""),
    (
        "v1",
        "Pod",
        "{containers: [{name: a, resources: {request: {cpu: 1}}}]}",
        "spec.containers[0].resources.request",
        "requests",
    ),
    ("v1", "Node", "{taint: []}", "spec.taint", "taints"),
    ("batch/v1", "Job", "{paralelism: 3}", "spec.paralelism", "parallelism"),
    (
        "apps/v1",
        "Deployment",
        "{template: {spec: {toleration: []}}}",
        "spec.template.spec.toleration",
        "tolerations",
    ),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "{replicatedJobs: [{name: a, replica: 2}]}",
        "spec.replicatedJobs[0].replica",
        "replicas",
    ),
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "{leaderWorkerTemplate: {sizes: 2}}",
        "spec.leaderWorkerTemplate.sizes",
        "size",
    ),
    (
        "kubeflow.org/v1",
        "PyTorchJob",
        "{pytorchReplicaSpecs: {Worker: {replica: 2}}}",
        "spec.pytorchReplicaSpecs.Worker.replica",
        "replicas",
    ),
    (
        "ray.io/v1",
        "RayCluster",
        "{workerGroupSpecs: [{groupName: a, replica: 2}]}",
        "spec.workerGroupSpecs[0].replica",
        "replicas",
    ),
    (
        "batch.volcano.sh/v1alpha1",
        "Job",
        "{tasks: [{name: a, replica: 1}]}",
        "spec.tasks[0].replica",
        "replicas",
    ),
    ("scheduling.run.ai/v2alpha2", "PodGroup", "{minMembers: 4}", "spec.minMembers", "minMember"),
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "{minMembers: 4}", "spec.minMembers", "minMember"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup", "{minMembers: 4}", "spec.minMembers", "minMember"),
    (
        "scheduling.k8s.io/v1beta1",
        "PodGroup",
        "{schedulingPolicy: {gang: {minCounts: 4, minCount: 4}}}",
        "spec.schedulingPolicy.gang.minCounts",
        "minCount",
    ),
    (
        "kueue.x-k8s.io/v1beta2",
        "Topology",
        "{levels: [{nodeLabels: rack, nodeLabel: rack}]}",
        "spec.levels[0].nodeLabels",
        "nodeLabel",
    ),
]


def document(version: str, kind: str, spec: str, name: str = "a") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


@pytest.mark.parametrize(("version", "kind", "spec", "field", "meant"), CASES)
def test_a_slip_is_met_with_the_name_that_was_meant(
    version: str, kind: str, spec: str, field: str, meant: str
) -> None:
    (notice,) = [one for one in read_good(document(version, kind, spec)).notices if one.field == field]
    assert (notice.reason, notice.blocking) == ("InvalidSpec", False)
    assert notice.remedy.startswith(f"did you mean {meant}?" if meant else "known fields: ")


def test_a_slip_of_many_objects_is_said_once() -> None:
    text = "---\n".join(document("v1", "Pod", "{nodeSelectr: {a: b}}", f"p{i}") for i in range(50))
    (notice,) = read_good(text).notices
    assert (notice.object, notice.message) == (
        "Pod/default/p0",
        "is not a known field; it is ignored (50 objects)",
    )


def test_the_last_of_many_objects_is_checked_as_well_as_the_first() -> None:
    good = [document("v1", "Pod", "{containers: [{name: c}]}", f"p{i}") for i in range(50)]
    text = "---\n".join([*good, document("v1", "Pod", "{containers: [{nam: c}]}", "last")])
    (notice,) = read_good(text).notices
    assert (notice.object, notice.field) == ("Pod/default/last", "spec.containers[0].nam")


def test_labels_resources_and_status_are_not_looked_into() -> None:
    found = read_good(
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: p, labels: {any: label}, annotations: {any/annotation: "1"}}
        spec:
          nodeSelector: {any: label}
          containers: [{name: c, resources: {limits: {example.com/any: 1}}}]
        status: {phase: Running, anything: else}
        """
    )
    assert found.notices == ()


def test_the_newest_fields_of_kais_pod_groups_are_known() -> None:
    spec = "{minMember: 1, preemptionDelay: 5m, stalenessGracePeriod: 60s}"
    manifests = read_good(
        f"{{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {{name: a}}, spec: {spec}}}"
    )
    assert manifests.notices == ()


def test_every_kind_that_is_read_has_its_fields() -> None:
    known = {(kind.split("/")[0], kind.split("/")[2]) for kind in table().kinds}
    assert {(group, kind) for group, kind in READERS if group not in STRICT} - known == set()


@pytest.mark.parametrize("called", sorted(table().types))
def test_every_type_can_be_built_and_names_types_that_exist(called: str) -> None:
    known_fields._shape(called)
    named = {one.lstrip("[{") for one in table().types[called].values() if one}
    assert named <= set(table().types)


def test_a_value_of_another_type_hides_no_slip() -> None:
    spec = "{containers: [{name: c, volumeMounts: {}, prots: []}], dnsConfig: text}"
    many = [document("v1", "Pod", spec, f"p{i}") for i in range(30)]
    (notice,) = read("---\n".join(many)).notices
    assert notice.field == "spec.containers[0].prots"


def test_documents_of_json_are_checked_too() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeNam": "n"}}
    (notice,) = read_good(msgspec.json.encode(pod).decode()).notices
    assert notice.remedy == "did you mean nodeName?"


def test_the_same_slip_in_two_containers_is_one_object() -> None:
    spec = "{containers: [{name: a, imag: x}, {name: b, imag: x}]}"
    (notice,) = read_good(document("v1", "Pod", spec)).notices
    assert (notice.field, notice.message) == (
        "spec.containers[0].imag",
        "is not a known field; it is ignored",
    )


def test_of_very_many_slips_the_first_are_named_and_the_others_counted() -> None:
    spec = "{" + ", ".join(f"slip{i}: 1" for i in range(1000)) + "}"
    notices = read_good(document("v1", "Pod", spec)).notices
    assert len(notices) == MOST_CONDITIONS + 1
    assert f"{1000 - MOST_CONDITIONS} more fields" in notices[0].message


#: The spec that is decoded of each kind; of kinds that share a reader, the types of all of them.
HONOURED: list[tuple[type[msgspec.Struct], list[str]]] = [
    (podspecs.PodSpecWire, ["/v1/Pod"]),
    (workloads.ReplicatedSpecWire, ["apps/v1/Deployment", "apps/v1/StatefulSet"]),
    (workloads.JobSpecWire, ["batch/v1/Job"]),
    (jobset.SpecWire, ["jobset.x-k8s.io/v1alpha2/JobSet"]),
    (leaderworkerset.SpecWire, ["leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"]),
    (
        kubeflow.SpecWire,
        [f"kubeflow.org/v1/{kind}" for kind in kubeflow.KINDS] + ["kubeflow.org/v2beta1/MPIJob"],
    ),
    (trainer.TrainJobSpecWire, ["trainer.kubeflow.org/v1alpha1/TrainJob"]),
    (ray.SpecWire, ["ray.io/v1/RayCluster"]),
    (ray.JobSpecWire, ["ray.io/v1/RayJob"]),
    (volcano_jobs.SpecWire, ["batch.volcano.sh/v1alpha1/Job"]),
    (volcano.SpecWire, ["scheduling.volcano.sh/v1beta1/PodGroup"]),
    (kai.SpecWire, ["scheduling.run.ai/v2alpha2/PodGroup"]),
    (coscheduling.SpecWire, ["scheduling.x-k8s.io/v1alpha1/PodGroup"]),
    (upstream.SpecWire, [one for one in table().kinds if one.endswith("/PodGroup") and "k8s.io/v" in one]),
    (grove.SpecWire, ["grove.io/v1alpha1/PodCliqueSet"]),
    (kueue.FlavorSpecWire, ["kueue.x-k8s.io/v1beta2/ResourceFlavor"]),
    (kueue.ClusterQueueSpecWire, ["kueue.x-k8s.io/v1beta2/ClusterQueue"]),
    (hypernodes.SpecWire, ["topology.volcano.sh/v1alpha1/HyperNode"]),
]


def unlisted(wire: type[msgspec.Struct], types: set[str]) -> Iterator[str]:
    """The fields that a record of the wire has, and none of these types of the table."""
    # One record stands for the disks of all drivers; a template has no status.
    for one in msgspec.structs.fields(wire) if wire is not podspecs.InlineDiskWire else ():
        inner = {table().types[called].get(one.encode_name, "") for called in types}
        if inner == {""} and one.encode_name != "status":
            yield f"{wire.__name__}.{one.encode_name}"
        named = {called.lstrip("[{") for called in inner if called}
        for part in structs_in(one.type) if named else ():
            yield from unlisted(part, named)


def structs_in(annotation: object) -> Iterator[type[msgspec.Struct]]:
    made_of = typing.get_origin(annotation) or annotation
    if isinstance(made_of, type) and issubclass(made_of, msgspec.Struct):
        yield typing.cast(type[msgspec.Struct], annotation)
        return
    for part in typing.get_args(annotation):
        yield from structs_in(part)


@pytest.mark.parametrize(("wire", "kinds"), HONOURED, ids=lambda one: getattr(one, "__module__", ""))
def test_a_field_that_is_honoured_is_known(wire: type[msgspec.Struct], kinds: list[str]) -> None:
    specs = {table().types[table().kinds[kind]]["spec"] or "" for kind in kinds}
    # JobSet's copy of a Job's spec is older than Kubernetes' own.
    assert set(unlisted(wire, specs)) - {"JobSpecWire.scheduling"} == set()


MPI = "{mpiReplicaSpecs: {Worker: {replicas: 2}}, %s}"


@pytest.mark.parametrize(
    ("version", "spec", "fields"),
    [
        ("v2beta1", "launcherCreationPolicy: WaitForWorkersReady, mpiImplementation: MPICH", []),
        ("v1", "mainContainer: main, cleanPodPolicy: All", []),
        ("v2beta1", "mainContainer: main", ["spec.mainContainer"]),
        ("v1", "launcherCreationPolicy: AtStartup", ["spec.launcherCreationPolicy"]),
    ],
)
def test_each_version_of_a_kind_has_its_own_fields(version: str, spec: str, fields: list[str]) -> None:
    read = read_good(document(f"kubeflow.org/{version}", "MPIJob", MPI % spec))
    assert [one.field for one in read.notices] == fields


def test_a_version_that_is_not_published_is_checked_by_the_newest() -> None:
    (notice,) = read_good(document("kubeflow.org/v3", "MPIJob", MPI % "runLauncherAsWorker: true")).notices
    assert notice.field == "spec.runLauncherAsWorker"


def test_a_template_of_any_value_is_checked_as_one_of_pods() -> None:
    worker = "{Worker: {replicas: 1, template: {spec: {nodeSelectr: {a: b}}}}}"
    (notice,) = read_good(
        document("kubeflow.org/v2beta1", "MPIJob", f"{{mpiReplicaSpecs: {worker}}}")
    ).notices
    assert notice.field == "spec.mpiReplicaSpecs.Worker.template.spec.nodeSelectr"
