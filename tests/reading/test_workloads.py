"""Workload objects: how many pods of which template their controllers make, and what these are called."""

import pytest

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.reasons import Reason
from closeby.objects.workloads import Workload
from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read, read_good

TEMPLATE = "{metadata: {labels: {app: x}}, spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"


def workload(api: str, kind: str, spec: str, more: str = "") -> Workload:
    (result,) = read_good(
        f"""
        apiVersion: {api}
        kind: {kind}
        metadata: {{name: x, namespace: ml, labels: {{a: b}}, annotations: {{c: d}}}}
        spec: {spec}
        {more}
        """
    ).workloads
    return result


def names(one: Workload) -> list[tuple[str, ...]]:
    return [pods.pod_names for pods in one.pod_sets]


@pytest.mark.parametrize(
    ("api", "kind", "indexed"),
    [
        ("apps/v1", "Deployment", False),
        ("apps/v1", "ReplicaSet", False),
        ("v1", "ReplicationController", False),
        ("apps/v1", "StatefulSet", True),
    ],
)
def test_replicated_workloads(api: str, kind: str, indexed: bool) -> None:
    one = workload(api, kind, f"{{replicas: 2, template: {TEMPLATE}}}")
    assert (one.kind, one.key, one.id, one.api_version) == (kind, "ml/x", f"{kind}/ml/x", api)
    assert (one.labels, one.annotations, one.suspended, one.gang) == ({"a": "b"}, {"c": "d"}, False, None)
    (pods,) = one.pod_sets
    assert (pods.replicas, pods.pod_names, pods.indexed) == (2, ("x-0", "x-1"), indexed)
    assert pods.template.spec.requests == (("cpu", 1000),)
    assert (pods.template.owner, pods.template.labels, pods.path) == (
        f"{kind}/x",
        {"app": "x"},
        "spec.template",
    )


def test_one_replica_is_the_default_and_none_is_possible() -> None:
    assert names(workload("apps/v1", "Deployment", f"{{template: {TEMPLATE}}}")) == [("x-0",)]
    assert names(workload("apps/v1", "Deployment", f"{{replicas: 0, template: {TEMPLATE}}}")) == [()]


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ("", 1),
        ("parallelism: 3,", 3),
        ("completions: 5,", 1),
        ("parallelism: 3, completions: 5,", 3),
        ("parallelism: 5, completions: 3,", 3),
        ("parallelism: 0, completions: 3,", 0),
    ],
)
def test_a_job_makes_as_many_pods_as_run_at_a_time(spec: str, pods: int) -> None:
    assert len(workload("batch/v1", "Job", f"{{{spec} template: {TEMPLATE}}}").pod_sets[0].pod_names) == pods


def test_an_indexed_job() -> None:
    one = workload(
        "batch/v1", "Job", f"{{completionMode: Indexed, parallelism: 2, suspend: true, template: {TEMPLATE}}}"
    )
    assert (one.pod_sets[0].indexed, one.suspended) == (True, True)


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_job_that_is_over_makes_no_pods(condition: str) -> None:
    status = f"status: {{conditions: [{{type: {condition}, status: 'True'}}]}}"
    assert names(workload("batch/v1", "Job", f"{{parallelism: 3, template: {TEMPLATE}}}", status)) == [()]


def test_a_jobs_status_counts_what_succeeded() -> None:
    one = workload(
        "batch/v1",
        "Job",
        f"{{parallelism: 3, completions: 5, template: {TEMPLATE}}}",
        "status: {succeeded: 4}",
    )
    assert (one.pod_sets[0].completions, one.pod_sets[0].completed) == (5, 4)


def test_a_job_set() -> None:
    one = workload(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        f"""
          suspend: true
          replicatedJobs:
          - name: driver
            template: {{spec: {{template: {TEMPLATE}}}}}
          - name: workers
            replicas: 2
            template:
              metadata: {{annotations: {{from: job}}}}
              spec: {{parallelism: 2, completions: 2, template: {TEMPLATE}}}
        """,
    )
    assert one.suspended
    assert [pods.name for pods in one.pod_sets] == ["driver", "workers"]
    assert names(one) == [
        ("x-driver-0-0",),
        ("x-workers-0-0", "x-workers-0-1", "x-workers-1-0", "x-workers-1-1"),
    ]
    assert one.pod_sets[1].template_annotations == {"from": "job"}
    assert one.pod_sets[1].path == "spec.replicatedJobs[1].template.spec.template"


