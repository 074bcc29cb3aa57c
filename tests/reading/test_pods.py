from typing import Any

import pytest

from closeby.objects.pods import (
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredTerm,
    Requirement,
    Toleration,
)
from closeby.objects.reasons import Reason
from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read_good, read_objects, read_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_a_pod_as_kubectl_prints_it() -> None:
    (pod,) = read_good(
        """
        apiVersion: v1
        kind: Pod
        metadata:
          name: train-0
          namespace: ml
          uid: 8a1b
          creationTimestamp: "1970-01-01T01:00:00Z"
          deletionTimestamp: "1970-01-01T02:00:00Z"
          labels:
            app: train
            closeby.dev/pod-group: train
            closeby.dev/subgroup: workers
            closeby.dev/rank: "3"
          annotations: {batch.kubernetes.io/job-completion-index: "7"}
          ownerReferences:
          - {apiVersion: v1, kind: ConfigMap, name: other, uid: a}
          - {apiVersion: batch/v1, kind: Job, name: train, uid: b, controller: true}
        spec:
          nodeName: gpu-1
          schedulerName: closeby
          priority: 1000
          priorityClassName: high
          nodeSelector: {zone: a, arch: arm64}
          schedulingGates: [{name: example.com/wait}]
          tolerations:
          - {key: gpu, operator: Exists, effect: NoSchedule}
          - {key: dedicated, value: ml, tolerationSeconds: 300}
          - {operator: Exists}
          containers:
          - {name: main, image: pause, resources: {requests: {cpu: 1}}}
        status:
          phase: Running
        """
    ).pods
    assert pod == Pod(
        namespace="ml",
        name="train-0",
        uid="8a1b",
        spec=PodSpec(
            requests=(("cpu", 1000),),
            node_selector=(("arch", "arm64"), ("zone", "a")),
            tolerations=(
                Toleration("gpu", "Exists", "", "NoSchedule"),
                Toleration("dedicated", "Equal", "ml", ""),
                Toleration("", "Exists", "", ""),
            ),
            images=("pause:latest",),
            scheduling_gates=("example.com/wait",),
            qos_class="Burstable",
            scheduler_name="closeby",
            priority_class_name="high",
            priority=1000,
        ),
        labels=pod.labels,
        annotations={"batch.kubernetes.io/job-completion-index": "7"},
        node_name="gpu-1",
        phase="Running",
        created=3600.0,
        terminating=True,
        deleted_by=7200.0,
        group="train",
        subgroup="workers",
        index=7,
        owner="Job/train",
    )


def test_a_bare_pod_waits_in_the_default_namespace() -> None:
    pod = read_pod({})
    assert (pod.key, pod.uid, pod.phase, pod.node_name, pod.created) == (
        "default/p",
        "default/p",
        "Pending",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("metadata", "spec", "group"),
    [
        ({"annotations": {"pod-group-name": "g"}}, {}, "g"),
        ({"labels": {"closeby.dev/pod-group": "g"}}, {}, "g"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, {}, "g"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}, {}, "g"),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {}, "g"),
        ({}, {"schedulingGroup": {"podGroupName": "g"}}, "g"),
        ({}, {}, None),
        ({"labels": {"pod-group-name": "not as a label"}}, {}, None),
        (
            {"annotations": {"pod-group-name": "first"}, "labels": {"closeby.dev/pod-group": "second"}},
            {"schedulingGroup": {"podGroupName": "third"}},
            "first",
        ),
    ],
)
def test_a_pod_names_its_group_in_any_dialect(
    metadata: dict[str, Any], spec: dict[str, Any], group: str | None
) -> None:
    assert read_pod(spec, **metadata).group == group


