"""The pod-grouper on a real control plane where things go wrong, change, or belong to somebody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from closeby.controllers.grouping.pod_grouper import Grouping, PodGrouper
from closeby.controllers.running import ControllerRunner, Running
from closeby.kube.client.connection import Connection
from closeby.kube.client.credentials import Fixed
from closeby.kube.client.transport import DryTransport, Transport
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.controllers.grouper_world import (
    REQUIRED,
    World,
    define_kind,
    racks_of,
    reference,
    until,
    world,
)
from tests.deploy.installed import allowed
from tests.kube.faulty_proxy import Cut, Refuse, Silence
from tests.kube.live import FAST, eventually, through_proxy, unique

RBAC = "/apis/rbac.authorization.k8s.io/v1"
KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"


async def refusals(it: World) -> list[str]:
    """What pods are told that can't be scheduled."""
    conditions = [one for pod in (await it.pods()).values() for one in pod["status"].get("conditions", ())]
    scheduled = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
    return [str(one["message"]) for one in scheduled]


def test_no_pod_is_placed_before_the_word_is_spoken(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 1, "r2": 2}) as it, it.scheduling():
            await it.create("v1", "pods", it.pod("plain"))
            await it.job("train", 5, it.wish())
            await it.bound(1)

            async def all_told() -> bool:
                return len(await refusals(it)) == 5

            await until(all_told)
            for message in await refusals(it):
                assert (
                    message.startswith("Unsupported: ")
                    and "pod-grouper" in message
                    and "Job/train" in message
                )
            async with it.grouping():
                placed = await it.bound(6)
                del placed["plain"]
                assert racks_of(placed) == {"r2"}

    asyncio.run(run())


def test_an_invalid_annotation_is_reported_and_holds_the_pods_until_it_is_corrected(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        racks = {"r1": 1}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            await it.job("both", 2, {**it.wish(), KUEUE_REQUIRED: "tests.closeby.dev/rack"})
            await it.job("many", 2, {"kai.scheduler/batch-min-member": "many"})
            both = await it.condition("both", "False")
            assert both["reason"] == "InvalidSpec" and "several schedulers" in both["message"]
            many = await it.condition("many", "False")
            assert "'many' is not a number of pods" in many["message"]

            async def told() -> bool:
                about = {(one["regarding"]["kind"]) for one in await it.events("InvalidSpec")}
                return about == {"Job", "Pod"}

            await until(told)

            async def pods_told() -> bool:
                found = await refusals(it)
                of_many = [one for one in found if "'many' is not a number of pods" in one]
                return len(of_many) == 2 and all(one.startswith("InvalidSpec: Job/") for one in found)

            await until(pods_told)
            assert await it.naming("both") == {}
            path = it.path("batch/v1", "jobs", "both")
            await it.api.patch(path, {"metadata": {"annotations": {KUEUE_REQUIRED: None}}})
            assert len(await it.bound(2)) == 2
            assert (await it.condition("both", "True"))["reason"] == "Valid"
            members = await it.members("both", 2)
            assert all(
                "closeby.dev/not-grouped" not in one["metadata"]["annotations"] for one in members.values()
            )

    asyncio.run(run())


def test_a_topology_that_does_not_exist_is_the_schedulers_to_tell(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        racks = {"r1": 1}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            await it.job("lost", 2, {"kai.scheduler/topology": "nowhere", REQUIRED: "rack"})
            await it.members("lost", 2)

            async def told() -> bool:
                return any(one.startswith("TopologyNotFound: ") for one in await refusals(it))

            await until(told)
            assert all(not one["spec"].get("nodeName") for one in (await it.pods()).values())

    asyncio.run(run())


@pytest.mark.timeout(400)
def test_the_pod_group_follows_its_owner_and_goes_with_it(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        racks = {"r1": 2}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            body = {
                "metadata": {"name": "web", "annotations": it.wish()},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "x"}},
                    "template": it.template(),
                },
            }
            await it.create("apps/v1", "deployments", body)
            path = it.path("apps/v1", "deployments", "web")
            await it.bound(2)
            # What a user adds stays, what he changes of ours does not.
            own = {"spec": {"minMember": 7, "placement": {"strategy": "spread"}}}
            await it.api.patch(it.group_path("web"), own)
            await it.api.patch(path, {"spec": {"replicas": 5}})

            async def grown() -> bool:
                return bool((await it.group("web"))["spec"]["minMember"] == 5)

            await until(grown)
            assert (await it.group("web"))["spec"]["placement"] == {"strategy": "spread"}
            await it.members("web", 5)
            await it.bound(5)
            await it.api.patch(path, {"metadata": {"annotations": {REQUIRED: "zone"}}})

            async def wider() -> bool:
                constraint = (await it.group("web"))["spec"]["topologyConstraint"]
                return bool(constraint["requiredTopologyLevel"] == "zone")

            await until(wider)
            nothing = dict.fromkeys(it.wish())
            await it.api.patch(path, {"metadata": {"annotations": nothing}})

            async def relaxed() -> bool:
                spec = (await it.group("web"))["spec"]
                return bool(spec == {"minMember": 1, "placement": {"strategy": "spread"}})

            await until(relaxed)
            await it.api.delete(path, {"propagationPolicy": "Background"})

            async def gone() -> bool:
                return not await it.groups()

            # The garbage collector looks for new kinds each 30 s, and waits as long for those that are going.
            await until(gone, 180.0)

    asyncio.run(run())


