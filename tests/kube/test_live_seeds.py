"""Every placement policy on a real API server: small cases whose right answer only that policy gives."""

import asyncio
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from closeby.reading.configuration import Configuration, read_configuration
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.live import unique
from tests.kube.live_world import (
    DEFAULT,
    RACK,
    ZONE,
    World,
    host,
    until_said,
    world,
)

KEP = "scheduling.sigs.k8s.io/v1alpha1"
APP, WORKLOAD = "appgroup.diktyo.x-k8s.io", "appgroup.diktyo.x-k8s.io.workload"


async def answer(it: World, number: int, configuration: Configuration = DEFAULT) -> dict[str, str]:
    """Where pods are that wait, once so many are bound in all."""
    async with it.scheduling(configuration):
        return await it.bound(number)


async def create(it: World, kind: str, name: str, spec: object) -> None:
    """An object of a kind of the KEP."""
    plural = f"{kind.lower()}s" if kind == "AppGroup" else "networktopologies"
    body = {"apiVersion": KEP, "kind": kind, "metadata": {"name": name}, "spec": spec}
    await it.api.create(f"/apis/{KEP}/namespaces/{it.namespace}/{plural}", body)


async def bind(it: World, name: str, to: str) -> None:
    """Binds as another scheduler does."""
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": to}}
    await it.api.create(f"/api/v1/namespaces/{it.namespace}/pods/{name}/binding", body)


