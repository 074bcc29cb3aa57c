"""Which pods come out of workload objects, with and without pods that exist already."""

import itertools
import json

import msgspec
import pytest

from closeby.objects.groups import Layer, Remainder, TopologyConstraint
from closeby.objects.pods import ClaimRequest, Pod
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import read_manifests
from closeby.simulator.expansion import Expansion, expand
from closeby.simulator.runs import simulate
from closeby.simulator.surroundings import unknown_classes
from tests.lab.workload_text import (
    CONTAINERS,
    JOB_SET,
    KAI,
    QUEUED,
    TEMPLATE,
    expanded,
    job,
    names,
    only_group,
    pod,
    pod_group,
    replicated,
)
from tests.real_input import shared_data


def test_plain_workloads_become_plain_pods() -> None:
    expansion = expanded(
        f"""
        apiVersion: apps/v1
        kind: Deployment
        metadata: {{name: web, namespace: shop, creationTimestamp: "1970-01-01T00:01:40Z"}}
        spec: {{replicas: 2, template: {TEMPLATE}}}
        """
    )
    first, second = expansion.pods
    assert expansion.groups == ()
    assert first == Pod(
        namespace="shop",
        name="web-0",
        uid="shop/web-0",
        spec=first.spec,
        created=100.0,
        owner="Deployment/web",
    )
    assert (second.name, second.index) == ("web-1", None)
    assert second.spec is first.spec


def test_numbered_pods_know_their_number() -> None:
    expansion = expanded(replicated("StatefulSet", "db", 2))
    assert [(one.name, one.index) for one in expansion.pods] == [("db-0", 0), ("db-1", 1)]


CLAIM = "{metadata: {name: data}, spec: {storageClassName: fast, resources: {requests: {storage: 1Gi}}}}"


def claims(expansion: Expansion) -> dict[str, list[str]]:
    """The names of each pod's claims."""
    return {one.name: [claim.of(one.name) for claim in one.spec.claims] for one in expansion.pods}


def test_leaders_and_workers_get_claims_of_their_own_as_those_of_a_stateful_set() -> None:
    """Its controller hands the templates to the StatefulSets of both, without their selectors."""
    expansion = expanded(
        f"""
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        metadata: {{name: serve}}
        spec:
          replicas: 2
          leaderWorkerTemplate:
            size: 2
            workerTemplate: {{spec: {{containers: [{{name: c}}]}}}}
            volumeClaimTemplates:
            - {CLAIM.replace("spec: {", "spec: {selector: {matchLabels: {a: b}}, ")}
        """
    )
    assert claims(expansion) == {
        "serve-0": ["data-serve-0"],
        "serve-0-1": ["data-serve-0-1"],
        "serve-1": ["data-serve-1"],
        "serve-1-1": ["data-serve-1-1"],
    }
    (request,) = {claim.request for pod in expansion.pods for claim in pod.spec.claims}
    assert request == ClaimRequest(storage_class="fast", size=2**30)


def test_the_jobs_of_a_job_set_share_the_claims_that_they_mount() -> None:
    mounts = "volumeMounts: [{name: data, mountPath: /data}, {name: other, mountPath: /other}]"
    job = "{{name: {}, template: {{spec: {{parallelism: 2, template: {{spec: {}}}}}}}}}"
    expansion = expanded(
        f"""
        apiVersion: jobset.x-k8s.io/v1alpha2
        kind: JobSet
        metadata: {{name: train}}
        spec:
          volumeClaimPolicies:
          - templates: [{CLAIM}]
          replicatedJobs:
          - {job.format("driver", "{containers: [{name: c}]}")}
          - {job.format("loader", f"{{containers: [{{name: c}}], initContainers: [{{name: i, {mounts}}}]}}")}
          - {job.format("worker", f"{{containers: [{{name: c}}, {{name: d, {mounts}}}]}}")}
        """
    )
    assert claims(expansion) == {
        "train-driver-0-0": [],
        "train-driver-0-1": [],
        "train-loader-0-0": ["data-train"],
        "train-loader-0-1": ["data-train"],
        "train-worker-0-0": ["data-train"],
        "train-worker-0-1": ["data-train"],
    }


def test_two_workloads_of_one_name_get_different_pods() -> None:
    expansion = expanded(replicated("Deployment", "a", 2) + replicated("StatefulSet", "a", 2))
    assert [(one.name, one.owner) for one in expansion.pods] == [
        ("a-0", "StatefulSet/a"),
        ("a-1", "StatefulSet/a"),
        ("a-2", "Deployment/a"),
        ("a-3", "Deployment/a"),
    ]


