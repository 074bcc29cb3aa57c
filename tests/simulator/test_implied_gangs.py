"""Gangs that nobody wrote down: what workloads and pods ask for by their annotations and labels."""

import pytest

from closeby.objects.groups import Strategy, SubGroup, TopologyConstraint
from closeby.objects.pods import Toleration
from closeby.reading.manifests import read_manifests
from tests.golden.fixture import Golden
from tests.lab.workload_text import (
    CONTAINERS,
    JOB_SET,
    KAI,
    QUEUED,
    QUEUES,
    RACK,
    TEMPLATE,
    annotated,
    expanded,
    job,
    names,
    only_group,
    pod,
    pod_group,
    replicated,
)

#: A head, two replicas of two pods at least (of two), and a group without a minimum.
RAY = (
    "headGroupSpec: {template: T}, workerGroupSpecs: [{groupName: a, replicas: 2, minReplicas: 1,"
    " numOfHosts: 2, template: T}, {groupName: b, replicas: 1, template: T}]"
)
THREE = "{replicas: 3, template: T}"


def workload(api_version: str, kind: str, spec: str) -> str:
    """A workload without annotations; ``T`` stands for a pod template."""
    spec = spec.replace("emplate: T", f"emplate: {TEMPLATE}")
    return f"""
---
apiVersion: {api_version}
kind: {kind}
metadata: {{name: w}}
spec: {{{spec}}}
"""


def training(kind: str, spec: str) -> str:
    """A training job of Kubeflow."""
    return workload("kubeflow.org/v1", kind, spec)


def test_kais_annotations_make_a_gang_of_all_pods() -> None:
    expansion = expanded(job(f"annotations: {{{KAI}, closeby.dev/placement-strategy: spread}}"))
    group = only_group(expansion)
    assert (group.key, group.min_member, group.constraint) == ("default/train", 3, RACK)
    assert (group.strategy, group.source, group.conditions) == (Strategy.SPREAD, "Job annotations", ())
    assert [one.group for one in expansion.pods] == ["train"] * 3


def test_kais_batch_minimum() -> None:
    group = only_group(expanded(job("annotations: {kai.scheduler/batch-min-member: '2'}")))
    assert (group.min_member, group.constraint) == (2, None)
    group = only_group(expanded(job("annotations: {kai.scheduler/batch-min-member: two}")))
    (condition,) = group.conditions
    assert (condition.object, condition.reason, condition.blocking) == (
        "Job/default/train",
        "InvalidSpec",
        True,
    )


def test_kais_annotations_at_the_template_count_too() -> None:
    assert only_group(expanded(job(template=annotated(KAI)))).constraint == RACK


