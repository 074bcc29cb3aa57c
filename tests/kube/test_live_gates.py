"""``--mode gate``: closeby chooses the nodes of pods with its gate, and the real kube-scheduler binds."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Cut, Fault, Proxy, Refuse
from tests.kube.live import FAST, through_proxy
from tests.kube.live_world import (
    RACK,
    World,
    behind_proxy,
    condition,
    group_of,
    host,
    planned,
    replica,
    until,
    until_said,
    world,
)
from tests.kube.priority_classes import priority_class

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)

FAULTS: tuple[Fault, ...] = (
    Refuse(500),
    Cut(),
    Cut(carried_out=True),
    Refuse(409, reason="Conflict"),
    Refuse(403, reason="Forbidden"),
    Refuse(410, reason="Expired"),
    Refuse(429, {"Retry-After": "1"}),
)
GATES = [{"name": PLACEMENT_GATE}]
RANK = "closeby.dev/rank"


class Gated(World):
    """A world whose pods name kube-scheduler, and have our gate."""

    def pod(
        self, name: str, gpus: int = 1, *, gang: str | None = None, cpu: str = "1", **spec: Any
    ) -> Object:
        asked = {"schedulerName": "default-scheduler", "schedulingGates": GATES, **spec}
        return super().pod(name, gpus, gang=gang, cpu=cpu, **asked)

    async def refused(self, name: str) -> str:
        """Waits until an Event says that kube-scheduler can't bind the pod; what it says."""
        found: list[str] = []

        async def said() -> bool:
            events = await self.events("NotBound")
            found[:] = [one["note"] for one in events if one["regarding"]["name"] == name]
            return bool(found)

        await until(said)
        return found[0]

    async def gated(self) -> set[str]:
        """Names of the pods that have our gate."""
        pods = await self.pods()
        return {name for name, one in pods.items() if one["spec"].get("schedulingGates")}

    async def ungated(self, number: int) -> dict[str, str]:
        """Waits until so many pods have their node, bound or not."""
        found: dict[str, str] = {}

        async def enough() -> bool:
            pods = await self.pods()
            found.clear()
            for name, one in pods.items():
                if node := one["metadata"].get("annotations", {}).get(PLACED_ON):
                    found[name] = node
            return len(found) >= number

        await until(enough)
        assert len(found) == number
        return found


@asynccontextmanager
async def gated(control_plane: ControlPlane, namespace: str, *hosts: Object) -> AsyncIterator[Gated]:
    async with world(control_plane, namespace, *hosts) as seen:
        yield Gated(seen.api, seen.transport, namespace, topology=seen.topology)


@asynccontextmanager
async def gated_behind_proxy(
    control_plane: ControlPlane, namespace: str, *hosts: Object
) -> AsyncIterator[tuple[Gated, Proxy]]:
    async with (
        gated(control_plane, namespace, *hosts) as seen,
        through_proxy(control_plane.access()) as (proxy, transport),
    ):
        yield Gated(seen.api, transport, namespace, topology=seen.topology), proxy


def racks(number: int, nodes: int = 2, gpus: int = 4) -> list[Object]:
    return [host(f"r{rack}-{i}", f"r{rack}", gpus) for rack in range(number) for i in range(nodes)]


def test_a_gang_is_placed_in_a_rack_and_kube_scheduler_binds_it(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(3)) as it:
            with whole_control_plane.also("kube-scheduler"):
                async with it.scheduling(gates=True):
                    await it.gang("g", 8, required="rack")
                    placed = await it.bound(8)
                    assert len({node.partition("-")[0] for node in placed.values()}) == 1
                    said = await until_said(it, "g", "Placed")
                    assert said["status"] == "True"
                    pods = await it.pods()
                    assert {name: placed_on(one) for name, one in pods.items()} == placed
                    assert sorted(ranks(pods).values()) == list(range(8))
                    notes = [one["note"] for one in await it.events("Placed")]
                    assert all("default-scheduler is to bind it" in note for note in notes)

    asyncio.run(run())


def placed_on(pod: Object) -> str:
    return str(pod["metadata"]["annotations"][PLACED_ON])