def test_a_suspended_job_makes_no_pods_and_says_so() -> None:
    expansion = expanded(job(spec="parallelism: 3, suspend: true"))
    (condition,) = expansion.conditions
    assert expansion.pods == ()
    assert (condition.object, condition.field, condition.blocking) == (
        "Job/default/train",
        "spec.suspend",
        False,
    )


def test_kueues_jobs_are_suspended_by_nature() -> None:
    expansion = expanded(job(QUEUED, spec="parallelism: 3, suspend: true"))
    assert len(expansion.pods) == 3
    condition, _ = expansion.conditions
    assert (condition.reason, condition.object, condition.blocking) == (
        "SchedulingGated",
        "Job/default/train",
        False,
    )


def test_pods_that_kueue_holds_count_as_admitted_too() -> None:
    """The gates of others stay, and a running pod has none."""
    gates = "schedulingGates: [{name: kueue.x-k8s.io/admission}, {name: mine}]"
    text = pod("a", spec=gates, phase="Pending") + pod("b", spec=gates, phase="Pending")
    expansion = expanded(text + pod("c", spec="schedulingGates: [{name: mine}]", phase="Pending"))
    assert {one.spec.scheduling_gates for one in expansion.pods} == {("mine",)}
    assert expansion.pods[0].spec is expansion.pods[1].spec
    (condition,) = expansion.conditions
    assert (condition.reason, condition.object) == ("SchedulingGated", "Pod/default/a")


def test_our_own_gate_is_one_that_we_remove() -> None:
    gates = "schedulingGates: [{name: closeby.dev/placement}, {name: mine}]"
    expansion = expanded(pod("a", spec=gates, phase="Pending"))
    assert expansion.pods[0].spec.scheduling_gates == ("mine",)
    assert not expansion.conditions


def test_pods_of_a_job_that_is_not_in_the_input_may_be_a_gang() -> None:
    """Its annotations are not known. One pod alone needs no note, and pods that ask themselves are a gang."""
    text = "".join(pod(f"t{i}", "Job/train", phase="Pending") for i in range(3))
    text += pod("one", "Job/single", phase="Pending")
    asks = "annotations: {kueue.x-k8s.io/podset-required-topology: example.com/rack}"
    text += "".join(pod(f"k{i}", "Job/asks", asks, phase="Pending") for i in range(2))
    (found,) = expanded(text).conditions
    assert (found.reason, found.object, found.blocking) == ("GangIncomplete", "Job/default/train", False)
    assert "kubectl get job" in found.remedy


def test_pods_whose_gang_is_not_in_the_input_are_said() -> None:
    """One note for each kind; a running pod, a finished one and one that names its group need none."""
    label = "labels: {jobset.sigs.k8s.io/jobset-name: js}"
    text = "".join(pod(f"t{i}", f"PyTorchJob/t{i}", phase="Pending") for i in range(2))
    text += pod("j", "Job/js-w-0", label, phase="Pending")
    text += pod("n", "TFJob/x", spec="nodeName: n") + pod("f", "TFJob/x", phase="Succeeded")
    text += pod("g", "TFJob/x", "annotations: {pod-group-name: g}", phase="Pending")
    text += pod("web", "ReplicaSet/web-5d", phase="Pending")
    found = expanded(text).conditions
    assert [(one.reason, one.object, one.blocking) for one in found] == [
        ("GangIncomplete", "JobSet/default/js", False),
        ("GangIncomplete", "PyTorchJob/default/t0", False),
    ]
    assert "kubectl get jobset" in found[0].remedy
    assert "kubectl get pytorchjob" in found[1].remedy


CLASSES = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 9\n---\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (CLASSES + pod("p", spec="priorityClassName: hihg", phase="Pending"), ["Pod/default/p"]),
        (pod("p", spec="priorityClassName: high", phase="Pending"), ["Pod/default/p"]),
        (CLASSES + pod("p", spec="priorityClassName: high", phase="Pending"), []),
        (pod("p", spec="priorityClassName: system-node-critical", phase="Pending"), []),
        (pod("p", spec="priorityClassName: high, priority: 9", phase="Pending"), []),
        (CLASSES + pod("p", spec="priorityClassName: low, priority: 1", phase="Pending"), ["Pod/default/p"]),
        (pod("p", spec="priorityClassName: high, nodeName: n"), []),
        (pod_group("closeby.dev/v1alpha1", "g", "{priorityClassName: high}"), ["PodGroup/default/g"]),
        (
            job(template=f"{{spec: {{priorityClassName: high, {CONTAINERS}}}}}"),
            ["Job/default/train"],
        ),
    ],
)
def test_a_priority_class_that_does_not_exist_is_said_once(text: str, named: list[str]) -> None:
    manifests = read_manifests(["-"], stdin=lambda: text)
    expansion = expand(manifests)
    found = unknown_classes(expansion.pods, expansion.groups, manifests.priority_classes)
    assert [one.object for one in found] == named
    assert all(one.reason == "InvalidSpec" and not one.blocking for one in found)
    assert all("kubectl get priorityclasses" in one.remedy for one in found)
    assert ("did you mean high?" in "".join(one.remedy for one in found)) == ("hihg" in text)