#: Of each kind one without annotations: what starts together of how many pods.
BY_NATURE = {
    "JobSet": (JOB_SET, {"js": 5}, 5),
    "PyTorchJob": (
        training("PyTorchJob", f"pytorchReplicaSpecs: {{Master: {{template: T}}, Worker: {THREE}}}"),
        {"w": 4},
        4,
    ),
    "elastic": (
        training(
            "PyTorchJob", f"elasticPolicy: {{minReplicas: 2}}, pytorchReplicaSpecs: {{Worker: {THREE}}}"
        ),
        {"w": 2},
        3,
    ),
    "MPIJob": (
        training("MPIJob", f"mpiReplicaSpecs: {{Launcher: {{template: T}}, Worker: {THREE}}}"),
        {"w": 4},
        4,
    ),
    "late launcher": (
        training(
            "MPIJob",
            "launcherCreationPolicy: WaitForWorkersReady, "
            f"mpiReplicaSpecs: {{Launcher: {{template: T}}, Worker: {THREE}}}",
        ),
        {"w": 3},
        4,
    ),
    "TFJob": (training("TFJob", f"tfReplicaSpecs: {{PS: {{template: T}}, Worker: {THREE}}}"), {"w": 4}, 4),
    "JAXJob": (training("JAXJob", f"jaxReplicaSpecs: {{Worker: {THREE}}}"), {"w": 3}, 3),
    "PaddleJob": (training("PaddleJob", f"paddleReplicaSpecs: {{Worker: {THREE}}}"), {"w": 3}, 3),
    "XGBoostJob": (training("XGBoostJob", f"xgbReplicaSpecs: {{Worker: {THREE}}}"), {"w": 3}, 3),
    "LeaderWorkerSet": (
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "replicas: 2, leaderWorkerTemplate: {size: 3, workerTemplate: T}",
        ),
        {"w-0": 3, "w-1": 3},
        6,
    ),
    "LeaderReady": (
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 3, workerTemplate: T}",
        ),
        {"w-0": 1},
        3,
    ),
    "InOrder": (
        JOB_SET + "  startupPolicy: {startupPolicyOrder: InOrder}\n",
        {"js": 1, "js-workers": 4},
        5,
    ),
    "dependsOn": (
        JOB_SET.replace("replicas: 2", "replicas: 2\n    dependsOn: [{name: driver, status: Ready}]"),
        {"js": 1, "js-workers": 4},
        5,
    ),
    "RayCluster": (workload("ray.io/v1", "RayCluster", RAY), {"w": 4}, 6),
    "RayJob": (workload("ray.io/v1", "RayJob", f"rayClusterSpec: {{{RAY}}}"), {"w": 4}, 6),
    "autoscaled": (
        workload("ray.io/v1", "RayCluster", f"enableInTreeAutoscaling: true, {RAY}"),
        {"w": 3},
        6,
    ),
    "Volcano": (
        workload(
            "batch.volcano.sh/v1alpha1",
            "Job",
            "minAvailable: 3, tasks: [{name: a, replicas: 2, template: T},"
            " {name: b, replicas: 3, dependsOn: {name: [a]}, template: T}]",
        ),
        {"w": 2},
        5,
    ),
}


@pytest.mark.parametrize("case", BY_NATURE)
def test_workloads_that_are_gangs_by_nature(case: str) -> None:
    """Less those pods that their controllers create only after others are ready."""
    text, minima, pods = BY_NATURE[case]
    expansion = expanded(text)
    assert {group.name: group.min_member for group in expansion.groups} == minima
    assert {one.group for one in expansion.pods} == minima.keys()
    assert len(expansion.pods) == pods
    kinds = {group.by_nature for group in expansion.groups}
    # Volcano's Job says itself that it is a gang.
    assert kinds == {""} if case == "Volcano" else all(kinds)


@pytest.mark.parametrize("case", BY_NATURE)
def test_a_workload_opts_out_of_being_a_gang(case: str) -> None:
    text, _, pods = BY_NATURE[case]
    metadata = "name: js" if "name: js" in text else "name: w"
    out = text.replace(metadata, f"{metadata}, annotations: {{closeby.dev/gang: 'false'}}")
    expansion = expanded(out)
    assert expansion.groups == ()
    assert [one.group for one in expansion.pods] == [None] * pods


def test_a_template_opts_its_own_pods_out() -> None:
    out = annotated("closeby.dev/gang: 'false'")
    text = JOB_SET.replace(
        f"name: driver, template: {{spec: {{template: {TEMPLATE}",
        f"name: driver, template: {{spec: {{template: {out}",
    )
    expansion = expanded(text)
    assert only_group(expansion).min_member == 4
    assert [one.group for one in expansion.pods] == [None] + ["js"] * 4


def test_who_opts_out_keeps_the_placement_that_is_asked_for() -> None:
    keys = f"{KAI}, closeby.dev/gang: 'false'"
    group = only_group(expanded(JOB_SET.replace("name: js", f"name: js, annotations: {{{keys}}}")))
    assert (group.min_member, group.constraint, group.conditions) == (1, RACK, ())