def test_a_pod_names_its_subgroup_in_two_dialects() -> None:
    assert read_pod({}, labels={"closeby.dev/subgroup": "s"}).subgroup == "s"
    assert read_pod({}, labels={"kai.scheduler/subgroup-name": "s"}).subgroup == "s"
    assert read_pod({}).subgroup is None


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("batch.kubernetes.io/job-completion-index", "labels"),
        ("batch.kubernetes.io/job-completion-index", "annotations"),
        ("apps.kubernetes.io/pod-index", "labels"),
        ("training.kubeflow.org/replica-index", "labels"),
        ("leaderworkerset.sigs.k8s.io/worker-index", "labels"),
        ("volcano.sh/task-index", "labels"),
        ("volcano.sh/task-index", "annotations"),
        ("kueue.x-k8s.io/pod-group-pod-index", "labels"),
    ],
)
def test_the_index_comes_from_the_controller(key: str, where: str) -> None:
    assert read_pod({}, **{where: {key: "4"}}).index == 4
    assert read_pod({}, **{where: {key: "four"}}).index is None


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({}, (0, 0)),
        # The third replicated job of a JobSet begins after five jobs; this is its second.
        ({"jobset.sigs.k8s.io/job-index": "1", "jobset.sigs.k8s.io/job-global-index": "6"}, (5, 1)),
        ({"jobset.sigs.k8s.io/job-index": "0", "jobset.sigs.k8s.io/job-global-index": "0"}, (0, 0)),
        # Old releases of JobSet write the first of the two alone.
        ({"jobset.sigs.k8s.io/job-index": "1"}, (0, 1)),
        ({"jobset.sigs.k8s.io/job-index": "1", "jobset.sigs.k8s.io/job-global-index": "no"}, (0, 1)),
        ({"leaderworkerset.sigs.k8s.io/group-index": "3"}, (0, 3)),
        ({"leaderworkerset.sigs.k8s.io/group-index": "5f0d" * 10}, (0, 0)),
        ({"training.kubeflow.org/replica-type": "master"}, (0, 0)),
        ({"training.kubeflow.org/replica-type": "worker"}, (1, 0)),
        ({"training.kubeflow.org/replica-type": "ps"}, (2, 0)),
        ({"training.kubeflow.org/job-role": "launcher"}, (0, 0)),
        ({"ray.io/node-type": "head"}, (0, 0)),
        ({"ray.io/node-type": "worker"}, (1, 0)),
    ],
)
def test_the_place_in_the_workloads_spec_comes_from_the_controller(
    labels: dict[str, str], place: tuple[int, int]
) -> None:
    pod = read_pod({}, labels=labels)
    assert (pod.part, pod.job) == place


def test_node_affinity_with_all_operators() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["x", "y"]},
        {"key": "b", "operator": "NotIn", "values": ["z"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
        {"key": "e", "operator": "Gt", "values": ["5"]},
        {"key": "f", "operator": "Lt", "values": ["15"]},
    ]
    names = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    affinity = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}, {"matchFields": names}, {}]},
            PREFERRED: [{"weight": 7, "preference": {"matchExpressions": expressions[:1]}}],
        }
    }
    spec = read_pod({"affinity": affinity}).spec
    first = Requirement("a", "In", ("x", "y"))
    assert spec.required_affinity == (
        NodeSelectorTerm(
            (
                first,
                Requirement("b", "NotIn", ("z",)),
                Requirement("c", "Exists"),
                Requirement("d", "DoesNotExist"),
                Requirement("e", "Gt", ("5",)),
                Requirement("f", "Lt", ("15",)),
            )
        ),
        NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n",)),)),
        NodeSelectorTerm(),
    )
    assert spec.preferred_affinity == (PreferredTerm(7, NodeSelectorTerm((first,))),)
    assert spec.unsupported == ()


def test_no_required_affinity_is_not_the_same_as_one_without_terms() -> None:
    assert read_pod({}).spec.required_affinity is None
    spec = read_pod({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}).spec
    assert spec.required_affinity == ()
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    assert spec.invalid == (f"{path} is empty, so that no node matches",)