def test_the_classes_of_every_server_count() -> None:
    node = (
        "{kind: Node, apiVersion: v1, metadata: {name: n}, status: {allocatable: {cpu: 1, pods: 1}}}\n---\n"
    )
    waiting = "".join(
        pod(name, spec=f"{more}{CONTAINERS}", phase="Pending")
        for name, more in (("a", ""), ("b", "priorityClassName: system-node-critical, "))
    )
    found = simulate(read_manifests(["-"], stdin=lambda: node + waiting), Configuration())
    assert found.bindings.keys() == {"default/b"}


def test_pods_that_exist_keep_their_names_and_are_not_made_again() -> None:
    expansion = expanded(job() + pod("train-x7k2p", "Job/train", spec="nodeName: n"))
    assert names(expansion) == ["train-0", "train-1", "train-x7k2p"]
    assert expansion.pods[2].node_name == "n"


def test_new_pods_join_the_group_of_those_that_live() -> None:
    old, new = (f"labels: {{scheduling.x-k8s.io/pod-group: {name}}}" for name in ("old", "new"))
    text = job(spec="parallelism: 2, completions: 3") + pod("a", "Job/train", new)
    found = expanded(text + pod("b", "Job/train", old, phase="Succeeded")).pods
    assert {one.name: one.group for one in found if not one.finished} == {"a": "new", "train-0": "new"}


def test_numbers_that_are_taken_are_not_given_again() -> None:
    taken = "labels: {apps.kubernetes.io/pod-index: '1'}"
    text = replicated("StatefulSet", "db", 3)
    expansion = expanded(text + pod("db-1", "StatefulSet/db", taken))
    assert [(one.name, one.index) for one in expansion.pods] == [("db-0", 0), ("db-1", 1), ("db-2", 2)]


def test_failed_pods_are_made_again_under_their_name() -> None:
    text = replicated("StatefulSet", "db", 1)
    number = "labels: {apps.kubernetes.io/pod-index: '0'}"
    expansion = expanded(text + pod("db-0", "StatefulSet/db", number, phase="Failed"))
    assert [(one.name, one.index, one.phase) for one in expansion.pods] == [("db-0", 0, "Pending")]


@pytest.mark.parametrize(
    ("status", "done", "made"),
    [("", 0, 3), ("", 3, 2), ("status: {succeeded: 4}", 0, 1), ("status: {succeeded: 3}", 4, 1), ("", 5, 0)],
)
def test_a_job_makes_no_more_pods_than_are_still_to_complete(status: str, done: int, made: int) -> None:
    text = job(spec="parallelism: 3, completions: 5") + status
    text += "".join(pod(f"done-{i}", "Job/train", phase="Succeeded") for i in range(done))
    pending = [one for one in expanded(text).pods if one.phase == "Pending"]
    assert len(pending) == made


def test_a_deployments_pods_are_found_through_its_replica_set() -> None:
    deployment = replicated("Deployment", "web", 3)
    replica_set = replicated(
        "ReplicaSet", "web-5d8", 3, "ownerReferences: [{kind: Deployment, name: web, controller: true}]"
    )
    running = pod("web-5d8-abcde", "ReplicaSet/web-5d8", "labels: {pod-template-hash: 5d8}")
    assert names(expanded(deployment + replica_set + running)) == ["web-0", "web-1", "web-5d8-abcde"]
    # The replica set is known by the pods' label alone, too.
    assert names(expanded(deployment + running)) == ["web-0", "web-1", "web-5d8-abcde"]


def test_a_job_sets_pods_are_numbered_through() -> None:
    def running(job: str, number: int, suffix: str) -> str:
        labels = (
            "labels: {jobset.sigs.k8s.io/jobset-name: js,"
            f" jobset.sigs.k8s.io/replicatedjob-name: {job.split('-')[1]},"
            f" batch.kubernetes.io/job-completion-index: '{number}'}}"
        )
        return pod(f"{job}-{number}-{suffix}", f"Job/{job}", labels)

    expansion = expanded(JOB_SET + running("js-workers-1", 0, "x1y2z") + running("js-driver-0", 0, "aaaaa"))
    assert [(one.name, one.index) for one in expansion.pods] == [
        ("js-driver-0-0-aaaaa", 0),
        ("js-workers-0-0", 0),
        ("js-workers-0-1", 1),
        ("js-workers-1-0-x1y2z", 2),
        ("js-workers-1-1", 3),
    ]