def test_a_leader_worker_set_is_a_gang_for_each_replica() -> None:
    one = workload(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        f"{{replicas: 2, leaderWorkerTemplate: {{size: 3, workerTemplate: {TEMPLATE}}}}}",
    )
    assert [(pods.name, pods.gang, pods.pod_names) for pods in one.pod_sets] == [
        ("leader", "x-0", ("x-0",)),
        ("worker", "x-0", ("x-0-1", "x-0-2")),
        ("leader", "x-1", ("x-1",)),
        ("worker", "x-1", ("x-1-1", "x-1-2")),
    ]
    assert one.pod_sets[0].template.spec is one.pod_sets[1].template.spec
    # As in the label leaderworkerset.sigs.k8s.io/worker-index: the leader is 0.
    assert [(pods.indexed, pods.first_index) for pods in one.pod_sets] == [(True, 0), (True, 1)] * 2


def test_leader_and_workers_of_one_template_have_its_volumes_and_resource_claims() -> None:
    volumes = "[{name: w, persistentVolumeClaim: {claimName: weights}}, {name: s, ephemeral: {}}]"
    spec = f"{{volumes: {volumes}, resourceClaims: [{{name: gpu, resourceClaimName: one}}]}}"
    one = workload(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        f"{{replicas: 1, leaderWorkerTemplate: {{size: 2, workerTemplate: {{spec: {spec}}}}}}}",
    )
    leader, worker = (pods.template for pods in one.pod_sets)
    assert [claim.name for claim in leader.spec.claims] == ["s", "weights"]
    assert [claim.claim for claim in leader.resource_claims] == ["one"]
    assert leader.spec.unsupported
    assert worker.spec is leader.spec
    assert worker.resource_claims == leader.resource_claims


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs"),
        ("MPIJob", "mpiReplicaSpecs"),
        ("TFJob", "tfReplicaSpecs"),
        ("JAXJob", "jaxReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
        ("XGBoostJob", "xgbReplicaSpecs"),
    ],
)
def test_training_jobs(kind: str, field: str) -> None:
    roles = f"{field}: {{Master: {{template: {TEMPLATE}}}, Worker: {{replicas: 2, template: {TEMPLATE}}}}}"
    one = workload("kubeflow.org/v1", kind, f"{{{roles}}}")
    assert names(one) == [("x-master-0",), ("x-worker-0", "x-worker-1")]
    assert one.gang is None
    one = workload(
        "kubeflow.org/v1", kind, f"{{runPolicy: {{schedulingPolicy: {{minAvailable: 2}}}}, {roles}}}"
    )
    assert one.gang is not None
    assert one.gang.min_member == 2


@pytest.mark.parametrize(
    ("kind", "roles", "meant"),
    [
        (
            "PyTorchJob",
            "pytorchReplicaSpecs: {Mastr: {}, Wroker: {}}",
            {"Mastr": "Master", "Wroker": "Worker"},
        ),
        ("TFJob", "tfReplicaSpecs: {Wrkr: {}, ps: {}, cheif: {}}", {"Wrkr": "Worker", "cheif": "Chief"}),
        ("MPIJob", "mpiReplicaSpecs: {Luncher: {}, WORKER: {}}", {"Luncher": "Launcher"}),
        ("XGBoostJob", "xgbReplicaSpecs: {Driver: {}}", {"Driver": None}),
    ],
)
def test_a_misspelt_role_is_reported_with_the_role_that_was_meant(
    kind: str, roles: str, meant: dict[str, str | None]
) -> None:
    text = f"{{apiVersion: kubeflow.org/v1, kind: {kind}, metadata: {{name: x}}, spec: {{{roles}}}}}"
    told = {one.field.rpartition(".")[2]: one for one in read(text).notices}
    assert told.keys() == meant.keys()
    for role, right in meant.items():
        assert (told[role].reason, told[role].object) == (Reason.INVALID_SPEC, f"{kind}/default/x")
        assert right is None or f"{right}?" in told[role].remedy


