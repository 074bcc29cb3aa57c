"""Fields that no API server knows: said with the name that was meant, in every kind that is read."""

import msgspec
import pytest

from closeby.objects.reasons import MOST_CONDITIONS
from closeby.reading import known_fields
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
    known = {tuple(kind.split("/")) for kind in table().kinds}
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
