"""Which gangs a workload's pods are: manifests in, PodGroups out."""

from typing import Any

import msgspec
import pytest
import yaml

from closeby.controllers.grouping.objects import (
    MANAGER,
    POD_GROUPS,
    names_for,
    object_of,
    seen_group,
    stands,
    validity,
)
from closeby.controllers.grouping.owners import Lineage, Ref
from closeby.controllers.grouping.plan import Plan, plan_of
from closeby.kube.state.decoding import Decoded, Decoder
from closeby.kube.watch.changes import upserted
from closeby.kube.watch.resources import PODS, Resource
from closeby.objects.groups import GangTemplate, GangTemplates, PodGroup, Strategy
from closeby.objects.pods import Pod, ProtectionRequest, WorkloadRef
from closeby.objects.topologies import ClusterQueue, LocalQueue, ResourceFlavor, ResourceGroup
from closeby.objects.workloads import Workload
from closeby.reading.decoding.keys import MANAGED_BY
from closeby.reading.dialects.grouping import undecided
from closeby.reading.dialects.kueue import Queues

REQUIRED = "kai.scheduler/topology-required-placement"
WISH = {"kai.scheduler/topology": "fabric", REQUIRED: "rack"}
RACK = {"topology": "fabric", "requiredTopologyLevel": "rack"}
NO_QUEUES = Queues({}, {}, {})
TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}
WISHING = {"metadata": {"annotations": WISH}, **TEMPLATE}


def lineage(
    api_version: str, kind: str, spec: object, above: dict[str, str] | None = None, **meta: Any
) -> Lineage:
    """A workload ``w`` that requires a rack, unless ``annotations`` say something else."""
    meta = {"name": "w", "namespace": "a", "uid": "u", "annotations": WISH, **meta}
    raw = msgspec.json.encode({"metadata": meta, "spec": spec})
    group, _, version = api_version.rpartition("/")
    resource = Resource(group=group, version=version, kind=kind, plural="", namespaced=True)
    read = Decoder().read(resource, upserted(msgspec.Raw(raw)))
    assert isinstance(read, Decoded) and isinstance(read.record, Workload)
    owner = Ref("a", api_version, kind, "w", "u")
    return Lineage(owner=owner, workload=read.record, raw=raw, annotations=above or {})


def unknown(kind: str = "Flow", uid: str = "u", **more: Any) -> Lineage:
    return Lineage(owner=Ref("a", "flows.example.com/v1", kind, "w", uid), **more)