@pytest.mark.parametrize(
    ("api", "kind", "spec", "order"),
    [
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            (
                "replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 2, template: T}}},"
                " {name: driver, template: {spec: {template: T}}}]"
            ),
            ["w-0-0", "w-0-1", "w-1-0", "w-1-1", "driver-0-0"],
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "tasks: [{name: ps, replicas: 1, template: T}, {name: eval, replicas: 2, template: T}]",
            ["ps-0", "eval-0", "eval-1"],
        ),
        (
            "kubeflow.org/v1",
            "TFJob",
            (
                "tfReplicaSpecs: {PS: {replicas: 1, template: T}, Worker: {replicas: 2, template: T},"
                " Chief: {replicas: 1, template: T}}"
            ),
            ["chief-0", "worker-0", "worker-1", "ps-0"],
        ),
        (
            "ray.io/v1",
            "RayCluster",
            "headGroupSpec: {template: T}, workerGroupSpecs: [{groupName: a, replicas: 2, template: T}]",
            ["head", "a-worker-0", "a-worker-1"],
        ),
    ],
)
def test_ranks_follow_the_order_of_the_spec(api: str, kind: str, spec: str, order: list[str]) -> None:
    # One node, so that no place decides.
    node = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 64, pods: 64}}}"
    spec = spec.replace("emplate: T", f"emplate: {TEMPLATE}")
    workload = f"{{apiVersion: {api}, kind: {kind}, metadata: {{name: job}}, spec: {{{spec}}}}}"
    manifests = read_manifests(["-"], stdin=lambda: f"{node}\n---\n{workload}\n")
    run = simulate(manifests, Configuration())
    ranked = sorted((one.rank or 0, one.pod.name) for one in run.bindings.values())
    assert ranked == [(rank, f"job-{name}") for rank, name in enumerate(order)]


def test_the_order_of_the_manifests_does_not_matter() -> None:
    objects = [
        JOB_SET.replace("name: js", f"name: js, annotations: {{{KAI}}}"),
        job(f"annotations: {{{KAI}}}"),
        pod_group("closeby.dev/v1alpha1", "train"),
        replicated("Deployment", "train", 1),
        pod("train-0", phase="Pending"),
    ]
    outcomes = {
        json.dumps(msgspec.to_builtins(expanded("\n---\n".join(order))), sort_keys=True)
        for order in itertools.permutations(objects)
    }
    assert len(outcomes) == 1


def test_kueues_samples() -> None:
    paths = [
        str(shared_data(f"kueue/{name}.yaml"))
        for name in (
            "sample-queues",
            "sample-job-required",
            "sample-job-preferred",
            "sample-job-unconstrained",
        )
    ]
    expansion = expand(read_manifests(paths))
    assert [(group.min_member, group.constraint, group.wants_closeness) for group in expansion.groups] == [
        (40, TopologyConstraint(topology="default", preferred="cloud.provider.com/topology-block"), True),
        (10, TopologyConstraint(topology="default", required="cloud.provider.com/topology-rack"), True),
        (6, None, False),
    ]
    assert len(expansion.pods) == 56
    assert {one.spec.node_selector for one in expansion.pods} == {
        (("cloud.provider.com/node-group", "tas-group"),)
    }
    assert all(group.conditions == () for group in expansion.groups)


def test_kueues_sliced_job_set_has_a_layer() -> None:
    group = only_group(expand(read_manifests([str(shared_data("kueue/sample-jobset-tas-sliced.yaml"))])))
    assert group.conditions == ()
    assert group.constraint is None
    level = "cloud.provider.com/topology-rack"
    assert group.layers == (Layer(level=level, size=4, remainder=Remainder.ALLOW),)


def test_kais_pipeline() -> None:
    expansion = expand(read_manifests([str(shared_data("kai/multi-topology-jobs.yaml"))]))
    assert only_group(expansion).source == "scheduling.run.ai/v2alpha2"
    assert [(one.name, one.group, one.subgroup) for one in expansion.pods] == [
        *((f"rack-bound-job-{i}", "multi-topology-pipeline", "rack-workers") for i in range(3)),
        *((f"zone-bound-job-{i}", "multi-topology-pipeline", "zone-workers") for i in range(3)),
    ]