def test_any_workload_may_ask_to_be_a_gang() -> None:
    group = only_group(expanded(job("annotations: {closeby.dev/gang: 'true'}")))
    assert (group.min_member, group.by_nature, group.conditions) == (3, "", ())


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("closeby.dev/gang: 'no'", "closeby.dev/gang"),
        ("closeby.dev/gang: 'false', kai.scheduler/batch-min-member: '2'", "kai.scheduler/batch-min-member"),
    ],
)
@pytest.mark.parametrize("text", [JOB_SET, job()])
def test_what_says_neither_true_nor_false_is_refused(text: str, keys: str, key: str) -> None:
    name = "name: js" if text == JOB_SET else "name: train"
    (condition,) = only_group(expanded(text.replace(name, f"{name}, annotations: {{{keys}}}"))).conditions
    assert (condition.reason, condition.blocking) == ("InvalidSpec", True)
    assert condition.object in ("JobSet/default/js", "Job/default/train")
    assert condition.field == f'metadata.annotations["{key}"]'


@pytest.mark.parametrize(
    ("word", "constraint"),
    [
        ("required", TopologyConstraint(topology="net", required="example.com/rack")),
        ("preferred", TopologyConstraint(topology="net", preferred="example.com/rack")),
    ],
)
def test_kueues_annotations_take_topology_labels_and_tolerations_from_the_queue(
    word: str, constraint: TopologyConstraint
) -> None:
    template = annotated(f"kueue.x-k8s.io/podset-{word}-topology: example.com/rack")
    expansion = expanded(QUEUES + job(QUEUED, template=template))
    group = only_group(expansion)
    assert (group.min_member, group.constraint, group.wants_closeness, group.conditions) == (
        3,
        constraint,
        True,
        (),
    )
    assert {one.spec.node_selector for one in expansion.pods} == {(("pool", "gpu"),)}
    assert {one.spec.tolerations for one in expansion.pods} == {(Toleration("gpu", "Exists"),)}
    assert len({id(one.spec) for one in expansion.pods}) == 1


def test_kueues_unconstrained_gang_wants_no_closeness() -> None:
    template = annotated("kueue.x-k8s.io/podset-unconstrained-topology: 'true'")
    group = only_group(expanded(QUEUES + job(QUEUED, template=template)))
    assert (group.min_member, group.constraint, group.wants_closeness) == (3, None, False)


def test_a_queue_alone_makes_a_gang_of_a_job_but_not_of_a_deployment() -> None:
    group = only_group(expanded(QUEUES + job(QUEUED)))
    assert (group.min_member, group.constraint, group.wants_closeness) == (3, None, True)
    deployment = replicated("Deployment", "web", 1, QUEUED)
    expansion = expanded(QUEUES + deployment)
    assert expansion.groups == ()
    assert expansion.pods[0].spec.node_selector == (("pool", "gpu"),)


@pytest.mark.parametrize(
    ("levels", "said"),
    [([], False), (["rack"], False), (["rack", "rack"], False), (["rack", "block, rack"], True)],
)
def test_a_queue_that_is_not_there_matters_where_it_says_which_topology_is_meant(
    levels: list[str], said: bool, golden: Golden
) -> None:
    """Equal topologies are as good as one."""
    template = annotated("kueue.x-k8s.io/podset-required-topology: rack")
    text = job(QUEUED, template=template)
    for i, labels in enumerate(levels):
        listed = ", ".join(f"{{nodeLabel: {name.strip()}}}" for name in labels.split(","))
        text += f"""
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {{name: t{i}}}
spec: {{levels: [{listed}]}}
"""
    group = only_group(expanded(text))
    assert group.constraint == TopologyConstraint(required="rack")
    assert [(one.reason, one.blocking) for one in group.conditions] == [("TopologyNotFound", False)] * said
    if said:
        golden("manifest-problems", group.conditions[0].sentence())