def test_a_volcano_job() -> None:
    one = workload(
        "batch.volcano.sh/v1alpha1",
        "Job",
        f"""
          minAvailable: 3
          priorityClassName: high
          tasks:
          - {{name: ps, replicas: 1, template: {TEMPLATE}}}
          - {{name: worker, replicas: 3, minAvailable: 2, template: {TEMPLATE}}}
        """,
    )
    assert names(one) == [("x-ps-0",), ("x-worker-0", "x-worker-1", "x-worker-2")]
    assert one.pod_sets[1].template.labels == {"app": "x", "volcano.sh/task-spec": "worker"}
    assert one.pod_sets[1].template.annotations == {"volcano.sh/task-spec": "worker"}
    assert one.gang == PodGroup(
        namespace="ml",
        name="x",
        min_member=3,
        subgroups=(SubGroup(name="ps", min_member=1), SubGroup(name="worker", min_member=2)),
        priority_class_name="high",
        annotations={"c": "d"},
        source="batch.volcano.sh/v1alpha1",
    )


@pytest.mark.parametrize("given", ["", "minAvailable: 0, "])
@pytest.mark.parametrize(
    ("tasks", "minimum"),
    [
        ("{name: a, replicas: 3}, {name: b}", 4),
        ("{name: a, replicas: 3, minAvailable: 2}, {name: b, replicas: 2}", 4),
        ("{name: a, replicas: 3, minAvailable: 2}, {name: b, replicas: 2, minAvailable: 0}", 2),
    ],
)
def test_the_minimum_that_volcano_gives_a_job_without_one(given: str, tasks: str, minimum: int) -> None:
    one = workload("batch.volcano.sh/v1alpha1", "Job", f"{{{given}tasks: [{tasks}]}}")
    assert one.gang is not None
    assert one.gang.min_member == minimum


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("minAvailable: 5, tasks: [{name: a, replicas: 3}, {name: b}]", ["spec.minAvailable"]),
        ("minAvailable: 2, tasks: [{name: a, replicas: 3, minAvailable: 4}]", ["spec.tasks[0].minAvailable"]),
        ("minAvailable: 1, tasks: [{name: a, replicas: 0}]", ["spec.minAvailable"]),
        ("minAvailable: 4, tasks: [{name: a, replicas: 3}, {name: b}]", []),
        ("minAvailable: 4, tasks: [{name: a, replicas: 3}]}, status: {state: {phase: Completed}", []),
    ],
)
def test_a_volcano_job_that_can_never_start_says_so(spec: str, fields: list[str], golden: Golden) -> None:
    (job,) = read_good(
        f"{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: j}}, spec: {{{spec}}}}}"
    ).workloads
    assert job.gang is not None
    wrong = [one for one in job.gang.conditions if one.blocking]
    assert [(one.object, one.field) for one in wrong] == [("Job/default/j", field) for field in fields]
    if wrong:
        golden("manifest-problems", [one.sentence() for one in wrong])


def test_a_volcano_job_needs_all_its_pods_unless_it_says_otherwise() -> None:
    one = workload(
        "batch.volcano.sh/v1alpha1", "Job", f"{{tasks: [{{name: a, replicas: 4, template: {TEMPLATE}}}]}}"
    )
    assert one.gang is not None
    assert (one.gang.min_member, one.gang.subgroups, one.gang.conditions) == (4, (), ())


@pytest.mark.parametrize(
    ("wish", "field", "blocking"),
    [
        (
            "tasks: [{replicas: 4, partitionPolicy: {totalPartitions: 2, partitionSize: 2}}]",
            "spec.tasks[0].partitionPolicy",
            False,
        ),
        (
            "tasks: [{replicas: 4, partitionPolicy: {totalPartitions: 3, partitionSize: 2}}]",
            "spec.tasks[0].partitionPolicy.totalPartitions",
            True,
        ),
        ("tasks: [{partitionPolicy: {}}]", "spec.tasks[0].partitionPolicy.partitionSize", True),
        (
            "tasks: [{partitionPolicy: {totalPartitions: 1, partitionSize: 1, minPartitions: 2}}]",
            "spec.tasks[0].partitionPolicy.minPartitions",
            True,
        ),
    ],
)
def test_a_volcano_jobs_partitions_that_are_not_followed(wish: str, field: str, blocking: bool) -> None:
    one = workload("batch.volcano.sh/v1alpha1", "Job", f"{{{wish}}}")
    assert one.gang is not None
    (condition,) = one.gang.conditions
    assert (condition.object, condition.field, condition.blocking) == ("Job/ml/x", field, blocking)


