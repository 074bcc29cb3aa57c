"""What the chart allows closeby in a cluster: all that it needs, and no more."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from closeby.kube.state.following import FOLLOWED
from closeby.kube.watch.resources import (
    OWNERS,
    REPLICATION_CONTROLLERS,
    SELECTED_BY,
    VOLUMES,
    WATCHED,
    WORKLOADS,
)
from closeby.reading.registry import READERS
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, kubelets, node
from tests.deploy.helm import objects, rendered
from tests.deploy.installed import allowed, installed, kubeconfig, probes, running
from tests.kube.live import eventually

GROUPS = "/apis/closeby.dev/v1alpha1/namespaces/{}/podgroups"
RACK = "tests.closeby.dev/rack"

#: Nobody needs these. A resource is written ``group/resource:part``.
NEITHER = [
    ("create", "pods"),
    ("delete", "pods"),
    ("update", "pods"),
    ("deletecollection", "pods"),
    ("create", "pods:exec"),
    ("get", "secrets"),
    ("list", "secrets"),
    ("get", "configmaps"),
    ("patch", "nodes"),
    ("patch", "nodes:status"),
    ("patch", "scheduling.volcano.sh/podgroups"),
    ("patch", "scheduling.x-k8s.io/podgroups"),
    ("delete", "closeby.dev/podgroups"),
    ("update", "closeby.dev/podgroups"),
    ("create", "closeby.dev/topologies"),
    ("patch", "scheduling.sigs.k8s.io/appgroups"),
    ("patch", "scheduling.sigs.k8s.io/networktopologies"),
    ("patch", "apps/deployments"),
    ("list", "apps/deployments"),
    ("create", "serviceaccounts:token"),
    ("impersonate", "users"),
    ("create", "rbac.authorization.k8s.io/clusterrolebindings"),
    ("patch", "apiextensions.k8s.io/customresourcedefinitions"),
    ("list", "coordination.k8s.io/leases"),
    ("delete", "coordination.k8s.io/leases"),
]
SCHEDULER_ONLY = [
    ("create", "pods:binding"),
    ("create", "pods:eviction"),
    ("patch", "pods:status"),
    ("patch", "scheduling.k8s.io/podgroups:status"),
]
CONTROLLERS_ONLY = [
    ("patch", "pods"),
    ("get", "batch/jobs"),
    ("get", "leaderworkerset.x-k8s.io/leaderworkersets"),
    ("patch", "scheduling.sigs.k8s.io/appgroups:status"),
    ("patch", "scheduling.sigs.k8s.io/networktopologies:status"),
]


def rules(helm: Path, component: str) -> list[dict[str, Any]]:
    """Of the component's ClusterRole."""
    (role,) = (
        one
        for one in objects(rendered(helm))
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == f"closeby-{component}"
    )
    found: list[dict[str, Any]] = role["rules"]
    return found


def resources(found: list[dict[str, Any]], verb: str) -> set[tuple[str, str]]:
    """Groups and resources that may be treated so."""
    return {
        (group, resource)
        for rule in found
        if verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def plural(kind: str) -> str:
    """As our kinds and our peers' are called in URLs."""
    if kind.endswith("y"):
        return f"{kind[:-1].lower()}ies"
    return f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"


def test_the_scheduler_may_follow_the_kinds_that_it_follows_and_no_others(helm: Path) -> None:
    followed = {(one.group, plural(one.kind)) for one in FOLLOWED} | {("", "nodes"), ("", "pods")}
    followed |= {(one.group, plural(one.kind)) for one in OWNERS}
    followed |= {(one.group, one.plural) for one in (*SELECTED_BY, *VOLUMES, REPLICATION_CONTROLLERS)}
    for verb in ("list", "watch"):
        assert resources(rules(helm, "scheduler"), verb) == followed


def test_the_controllers_may_follow_no_kinds_that_closeby_does_not_read(helm: Path) -> None:
    followed = (*WATCHED, WORKLOADS)
    known = {(one.group, plural(one.kind)) for one in followed} | {("", "nodes"), ("", "pods")}
    found = rules(helm, "controllers")
    assert resources(found, "list") == resources(found, "watch")
    assert resources(found, "list") <= known


#: Kinds that pods and their owners refer to, and that own none.
REFERRED_TO = {
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Service"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodDisruptionBudget"),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"),
    ("trainer.kubeflow.org", "TrainingRuntime"),
}


def test_the_controllers_may_read_all_owners_that_closeby_can_count_the_pods_of(helm: Path) -> None:
    known = {(one.group, one.kind) for one in (*WATCHED, WORKLOADS)} | {("", "Node")}
    referred = {(group, kind) for group, kind in READERS if group == "storage.k8s.io"} | REFERRED_TO
    owners = {(group, plural(kind)) for group, kind in READERS.keys() - known - referred}
    assert owners <= resources(rules(helm, "controllers"), "get")