def test_a_pod_that_insists_on_other_nodes_than_its_queues_waits() -> None:
    template = f"{{spec: {{nodeSelector: {{pool: cpu}}, {CONTAINERS}}}}}"
    (first, *_) = expanded(QUEUES + job(QUEUED, template=template)).pods
    assert first.spec.node_selector == (("pool", "cpu"),)
    assert first.spec.unsupported == ('spec.nodeSelector["pool"] against ResourceFlavor tas',)


@pytest.mark.parametrize(
    "keys",
    [
        f"{KAI}, kueue.x-k8s.io/podset-required-topology: rack",
        "kueue.x-k8s.io/podset-required-topology: a, kueue.x-k8s.io/podset-preferred-topology: b",
        f"{KAI}, kueue.x-k8s.io/podset-slice-required-topology: rack",
    ],
)
def test_what_contradicts_itself_or_is_not_known_keeps_the_gang_waiting(keys: str) -> None:
    group = only_group(expanded(job(template=annotated(keys))))
    (condition,) = group.conditions
    assert condition.blocking
    assert condition.object == "Job/default/train"
    assert condition.field.startswith("spec.template.metadata.annotations")


def test_wishes_of_a_workload_without_a_gang_are_reported() -> None:
    (condition,) = expanded(job("annotations: {kai.scheduler/node-pool: a}")).conditions
    assert (condition.object, condition.blocking) == ("Job/default/train", False)


def test_a_workload_whose_pods_name_their_group_makes_none(golden: Golden) -> None:
    text = f"""
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {{name: mine}}
spec: {{minMember: 3}}
{job(f"annotations: {{{KAI}}}", template=annotated("pod-group-name: mine"))}
"""
    expansion = expanded(text)
    assert only_group(expansion).source == "scheduling.run.ai/v2alpha2"
    assert {one.group for one in expansion.pods} == {"mine"}
    (condition,) = expansion.conditions
    golden("manifest-problems", condition.message)


def test_what_a_template_asks_for_whose_pods_name_their_group_is_reported() -> None:
    segments = "pod-group-name: mine, closeby.dev/segment-size: '2', closeby.dev/segment-level: rack"
    text = f"""
apiVersion: closeby.dev/v1alpha1
kind: PodGroup
metadata: {{name: mine}}
spec: {{minMember: 3}}
{job("", template=annotated(segments))}
"""
    expansion = expanded(text)
    assert only_group(expansion).layers == ()
    (condition,) = expansion.conditions
    assert condition.field == "spec.template.metadata.annotations"


def test_pods_that_name_a_group_which_is_not_there_are_left_as_they_are() -> None:
    expansion = expanded(pod("p", more="annotations: {pod-group-name: gone}", phase="Pending"))
    assert (expansion.pods[0].group, expansion.groups) == ("gone", ())


def test_running_members_join_the_gang_of_their_workload() -> None:
    text = job(f"annotations: {{{KAI}}}") + pod("train-abc", "Job/train", spec="nodeName: n")
    expansion = expanded(text)
    assert [(one.name, one.group) for one in expansion.pods] == [
        ("train-0", "train"),
        ("train-1", "train"),
        ("train-abc", "train"),
    ]
    assert only_group(expansion).min_member == 3


def test_new_members_join_the_group_that_the_running_ones_name() -> None:
    text = job(f"annotations: {{{KAI}}}") + "".join(
        pod(f"train-{i}x", "Job/train", "annotations: {pod-group-name: pg-train}", "nodeName: n")
        for i in range(2)
    )
    text += pod_group("scheduling.run.ai/v2alpha2", "pg-train", "{minMember: 3}")
    expansion = expanded(text)
    assert {one.group for one in expansion.pods} == {"pg-train"}
    assert only_group(expansion).name == "pg-train"


def test_a_gang_gets_another_name_where_a_group_has_it() -> None:
    text = job(f"annotations: {{{KAI}}}")
    text += pod_group("closeby.dev/v1alpha1", "train")
    expansion = expanded(text)
    assert [group.name for group in expansion.groups] == ["train", "train-job"]
    assert {one.group for one in expansion.pods} == {"train-job"}


