"""Objects that make no sense, on a real API server: told where users look, without harm to others."""

import asyncio

from closeby.controllers.applications.controller import AppGroupController
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.controllers.at_work import GROUP, WORKLOAD, Site
from tests.kube.live_world import World, condition, host, until_said, world

HOSTS = [host(f"r{rack}-{i}", f"r{rack}", 4) for rack in range(2) for i in range(2)]


async def others_go_on(it: World, bound: int) -> None:
    """A gang without faults is placed meanwhile."""
    await it.gang("other", 4, required="rack")
    placed = await it.bound(bound + 4)
    assert len({place.partition("-")[0] for name, place in placed.items() if name.startswith("other")}) == 1


async def pods_of(it: World, gang: str, number: int) -> None:
    await it.create(*(it.pod(f"{gang}-{i}", gang=gang) for i in range(number)))


def test_an_unknown_required_level(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            await it.gang("g", 4, required="row")
            said = await until_said(it, "g", "TopologyLevelNotFound")
            assert said["status"] == "False" and "row" in said["message"]
            # Its pods say so too, as autoscalers look there.
            assert (await it.refusal("g-0", "row")).startswith("TopologyLevelNotFound: ")
            await others_go_on(it, 0)
            constraint = {"topology": it.topology, "requiredTopologyLevel": "rack"}
            await it.change_group("g", {"spec": {"topologyConstraint": constraint}})
            placed = await it.bound(8)
            assert len({placed[f"g-{i}"].partition("-")[0] for i in range(4)}) == 1
            assert (await until_said(it, "g", "Placed"))["observedGeneration"] == 2

    asyncio.run(run())


def test_a_topology_that_comes_later(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            later = World(it.api, it.transport, namespace, name=it.name)
            await later.gang("g", 4, required="rack")
            said = await until_said(it, "g", "TopologyNotFound")
            assert later.topology in said["message"]
            await others_go_on(it, 0)
            async with later.declared():
                placed = await it.bound(8)
                assert len({placed[f"g-{i}"].partition("-")[0] for i in range(4)}) == 1

    asyncio.run(run())


def test_an_annotation_that_says_something_unknown(control_plane: ControlPlane, namespace: str) -> None:
    """A strategy that nobody knows may have meant anything, so the gang waits."""

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            strategy = "closeby.dev/placement-strategy"
            await it.declare_group("g", {"minMember": 2}, annotations={strategy: "sideways"})
            await pods_of(it, "g", 2)
            said = await until_said(it, "g", "InvalidSpec")
            assert said["status"] == "False" and "sideways" in said["message"]
            assert strategy in (await until_said(it, "g", "InvalidSpec", "Valid"))["message"]
            await others_go_on(it, 0)
            await it.change_group("g", {"metadata": {"annotations": {strategy: "spread"}}})
            await it.bound(6)
            assert (await until_said(it, "g", "Valid", "Valid"))["status"] == "True"

    asyncio.run(run())


def test_roles_that_no_pod_has(control_plane: ControlPlane, namespace: str) -> None:
    """The job's task-topology is dropped, visibly; its pods are placed."""

    async def run() -> None:
        affinity = "volcano.sh/task-topology-affinity"
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            await it.declare_group("g", {"minMember": 2}, annotations={affinity: "ps,wrker"})
            pods = [it.pod(f"g-{i}", gang="g") for i in range(2)]
            for pod, role in zip(pods, ("ps", "worker"), strict=True):
                pod["metadata"]["labels"]["closeby.dev/role"] = role
            await it.create(*pods)
            await it.bound(2)
            said = await until_said(it, "g", "InvalidSpec", "Valid")
            assert said["status"] == "False" and "wrker" in said["message"]
            assert (await until_said(it, "g", "Placed"))["status"] == "True"

    asyncio.run(run())


def test_an_application_whose_pods_need_each_other_in_a_circle(
    control_plane: ControlPlane, namespace: str
) -> None:
    """It is reported with its members, its pods are placed, and so are others."""
    circle = """
spec:
  numMembers: 2
  Pods:
    - {name: a, type: Pod, dependencies: [{name: b, type: Pod}]}
    - {name: b, type: Pod, dependencies: [{name: a, type: Pod}]}
"""

    async def run() -> None:
        async with world(control_plane, namespace, node("n1"), *HOSTS) as it:
            site = Site(it.api, it.transport, namespace)
            await site.create("appgroups", "app", circle)
            async with site.running(AppGroupController(site.writer, site.say)), it.scheduling():
                for name in "ab":
                    pod = it.pod(name, 0)
                    pod["metadata"]["labels"] = {GROUP: "app", WORKLOAD: name}
                    await it.create(pod)
                status = await site.until("appgroups", "app", lambda one: bool(one.get("conditions")))
                said = next(one for one in status["conditions"] if one["type"] == "Valid")
                assert (said["status"], said["reason"]) == ("False", "InvalidSpec")
                assert "a" in said["message"] and "b" in said["message"]
                await it.bound(2)
                await others_go_on(it, 2)
                mended = {"spec": {"Pods": [{"name": "a", "type": "Pod"}, {"name": "b", "type": "Pod"}]}}
                await it.api.patch(site.path("appgroups", "app"), mended)
                await site.until(
                    "appgroups",
                    "app",
                    lambda one: any(
                        found["type"] == "Valid" and found["status"] == "True" for found in one["conditions"]
                    ),
                )

    asyncio.run(run())


def test_a_pod_group_that_can_not_be_read_is_as_good_as_none(
    control_plane: ControlPlane, namespace: str
) -> None:
    """What the schema lets through and closeby can't follow: parents in a circle."""

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            parts = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]
            await it.declare_group("g", {"minMember": 2, "subGroups": parts})
            await pods_of(it, "g", 2)
            said = await until_said(it, "g", "InvalidSpec")
            assert said["status"] == "False"
            await others_go_on(it, 0)
            await it.change_group("g", {"spec": {"subGroups": None}})
            await it.bound(6)
            assert (await condition(it, "g"))["type"] == "Scheduled"

    asyncio.run(run())


def test_a_pod_waits_for_its_resource_claim_and_goes_where_the_devices_are(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
            request = {"name": "all", "exactly": {"deviceClassName": "devices"}}
            claim = {"metadata": {"name": "gpu"}, "spec": {"devices": {"requests": [request]}}}
            await it.api.create(claims, claim)
            using = it.pod("p")
            using["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "gpu"}]
            await it.create(using)
            assert "spec.resourceClaims[0]" in await it.refusal("p", "resourceClaims")
            place = HOSTS[-1]["metadata"]["name"]
            field = {"key": "metadata.name", "operator": "In", "values": [place]}
            device = {"request": "all", "driver": "example.com", "pool": "p", "device": "d"}
            allocation = {
                "devices": {"results": [device]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            }
            await it.api.patch(f"{claims}/gpu/status", {"status": {"allocation": allocation}})
            assert await it.bound(1) == {"p": place}

    asyncio.run(run())