def test_nothing_is_written_before_the_whole_gang_fits(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(2)) as it:
            with whole_control_plane.also("kube-scheduler"):
                async with it.scheduling(gates=True):
                    await it.gang("g", 9, required="rack")
                    message = await it.refusal("g-0", "TopologyPlacementFailed")
                    assert len(await it.gated()) == 9
                    assert "rack" in message
                    await it.delete("g-8")
                    await it.change_group("g", {"spec": {"minMember": 8}})
                    await it.bound(8)

    asyncio.run(run())


def test_members_without_the_gate_are_said(whole_control_plane: ControlPlane, namespace: str) -> None:
    """kube-scheduler has no room for them; once they are bound they count."""

    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(1)) as it, it.scheduling(gates=True):
            await it.create_group("g", 4, required="rack")
            await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
            said = await until_said(it, "g", "GangIncomplete")
            assert PLACEMENT_GATE not in said["message"]
            await it.create(*(it.pod(f"g-{i}", 8, gang="g", schedulingGates=[]) for i in (2, 3)))
            await until_said(it, "g", "GangIncomplete", says=f"2 pods without the gate {PLACEMENT_GATE}")
            await it.delete("g-3")
            await until_said(it, "g", "GangIncomplete", says=f"1 pod without the gate {PLACEMENT_GATE}")
            with whole_control_plane.also("kube-scheduler"):
                await it.delete("g-2")
                await it.create(it.pod("g-2", gang="g", schedulingGates=[]), it.pod("g-3", gang="g"))
                await it.bound(4)
                await until_said(it, "g", "Placed")

    asyncio.run(run())