def test_a_deleted_pod_group_is_made_again(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 1}) as it, it.grouping():
            await it.job("train", 2, it.wish())
            await it.members("train", 2)
            before = (await it.group("train"))["metadata"]["uid"]
            await it.api.delete(it.group_path("train"))

            async def again() -> bool:
                found = (await it.groups()).get("train")
                return found is not None and found["metadata"]["uid"] != before

            await until(again)

    asyncio.run(run())


def test_what_belongs_to_others_is_left_alone(whole_control_plane: ControlPlane, namespace: str) -> None:
    """A user's PodGroup of the same name, pods that name one, and pods that want no group."""

    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 3}) as it:
            users = {
                "apiVersion": "closeby.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "train"},
                "spec": {"minMember": 3},
            }
            before = await it.create("closeby.dev/v1alpha1", "podgroups", users)
            async with it.grouping(), it.scheduling():
                await it.job("train", 4, it.wish())
                await it.members("train-job", 4)
                named = it.template(it.wish(), {"closeby.dev/pod-group": "train"})
                optout = it.template({"closeby.dev/pod-group": "none"})
                for name, template, replicas in (("named", named, 3), ("free", optout, 1)):
                    body = {
                        "metadata": {"name": name, "annotations": it.wish()},
                        "spec": {
                            "replicas": replicas,
                            "selector": {"matchLabels": {"app": "x"}},
                            "template": template,
                        },
                    }
                    await it.create("apps/v1", "replicasets", body)
                await it.bound(8)
                await it.members("train", 3)
                after = await it.group("train")
                assert (
                    after["spec"] == before["spec"] and after["metadata"]["uid"] == before["metadata"]["uid"]
                )
                assert "ownerReferences" not in after["metadata"]
                assert (await it.groups()).keys() == {"train", "train-job"}

    asyncio.run(run())