@pytest.mark.parametrize(
    ("api", "kind", "spec"),
    [
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "{volumes: [{mountPath: /a, volumeClaimName: a}], tasks: [{replicas: 1, template: T}]}",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "{volumes: [{mountPath: /a, volumeClaim: {}}], tasks: [{replicas: 1, template: T}]}",
        ),
    ],
)
def test_pods_that_get_claims_from_their_controller_wait(api: str, kind: str, spec: str) -> None:
    one = workload(api, kind, spec.replace("T}", f"{TEMPLATE}}}"))
    assert {pods.template.spec.unsupported for pods in one.pod_sets} == {
        ("spec.volumes[*].persistentVolumeClaim",)
    }


@pytest.mark.parametrize(
    ("scheduling", "waits_for"),
    [
        ("{}", ()),
        ("{schedulingPolicy: {basic: {}}}", ()),
        ("{schedulingPolicy: {gang: {minCount: 2}}}", ("Job/x spec.scheduling.schedulingPolicy.gang",)),
        (
            "{schedulingConstraints: {topology: [{key: rack}]}}",
            ("Job/x spec.scheduling.schedulingConstraints",),
        ),
        ("{resourceClaims: [{name: a}]}", ("Job/x spec.scheduling.resourceClaims",)),
    ],
)
def test_a_job_that_asks_for_a_gang_in_its_own_spec_waits(
    scheduling: str, waits_for: tuple[str, ...]
) -> None:
    one = workload("batch/v1", "Job", f"{{scheduling: {scheduling}, template: {TEMPLATE}}}")
    assert one.pod_sets[0].template.spec.unsupported == waits_for


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_volcano_task_that_asks_for_one_numa_node_waits(policy: str) -> None:
    spec = f"{{tasks: [{{replicas: 1, topologyPolicy: {policy}, template: {TEMPLATE}}}]}}"
    one = workload("batch.volcano.sh/v1alpha1", "Job", spec)
    waits = policy in ("restricted", "single-numa-node")
    wanted = ("Job/x spec.tasks[0].topologyPolicy",) if waits else ()
    assert one.pod_sets[0].template.spec.unsupported == wanted


def test_an_owner_is_remembered() -> None:
    (one,) = read_good(
        """
        apiVersion: apps/v1
        kind: ReplicaSet
        metadata: {name: web-5d8, ownerReferences: [{kind: Deployment, name: web, controller: true}]}
        """
    ).workloads
    assert one.owner == "Deployment/web"


@pytest.mark.parametrize(
    ("api", "kind", "spec", "said"),
    [
        ("apps/v1", "Deployment", "{replicas: -1}", "spec.replicas: -1 is negative"),
        (
            "apps/v1",
            "Deployment",
            "{replicas: 1000001}",
            "spec.replicas: 1000001 pods are more than 1,000,000",
        ),
        ("batch/v1", "Job", "{parallelism: -1}", "spec.parallelism: -1 is negative"),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "{replicatedJobs: [{replicas: 2000, template: {spec: {parallelism: 2000}}}]}",
            "spec.replicatedJobs[0].replicas: 4000000 pods are more than",
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            "{pytorchReplicaSpecs: {Worker: {template: {spec: {overhead: {cpu: x}}}}}}",
            "spec.pytorchReplicaSpecs.Worker.template.spec.overhead.cpu: 'x' is not a quantity",
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "{leaderWorkerTemplate: {workerTemplate: {spec: {overhead: {cpu: x}}}}}",
            "spec.leaderWorkerTemplate.workerTemplate.spec.overhead.cpu",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "{tasks: [{}, {template: {spec: {overhead: {cpu: x}}}}]}",
            "spec.tasks[1].template.spec.overhead.cpu",
        ),
    ],
)
def test_errors_name_the_field_where_it_stands_in_the_workload(
    api: str, kind: str, spec: str, said: str
) -> None:
    assert said in error_of(f"{{apiVersion: {api}, kind: {kind}, metadata: {{name: x}}, spec: {spec}}}")