def test_the_node_is_added_to_every_term_that_is_there(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    terms = [
        {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r0"]}]},
        {
            "matchExpressions": [{"key": RACK, "operator": "In", "values": ["r1"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["r1-0"]}],
        },
    ]
    required = {"nodeSelectorTerms": [*terms, {}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(2)) as it:
            with whole_control_plane.also("kube-scheduler"):
                async with it.scheduling(gates=True):
                    await it.create(it.pod("full", 4, nodeSelector={RACK: "r0"}))
                    await it.create(it.pod("full-too", 4, nodeSelector={RACK: "r0"}))
                    await it.bound(2)
                    await it.create(it.pod("p", 1, affinity=affinity))
                    assert (await it.bound(3))["p"] == "r1-1"
                    node_affinity = (await it.pods())["p"]["spec"]["affinity"]["nodeAffinity"]
                    (found,) = node_affinity.values()
                    pin = {"key": "metadata.name", "operator": "In", "values": ["r1-1"]}
                    assert found["nodeSelectorTerms"] == [
                        {**terms[0], "matchFields": [pin]},
                        {**terms[1], "matchFields": [*terms[1]["matchFields"], pin]},
                        {},
                    ]

    asyncio.run(run())


def test_a_member_that_kube_scheduler_can_not_bind_is_said_and_bound_later(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    """Another scheduler took the room after closeby chose it, before kube-scheduler came to the pod."""

    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(1)) as it, it.scheduling(gates=True):
            await it.gang("g", 8, required="rack")
            nodes = await it.ungated(8)
            said = await condition(it, "g")
            assert (said["status"], said["reason"]) == ("False", "Starting")
            assert planned(await group_of(it, "g")) == nodes
            thief = it.pod("thief", 1, nodeName=nodes["g-3"], schedulingGates=[])
            await it.create(thief)
            with whole_control_plane.also("kube-scheduler"):
                placed = await it.bound(8)
                (left,) = {f"g-{i}" for i in range(8)} - placed.keys()
                assert nodes[left] == nodes["g-3"]
                assert f"can't bind {namespace}/{left} to {nodes[left]}" in await it.refused(left)
                said = await until_said(it, "g", "NotBound")
                assert left in said["message"]
                assert (await it.pods())[left]["metadata"].get("deletionTimestamp") is None
                await it.delete("thief")
                assert (await it.bound(8))[left] == nodes[left]
                await until_said(it, "g", "Placed")
                assert "plan" not in (await group_of(it, "g"))["status"]

    asyncio.run(run())


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_faults_of_each_request(whole_control_plane: ControlPlane, namespace: str, method: str) -> None:
    async def run() -> None:
        async with gated_behind_proxy(whole_control_plane, namespace, *racks(3)) as (it, proxy):
            with whole_control_plane.also("kube-scheduler"):
                async with it.scheduling(gates=True):
                    for number, fault in enumerate(FAULTS):
                        proxy.inject(method, f"/pods/g-{number}", fault)
                    await it.gang("g", 8, required="rack")
                    placed = await it.bound(8)
                    assert len({node.partition("-")[0] for node in placed.values()}) == 1
                    assert {name: placed_on(one) for name, one in (await it.pods()).items()} == placed
                    await until_said(it, "g", "Placed")

    asyncio.run(run())


class Late(Transport):
    """Answers to writes on pods come when they are released."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, FAST)
        self.released = asyncio.Event()

    async def send(self, request: Request) -> bytes | ApiError:
        answer = await super().send(request)
        if request.method == "PATCH" and "/pods/g-" in request.path and "status" not in request.path:
            await self.released.wait()
        return answer


def test_a_pod_that_is_bound_before_the_write_is_answered(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        connection = connect(str(whole_control_plane.kubeconfig))
        assert isinstance(connection, Connection)
        async with (
            gated(whole_control_plane, namespace, *racks(1)) as seen,
            Late(connection) as transport,
        ):
            it = Gated(seen.api, transport, namespace, topology=seen.topology)
            with whole_control_plane.also("kube-scheduler"):
                async with it.scheduling(gates=True) as scheduler:
                    await it.gang("g", 8, required="rack")
                    await it.bound(8)

                    async def heard() -> bool:
                        pods = scheduler.engine.state.pods.values()
                        return sum(pod.node_name is not None for pod in pods) == 8

                    await until(heard)
                    transport.released.set()
                    await until_said(it, "g", "Placed")

    asyncio.run(run())


async def killed_midway(it: Gated, proxy: Proxy, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A process is killed when half of the eight members of ``g`` have their node.

    Returns their nodes, and those of all members by the plan.
    """
    odd = (1, 3, 5, 7)
    for member in odd:
        proxy.inject("PATCH", f"/pods/g-{member}?", Refuse(503), times=1000)
    async with replica(it, proxy, folder, "--mode", "gate"):
        await it.gang("g", 8, required="rack")
        nodes = await it.ungated(4)
        plan = planned(await group_of(it, "g"))
    assert await it.gated() == {f"g-{member}" for member in odd}
    proxy.forgive()
    return nodes, plan


def test_a_process_that_is_killed_in_the_middle_is_carried_on(
    whole_control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """None of the members that have their node is bound."""

    async def run() -> None:
        async with gated_behind_proxy(whole_control_plane, namespace, *racks(3)) as (it, proxy):
            before, plan = await killed_midway(it, proxy, tmp_path)
            # It would fit where they are to go.
            await it.create(it.pod("rival", 4))
            second = it.successor()
            async with second.scheduling(gates=True):
                nodes = await second.ungated(9)
                assert {name: nodes[name] for name in before} == before
                assert {name: node for name, node in nodes.items() if name != "rival"} == plan
                with whole_control_plane.also("kube-scheduler"):
                    assert await second.bound(9) == nodes
                    await until_said(second, "g", "Placed")

    asyncio.run(run())


def test_members_recreated_between_two_processes_get_the_ranks_that_are_left(
    whole_control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """What the first process wrote into the members that have their node can't be changed any more."""

    async def run() -> None:
        async with gated_behind_proxy(whole_control_plane, namespace, *racks(3)) as (it, proxy):
            await killed_midway(it, proxy, tmp_path)
            lost = ("g-0", "g-1")  # The first of them had its node.
            await it.delete(*lost)
            await it.create(*(it.pod(name, gang="g") for name in lost))
            second = it.successor()
            async with second.scheduling(gates=True):
                nodes = await second.ungated(8)
                assert len({node.partition("-")[0] for node in nodes.values()}) == 1
                assert sorted(ranks(await second.pods()).values()) == list(range(8))

    asyncio.run(run())


@pytest.mark.parametrize("bound", [False, True])
def test_a_pod_group_recreated_between_two_processes_repeats_no_rank(
    whole_control_plane: ControlPlane, namespace: str, tmp_path: Path, bound: bool
) -> None:
    """The ranks of the members that have their node stand in their labels alone then."""

    async def run() -> None:
        async with gated_behind_proxy(whole_control_plane, namespace, *racks(3)) as (it, proxy):
            await killed_midway(it, proxy, tmp_path)
            with whole_control_plane.also("kube-scheduler") if bound else nullcontext():
                await it.bound(4 if bound else 0)
                before = ranks(await it.pods())
                await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/g")
                await it.create_group("g", 8, required="rack")
                second = it.successor()
                async with second.scheduling(gates=True):
                    await second.ungated(8)
                    pods = await second.pods()
                    found = ranks(pods)
                    assert sorted(found.values()) == list(range(8))
                    assert {name: found[name] for name in before} == before
                    uids = {one["metadata"]["uid"]: found[name] for name, one in pods.items()}

                    async def written() -> bool:
                        status = (await group_of(second, "g")).get("status", {})
                        return {uid: rank for rank, uid in enumerate(status.get("ranks", ()))} == uids

                    await until(written)

    asyncio.run(run())


def ranks(pods: Mapping[str, Object]) -> dict[str, int]:
    """The ranks of the pods that have one, by name."""
    labels = {name: one["metadata"]["labels"] for name, one in pods.items()}
    return {name: int(found[RANK]) for name, found in labels.items() if RANK in found}


@pytest.mark.parametrize(("gates", "lost", "made"), [(True, (0, 1, 3, 7), "hhhh"), (False, (0, 1, 7), "ffh")])
def test_ranks_run_through_the_segments_of_a_start_that_another_process_carries_on(
    whole_control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    gates: bool,
    lost: tuple[int, ...],
    made: str,
) -> None:
    """Half of the members have their node when the process is killed. Some members are recreated then."""
    in_mode = gated_behind_proxy if gates else behind_proxy
    hosts = racks(4, gpus=1)

    async def run() -> None:
        async with in_mode(whole_control_plane, namespace, *hosts) as (it, proxy):
            for member in (1, 2, 5, 7):
                path = f"/pods/g-{member}?" if gates else f"/pods/g-{member}/binding"
                proxy.inject("PATCH" if gates else "POST", path, Refuse(503), times=1000)
            async with replica(it, proxy, tmp_path, "--mode", "gate" if gates else "bind"):
                await it.declare_group("g", {"minMember": 8, "layers": [{"level": "rack", "size": 2}]})
                await it.create(*(it.pod(f"g-{member}", gang="g") for member in range(8)))

                async def half() -> bool:
                    return len(await nodes_of(it)) == 4

                await until(half)
            proxy.forgive()
            await it.delete(*(f"g-{member}" for member in lost))
            recreated = [f"{first}-{member}" for first, member in zip(made, lost, strict=True)]
            await it.create(*(it.pod(name, gang="g") for name in recreated))
            second = it.successor()
            async with second.scheduling(gates=gates):

                async def all_of_them() -> bool:
                    return len(await nodes_of(it)) == 8

                await until(all_of_them)
                nodes, pods = await nodes_of(it), await it.pods()
                by_rank = {rank: nodes[name] for name, rank in ranks(pods).items()}
                assert sorted(by_rank) == list(range(8))
                segments = [
                    {by_rank[at].partition("-")[0], by_rank[at + 1].partition("-")[0]} for at in (0, 2, 4, 6)
                ]
                assert [len(one) for one in segments] == [1] * 4

    asyncio.run(run())


async def nodes_of(it: World) -> dict[str, str]:
    """The nodes of pods that are bound, or have been told where to go."""
    found = {
        name: one["spec"].get("nodeName") or one["metadata"].get("annotations", {}).get(PLACED_ON)
        for name, one in (await it.pods()).items()
    }
    return {name: node for name, node in found.items() if node}


def test_a_plain_pod_that_has_its_node_keeps_it_over_a_restart(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    """The other pod has the higher priority, and came while no process was there."""

    async def run() -> None:
        async with (
            gated(whole_control_plane, namespace, *racks(1, nodes=1)) as it,
            priority_class(it, 1000) as important,
        ):
            async with it.scheduling(gates=True):
                await it.create(it.pod("placed", 3))
                await it.ungated(1)
            await it.create(it.pod("rival", 3, priorityClassName=important))
            second = it.successor()
            async with second.scheduling(gates=True):
                await second.refusal("rival", "InsufficientResources")
                with whole_control_plane.also("kube-scheduler"):
                    assert set(await second.bound(1)) == {"placed"}
            assert await it.gated() == {"rival"}

    asyncio.run(run())


def test_a_gate_that_a_user_removes(whole_control_plane: ControlPlane, namespace: str) -> None:
    """The pod is kube-scheduler's own from then on, and what it holds is not free for ours."""

    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(1, nodes=1)) as it:
            with whole_control_plane.also("kube-scheduler"):
                async with it.scheduling(gates=True) as scheduler:
                    await it.create(it.pod("first", 3), it.pod("big", 5))
                    await it.bound(1)
                    await it.refusal("big", "InsufficientResources")
                    await it.create(it.pod("next", 2))
                    await it.refusal("next", "InsufficientResources")
                    path = f"/api/v1/namespaces/{namespace}/pods"
                    await it.api.patch(f"{path}/next", {"spec": {"schedulingGates": None}})

                    async def unknown() -> bool:
                        known = {pod.name for pod in scheduler.engine.state.pods.values()}
                        return known == {"first", "big"}

                    await until(unknown)
                    await it.delete("first")
                    assert "next" in await it.bound(1)

    asyncio.run(run())


def test_in_the_other_mode_no_gate_is_removed(whole_control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(1)) as it, it.scheduling():
            ours = it.pod("ours", 1, schedulerName=it.name)
            await it.create(ours, it.pod("theirs", 1))
            await it.create(it.pod("free", 1, schedulerName=it.name, schedulingGates=[]))
            assert (await it.bound(1)).keys() == {"free"}
            assert await it.gated() == {"ours", "theirs"}

    asyncio.run(run())


def test_a_node_that_goes_after_its_pods_were_sent_there(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    """kube-scheduler says that it can't bind them, and so does closeby; no pod is deleted."""

    async def run() -> None:
        async with gated(whole_control_plane, namespace, *racks(2)) as it, it.scheduling(gates=True):
            await it.gang("g", 8, required="rack")
            nodes = await it.ungated(8)
            lost = nodes["g-0"]
            await it.api.delete(f"/api/v1/nodes/{lost}")
            there = {name for name, node in nodes.items() if node != lost}
            with whole_control_plane.also("kube-scheduler"):
                placed = await it.bound(len(there))
                assert placed.keys() == there
                assert lost in await it.refused("g-0")
                await until_said(it, "g", "NotBound")
                pods = await it.pods()
                assert len(pods) == 8
                assert not any("deletionTimestamp" in one["metadata"] for one in pods.values())

    asyncio.run(run())


def test_a_node_that_goes_while_the_plan_is_written(
    whole_control_plane: ControlPlane, namespace: str
) -> None:
    """Nothing was written yet: the gang is decided again, and goes to the other rack as a whole."""

    async def run() -> None:
        async with gated_behind_proxy(whole_control_plane, namespace, *racks(2)) as (it, proxy):
            gone: list[Object] = []

            async def go() -> None:
                gone.append(await it.api.delete("/api/v1/nodes/r0-0"))

            proxy.before("PATCH", "/podgroups/g", go)
            proxy.inject("PATCH", "/podgroups/g", Refuse(503), times=8)
            async with it.scheduling(gates=True):
                await it.gang("g", 8, required="rack")
                nodes = await it.ungated(8)
                assert gone
                assert {node.partition("-")[0] for node in nodes.values()} == {"r1"}

    asyncio.run(run())