def test_an_owner_that_does_not_exist_or_is_of_no_known_kind(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        racks = {"r1": 1}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            ghost = {
                "apiVersion": "ghosts.example.com/v1",
                "kind": "Ghost",
                "metadata": {"name": "g", "uid": "3a2c8d7e-0000-4000-8000-000000000001"},
            }
            await it.create("v1", "pods", it.pod("haunted", ghost))
            await it.bound(1)
            event = await it.event("OwnerNotReadable")
            assert event["regarding"]["name"] == "haunted"
            assert "the server has no Ghost in ghosts.example.com/v1" in event["note"]

    asyncio.run(run())


def test_owners_that_own_each_other(whole_control_plane: ControlPlane, namespace: str) -> None:
    """None of them counts more than the others: the pod's own is as far as anybody looks."""

    async def run() -> None:
        racks = {"r1": 1}
        async with world(whole_control_plane, namespace, racks) as it, it.grouping(), it.scheduling():
            ring = [await it.create("v1", "configmaps", {"metadata": {"name": name}}) for name in "abc"]
            for one, other in zip(ring, (*ring[1:], ring[0]), strict=True):
                path = it.path("v1", "configmaps", one["metadata"]["name"])
                await it.api.patch(path, {"metadata": {"ownerReferences": [reference(other)]}})
            await it.create("v1", "pods", it.pod("p", ring[0]))
            await it.bound(1)
            event = await it.event("OwnerNotReadable")
            assert "ConfigMap a has more than 16 owners above each other" in event["note"]

    asyncio.run(run())


@asynccontextmanager
async def somebody(it: World, *rules: Object) -> AsyncIterator[Transport]:
    """A service account that may do only this."""
    name = unique("grouper")
    await it.create("v1", "serviceaccounts", {"metadata": {"name": name}})
    who = {"kind": "ServiceAccount", "name": name, "namespace": it.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await it.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [who]}
    await it.api.create(f"{RBAC}/clusterrolebindings", binding)
    (group,), (resource, *_), (verb, *_) = (rules[-1][part] for part in ("apiGroups", "resources", "verbs"))
    user = f"system:serviceaccount:{it.namespace}:{name}"
    # The server learns of rights through a watch of its own.
    await eventually(lambda: allowed(it.api, user, verb, f"{group}/{resource}"))
    path = f"{it.path('v1', 'serviceaccounts', name)}/token"
    token = (await it.api.create(path, {"spec": {}}))["status"]["token"]
    access = it.control_plane.access()
    connection = Connection(
        url=access.server, credentials=Fixed(f"Bearer {token}"), source="a test", tls=access.tls
    )
    try:
        async with Transport(connection, FAST) as transport:
            yield transport
    finally:
        await it.api.delete(f"{RBAC}/clusterrolebindings/{name}")
        await it.api.delete(f"{RBAC}/clusterroles/{name}")


def rule(group: str, resources: list[str], *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def test_an_owner_that_may_not_be_read(whole_control_plane: ControlPlane, namespace: str) -> None:
    """Rights for all but ReplicaSets: their pods are told so, and placed alone."""
    rules = (
        rule("", ["nodes"], "list", "watch"),
        rule("", ["pods"], "get", "list", "watch", "patch"),
        rule("batch", ["jobs"], "get"),
        rule("closeby.dev", ["podgroups"], "get", "list", "watch", "create", "patch"),
        rule("closeby.dev", ["podgroups/status"], "patch"),
        rule("scheduling.k8s.io", ["podgroups"], "list", "watch"),
        rule("events.k8s.io", ["events"], "create"),
    )

    async def run() -> None:
        async with (
            world(whole_control_plane, namespace, {"r1": 2}) as it,
            somebody(it, *rules) as transport,
            it.grouping(transport),
            it.scheduling(),
        ):
            body = {
                "metadata": {"name": "web", "annotations": it.wish()},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "x"}},
                    "template": it.template(),
                },
            }
            await it.create("apps/v1", "deployments", body)
            await it.job("train", 4, it.wish())
            await it.job("both", 1, {**it.wish(), KUEUE_REQUIRED: "tests.closeby.dev/rack"})
            await it.condition("both", "False")
            await it.members("train", 4)
            await it.bound(6)
            assert (await it.groups()).keys() == {"train", "both"}
            event = await it.event("OwnerNotReadable")
            assert "ReplicaSet web-" in event["note"] and "Forbidden" in event["note"]
            assert it.said("not grouped") == []

    asyncio.run(run())


def test_parts_of_one_name_make_no_sense(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 1}) as it, it.grouping():
            await define_kind(it.api, "ray.io", "v1", "RayCluster", "rayclusters")
            workers = {"groupName": "same", "replicas": 1, "template": it.template(it.wish())}
            body = {
                "apiVersion": "ray.io/v1",
                "kind": "RayCluster",
                "metadata": {"name": "ray"},
                "spec": {"headGroupSpec": {"template": it.template()}, "workerGroupSpecs": [workers] * 2},
            }
            made = await it.create("ray.io/v1", "rayclusters", body)
            await it.pods_of(made, "ray-head", 1, {"ray.io/group": "headgroup"})
            said = await it.condition("ray", "False")
            assert "several of its parts are called same" in said["message"]

    asyncio.run(run())