def test_the_online_boutique_is_twelve_plain_pods() -> None:
    expansion = expand(read_manifests([str(shared_data("online-boutique"))]))
    assert len(expansion.pods) == 12
    assert (expansion.groups, expansion.conditions) == ((), ())


KUEUE = """
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: team}}
spec: {{clusterQueue: {cluster}}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: cq}}
spec: {{resourceGroups: [{{flavors: [{{name: {flavor}}}]}}]}}
---
{{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {{name: h100}}}}
"""


@pytest.mark.parametrize(
    ("queue", "cluster", "flavor", "user", "meant"),
    [
        ("teem", "cq", "h100", "Job/default/train", "team"),
        ("team", "cqq", "h100", "LocalQueue/default/team", "cq"),
        ("team", "cq", "h10", "ClusterQueue/cq", "h100"),
    ],
)
def test_a_queue_or_flavor_that_is_not_there_is_said(
    queue: str, cluster: str, flavor: str, user: str, meant: str
) -> None:
    train = job(f"labels: {{kueue.x-k8s.io/queue-name: {queue}}}")
    condition, _ = expanded(KUEUE.format(cluster=cluster, flavor=flavor) + train).conditions
    assert (condition.reason, condition.object) == ("InvalidSpec", user)
    assert condition.remedy.startswith(f"did you mean {meant}?")
    for text in (KUEUE.format(cluster="cq", flavor="h100") + train.replace(queue, "team"), train):
        assert [one.reason for one in expanded(text).conditions] == ["Unsupported"]


VOLCANO_JOB = """
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vj}
spec: {queue: heavy, tasks: [{name: w, replicas: 2, template: {spec: {containers: [{name: c}]}}}]}
"""
KAI_GROUP = """
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: g}
spec: {minMember: 1, queue: team-a}
"""


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        (KUEUE.format(cluster="cq", flavor="h100") + job(QUEUED).replace("lq", "team"), "ClusterQueue/cq"),
        (job(QUEUED), "LocalQueue/default/lq"),
        (job("labels: {kai.scheduler/queue: team-a}"), "Queue/team-a"),
        (KAI_GROUP, "Queue/team-a"),
        (VOLCANO_JOB, "Queue/heavy"),
        (VOLCANO_JOB.replace("heavy", "default"), None),
    ],
)
def test_that_the_quota_of_a_queue_is_not_checked_is_said(text: str, queue: str | None) -> None:
    found = [one.object for one in expanded(text).conditions if one.reason == "Unsupported"]
    assert found == ([] if queue is None else [queue])


def gpu_node(key: str) -> str:
    return f"""
---
apiVersion: v1
kind: Node
metadata: {{name: n}}
spec: {{taints: [{{key: {key}, value: present, effect: NoSchedule}}]}}
status: {{allocatable: {{nvidia.com/gpu: 8, pods: 110}}}}
"""


@pytest.mark.parametrize(
    ("key", "more", "tolerations"),
    [
        ("nvidia.com/gpu", "", [("nvidia.com/gpu", "NoSchedule")]),
        # What no pod asks for, what is no extended resource, and what its author wrote already.
        ("nvidia.com/other", "", []),
        ("team", "", []),
        ("nvidia.com/gpu", "tolerations: [{operator: Exists}], ", [("", "")]),
    ],
)
def test_pods_that_no_api_server_has_seen_tolerate_the_taint_of_their_resource(
    key: str, more: str, tolerations: list[tuple[str, str]]
) -> None:
    # plugin/pkg/admission/extendedresourcetoleration of Kubernetes
    spec = f"spec: {{{more}containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}"
    text = f"""
---
apiVersion: batch/v1
kind: Job
metadata: {{name: j}}
spec: {{template: {{{spec}}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: new}}, {spec}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: old, creationTimestamp: "2026-01-01T00:00:00Z"}}, {spec}}}
"""
    expansion = expanded(gpu_node(key) + text)
    found = {pod.name: [(one.key, one.effect) for one in pod.spec.tolerations] for pod in expansion.pods}
    assert (found["j-0"], found["new"]) == (tolerations, tolerations)
    assert found["old"] == [one for one in tolerations if not one[0]]
    said = [one.reason for one in expansion.conditions]
    assert said == (["TaintNotTolerated"] if key in dict(tolerations) else [])
    never = expand(read_manifests(["-"], stdin=lambda: gpu_node(key) + text), tolerate=False)
    assert all(len(pod.spec.tolerations) == len(found["old"]) for pod in never.pods)