def test_the_jobs_of_a_job_set_count_together() -> None:
    jobs = ", ".join(
        f"{{name: j{i}, template: {{spec: {{parallelism: 600000, completions: 600000, template: {{}}}}}}}}"
        for i in range(2)
    )
    problem = error_of(f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: j}}
spec: {{replicatedJobs: [{jobs}]}}
""")
    assert "spec.replicatedJobs: 1200000 pods are more than" in problem


POD = "template: {spec: {containers: [{name: c}]}}"
JOB = f"template: {{spec: {{{POD}}}}}"
GROUP = "[{name: g, cliqueNames: [w, x]}]"
CLIQUE = "spec: {podSpec: {containers: [{name: c}]}}"


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (
            "batch.volcano.sh/v1alpha1 Job",
            f"tasks: [{{name: w, {POD}}}, {{name: m, {POD}}}, {{name: w, {POD}}}]",
            "spec.tasks[2].name",
        ),
        (
            "batch.volcano.sh/v1alpha1 Job",
            f"tasks: [{{name: default1, {POD}}}, {{{POD}}}]",
            "spec.tasks[1].name",
        ),
        (
            "jobset.x-k8s.io/v1alpha2 JobSet",
            f"replicatedJobs: [{{name: w, {JOB}}}, {{name: w, {JOB}}}]",
            "spec.replicatedJobs[1].name",
        ),
        (
            "jobset.x-k8s.io/v1alpha2 JobSet",
            f"replicatedJobs: [{{name: a, {JOB}, dependsOn: [{{name: b}}]}}, {{name: b, {JOB}}}]",
            "spec.replicatedJobs[0].dependsOn[0].name",
        ),
        (
            "ray.io/v1 RayCluster",
            f"workerGroupSpecs: [{{groupName: w, {POD}}}, {{groupName: w, {POD}}}]",
            "spec.workerGroupSpecs[1].groupName",
        ),
        (
            "ray.io/v1 RayJob",
            f"rayClusterSpec: {{workerGroupSpecs: [{{groupName: w, {POD}}}, {{groupName: w, {POD}}}]}}",
            "spec.rayClusterSpec.workerGroupSpecs[1].groupName",
        ),
        (
            "kubeflow.org/v1 PyTorchJob",
            f"pytorchReplicaSpecs: {{Worker: {{{POD}}}, worker: {{{POD}}}}}",
            "spec.pytorchReplicaSpecs.worker",
        ),
        (
            "kubeflow.org/v1 PyTorchJob",
            f"pytorchReplicaSpecs: {{Master: {{replicas: 2, {POD}}}}}",
            "spec.pytorchReplicaSpecs.Master.replicas",
        ),
        (
            "grove.io/v1alpha1 PodCliqueSet",
            f"template: {{cliques: [{{name: w, {CLIQUE}}}, {{name: w, {CLIQUE}}}]}}",
            "spec.template.cliques[1].name",
        ),
        (
            "grove.io/v1alpha1 PodCliqueSet",
            f"template: {{cliques: [{{name: w, {CLIQUE}}}], podCliqueScalingGroups: {GROUP}}}",
            "spec.template.podCliqueScalingGroups[0].cliqueNames[1]",
        ),
        (
            "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
            f"leaderWorkerTemplate: {{size: 8, subGroupPolicy: {{subGroupSize: 3}}, workerT{POD[1:]}}}",
            "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize",
        ),
    ],
)
def test_pods_of_a_workload_that_its_webhook_refuses_wait(kind: str, spec: str, field: str) -> None:
    version, _, called = kind.partition(" ")
    text = f"{{apiVersion: {version}, kind: {called}, metadata: {{name: a}}, spec: {{{spec}}}}}"
    (workload,) = read_good(text).workloads
    for pods in workload.pod_sets:
        (refused,) = pods.template.spec.invalid
        assert refused.startswith(f"{field} of {called}/a ")