def pod(name: str, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Pod:
    meta = {"name": name, "namespace": "a", "uid": name, "labels": labels, "annotations": annotations}
    raw = msgspec.json.encode({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})
    read = Decoder().read(PODS, upserted(msgspec.Raw(raw)))
    assert isinstance(read, Decoded) and isinstance(read.record, Pod)
    return read.record


def specs(plan: Plan) -> dict[str, Any]:
    return {gang.group.name: object_of(gang.group, gang.group.name, [])["spec"] for gang in plan.gangs}


def test_the_gangs_of_each_kind() -> None:
    """Kind and spec, as YAML; then the PodGroups' specs."""
    cases = """
    - [apps/v1, Deployment, {replicas: 3, template: T}, {w: {minMember: 3}}]
    - [apps/v1, ReplicaSet, {replicas: 0, template: T}, {w: {minMember: 1}}]
    - [apps/v1, StatefulSet, {replicas: 3, podManagementPolicy: Parallel, template: T}, {w: {minMember: 3}}]
    - [apps/v1, StatefulSet, {replicas: 3, template: T}, {w: {minMember: 1}}]
    - [batch/v1, Job, {parallelism: 4, completions: 9, template: T}, {w: {minMember: 4}}]
    - [batch/v1, Job, {parallelism: 4, completions: 2, template: T}, {w: {minMember: 2}}]
    - [batch/v1, Job, {template: T}, {w: {minMember: 1}}]
    - - jobset.x-k8s.io/v1alpha2
      - JobSet
      - replicatedJobs:
          - {name: a, replicas: 2, template: {spec: {parallelism: 3, template: T}}}
          - {name: b, template: {spec: {template: T}}}
      - {w: {minMember: 7}}
    - - jobset.x-k8s.io/v1alpha2
      - JobSet
      - startupPolicy: {startupPolicyOrder: InOrder}
        replicatedJobs:
          - {name: a, replicas: 2, template: {spec: {parallelism: 3, template: T}}}
          - {name: b, template: {spec: {template: T}}}
      - {w: {minMember: 6}, w-b: {minMember: 1}}
    - - kubeflow.org/v1
      - PyTorchJob
      - pytorchReplicaSpecs: {Master: {template: T}, Worker: {replicas: 3, template: T}}
      - {w: {minMember: 4}}
    - - kubeflow.org/v1
      - PyTorchJob
      - runPolicy: {schedulingPolicy: {minAvailable: 2, priorityClass: high}}
        pytorchReplicaSpecs: {Master: {template: T}, Worker: {replicas: 3, template: T}}
      - {w: {minMember: 2, priorityClassName: high}}
    - - kubeflow.org/v2beta1
      - MPIJob
      - launcherCreationPolicy: WaitForWorkersReady
        mpiReplicaSpecs: {Launcher: {template: T}, Worker: {replicas: 3, template: T}}
      - {w: {minMember: 3}}
    - - leaderworkerset.x-k8s.io/v1
      - LeaderWorkerSet
      - {replicas: 2, leaderWorkerTemplate: {size: 3, workerTemplate: T}}
      - {w-0: {minMember: 3}, w-1: {minMember: 3}}
    - - leaderworkerset.x-k8s.io/v1
      - LeaderWorkerSet
      - {startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 3, workerTemplate: T}}
      - {w-0: {minMember: 1}}
    - - ray.io/v1
      - RayCluster
      - headGroupSpec: {template: T}
        workerGroupSpecs:
          - {groupName: big, replicas: 2, numOfHosts: 2, template: T}
          - {groupName: small, minReplicas: 1, template: T}
          - {groupName: idle, replicas: 5, suspend: true, template: T}
      - {w: {minMember: 6}}
    - - ray.io/v1
      - RayCluster
      - enableInTreeAutoscaling: true
        headGroupSpec: {template: T}
        workerGroupSpecs: [{groupName: big, replicas: 5, minReplicas: 2, numOfHosts: 2, template: T}]
      - {w: {minMember: 5}}
    - - kubeflow.org/v1
      - PyTorchJob
      - elasticPolicy: {minReplicas: 2, maxReplicas: 8}
        pytorchReplicaSpecs: {Worker: {replicas: 4, template: T}}
      - {w: {minMember: 2}}
    """
    for api_version, kind, spec, expected in yaml.safe_load(cases):
        content = msgspec.json.decode(
            msgspec.json.encode(spec).replace(b'"T"', msgspec.json.encode(TEMPLATE))
        )
        plan = plan_of(lineage(api_version, kind, content), [], NO_QUEUES)
        wanted = {name: {**one, "topologyConstraint": RACK} for name, one in expected.items()}
        assert specs(plan) == wanted, (kind, spec)


def test_jobs_that_are_made_after_others_are_a_gang_of_their_own() -> None:
    jobs = [
        {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
        {
            "name": "workers",
            "replicas": 2,
            "dependsOn": [{"name": "driver", "status": "Ready"}],
            "template": {"spec": {"template": TEMPLATE}},
        },
    ]
    plan = plan_of(
        lineage("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs}, annotations={}), [], NO_QUEUES
    )
    assert specs(plan) == {"w": {"minMember": 1}, "w-workers": {"minMember": 2}}


def test_a_gang_by_nature_says_so_in_its_pod_group() -> None:
    roles = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": TEMPLATE}}}
    written = {}
    for annotations in ({}, WISH, {"closeby.dev/gang": "true"}):
        plan = plan_of(
            lineage("kubeflow.org/v1", "PyTorchJob", roles, annotations=annotations), [], NO_QUEUES
        )
        (gang,) = plan.gangs
        assert gang.group.min_member == 3
        owner = Ref("a", "kubeflow.org/v1", "PyTorchJob", "w", "u")
        body = object_of(gang.group, "w", [owner])
        raw = msgspec.Raw(msgspec.json.encode(body))
        read = Decoder().read(POD_GROUPS, upserted(raw))
        assert isinstance(read, Decoded) and isinstance(read.record, PodGroup)
        written[str(annotations)] = read.record.by_nature
    assert list(written.values()) == ["PyTorchJob", "", ""]


DELAY = "kai.scheduler/preemption-delay"


KAI = "kai.scheduler/preemptibility"
NOT_AT_ALL = ProtectionRequest("closeby.dev/preemptible=false")


@pytest.mark.parametrize(
    ("annotations", "labels", "asked"),
    [
        ({"closeby.dev/preemptible": "false"}, {}, NOT_AT_ALL),
        ({"volcano.sh/preemptable": "false"}, {}, NOT_AT_ALL),
        ({}, {KAI: "Non-Preemptible"}, NOT_AT_ALL),
        ({}, {KAI: "Semi-Preemptible"}, ProtectionRequest(f"{KAI}=semi-preemptible", minimum_only=True)),
        ({"volcano.sh/preemptable": "false"}, {KAI: "semi-preemptible"}, NOT_AT_ALL),
        ({}, {KAI: "preemptible"}, None),
    ],
)
def test_what_a_workload_asks_of_preemption_is_in_its_pod_group(
    annotations: dict[str, str], labels: dict[str, str], asked: ProtectionRequest | None
) -> None:
    roles = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": TEMPLATE}}}
    annotations = {**annotations, DELAY: "5m"}
    job = lineage("kubeflow.org/v1", "PyTorchJob", roles, annotations=annotations, labels=labels)
    plan = plan_of(job, [], NO_QUEUES)
    (gang,) = plan.gangs
    body = object_of(gang.group, "w", [Ref("a", "kubeflow.org/v1", "PyTorchJob", "w", "u")])
    read = Decoder().read(POD_GROUPS, upserted(msgspec.Raw(msgspec.json.encode(body))))
    assert isinstance(read, Decoded) and isinstance(read.record, PodGroup)
    assert read.record.protected_by == asked
    assert read.record.preemption_delay == 300


def test_no_gang_waits_for_pods_that_another_scheduler_places() -> None:
    """An MPIJob whose launcher is left to the default scheduler; a webhook may name ours on all pods."""
    ours = {"spec": {**TEMPLATE["spec"], "schedulerName": "closeby"}}
    member = pod("w-worker-0")
    member = msgspec.structs.replace(
        member, spec=msgspec.structs.replace(member.spec, scheduler_name="closeby")
    )
    for launcher, workers, least in ((TEMPLATE, ours, 3), (ours, ours, 4), (TEMPLATE, TEMPLATE, 4)):
        roles = {"Launcher": {"template": launcher}, "Worker": {"replicas": 3, "template": workers}}
        job = lineage("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": roles}, annotations={})
        assert specs(plan_of(job, [member], NO_QUEUES)) == {"w": {"minMember": least}}


def test_a_workload_opts_out_itself_or_through_an_owner_above_it() -> None:
    roles = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": TEMPLATE}}}
    out = {"closeby.dev/gang": "false"}
    for own, above in ((out, {}), ({}, out)):
        it = lineage("kubeflow.org/v1", "PyTorchJob", roles, above, annotations=own)
        plan = plan_of(it, [pod("w-worker-0")], NO_QUEUES)
        assert (plan.gangs, set(plan.alone)) == ((), {"w-worker-0"})


def test_pods_that_refer_to_a_workload_of_kubernetes() -> None:
    """Each replica is a gang; without the Workload its pods wait, and are told why."""
    workload = GangTemplates(
        namespace="a", name="train", templates=(GangTemplate(name="workers", min_member=2),)
    )
    owner = Ref("a", "scheduling.k8s.io/v1alpha1", "Workload", "train", "")
    pods = []
    for key in "xy":
        ref = WorkloadRef("train", "workers", key)
        pods += [msgspec.structs.replace(pod(f"{key}{i}"), workload_ref=ref) for i in range(2)]
    assert all(undecided(one) for one in pods)
    plan = plan_of(Lineage(owner=owner), pods, NO_QUEUES, {"a/train": workload})
    assert specs(plan) == {"train.workers.x": {"minMember": 2}, "train.workers.y": {"minMember": 2}}
    assert [set(gang.members) for gang in plan.gangs] == [{"x0", "x1"}, {"y0", "y1"}]
    again = [msgspec.structs.replace(one, group="train.workers.x") for one in pods[:2]]
    assert specs(plan_of(Lineage(owner=owner), again, NO_QUEUES, {"a/train": workload})) == {
        "train.workers.x": {"minMember": 2}
    }
    late = plan_of(Lineage(owner=owner), pods, NO_QUEUES)
    assert (late.gangs, set(late.waiting)) == ((), {"x0", "x1", "y0", "y1"})
    assert {one.reason for one in late.conditions} == {"GangIncomplete"}


def test_workloads_that_ask_for_nothing_are_no_gang() -> None:
    for api_version, kind in (("apps/v1", "Deployment"), ("batch/v1", "Job"), ("apps/v1", "StatefulSet")):
        plan = plan_of(
            lineage(api_version, kind, {"template": TEMPLATE}, annotations={}), [pod("p")], NO_QUEUES
        )
        assert not plan.gangs
        assert plan.alone == {"p"}


def test_a_job_needs_no_more_than_are_left() -> None:
    raw = lineage("batch/v1", "Job", {"parallelism": 4, "completions": 6, "template": TEMPLATE})
    assert raw.workload is not None
    (pods,) = raw.workload.pod_sets
    late = msgspec.structs.replace(raw.workload, pod_sets=(msgspec.structs.replace(pods, completed=4),))
    plan = plan_of(msgspec.structs.replace(raw, workload=late), [], NO_QUEUES)
    assert specs(plan)["w"]["minMember"] == 2


def test_templates_that_ask_make_subgroups_that_their_pods_name() -> None:
    roles = {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": WISHING}}
    pods = [
        pod("w-worker-0", labels={"training.kubeflow.org/replica-type": "worker"}),
        pod("w-master-0"),
        pod("stranger"),
    ]
    plan = plan_of(
        lineage("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": roles}, annotations={}),
        pods,
        NO_QUEUES,
    )
    parts = [
        {"name": "master", "minMember": 1},
        {"name": "worker", "minMember": 2, "topologyConstraint": RACK},
    ]
    assert specs(plan) == {"w": {"minMember": 3, "subGroups": parts}}
    (gang,) = plan.gangs
    assert gang.members == {"w-worker-0": "worker", "w-master-0": "master", "stranger": None}


def test_owners_above_the_workload_count_where_it_says_nothing() -> None:
    above = {**WISH, REQUIRED: "zone", "closeby.dev/placement-strategy": "spread"}
    plan = plan_of(
        lineage("batch/v1", "Job", {"template": TEMPLATE}, above, annotations={REQUIRED: "rack"}),
        [],
        NO_QUEUES,
    )
    assert specs(plan) == {
        "w": {"minMember": 1, "topologyConstraint": RACK, "placement": {"strategy": "spread"}}
    }


def test_a_queue_says_which_topology_is_meant() -> None:
    queues = Queues(
        {("a", "lq"): LocalQueue(namespace="a", name="lq", cluster_queue="cq")},
        {"cq": ClusterQueue(name="cq", groups=(ResourceGroup(("f",)),))},
        {"f": ResourceFlavor(name="f", topology_name="fabric")},
    )
    template = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
        **TEMPLATE,
    }
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    job = lineage("batch/v1", "Job", {"template": template}, annotations={}, labels=labels)
    assert specs(plan_of(job, [], queues)) == {"w": {"minMember": 1, "topologyConstraint": RACK}}


@pytest.mark.parametrize(
    ("annotations", "size", "members"),
    [
        (WISH, 1, {"p", "q"}),
        ({**WISH, "kai.scheduler/batch-min-member": "2"}, 2, {"p", "q"}),
        ({"kai.scheduler/batch-min-member": "2"}, 2, {"p", "q"}),
    ],
)
def test_owners_whose_pods_can_not_be_counted(
    annotations: dict[str, str], size: int, members: set[str]
) -> None:
    plan = plan_of(unknown(annotations=annotations), [pod("p"), pod("q")], NO_QUEUES)
    (gang,) = plan.gangs
    assert (gang.group.min_member, set(gang.members)) == (size, members)


def test_pods_of_unknown_owners_that_ask_themselves() -> None:
    plan = plan_of(unknown(), [pod("p", WISH), pod("q", WISH), pod("r")], NO_QUEUES)
    assert specs(plan) == {"w": {"minMember": 1, "topologyConstraint": RACK}}
    assert plan.gangs[0].members.keys() == {"p", "q"}
    assert plan.alone == {"r"}
    (torn,) = plan_of(unknown(), [pod("p", WISH), pod("q", {REQUIRED: "zone"})], NO_QUEUES).gangs
    assert torn.blocked


def test_pods_whose_owner_is_gone_wait_if_they_ask() -> None:
    plan = plan_of(unknown(gone=True), [pod("p", WISH), pod("r")], NO_QUEUES)
    assert not plan.gangs
    assert (set(plan.waiting), set(plan.alone)) == ({"p"}, {"r"})


def test_wishes_that_make_no_sense_block_the_gang() -> None:
    for wrong in (
        {**WISH, "kueue.x-k8s.io/podset-required-topology": "rack"},
        {**WISH, "kai.scheduler/batch-min-member": "0"},
        {**WISH, "closeby.dev/placement-strategy": "anywhere"},
        {**WISH, "kai.scheduler/segment-topology-required-placement": "rack"},
    ):
        (gang,) = plan_of(
            lineage("batch/v1", "Job", {"template": TEMPLATE}, annotations=wrong), [], NO_QUEUES
        ).gangs
        assert gang.blocked, wrong
        said = validity(gang.group.conditions, None)
        assert said is not None and (said.status, said.type) == ("False", "WorkloadValid")
    (gang,) = plan_of(
        lineage("batch/v1", "Job", {"template": TEMPLATE}, annotations={**WISH, "closeby.dev/rang": "1"}),
        [],
        NO_QUEUES,
    ).gangs
    said = validity(gang.group.conditions, None)
    assert not gang.blocked and said is not None and said.status == "True"
    assert "closeby.dev/rank" in said.message
    assert validity((), None) is None
    healed = validity((), said)
    assert healed is not None and (healed.status, healed.message) == ("True", "")


# The object


def test_names_are_fit_for_labels_and_tell_workloads_apart() -> None:
    group = PodGroup(namespace="a", name="train")
    assert list(names_for(group, "Job", "u"))[:2] == ["train", "train-job"]
    long = msgspec.structs.replace(group, name="x" * 80)
    names = list(names_for(long, "Deployment", "u")) + list(names_for(long, "Deployment", "v"))
    assert all(len(name) <= 63 for name in names)
    assert len(set(names)) == 4


def test_what_is_written() -> None:
    group = PodGroup(
        namespace="a",
        name="train",
        min_member=2,
        strategy=Strategy.SPREAD,
        annotations={
            "closeby.dev/placement-strategy": "spread",
            "volcano.sh/task-topology-affinity": "ps,worker",
            "else": "x",
        },
    )
    owner = Ref("a", "batch/v1", "Job", "train", "u")
    written = object_of(group, "train", [owner])
    assert written["spec"] == {"minMember": 2, "placement": {"strategy": "spread"}}
    assert written["metadata"] == {
        "name": "train",
        "namespace": "a",
        "labels": {MANAGED_BY: MANAGER},
        "annotations": {"volcano.sh/task-topology-affinity": "ps,worker"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        ],
    }


def test_what_stands_is_not_written_again() -> None:
    wanted = object_of(PodGroup(namespace="a", name="g", min_member=2), "g", [])
    found = msgspec.json.decode(msgspec.json.encode(wanted))
    found["metadata"]["uid"] = "u"
    found["spec"]["placement"] = {"strategy": "spread"}
    seen = seen_group(POD_GROUPS, msgspec.json.encode(found))
    assert seen.managed and stands(seen, wanted)
    found["spec"]["minMember"] = 3
    assert not stands(seen_group(POD_GROUPS, msgspec.json.encode(found)), wanted)
    del found["metadata"]["labels"]
    assert not seen_group(POD_GROUPS, msgspec.json.encode(found)).managed
    assert not seen_group(POD_GROUPS, b'{"metadata": 3}').managed


def test_a_gang_waits_for_no_pods_that_follow_others() -> None:
    # JobSet refuses the other pods of a job until its first one has a node, a LeaderWorkerSet makes none.
    job = {"parallelism": 3, "completions": 3, "template": TEMPLATE}
    jobs = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job}}]}
    key = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    found = lineage("jobset.x-k8s.io/v1alpha2", "JobSet", jobs, annotations=key)
    layer = {"level": "rack", "size": 3, "remainder": "allow", "exclusive": "kind"}
    assert specs(plan_of(found, [], NO_QUEUES)) == {"w": {"minMember": 2, "layers": [layer]}}
    group = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
    key = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    found = lineage("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", group, annotations=key)
    assert specs(plan_of(found, [], NO_QUEUES)) == {"w-0": {"minMember": 1, "layers": [layer]}}