@pytest.mark.parametrize(
    ("requirement", "field", "said"),
    [
        ("{key: a, operator: Is, values: [b]}", ".operator", "'Is' is not an operator; use In, NotIn"),
        ("{key: a, operator: In}", ".values", "operator In needs at least one value"),
        ("{key: a, operator: Exists, values: [b]}", ".values", "operator Exists takes no values"),
        ("{key: a, operator: Gt, values: [b]}", ".values", "operator Gt needs exactly one whole number"),
        ("{operator: Exists}", ".key", "is missing; name a label"),
        ("{key: a b, operator: DoesNotExist}", ".key", "'a b' is not a label key"),
        ("{key: a, operator: NotIn, values: [b, c d]}", ".values", "'c d' is not a label value"),
    ],
)
def test_a_node_affinity_term_that_no_api_server_accepts_matches_nothing(
    requirement: str, field: str, said: str
) -> None:
    text = f"""
    apiVersion: v1
    kind: Pod
    metadata: {{name: p}}
    spec:
      affinity:
        nodeAffinity:
          {REQUIRED}:
            nodeSelectorTerms:
            - matchExpressions:
              - {requirement}
            - matchExpressions:
              - {{key: zone, operator: Exists}}
    """
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]{field}"
    manifests = read_good(text)
    (pod,) = manifests.pods
    assert pod.spec.required_affinity == (NodeSelectorTerm((Requirement("zone", "Exists"),)),)
    assert pod.spec.invalid == (f"{path} {said.partition(';')[0]}",)
    (notice,) = manifests.notices
    assert (notice.reason, notice.field) == (Reason.INVALID_SPEC, path)


@pytest.mark.parametrize(
    ("requirement", "field", "said"),
    [
        ("{key: metadata.nam, operator: In, values: [n]}", ".key", "'metadata.nam' is not a field of nodes"),
        ("{key: metadata.name, operator: Exists}", ".operator", "'Exists' is for labels"),
        ("{key: metadata.name, operator: In, values: [n, m]}", ".values", "operator In needs exactly one"),
        ("{operator: In, values: [n]}", ".key", "is missing"),
    ],
)
def test_the_only_field_of_nodes_is_their_name(requirement: str, field: str, said: str) -> None:
    term = f"{{matchFields: [{requirement}]}}"
    affinity = f"{{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{term}]}}}}}}"
    spec = f"{{affinity: {affinity}}}"
    manifests = read_good(f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}")
    assert manifests.pods[0].spec.required_affinity == ()
    (notice,) = manifests.notices
    assert notice.reason == Reason.INVALID_SPEC
    assert (notice.field or "").endswith(f".matchFields[0]{field}")
    assert said in notice.message


def test_a_pod_on_a_node_holds_its_resources_whatever_its_affinity_says() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    pod = read_pod({"nodeName": "n", "affinity": affinity, "containers": containers})
    assert (pod.node_name, pod.spec.requests, pod.spec.required_affinity) == ("n", (("cpu", 1000),), ())


@pytest.mark.parametrize(("weight", "taken"), [(0, False), (1, True), (100, True), (101, False)])
def test_a_weight_lies_between_1_and_100(weight: int, taken: bool) -> None:
    term = {"weight": weight, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    spec = {"affinity": {"nodeAffinity": {PREFERRED: [term]}}}
    pod = read_pod(spec)
    assert len(pod.spec.preferred_affinity) == taken
    path = f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight"
    assert pod.spec.invalid == (() if taken else (f"{path} is {weight}",))


def test_a_toleration_that_makes_no_sense_is_refused(golden: Golden) -> None:
    pod = "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{tolerations: [{}]}}}}"
    golden("manifest-problems", error_of(pod.format("{key: a, effect: Never}")))
    assert "spec.tolerations[0].key: is empty" in error_of(pod.format("{value: a}"))
    assert "spec.tolerations[0].operator: " in error_of(pod.format("{key: a, operator: Near}"))
    assert "spec.tolerations[0].value: " in error_of(pod.format("{key: a, operator: Gt, value: high}"))


@pytest.mark.parametrize(
    ("spec", "unsupported"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims[0]"),
    ],
)
def test_hard_constraints_that_are_not_known_yet_are_named(spec: dict[str, Any], unsupported: str) -> None:
    assert read_pod(spec).spec.unsupported == (unsupported,)


def test_volumes_that_bind_to_no_place_do_not_matter() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}]
    assert read_pod({"volumes": volumes}).spec.unsupported == ()