#       js                     subgroups, each with what its template asks for
#     /    \
# driver  workers (rack)
def test_pod_sets_with_constraints_of_their_own_are_subgroups() -> None:
    text = JOB_SET.replace(
        f"completions: 2, template: {TEMPLATE}",
        f"completions: 2, template: {annotated('kueue.x-k8s.io/podset-required-topology: rack')}",
    ).replace("name: js", f"name: js, {QUEUED}")
    expansion = expanded(QUEUES + text)
    group = only_group(expansion)
    assert (group.min_member, group.constraint, group.wants_closeness) == (5, None, True)
    assert group.subgroups == (
        SubGroup(name="driver", min_member=1),
        SubGroup(name="workers", min_member=4, constraint=RACK),
    )
    assert [one.subgroup for one in expansion.pods] == ["driver"] + ["workers"] * 4


def test_what_is_asked_of_the_whole_needs_no_subgroups() -> None:
    group = only_group(expanded(JOB_SET.replace("name: js", f"name: js, annotations: {{{KAI}}}")))
    assert (group.min_member, group.constraint, group.subgroups) == (5, RACK, ())


def test_each_replica_of_a_leader_worker_set_is_a_gang() -> None:
    text = f"""
    apiVersion: leaderworkerset.x-k8s.io/v1
    kind: LeaderWorkerSet
    metadata: {{name: serve, annotations: {{{KAI}}}}}
    spec: {{replicas: 2, leaderWorkerTemplate: {{size: 3, workerTemplate: {TEMPLATE}}}}}
    """
    expansion = expanded(text)
    assert [(group.name, group.min_member, group.constraint) for group in expansion.groups] == [
        ("serve-0", 3, RACK),
        ("serve-1", 3, RACK),
    ]
    assert [(one.name, one.group, one.index) for one in expansion.pods] == [
        ("serve-0", "serve-0", 0),
        ("serve-0-1", "serve-0", 1),
        ("serve-0-2", "serve-0", 2),
        ("serve-1", "serve-1", 0),
        ("serve-1-1", "serve-1", 1),
        ("serve-1-2", "serve-1", 2),
    ]


def test_what_the_only_template_of_a_leader_worker_set_asks_for_holds_for_leader_and_workers() -> None:
    #   As for Kueue: without a leaderTemplate all of them are one set of pods.
    keys = "kueue.x-k8s.io/podset-required-topology: rack"
    one = f"size: 3, workerTemplate: {annotated(keys)}"
    two = f"size: 3, leaderTemplate: {TEMPLATE}, workerTemplate: {annotated(keys)}"
    whole, apart = (
        only_group(
            expanded(
                workload(
                    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", f"leaderWorkerTemplate: {{{templates}}}"
                )
            )
        )
        for templates in (one, two)
    )
    assert whole.constraint is not None
    assert (whole.constraint.required, whole.subgroups) == ("rack", ())
    assert apart.constraint is None
    assert [(part.name, part.constraint and part.constraint.required) for part in apart.subgroups] == [
        ("leader", None),
        ("worker", "rack"),
    ]


def test_the_pods_of_a_leader_worker_set_that_are_missing_get_the_free_names() -> None:
    worker = "labels: {leaderworkerset.sigs.k8s.io/worker-index: '2'}"
    text = f"""
    apiVersion: leaderworkerset.x-k8s.io/v1
    kind: LeaderWorkerSet
    metadata: {{name: serve}}
    spec: {{replicas: 1, leaderWorkerTemplate: {{size: 4, workerTemplate: {TEMPLATE}}}}}
    """
    there = pod("serve-0-2", "LeaderWorkerSet/serve", worker)
    found = {one.name: one.index for one in expanded(f"{text}\n---\n{there}").pods}
    assert found == {"serve-0": 0, "serve-0-1": 1, "serve-0-2": 2, "serve-0-3": 3}