class TestNetworkTopology:
    """Volcano network-topology proposal, static."""

    KEYS = read_configuration(
        """
- plugins:
   - name: network-topology
     arguments:
       network-topology.type: static
       network-topology.keys: tests.closeby.dev/switch,tests.closeby.dev/idc
       network-topology.weight: 10
"""
    )

    def test_the_keys_decide_where_the_others_of_a_job_go(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """By name n1 and n2 come first, but n1 and n3 are on one switch."""
        hosts = [
            node(
                name,
                labels={"tests.closeby.dev/switch": switch, "tests.closeby.dev/idc": "i1"},
                allocatable={"nvidia.com/gpu": "1"},
            )
            for name, switch in (("n1", "s1"), ("n2", "s2"), ("n3", "s1"), ("n4", "s3"))
        ]

        async def run() -> None:
            async with world(control_plane, namespace, *hosts) as it:
                await it.gang("job", 2)
                assert set((await answer(it, 2)).values()) == {"n1", "n2"}
                await it.delete("job-0", "job-1")
                await it.create(*(it.pod(f"job-{i}", gang="job") for i in range(2)))
                assert set((await answer(it, 2, self.KEYS)).values()) == {"n1", "n3"}

        asyncio.run(run())


class TestTopology:
    """KAI topology-aware scheduling design: required, preferred, subgroups."""

    #: Zone z1 has racks of 4 and 2 GPUs, zone z2 two of 4.
    HOSTS = tuple(
        node(f"{rack}-{i}", labels={ZONE: zone, RACK: rack}, allocatable={"nvidia.com/gpu": "2"})
        for zone, rack, size in (("z1", "r1", 2), ("z1", "r2", 1), ("z2", "r3", 2), ("z2", "r4", 2))
        for i in range(size)
    )

    def test_required_above_preferred(self, control_plane: ControlPlane, namespace: str) -> None:
        """Six pods fit in z1 only as 4 + 2, and z1 is the tightest zone that holds them."""

        async def run() -> None:
            async with world(control_plane, namespace, *self.HOSTS) as it, it.scheduling():
                await it.create_group("g", 6, required="zone", preferred="rack")
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(6)))
                assert racks(await it.bound(6)) == {"r1": 4, "r2": 2}
                # No rack has room for seven, though the cluster has.
                await it.gang("wide", 7, required="rack")
                said = await until_said(it, "wide", "TopologyPlacementFailed")
                assert said["status"] == "False"
                # Preferred alone: as few racks as can be, wherever they are.
                await it.create_group("soft", 8, preferred="rack")
                await it.create(*(it.pod(f"soft-{i}", gang="soft") for i in range(8)))
                placed = await it.bound(14)
                assert racks(of(placed, "soft")) == {"r3": 4, "r4": 4}

        asyncio.run(run())

    def test_parts_of_a_gang_lie_each_in_a_rack_and_all_in_a_zone(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """z1 has room for one part only; without the zone the tighter r1 would take one."""

        async def run() -> None:
            async with world(control_plane, namespace, *self.HOSTS) as it, it.scheduling():
                rack = {"topology": it.topology, "requiredTopologyLevel": "rack"}
                parts = [
                    {"name": part, "minMember": 4, "topologyConstraint": rack} for part in ("left", "right")
                ]
                zone = {"topology": it.topology, "requiredTopologyLevel": "zone"}
                await it.declare_group("g", {"topologyConstraint": zone, "subGroups": parts})
                pods = [it.pod(f"{part}-{i}", gang="g") for part in ("left", "right") for i in range(4)]
                for pod in pods:
                    part = pod["metadata"]["name"].partition("-")[0]
                    pod["metadata"]["labels"]["closeby.dev/subgroup"] = part
                await it.create(*pods)
                placed = await it.bound(8)
                found = {part: racks(of(placed, part)) for part in ("left", "right")}
                assert sorted(found.values(), key=str) == [{"r3": 4}, {"r4": 4}]
                assert (await until_said(it, "g", "Placed"))["message"] == "8 members are placed in z2"

        asyncio.run(run())


class TestApplications:
    """Network-aware scheduling KEP: TopologicalSort and NetworkMinCost."""

    async def declare(self, it: World, workloads: object) -> None:
        await create(it, "AppGroup", "app", {"numMembers": 3, "Pods": workloads})

    def pod(self, it: World, name: str) -> Object:
        pod = it.pod(name)
        pod["metadata"]["labels"] = {APP: "app", WORKLOAD: name}
        return pod

    def test_what_others_do_not_need_goes_first(self, control_plane: ControlPlane, namespace: str) -> None:
        """c needs b, b needs a; there is room for two of them. By name a and b would be first."""
        chain = [
            {"name": caller, "type": "Pod", "dependencies": [{"name": called, "type": "Pod"}]}
            for caller, called in pairwise("cba")
        ] + [{"name": "a", "type": "Pod"}]
        sort = read_configuration("plugins: [{name: TopologicalSort}]")

        async def run() -> None:
            async with world(control_plane, namespace, host("n1", gpus=2)) as it:
                # One by one: the older goes first, and one of a second before is older.
                for name in "abc":
                    await it.create(self.pod(it, name))
                assert set(await answer(it, 2)) == {"a", "b"}
                await it.delete("a", "b", "c")
                await self.declare(it, chain)
                await it.create(*(self.pod(it, name) for name in "abc"))
                assert set(await answer(it, 2, sort)) == {"b", "c"}

        asyncio.run(run())

    def test_a_pod_goes_where_talking_costs_least(self, control_plane: ControlPlane, namespace: str) -> None:
        """The database is in the east. The west is nearer to it than the middle, whatever their names."""
        zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
        hosts = [
            node(name, labels={zone: name, region: "eu"}, allocatable={"nvidia.com/gpu": "1"})
            for name in ("east", "middle", "west")
        ]
        costs = [("east", "middle", 9), ("east", "west", 2), ("middle", "west", 9)]
        network = unique("costs")
        cheap = read_configuration(
            f"networkTopologyNamespaces: [{namespace}]\n"
            f"plugins: [{{name: NetworkMinCost, arguments: {{networkTopologyName: {network}}}}}]"
        )
        weights = {
            "algorithmName": "UserDefined",
            "topologyList": [
                {
                    "topologyKey": zone,
                    "originList": [
                        {"origin": one, "costList": [{"destination": other, "networkCost": cost}]}
                        for one, other, cost in costs
                    ],
                }
            ],
        }

        async def run() -> None:
            async with world(control_plane, namespace, *hosts) as it:
                await self.declare(
                    it,
                    [
                        {"name": "web", "type": "Pod", "dependencies": [{"name": "db", "type": "Pod"}]},
                        {"name": "db", "type": "Pod"},
                    ],
                )
                database = self.pod(it, "db")
                database["spec"]["schedulerName"] = "nobody"
                await it.create(database)
                await bind(it, "db", "east")
                await it.create(self.pod(it, "web"))
                assert (await answer(it, 2))["web"] == "middle"
                await it.delete("web")
                await create(it, "NetworkTopology", network, {"configmapName": "none"})
                path = f"/apis/{KEP}/namespaces/{namespace}/networktopologies/{network}/status"
                await it.api.patch(path, {"status": {"weights": [weights]}})
                await it.create(self.pod(it, "web"))
                assert (await answer(it, 2, cheap))["web"] == "west"

        asyncio.run(run())


class TestBandwidth:
    def test_a_node_whose_link_is_at_risk_is_not_taken(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """CheckRiskNodeBandwidth, the seed's numbers: 0.787 on n1, which would be the first by name."""
        bits = 1_000_000_000 / 8
        measured = {"n1": (0.7, 0.6), "n2": (0.3, 0.1)}
        metrics = {
            name: {
                "metrics": [
                    {
                        "name": "instance:node_network_transmit_bytes:rate:sum",
                        "type": "Bandwidth",
                        "operator": operator,
                        "rollup": "15m",
                        # load-watcher writes bytes a second, in hundredths.
                        "value": share * bits * 100,
                    }
                    for operator, share in zip(("AVG", "STD"), shares, strict=True)
                ]
            }
            for name, shares in measured.items()
        }
        watcher = tmp_path / "watcher.json"
        watcher.write_text(json.dumps({"data": {"NodeMetricsMap": metrics}}))
        risky = read_configuration(
            f"plugins: [{{name: CheckRiskNodeBandwidth, arguments: {{watcherAddress: '{watcher}'}}}}]"
        )
        hosts = [
            node(name, allocatable={"network.aware.com/bandwidth": "1G", "nvidia.com/gpu": "8"})
            for name in measured
        ]

        async def run() -> None:
            async with world(control_plane, namespace, *hosts) as it:
                asked = {"network.aware.com/bandwidth": "100M"}
                talker = it.pod("talker", 0)
                talker["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
                await it.create(talker)
                assert (await answer(it, 1)) == {"talker": "n1"}
                await it.delete("talker")
                await it.create(talker)
                assert (await answer(it, 1, risky)) == {"talker": "n2"}
                bound_to_n1 = {**talker, "metadata": {"name": "fixed"}}
                bound_to_n1["spec"] = {
                    **talker["spec"],
                    "nodeSelector": {"kubernetes.io/hostname": "n1"},
                }
                await it.create(bound_to_n1)
                async with it.scheduling(risky):
                    assert "BandwidthRisk" in await it.refusal("fixed")

        asyncio.run(run())


class TestTopographLabels:
    def test_network_labels_make_a_topology(self, control_plane: ControlPlane, namespace: str) -> None:
        """No Topology names these labels; block b2 alone holds the gang, and grows with a label later."""
        prefix = "network.topology.kubernetes.io/"
        hosts = [
            node(
                name,
                labels={f"{prefix}block": block, f"{prefix}datacenter": "d1"},
                allocatable={"nvidia.com/gpu": "1"},
            )
            for name, block in (("n1", "b1"), ("n2", "b2"), ("n3", "b2"), ("n4", "b3"))
        ]

        async def run() -> None:
            async with world(control_plane, namespace, *hosts) as it, it.scheduling():
                constraint = {"topology": "network-labels", "requiredTopologyLevel": f"{prefix}block"}
                await it.declare_group("g", {"minMember": 2, "topologyConstraint": constraint})
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
                assert set((await it.bound(2)).values()) == {"n2", "n3"}
                await it.declare_group("late", {"minMember": 2, "topologyConstraint": constraint})
                await it.create(*(it.pod(f"late-{i}", gang="late") for i in range(2)))
                await until_said(it, "late", "TopologyPlacementFailed")
                moved = {"metadata": {"labels": {f"{prefix}block": "b3"}}}
                await it.api.patch("/api/v1/nodes/n1", moved)
                assert set(of(await it.bound(4), "late").values()) == {"n1", "n4"}

        asyncio.run(run())


class TestTaskTopology:
    def test_the_example_of_the_proposal(self, control_plane: ControlPlane, namespace: str) -> None:
        """Volcano task-topology: ps0, worker0, worker2 on node3; ps1, worker1 on node1."""
        hosts = [
            node(name, allocatable={"cpu": str(cpus)})
            for name, cpus in (("node1", 2), ("node2", 1), ("node3", 4))
        ]
        annotations = {
            "volcano.sh/task-topology-affinity": "ps,worker",
            "volcano.sh/task-topology-anti-affinity": "ps",
        }

        async def run() -> None:
            async with world(control_plane, namespace, *hosts) as it:
                await it.declare_group("job", {"minMember": 6}, annotations=annotations)
                pods = []
                for role, number in (("ps", 2), ("worker", 4)):
                    for i in range(number):
                        pod = it.pod(f"{role}{i}", 0, gang="job")
                        pod["metadata"]["annotations"] = {"volcano.sh/task-spec": role}
                        pods.append(pod)
                await it.create(*pods)
                placed = await answer(it, 6)
                by_node: dict[str, set[str]] = {}
                for name, place in placed.items():
                    by_node.setdefault(place, set()).add(name)
                assert {"ps0", "worker0", "worker2"} <= by_node["node3"]
                assert by_node["node1"] == {"ps1", "worker1"}

        asyncio.run(run())


def racks(placed: dict[str, str]) -> Counter[str]:
    """Pods by rack, which is the first part of a host's name."""
    return Counter(place.partition("-")[0] for place in placed.values())


def of(placed: dict[str, str], gang: str) -> dict[str, str]:
    """The pods whose name begins with that of the gang."""
    return {name: place for name, place in placed.items() if name.rpartition("-")[0] == gang}
