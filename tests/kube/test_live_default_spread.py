"""Default topology spread on a real API server: by Services and by the workloads that own the pods.

No controllers run, which would delete pods that their workloads did not make.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.api import Api, Object, create_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live import unique
from tests.kube.live_world import ZONE, World, behind_proxy, until, until_logged

#: Each test starts a server of its own.
pytestmark = pytest.mark.timeout(400)
HASH = "pod-template-hash"
OF_WORKLOADS = ("/replicasets", "/statefulsets", "/replicationcontrollers")


@asynccontextmanager
async def served(control_plane: ControlPlane, *nodes: Object) -> AsyncIterator[tuple[World, Proxy]]:
    async with Api(control_plane.access()) as api:
        namespace = await create_namespace(api, service_accounts=False)
        account = {"metadata": {"name": "default"}}
        await api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    async with behind_proxy(control_plane, namespace, *nodes) as found:
        yield found


def spreading(when: str) -> Configuration:
    """Pods without constraints are spread over zones."""
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when}
    arguments = {"defaultingType": "List", "defaultConstraints": [constraint]}
    return Configuration(plugins=(PluginEntry(name="PodTopologySpread", arguments=arguments),))


def hosts() -> list[Object]:
    """Two nodes, each in a zone of its own."""
    gpus = {"nvidia.com/gpu": "8"}
    return [node(unique(f"n{i}"), labels={ZONE: f"z{i}"}, allocatable=gpus) for i in range(2)]


def names(nodes: list[Object]) -> list[str]:
    return [str(one["metadata"]["name"]) for one in nodes]


async def workload(it: World, name: str, kind: str = "ReplicaSet") -> dict[str, Any]:
    """A workload that makes no pods itself; how its pods name it."""
    labels = {"app": name, HASH: "1"}
    older = kind == "ReplicationController"
    api = "/api/v1" if older else "/apis/apps/v1"
    container = {"name": "main", "image": "none"}
    spec: Object = {
        "replicas": 0,
        "selector": labels if older else {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    made = await it.api.create(
        f"{api}/namespaces/{it.namespace}/{kind.lower()}s", {"metadata": {"name": name}, "spec": spec}
    )
    version = "v1" if older else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": made["metadata"]["uid"]}
    return {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}


def owned(it: World, name: str, metadata: dict[str, Any], on: str | None = None) -> Object:
    made = it.pod(name)
    if on is not None:
        made["spec"]["nodeName"] = on
    return {**made, "metadata": {**made["metadata"], **metadata}}


def test_the_pods_of_a_workload_are_spread(bare_control_plane: ControlPlane) -> None:
    """The fuller node would be taken without that."""
    nodes = hosts()

    async def run() -> None:
        async with served(bare_control_plane, *nodes) as (it, _):
            first, second = names(nodes)
            kinds = ("ReplicaSet", "StatefulSet", "ReplicationController")
            made = {kind: await workload(it, kind.lower(), kind) for kind in kinds}
            there = [owned(it, f"{kind.lower()}-0", made[kind], first) for kind in kinds]
            await it.create(*there)
            async with it.scheduling(spreading("DoNotSchedule")) as scheduler:
                await it.create(*(owned(it, f"{kind.lower()}-1", made[kind]) for kind in kinds))
                placed = await it.bound(6)
                assert {placed[f"{kind.lower()}-1"] for kind in kinds} == {second}
                late = await workload(it, "late")

                async def heard() -> bool:
                    owners = scheduler.engine.cluster.population.owners
                    return "ReplicaSet/late" in owners.by_namespace[it.namespace]

                # The watch of the pods may be ahead of that of the workloads.
                await until(heard)
                await it.create(owned(it, "late-0", late), owned(it, "late-1", late))
                placed = await it.bound(8)
                assert {placed["late-0"], placed["late-1"]} == {first, second}

    asyncio.run(run())


def test_no_workload_is_followed_before_a_pod_needs_it(bare_control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with served(bare_control_plane, *hosts()) as (it, proxy):
            metadata = await workload(it, "web")
            async with it.scheduling():
                # One without an owner, a member of a gang, and one with a constraint of its own.
                spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
                constrained = it.pod("own", topologySpreadConstraints=[spread])
                constrained["metadata"] |= metadata
                member = owned(it, "g-0", metadata)
                member["metadata"]["labels"] = {**metadata["labels"], "closeby.dev/pod-group": "g"}
                await it.create_group("g", 1)
                await it.create(it.pod("plain"), constrained, member)
                await it.bound(3)
                assert [proxy.count("GET", part) for part in OF_WORKLOADS] == [0, 0, 0]
                await it.create(owned(it, "web-0", metadata))
                await it.bound(4)
                assert [proxy.count("GET", part) for part in OF_WORKLOADS] == [1, 1, 1]

    asyncio.run(run())


def test_a_right_that_is_missing(bare_control_plane: ControlPlane) -> None:
    """Pods wait where a constraint is required; else they are placed without what the workload selects."""

    async def run() -> None:
        async with served(bare_control_plane, *hosts()) as (it, proxy):
            metadata = await workload(it, "web")
            proxy.inject("GET", "/replicasets", Refuse(403), times=1000)
            async with it.scheduling(spreading("ScheduleAnyway")):
                await it.create(owned(it, "wish", metadata))
                await it.bound(1)
                await until_logged(it, "watch failed")
                assert it.said("watch failed")[0]["kind"] == "ReplicaSet"
            async with it.scheduling(spreading("DoNotSchedule")):
                await it.create(owned(it, "must", metadata), it.pod("plain"))
                assert "replicasets.apps" in await it.refusal("must", "may not list")
                await it.bound(2)
                proxy.forgive()
                await it.bound(3)

    asyncio.run(run())