def test_pods_with_equal_needs_share_one_spec() -> None:
    def pod(name: str, **spec: Any) -> dict[str, Any]:
        containers = [{"name": name, "image": "i", "resources": {"requests": {"cpu": spec.pop("cpu", "1")}}}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": containers, **spec},
        }

    pods = read_objects(
        pod("a"),
        pod("b", nodeName="n", volumes=[{"name": "token-b", "projected": {}}]),
        pod("c", cpu="1000m"),
        pod("d", cpu="2"),
        pod("e", nodeSelector={"x": "1", "y": "2"}),
        pod("f", nodeSelector={"y": "2", "x": "1"}),
    ).pods
    a, b, c, d, e, f = (one.spec for one in pods)
    assert a is b
    assert a is c
    assert e is f
    assert len({a, d, e}) == 3
    assert pods[1].node_name == "n"


def test_terminal_phases_are_finished() -> None:
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": phase.lower()}, "status": {"phase": phase}}
        for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    ]
    assert [pod.finished for pod in read_objects(*pods).pods] == [False, False, True, True, False]


RUNNING = """
apiVersion: v1
kind: Pod
metadata: {{name: p, annotations: {annotations}}}
spec: {{nodeName: n, activeDeadlineSeconds: {deadline}}}
status: {{phase: Running, startTime: "1970-01-01T00:01:00Z"}}
"""


@pytest.mark.parametrize(
    ("annotations", "deadline", "ends"),
    [
        ("{}", "null", None),
        ("{}", "600", 660),
        ('{closeby.dev/expected-end: "1970-01-01T00:05:00Z"}', "null", 300),
        # Whichever comes first.
        ('{closeby.dev/expected-end: "1970-01-01T00:05:00Z"}', "600", 300),
        ('{closeby.dev/expected-end: "1970-01-01T01:00:00+01:00"}', "600", 0),
        ("{}", "-1", None),
        ("{}", str(10**30), None),
    ],
)
def test_when_it_will_be_done(annotations: str, deadline: str, ends: float | None) -> None:
    (pod,) = read_good(RUNNING.format(annotations=annotations, deadline=deadline)).pods
    assert pod.ends == ends


WAITING = """
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec: {{activeDeadlineSeconds: {deadline}, terminationGracePeriodSeconds: {grace}}}
"""


@pytest.mark.parametrize(
    ("deadline", "grace", "lasts"),
    [
        ("null", "10", None),
        ("600", "null", 630),
        ("600", "0", 600),
        ("600", "3600", 4200),
        ("0", "10", None),
        ("-1", "10", None),
        ("600", "-1", 600),
        (str(10**30), "10", None),
        (str(2**31 - 1), str(10**30), 2**32 - 2),
    ],
)
def test_how_long_it_may_take(deadline: str, grace: str, lasts: float | None) -> None:
    (pod,) = read_good(WAITING.format(deadline=deadline, grace=grace)).pods
    assert (pod.lasts, pod.ends) == (lasts, None)


def test_pods_of_a_workload_may_take_as_long_as_its_template_says() -> None:
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {activeDeadlineSeconds: 5, template: {spec: {activeDeadlineSeconds: 600}}}
"""
    (workload,) = read_good(job).workloads
    (members,) = workload.pod_sets
    assert members.template.lasts == 630


def test_a_pod_with_a_deadline_needs_what_others_need() -> None:
    one, other = (
        read_good(RUNNING.format(annotations="{}", deadline=text)).pods[0].spec for text in ("null", "600")
    )
    assert one == other


def test_an_end_that_is_no_time_is_reported(golden: Golden) -> None:
    manifests = read_good(RUNNING.format(annotations="{closeby.dev/expected-end: tomorrow}", deadline="null"))
    assert manifests.pods[0].ends is None
    (notice,) = manifests.notices
    golden("manifest-problems", notice.located())