def test_more_owners_can_be_named(helm: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    rule = "{apiGroups: [example.com], resources: [simulations], verbs: [get]}"
    values.write_text(f"controllers: {{moreOwners: [{rule}]}}")
    (role,) = (
        one
        for one in objects(rendered(helm, "--values", str(values)))
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "closeby-controllers"
    )
    assert ("example.com", "simulations") in resources(role["rules"], "get")


def test_nothing_else_is_allowed(helm: Path, control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with Api(control_plane.access()) as api, installed(helm, api, namespace) as release:
            scheduler, controllers = release.user("scheduler"), release.user("controllers")
            for verb, resource in NEITHER:
                for user in (scheduler, controllers):
                    assert not await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
            for user, its, others in (
                (scheduler, SCHEDULER_ONLY, CONTROLLERS_ONLY),
                (controllers, CONTROLLERS_ONLY, SCHEDULER_ONLY),
            ):
                for verb, resource in its:
                    assert await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
                for verb, resource in others:
                    assert not await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
                await check_lease(api, user, namespace)

    asyncio.run(run())


async def check_lease(api: Api, user: str, namespace: str) -> None:
    """Only the Lease of this component, in its own namespace."""
    lease, own = "coordination.k8s.io/leases", user.rpartition(":")[2]
    for verb in ("get", "update"):
        assert await allowed(api, user, verb, lease, namespace=namespace, name=own)
        assert not await allowed(api, user, verb, lease, namespace=namespace, name="other")
        assert not await allowed(api, user, verb, lease, namespace="kube-system", name=own)
    assert await allowed(api, user, "create", lease, namespace=namespace)
    assert not await allowed(api, user, "create", lease, namespace="kube-system")


def pod(name: str, scheduler: str, gang: str | None = None, cpu: str = "1") -> Object:
    labels = {} if gang is None else {"closeby.dev/pod-group": gang}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def gang(name: str, topology: str, members: int) -> Object:
    constraint = {"topology": topology, "requiredTopologyLevel": "rack"}
    return {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members, "topologyConstraint": constraint},
    }


def fabric(name: str) -> Object:
    """A topology of racks."""
    return {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }


def forbidden(log: Path) -> list[str]:
    """Lines of a log that speak of something that was not allowed; a time or a name may hold 403 too."""
    return [line for line in log.read_text().splitlines() if "orbidden" in line or "(403)" in line]


def test_the_scheduler_does_its_work_with_these_rights(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A gang is bound, a pod that fits nowhere is told so, and every write is allowed."""
    log = tmp_path / "log"
    nodes = [node(f"{namespace}-{i}", labels={RACK: f"r{i // 2}"}) for i in range(4)]
    names = [one["metadata"]["name"] for one in nodes]
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            joined(api, nodes),
            kubelets(api, names),
            installed(helm, api, namespace) as release,
        ):
            who = await kubeconfig(control_plane, api, release, "scheduler")
            arguments = release.arguments("scheduler", tmp_path)
            await api.create("/apis/closeby.dev/v1alpha1/topologies", fabric(namespace))
            await api.create(GROUPS.format(namespace), gang("train", namespace, 4))
            for i in range(4):
                await api.create(pods, pod(f"train-{i}", namespace, "train", "10"))
            await api.create(pods, pod("huge", namespace, cpu="500"))

            async def works() -> bool:
                found = {one["metadata"]["name"]: one for one in (await api.get(pods))["items"]}
                bound = [one for one in found.values() if one["spec"].get("nodeName")]
                told = [one["reason"] for one in found["huge"]["status"].get("conditions", ())]
                group = await api.get(f"{GROUPS.format(namespace)}/train")
                events = await api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
                reasons = [one["reason"] for one in events["items"]]
                return (
                    len(bound) == 4
                    and "Unschedulable" in told
                    and group.get("status", {}).get("scheduled") == 4
                    and reasons.count("Scheduled") == 4
                    and "FailedScheduling" in reasons
                )

            with running(arguments, who, log):
                try:
                    await eventually(works, 60)
                except TimeoutError as error:
                    raise AssertionError(log.read_text()) from error
                assert set((await probes(release, "scheduler", log)).values()) == {200}
            await api.delete(f"/apis/closeby.dev/v1alpha1/topologies/{namespace}")
            group = await api.get(f"{GROUPS.format(namespace)}/train")
            (condition,) = group["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("Scheduled", "True")
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{namespace}-scheduler"
            assert (await api.get(lease))["spec"]["leaseTransitions"] >= 0
            assert forbidden(log) == []

    asyncio.run(run())


def test_pods_whose_budget_is_overruled_are_deleted_with_these_rights(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The budget allows no eviction; in no other namespace may the scheduler delete a pod."""
    log, pods = tmp_path / "log", f"/api/v1/namespaces/{namespace}/pods"
    plugin = {"name": "DefaultPreemption", "arguments": {"overruleBudgets": [namespace]}}
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    high = f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}"

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            joined(api, [node(f"{namespace}-0", labels={RACK: "r"})]) as [name],
            kubelets(api, [name]),
            installed(
                helm, api, namespace, "--set-json", f"configuration.plugins={json.dumps([plugin])}"
            ) as release,
        ):
            user = release.user("scheduler")
            assert await allowed(api, user, "delete", "pods", namespace=namespace)
            assert not await allowed(api, user, "delete", "pods", namespace="default")
            who = await kubeconfig(control_plane, api, release, "scheduler")
            cpu = (await api.get(f"/api/v1/nodes/{name}"))["status"]["allocatable"]["cpu"]
            await api.create(high.rpartition("/")[0], {"metadata": {"name": namespace}, "value": 1_000})
            try:
                low = pod("low", namespace, cpu=cpu)
                low["metadata"]["labels"]["app"] = "kept"
                selector = {"matchLabels": {"app": "kept"}}
                budget = {"metadata": {"name": "keep"}, "spec": {"maxUnavailable": 0, "selector": selector}}
                await api.create(budgets, budget)
                await api.create(pods, low)
                vip = pod("vip", namespace, cpu=cpu)
                vip["spec"]["priorityClassName"] = namespace

                async def bound(one: str) -> bool:
                    return bool((await api.get(f"{pods}/{one}"))["spec"].get("nodeName"))

                with running(release.arguments("scheduler", tmp_path), who, log):
                    try:
                        await eventually(lambda: bound("low"), 60)
                        await api.create(pods, vip)
                        await eventually(lambda: bound("vip"), 60)
                    except TimeoutError as error:
                        raise AssertionError(log.read_text()) from error
                events = await api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
                [note] = [one["note"] for one in events["items"] if one["reason"] == "Preempted"]
                assert "overruleBudgets" in note
                assert forbidden(log) == []
            finally:
                await api.delete(high)

    asyncio.run(run())


