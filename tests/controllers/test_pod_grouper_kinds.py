"""Workloads of many kinds on a real control plane: their PodGroup, and their pods together in one rack.

Each cluster has a rack r1 of 4 GPUs and a rack r2 of 12; a pod takes one.
"""

import asyncio
from typing import Any

from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.controllers.grouper_world import World, define_kind, racks_of, reference, world

RACKS = {"r1": 1, "r2": 3}


def checked(group: Object, owner: Object, spec: dict[str, Any]) -> None:
    assert group["metadata"]["ownerReferences"] == [reference(owner)]
    assert group["spec"] == spec


def rack(it: World) -> Object:
    return {"topology": it.topology, "requiredTopologyLevel": "rack"}


def test_a_job(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            job = await it.job("train", 6, it.wish())
            await it.members("train", 6)
            checked(await it.group("train"), job, {"minMember": 6, "topologyConstraint": rack(it)})
            assert racks_of(await it.bound(6)) == {"r2"}

    asyncio.run(run())


def test_a_deployment_and_one_that_asks_for_nothing(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    def deployment(it: World, name: str, replicas: int, annotations: dict[str, str]) -> Object:
        return {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": it.template(labels={"app": name}),
            },
        }

    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            close = await it.create("apps/v1", "deployments", deployment(it, "close", 5, it.wish()))
            await it.members("close", 5)
            checked(await it.group("close"), close, {"minMember": 5, "topologyConstraint": rack(it)})
            assert racks_of(await it.bound(5)) == {"r2"}
            await it.create("apps/v1", "deployments", deployment(it, "free", 2, {}))
            await it.bound(7)
            free = [one for name, one in (await it.pods()).items() if name.startswith("free-")]
            assert [one["metadata"]["annotations"]["closeby.dev/pod-group"] for one in free] == ["none"] * 2
            assert (await it.groups()).keys() == {"close"}

    asyncio.run(run())


def test_a_stateful_set(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            body = {
                "metadata": {"name": "db", "annotations": it.wish()},
                "spec": {
                    "replicas": 6,
                    "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": {"app": "x"}},
                    "template": it.template(),
                },
            }
            made = await it.create("apps/v1", "statefulsets", body)
            await it.members("db", 6)
            checked(await it.group("db"), made, {"minMember": 6, "topologyConstraint": rack(it)})
            assert racks_of(await it.bound(6)) == {"r2"}

    asyncio.run(run())


def test_a_job_set(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            await define_kind(it.api, "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
            jobs = [
                {
                    "name": name,
                    "replicas": 1,
                    "template": {"spec": {"parallelism": size, "completions": size}},
                }
                for name, size in (("leader", 1), ("worker", 5))
            ]
            body = {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {"name": "big", "annotations": it.wish()},
                "spec": {"replicatedJobs": jobs},
            }
            made = await it.create("jobset.x-k8s.io/v1alpha2", "jobsets", body)
            for name, size in (("leader", 1), ("worker", 5)):
                await it.job(f"big-{name}-0", size, {}, ownerReferences=[reference(made)])
            await it.members("big", 6)
            checked(await it.group("big"), made, {"minMember": 6, "topologyConstraint": rack(it)})
            assert (await it.groups()).keys() == {"big"}
            assert racks_of(await it.bound(6)) == {"r2"}

    asyncio.run(run())


def test_gangs_by_nature_and_one_that_opts_out(whole_control_plane: ControlPlane, namespace: str) -> None:
    """There are 4 GPUs: the gang of 6 gets none of them, and the pods of the other job take two."""

    def training_job(it: World, name: str, workers: int, annotations: dict[str, str]) -> Object:
        roles = {"Worker": {"replicas": workers, "template": it.template()}}
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"pytorchReplicaSpecs": roles},
        }

    async def run() -> None:
        racks = {"r1": 1}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            await define_kind(it.api, "kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
            big = await it.create("kubeflow.org/v1", "pytorchjobs", training_job(it, "big", 6, {}))
            await it.pods_of(big, "big-worker", 6, {})
            await it.members("big", 6)
            group = await it.group("big")
            checked(group, big, {"minMember": 6})
            assert group["metadata"]["annotations"] == {"closeby.dev/gang": "by-nature"}
            out = {"closeby.dev/gang": "false"}
            free = await it.create("kubeflow.org/v1", "pytorchjobs", training_job(it, "free", 2, out))
            await it.pods_of(free, "free-worker", 2, {})
            assert (await it.bound(2)).keys() == {"free-worker-0", "free-worker-1"}
            assert (await it.groups()).keys() == {"big"}

    asyncio.run(run())


def test_a_training_job_whose_workers_alone_ask(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            await define_kind(it.api, "kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
            roles = {
                "Master": {"replicas": 1, "template": it.template()},
                "Worker": {"replicas": 5, "template": it.template(it.wish())},
            }
            body = {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "torch"},
                "spec": {"pytorchReplicaSpecs": roles},
            }
            made = await it.create("kubeflow.org/v1", "pytorchjobs", body)
            role = "training.kubeflow.org/replica-type"
            await it.pods_of(made, "torch-worker", 5, {role: "worker"})
            await it.pods_of(made, "torch-master", 1, {role: "master"})
            members = await it.members("torch", 6)
            subgroups = {
                name: one["metadata"]["labels"]["closeby.dev/subgroup"] for name, one in members.items()
            }
            assert subgroups == {"torch-master-0": "master"} | {
                f"torch-worker-{i}": "worker" for i in range(5)
            }
            parts = [
                {"name": "master", "minMember": 1},
                {"name": "worker", "minMember": 5, "topologyConstraint": rack(it)},
            ]
            checked(await it.group("torch"), made, {"minMember": 6, "subGroups": parts})
            placed = await it.bound(6)
            assert racks_of({name: place for name, place in placed.items() if "worker" in name}) == {"r2"}

    asyncio.run(run())


def test_each_replica_of_a_leader_worker_set_is_a_gang(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    """Its StatefulSets are real; the workers' one belongs to the leader's pod, as its controller has it."""

    def stateful(it: World, name: str, pods: int, owner: Object, start: int = 0) -> Object:
        return {
            "metadata": {"name": name, "ownerReferences": [reference(owner)]},
            "spec": {
                "replicas": pods,
                "podManagementPolicy": "Parallel",
                "ordinals": {"start": start},
                "selector": {"matchLabels": {"app": name}},
                "template": it.template(labels={"app": name}),
            },
        }

    async def run() -> None:
        racks = {"r1": 1, "r2": 1}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            version = "leaderworkerset.x-k8s.io/v1"
            await define_kind(it.api, "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
            spec = {
                "replicas": 2,
                "leaderWorkerTemplate": {"size": 4, "workerTemplate": it.template()},
            }
            body = {
                "apiVersion": version,
                "kind": "LeaderWorkerSet",
                "metadata": {"name": "llm", "annotations": it.wish()},
                "spec": spec,
            }
            made = await it.create(version, "leaderworkersets", body)
            await it.create("apps/v1", "statefulsets", stateful(it, "llm", 2, made))
            for i in range(2):
                (leader,) = (await it.members(f"llm-{i}", 1)).values()
                leader |= {"apiVersion": "v1", "kind": "Pod"}
                await it.create("apps/v1", "statefulsets", stateful(it, f"llm-{i}", 3, leader, 1))
            placed = await it.bound(8)
            for i in range(2):
                members = await it.members(f"llm-{i}", 4)
                assert members.keys() == {f"llm-{i}", *(f"llm-{i}-{j}" for j in range(1, 4))}
                checked(await it.group(f"llm-{i}"), made, {"minMember": 4, "topologyConstraint": rack(it)})
                assert len(racks_of({name: placed[name] for name in members})) == 1

    asyncio.run(run())


def test_a_ray_cluster_of_a_ray_job(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            await define_kind(it.api, "ray.io", "v1", "RayJob", "rayjobs")
            await define_kind(it.api, "ray.io", "v1", "RayCluster", "rayclusters")
            job = await it.create(
                "ray.io/v1",
                "rayjobs",
                {
                    "apiVersion": "ray.io/v1",
                    "kind": "RayJob",
                    "metadata": {"name": "tune", "annotations": it.wish()},
                },
            )
            workers = [{"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": it.template()}]
            body = {
                "apiVersion": "ray.io/v1",
                "kind": "RayCluster",
                "metadata": {"name": "tune-x7", "ownerReferences": [reference(job)]},
                "spec": {"headGroupSpec": {"template": it.template()}, "workerGroupSpecs": workers},
            }
            cluster = await it.create("ray.io/v1", "rayclusters", body)
            await it.pods_of(cluster, "tune-x7-head-abc", 1, {"ray.io/group": "headgroup"})
            await it.pods_of(cluster, "tune-x7-gpu-worker-abc", 4, {"ray.io/group": "gpu"})
            await it.members("tune-x7", 5)
            checked(await it.group("tune-x7"), cluster, {"minMember": 5, "topologyConstraint": rack(it)})
            assert racks_of(await it.bound(5)) == {"r2"}

    asyncio.run(run())


def test_owners_of_an_unknown_kind(whole_control_plane: ControlPlane, namespace: str) -> None:
    """Its pods can't be counted: the gang starts with one pod, and the others join it in its rack."""

    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            await define_kind(it.api, "tests.closeby.dev", "v1", "Flow", "flows")
            body = {
                "apiVersion": "tests.closeby.dev/v1",
                "kind": "Flow",
                "metadata": {"name": "flow", "annotations": it.wish()},
            }
            flow = await it.create("tests.closeby.dev/v1", "flows", body)
            await it.pods_of(flow, "step", 3)
            await it.members("flow", 3)
            checked(await it.group("flow"), flow, {"minMember": 1, "topologyConstraint": rack(it)})
            assert len(racks_of(await it.bound(3))) == 1

    asyncio.run(run())


def test_plain_pods(whole_control_plane: ControlPlane, namespace: str) -> None:
    """One that asks is a gang of its own, those of one group for Kueue are one; others are left alone."""

    async def run() -> None:
        async with world(whole_control_plane, namespace, RACKS) as it, it.grouping(), it.scheduling():
            await it.create("v1", "pods", it.pod("free"))
            asking = it.pod("asking", annotations=it.wish())
            made = await it.create("v1", "pods", asking)
            size = {"kueue.x-k8s.io/pod-group-total-count": "3", **it.wish()}
            for i in range(3):
                one = it.pod(f"k-{i}", annotations=size, labels={"kueue.x-k8s.io/pod-group-name": "kg"})
                await it.create("v1", "pods", one)
            await it.members("asking", 1)
            checked(
                await it.group("asking"),
                {"apiVersion": "v1", "kind": "Pod", **made},
                {"minMember": 1, "topologyConstraint": rack(it)},
            )
            await it.members("kg", 3)
            group = await it.group("kg")
            assert group["spec"]["minMember"] == 3
            assert {one["name"] for one in group["metadata"]["ownerReferences"]} == {"k-0", "k-1", "k-2"}
            placed = await it.bound(5)
            assert len(racks_of({name: place for name, place in placed.items() if name[:2] == "k-"})) == 1
            assert "closeby.dev/pod-group" not in (await it.pods())["free"]["metadata"].get("annotations", {})

    asyncio.run(run())