def test_a_volcano_job_is_a_gang_with_its_tasks_as_subgroups() -> None:
    text = f"""
    apiVersion: batch.volcano.sh/v1alpha1
    kind: Job
    metadata: {{name: tf}}
    spec:
      minAvailable: 3
      tasks:
      - {{name: ps, replicas: 1, template: {TEMPLATE}}}
      - {{name: worker, replicas: 3, minAvailable: 2, template: {TEMPLATE}}}
    """
    expansion = expanded(text)
    group = only_group(expansion)
    assert (group.min_member, group.subgroups) == (
        3,
        (SubGroup(name="ps", min_member=1), SubGroup(name="worker", min_member=2)),
    )
    assert [(one.name, one.subgroup) for one in expansion.pods] == [
        ("tf-ps-0", "ps"),
        ("tf-worker-0", "worker"),
        ("tf-worker-1", "worker"),
        ("tf-worker-2", "worker"),
    ]


def test_members_of_a_volcano_group_with_task_minima_are_sorted_by_task() -> None:
    group = pod_group("scheduling.volcano.sh/v1beta1", "g", "{minMember: 2, minTaskMember: {ps: 1}}")
    keys = "annotations: {{scheduling.k8s.io/group-name: g, volcano.sh/task-spec: {}}}"
    text = group + "".join(
        pod(f"p-{task}", more=keys.format(task), phase="Pending") for task in ("ps", "worker")
    )
    expansion = expanded(text)
    assert only_group(expansion).subgroups == (
        SubGroup(name="ps", min_member=1),
        SubGroup(name="worker", min_member=0),
    )
    assert [one.subgroup for one in expansion.pods] == ["ps", "worker"]


def test_a_training_job_with_a_scheduling_policy_is_a_gang() -> None:
    text = f"""
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {{name: bert}}
    spec:
      runPolicy: {{schedulingPolicy: {{minAvailable: 2}}}}
      pytorchReplicaSpecs: {{Master: {{template: {TEMPLATE}}}, Worker: {{replicas: 2, template: {TEMPLATE}}}}}
    """
    expansion = expanded(text)
    assert (only_group(expansion).min_member, names(expansion)) == (
        2,
        ["bert-master-0", "bert-worker-0", "bert-worker-1"],
    )


def test_a_plain_pod_that_asks_for_placement_is_a_gang_of_one() -> None:
    expansion = expanded(pod("solo", more=f"annotations: {{{KAI}}}", phase="Pending"))
    group = only_group(expansion)
    assert (group.name, group.min_member, group.constraint) == ("solo", 1, RACK)
    assert expansion.pods[0].group == "solo"


def test_pods_of_an_owner_that_is_not_there_are_one_gang() -> None:
    keys = "annotations: {kueue.x-k8s.io/podset-required-topology: rack}, " + QUEUED
    text = QUEUES + "".join(pod(f"train-{i}-xyz", "Job/train", keys, phase="Pending") for i in range(3))
    expansion = expanded(text)
    group = only_group(expansion)
    assert (group.name, group.min_member, group.constraint) == ("train", 3, RACK)
    assert {(one.group, one.spec.node_selector) for one in expansion.pods} == {("train", (("pool", "gpu"),))}


def test_kueues_groups_of_plain_pods() -> None:
    keys = (
        "labels: {kueue.x-k8s.io/pod-group-name: g},"
        " annotations: {kueue.x-k8s.io/pod-group-total-count: '4',"
        " kueue.x-k8s.io/podset-preferred-topology: rack}"
    )
    group = only_group(expanded("".join(pod(name, more=keys, phase="Pending") for name in "ab")))
    assert (group.name, group.min_member, group.constraint) == ("g", 4, TopologyConstraint(preferred="rack"))


