"""Pod affinity and topology spread on a real API server: why a pod waits, and what cures it."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.live import unique
from tests.kube.live_world import ZONE, World, world

HOST = "kubernetes.io/hostname"


def hosts(zone_of: Mapping[str, str], gpus: int = 8) -> list[Object]:
    return [
        node(name, labels={ZONE: zone}, allocatable={"nvidia.com/gpu": str(gpus)})
        for name, zone in zone_of.items()
    ]


def pod(it: World, name: str, app: str, *, foreign: bool = False, gpus: int = 1, **spec: Any) -> Object:
    """A pod with a label; ``foreign``: closeby does not schedule it."""
    made = it.pod(name, gpus, **spec)
    made["metadata"]["labels"]["app"] = app
    if foreign:
        made["spec"]["schedulerName"] = "another"
    return made


async def create_on(it: World, place: str, made: Object) -> None:
    """Another scheduler places a pod."""
    await it.create(made)
    name = made["metadata"]["name"]
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": place}}
    await it.api.create(f"/api/v1/namespaces/{it.namespace}/pods/{name}/binding", body)


def selects(app: str, key: str = HOST, **more: Any) -> Object:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def near(*terms: Object) -> Object:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: Object) -> Object:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(app: str, key: str = ZONE) -> list[Object]:
    term = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**term, "labelSelector": {"matchLabels": {"app": app}}}]


def test_anti_affinity_of_its_own(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *hosts({"n1": "z1"})) as it, it.scheduling():
            await it.create(pod(it, "web-0", "web", affinity=apart(selects("web"))))
            await it.bound(1)
            await it.create(pod(it, "web-1", "web", affinity=apart(selects("web"))))
            assert "1 pod there" in await it.refusal("web-1", "PodAntiAffinityConflict")
            await it.delete("web-0")
            assert await it.bound(1) == {"web-1": "n1"}

    asyncio.run(run())


def test_anti_affinity_of_a_pod_that_another_scheduler_placed(
    control_plane: ControlPlane, namespace: str
) -> None:
    """One waits until the pod that forbids it is gone, one until a pod changes the label it avoids."""

    async def run() -> None:
        async with world(control_plane, namespace, *hosts({"n1": "z1"})) as it, it.scheduling():
            guard = pod(it, "guard", "noise", foreign=True, affinity=apart(selects("web")))
            await create_on(it, "n1", guard)
            await it.bound(1)
            await it.create(pod(it, "web", "web"))
            await it.create(pod(it, "shy", "shy", affinity=apart(selects("noise"))))
            await it.refusal("web", "PodAntiAffinityConflict")
            await it.refusal("shy", "PodAntiAffinityConflict")
            path = f"/api/v1/namespaces/{namespace}/pods/guard"
            await it.api.patch(path, {"metadata": {"labels": {"app": "quiet"}}})
            assert await it.bound(2) == {"guard": "n1", "shy": "n1"}
            await it.delete("guard")
            assert await it.bound(2) == {"shy": "n1", "web": "n1"}

    asyncio.run(run())


def test_affinity_to_a_group_and_to_pods_of_other_namespaces(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The first pod of a group may go anywhere. What others want to be near is known by their namespace."""
    team = unique("team")
    elsewhere = selects("db", ZONE, namespaceSelector={"matchLabels": {"team": team}})

    async def run() -> None:
        nodes = hosts({"n1": "z1", "n2": "z2", "n3": "z2"}, gpus=2)
        async with world(control_plane, namespace, *nodes) as it, it.scheduling():
            await create_on(it, "n3", pod(it, "db", "db", foreign=True, gpus=2))
            await it.bound(1)
            await it.create(pod(it, "caller", "caller", gpus=0, affinity=near(elsewhere)))
            await it.refusal("caller", "PodAffinityMismatch")
            await it.create(pod(it, "group-0", "group", affinity=near(selects("group"))))
            await it.bound(2)
            await it.create(pod(it, "group-1", "group", affinity=near(selects("group"))))
            placed = await it.bound(3)
            assert placed["group-0"] == placed["group-1"]
            await it.create(pod(it, "group-2", "group", affinity=near(selects("group"))))
            await it.refusal("group-2", "PodAffinityMismatch")
            labels = {"metadata": {"labels": {"team": team}}}
            await it.api.patch(f"/api/v1/namespaces/{namespace}", labels)
            placed = await it.bound(4)
            assert placed["caller"] in ("n2", "n3")
            await it.delete("group-1")
            placed = await it.bound(4)
            assert placed["group-2"] == placed["group-0"]

    asyncio.run(run())


def test_spread_over_zones(control_plane: ControlPlane, namespace: str) -> None:
    """Zone z2 is full, so that z1 takes no second pod until something leaves z2."""

    async def run() -> None:
        async with world(control_plane, namespace, *hosts({"n1": "z1", "n2": "z2"})) as it, it.scheduling():
            await create_on(it, "n2", pod(it, "blocker", "other", foreign=True, gpus=8))
            await it.bound(1)
            await it.create(pod(it, "web-0", "web", topologySpreadConstraints=spread("web")))
            assert (await it.bound(2))["web-0"] == "n1"
            await it.create(pod(it, "web-1", "web", topologySpreadConstraints=spread("web")))
            await it.refusal("web-1", "TopologySpreadViolation")
            await it.delete("blocker")
            assert await it.bound(2) == {"web-0": "n1", "web-1": "n2"}

    asyncio.run(run())


def test_a_gang_on_nodes_and_zones_of_its_own(control_plane: ControlPlane, namespace: str) -> None:
    """Four members that keep apart need all four nodes, of which one is taken."""
    zone_of = {"n1": "z1", "n2": "z1", "n3": "z2", "n4": "z2"}

    async def run() -> None:
        async with world(control_plane, namespace, *hosts(zone_of)) as it, it.scheduling():
            await create_on(it, "n4", pod(it, "blocker", "other", foreign=True, gpus=8))
            await it.bound(1)
            await it.create_group("g", 4)
            rules: dict[str, Any] = {
                "affinity": apart(selects("g")),
                "topologySpreadConstraints": spread("g"),
            }
            members = [pod(it, f"g-{i}", "g", gang="g", **rules) for i in range(4)]
            await it.create(*members)
            message = await it.refusal("g-3", "GangDoesNotFit")
            assert "3 of 4 pods fit" in message and "pod anti-affinity to app=g" in message
            await it.delete("blocker")
            placed = await it.bound(4)
            assert sorted(placed.values()) == sorted(zone_of)
            assert Counter(map(zone_of.get, placed.values())) == {"z1": 2, "z2": 2}

    asyncio.run(run())