def test_a_pod_group_that_may_not_be_written_is_reported(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    rules = (
        rule("", ["nodes"], "list", "watch"),
        rule("", ["pods"], "get", "list", "watch", "patch"),
        rule("batch", ["jobs"], "get"),
        rule("closeby.dev", ["podgroups"], "get", "list", "watch"),
        rule("scheduling.k8s.io", ["podgroups"], "list", "watch"),
        rule("events.k8s.io", ["events"], "create"),
    )

    async def run() -> None:
        async with (
            world(whole_control_plane, namespace, {"r1": 1}) as it,
            somebody(it, *rules) as transport,
            it.grouping(transport),
            it.scheduling(),
        ):
            await it.job("train", 2, it.wish())

            async def told() -> bool:
                about = {(one["regarding"]["kind"]) for one in await it.events("NotGrouped")}
                return about == {"Job", "Pod"}

            await until(told)

            async def rarer() -> bool:
                waits = [float(str(one["retry_in"]).removesuffix("s")) for one in it.said("not grouped")]
                return any(wait >= 2.0 for wait in waits)

            await until(rarer)
            assert all("Forbidden" in one["note"] for one in await it.events("NotGrouped"))
            assert all(not one["spec"].get("nodeName") for one in (await it.pods()).values())

    asyncio.run(run())


def test_a_new_pod_grouper_goes_on_where_one_was_killed(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    """It has told 10 of 40 pods, and not been answered about others."""

    async def run() -> None:
        async with (
            world(whole_control_plane, namespace, {"r1": 1, "r2": 10}) as it,
            through_proxy(whole_control_plane.access()) as (proxy, transport),
            it.scheduling(),
        ):
            answered = set[str]()

            def silence(method: str, path: str) -> Silence | None:
                if method != "PATCH" or f"{namespace}/pods/" not in path:
                    return None
                if len(answered) < 10:
                    answered.add(path)
                # A pod that changed meanwhile is written once more.
                return None if path in answered else Silence()

            proxy.chance = silence
            grouper = PodGrouper(transport, Grouping(scheduler_name=it.name), it.say)
            killed = ControllerRunner(transport, [grouper], Running(), it.say)
            running = asyncio.create_task(killed.run(asyncio.Event()))
            await it.job("train", 40, it.wish())
            await it.members("train", 10)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert len(await it.naming("train")) == 10
            before = (await it.group("train"))["metadata"]["uid"]
            await it.api.patch(
                it.path("batch/v1", "jobs", "train"), {"metadata": {"annotations": {REQUIRED: "zone"}}}
            )
            async with it.grouping():
                await it.members("train", 40)
                await it.bound(40)

                async def true() -> bool:
                    constraint = (await it.group("train"))["spec"]["topologyConstraint"]
                    return bool(constraint["requiredTopologyLevel"] == "zone")

                await until(true)
                assert (await it.group("train"))["metadata"]["uid"] == before
                assert (await it.groups()).keys() == {"train"}

    asyncio.run(run())


def test_refusals_and_cut_connections(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with (
            world(whole_control_plane, namespace, {"r1": 1, "r2": 4}) as it,
            through_proxy(whole_control_plane.access()) as (proxy, transport),
            it.grouping(transport),
            it.scheduling(),
        ):
            # Other tests' workloads may be going just now.
            proxy.inject("GET", f"{namespace}/jobs/", Refuse(500), times=8)
            proxy.inject("PATCH", f"{namespace}/podgroups/", Cut(carried_out=True), times=1)
            proxy.inject("PATCH", f"{namespace}/pods/", Refuse(429), times=5)
            proxy.inject("PATCH", f"{namespace}/pods/", Cut(), times=5)
            await it.job("train", 16, it.wish())
            await it.members("train", 16)
            assert racks_of(await it.bound(16)) == {"r2"}
            assert (await it.groups()).keys() == {"train"}

    asyncio.run(run())


def test_a_dry_run_keeps_nothing(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 1}) as it:
            access = whole_control_plane.access()
            who = Fixed(f"Bearer {access.token}")
            connection = Connection(url=access.server, credentials=who, source="a test", tls=access.tls)
            async with DryTransport(connection, FAST) as transport, it.grouping(transport):
                await it.job("train", 2, it.wish())

                async def said() -> bool:
                    return sum(int(str(one["pods"])) for one in it.said("grouped")) >= 2

                await until(said)
            assert await it.groups() == {}
            assert await it.naming("train") == {}

    asyncio.run(run())