def test_members_that_contradict_each_other_wait() -> None:
    keys = (
        "labels: {{kueue.x-k8s.io/pod-group-name: g}},"
        " annotations: {{kueue.x-k8s.io/podset-required-topology: {}}}"
    )
    text = "".join(pod(name, more=keys.format(name), phase="Pending") for name in "ab")
    (condition,) = only_group(expanded(text)).conditions
    assert (condition.message, condition.blocking) == ("its 2 pods ask for different placements", True)


def test_plain_pods_stay_plain() -> None:
    expansion = expanded(pod("a") + pod("b", phase="Pending"))
    assert ([one.group for one in expansion.pods], expansion.groups) == ([None, None], ())


#: Kubernetes 1.35: a gang of two, and pods that need not start together.
WORKLOAD = """
apiVersion: scheduling.k8s.io/v1alpha1
kind: Workload
metadata: {name: train}
spec: {podGroups: [{name: workers, policy: {gang: {minCount: 2}}}, {name: driver, policy: {basic: {}}}]}
"""


def referring(name: str, group: str, replica: str = "") -> str:
    """A pod that refers to the Workload."""
    key = f", podGroupReplicaKey: '{replica}'" if replica else ""
    spec = f"workloadRef: {{name: train, podGroup: {group}{key}}}, {CONTAINERS}"
    return pod(name, spec=spec, phase="Pending")


def test_a_workload_of_kubernetes_says_which_pods_are_a_gang() -> None:
    """One gang for each replica of a pod group."""
    text = WORKLOAD + "".join(referring(f"{key}{i}", "workers", key) for key in "ab" for i in "01")
    expansion = expanded(text + referring("driver", "driver"))
    assert {one.name: (one.group, one.spec.unsupported) for one in expansion.pods} == {
        "a0": ("train.workers.a", ()),
        "a1": ("train.workers.a", ()),
        "b0": ("train.workers.b", ()),
        "b1": ("train.workers.b", ()),
        "driver": ("train.driver", ()),
    }
    assert {one.name: one.min_member for one in expansion.groups} == {
        "train.workers.a": 2,
        "train.workers.b": 2,
        "train.driver": 0,
    }
    assert all(not one.conditions for one in expansion.groups)


def test_what_a_workload_of_kubernetes_says_counts_before_the_kind_of_its_controller() -> None:
    template = f"{{spec: {{workloadRef: {{name: train, podGroup: workers}}, {CONTAINERS}}}}}"
    workers = f"{{replicas: 3, template: {template}}}"
    expansion = expanded(WORKLOAD + training("TFJob", f"tfReplicaSpecs: {{Worker: {workers}}}"))
    assert (only_group(expansion).name, only_group(expansion).min_member) == ("train.workers", 2)
    assert {one.group for one in expansion.pods} == {"train.workers"}


def test_a_workload_of_kubernetes_may_name_a_level() -> None:
    text = WORKLOAD.replace("name: train", f"name: train, annotations: {{{KAI}}}")
    assert only_group(expanded(text + referring("p", "workers"))).constraint == RACK


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "GangIncomplete"),
        (WORKLOAD.replace("name: workers", "name: others"), "GangIncomplete"),
        (WORKLOAD.replace("minCount: 2", "minCount: 0"), "InvalidSpec"),
        (WORKLOAD.replace("gang: {minCount: 2}", ""), "InvalidSpec"),
    ],
)
def test_pods_wait_for_a_workload_that_does_not_say_which_gang_they_are(text: str, reason: str) -> None:
    (condition,) = only_group(expanded(text + referring("p", "workers"))).conditions
    assert (condition.reason, condition.blocking) == (reason, True)
    assert condition.remedy


def test_later_workloads_are_templates_that_no_pod_refers_to() -> None:
    text = WORKLOAD.replace("v1alpha1", "v1beta1").replace("podGroups", "podGroupTemplates")
    text = text.replace("policy", "schedulingPolicy")
    manifests = read_manifests(["-"], stdin=lambda: text)
    assert (manifests.gang_templates, manifests.notices, manifests.errors) == ((), (), ())
    assert manifests.others == {"Workload": 1}