def workload(namespace: str) -> Object:
    """A Job of two pods that asks for one rack."""
    annotations = {
        "kai.scheduler/topology": namespace,
        "kai.scheduler/topology-required-placement": RACK,
    }
    template = pod("", namespace)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": annotations},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": template}},
    }


APP = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "AppGroup",
    "metadata": {"name": "shop"},
    "spec": {
        "numMembers": 2,
        "Pods": [{"name": "front", "dependencies": [{"name": "back"}]}, {"name": "back"}],
    },
}
NETWORK = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "NetworkTopology",
    "metadata": {"name": "net"},
    "spec": {"topologyAlgorithm": "Dijkstra", "freqUpdate": 5},
}


def test_the_controllers_do_their_work_with_these_rights(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A Job's pods are in a gang, and an application and a network have a status."""
    if not control_plane.controllers:
        pytest.skip("needs kube-controller-manager, which makes the pods of a Job")
    log = tmp_path / "log"
    kep = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}"

    async def run() -> None:
        async with Api(control_plane.access()) as api, installed(helm, api, namespace) as release:
            who = await kubeconfig(control_plane, api, release, "controllers")
            arguments = release.arguments("controllers", tmp_path)
            await api.create("/apis/closeby.dev/v1alpha1/topologies", fabric(namespace))
            await api.create(f"{kep}/appgroups", APP)
            await api.create(f"{kep}/networktopologies", NETWORK)
            await api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", workload(namespace))

            async def works() -> bool:
                groups = (await api.get(GROUPS.format(namespace)))["items"]
                pods = (await api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
                named = [one["metadata"].get("labels", {}).get("closeby.dev/pod-group") for one in pods]
                app = await api.get(f"{kep}/appgroups/shop")
                network = await api.get(f"{kep}/networktopologies/net")
                return (
                    named == [one["metadata"]["name"] for one in groups] * 2
                    and len(app.get("status", {}).get("topologyOrder", ())) == 2
                    and "nodeCount" in network.get("status", {})
                )

            with running(arguments, who, log):
                try:
                    await eventually(works, 60)
                except TimeoutError as error:
                    raise AssertionError(log.read_text()) from error
                assert set((await probes(release, "controllers", log)).values()) == {200}
            await api.delete(f"/apis/closeby.dev/v1alpha1/topologies/{namespace}")
            (group,) = (await api.get(GROUPS.format(namespace)))["items"]
            assert group["spec"]["minMember"] == 2
            assert group["spec"]["topologyConstraint"]["topology"] == namespace
            assert [one["kind"] for one in group["metadata"]["ownerReferences"]] == ["Job"]
            assert forbidden(log) == []

    asyncio.run(run())
