"""The live scheduler on a real API server: what is bound where, and what users are told."""

import asyncio
from collections import Counter

import pytest

from closeby.cli.reading.inputs import read_configuration_file
from closeby.plugins.registry import profile_for
from closeby.scheduling.engine import Engine
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined
from tests.kube.live_world import World, host, until, world


def test_plain_pods_go_to_nodes_that_fit(control_plane: ControlPlane, namespace: str) -> None:
    tainted = host("tainted")
    tainted["spec"]["taints"] = [{"key": "no", "value": "entry", "effect": "NoSchedule"}]

    async def run() -> None:
        async with world(control_plane, namespace, host("n1", gpus=3), host("n2", gpus=3), tainted) as it:
            await it.create(*(it.pod(f"early-{i}") for i in range(2)))
            async with it.scheduling():
                await it.create(*(it.pod(f"p-{i}") for i in range(4)))
                await it.create(it.pod("other", schedulerName="nobody"))
                await it.create(it.pod("picky", 0, nodeSelector={"kubernetes.io/hostname": "n2"}))
                placed = await it.bound(7)
                assert placed["picky"] == "n2"
                gpus = Counter(place for name, place in placed.items() if name != "picky")
                assert gpus == {"n1": 3, "n2": 3}
            scheduled = await it.events("Scheduled")
            assert {one["regarding"]["name"] for one in scheduled} == placed.keys()
            assert await it.events("FailedScheduling") == []

    asyncio.run(run())


def test_the_default_configuration_is_that_of_files(control_plane: ControlPlane, namespace: str) -> None:
    """A GPU pod goes to the fullest host, a pod without GPUs to the host without any."""

    async def run() -> None:
        hosts = (host("n1"), host("n2"), host("n3", gpus=0))
        async with world(control_plane, namespace, *hosts) as it:
            await it.create(it.pod("old", 5, nodeName="n2"), it.pod("busy", 0, nodeName="n3"))
            async with it.scheduling(read_configuration_file(None)) as scheduler:
                await it.create(it.pod("gpus", 2))
                await it.bound(3)
                await it.create(it.pod("web", 0))
                placed = await it.bound(4)
                assert (placed["gpus"], placed["web"]) == ("n2", "n3")
                live = [(plugin.name, weight) for plugin, weight in scheduler.engine.profile.scores]
        offline = Engine(lambda handle: profile_for(read_configuration_file(None), handle)).profile.scores
        assert live == [(plugin.name, weight) for plugin, weight in offline]

    asyncio.run(run())


def test_a_gang_lies_in_one_rack_and_its_pods_know_where(control_plane: ControlPlane, namespace: str) -> None:
    """r1: 2 hosts of 4 GPUs, r2: 3 hosts of 4 GPUs; 12 pods that require a rack fill r2."""
    hosts = [host(f"r1-{i}", "r1", 4) for i in range(2)] + [host(f"r2-{i}", "r2", 4) for i in range(3)]

    async def run() -> None:
        async with world(control_plane, namespace, *hosts) as it, it.scheduling():
            await it.gang("train", 12, required="rack")
            placed = await it.bound(12)
            assert Counter(placed.values()) == {"r2-0": 4, "r2-1": 4, "r2-2": 4}
            pods = await it.pods()
            ranks = {int(one["metadata"]["labels"]["closeby.dev/rank"]): name for name, one in pods.items()}
            assert sorted(ranks) == list(range(12))
            # Consecutive ranks are neighbours.
            assert [placed[ranks[i]] for i in range(12)] == [f"r2-{i // 4}" for i in range(12)]
            domains = {one["metadata"]["annotations"]["closeby.dev/topology-domain"] for one in pods.values()}
            assert domains == {"z1/r2"}

    asyncio.run(run())


def test_a_gang_that_does_not_fit_says_why_and_starts_when_a_node_comes(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        hosts = [host("n1", "r1", 2), host("n3", "r2", 3)]
        async with world(control_plane, namespace, *hosts) as it:
            # All its members are there: of one that is incomplete for a moment that would be told first.
            await it.gang("wide", 4, required="rack")
            async with it.scheduling():
                message = await it.refusal("wide-0")
                assert message.startswith("TopologyPlacementFailed: ")
                await until(lambda: _all_told(it, 4))
                await asyncio.sleep(1.0)
                told = await it.events("FailedScheduling")
                assert Counter(one["regarding"]["name"] for one in told) == {f"wide-{i}": 1 for i in range(4)}
                assert {one["note"] for one in told} == {message}
                assert await it.placed() == {}
                late = host("n2", "r1", 2)
                async with joined(it.api, [late]):
                    placed = await it.bound(4)
                    assert Counter(placed.values()) == {"n1": 2, "n2": 2}
                    conditions = [
                        condition
                        for one in (await it.pods()).values()
                        for condition in one["status"]["conditions"]
                        if condition["type"] == "PodScheduled"
                    ]
                    assert [one["status"] for one in conditions] == ["True"] * 4

    async def _all_told(it: World, number: int) -> bool:
        return len(await it.events("FailedScheduling")) >= number

    asyncio.run(run())


def test_members_that_are_late_are_waited_for_without_alarm(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host("n1"), host("n2", "r2")) as it, it.scheduling():
            await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
            await it.create_group("g", 4, required="rack")
            await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2, 4)))
            first = await it.bound(4)
            assert len(set(first.values())) == 1
            # One more than it needs joins the others.
            await it.create(it.pod("g-4", gang="g"))
            assert (await it.bound(5))["g-4"] == first["g-0"]

    asyncio.run(run())


def test_pods_that_others_bound_count(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host("n1", gpus=2)) as it, it.scheduling():
            await it.create(it.pod("theirs", schedulerName="nobody"))
            binding = {"metadata": {"name": "theirs"}, "target": {"kind": "Node", "name": "n1"}}
            await it.api.create(f"/api/v1/namespaces/{namespace}/pods/theirs/binding", binding)
            await it.bound(1)
            await it.create(it.pod("big", 2))
            assert (await it.refusal("big")).startswith("InsufficientResources: ")
            await it.api.delete(f"/api/v1/namespaces/{namespace}/pods/theirs", {"gracePeriodSeconds": 0})
            assert await it.bound(1) == {"big": "n1"}

    asyncio.run(run())


def test_a_pod_deleted_while_it_waits_holds_up_no_other(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host("n1", gpus=2)) as it, it.scheduling() as scheduler:
            await it.create(it.pod("huge", 9))
            await it.refusal("huge")
            await it.api.delete(f"/api/v1/namespaces/{namespace}/pods/huge", {"gracePeriodSeconds": 0})
            await it.create(it.pod("huge", 2))
            assert await it.bound(1) == {"huge": "n1"}
            assert scheduler.engine.unschedulable == ()

    asyncio.run(run())


def test_a_dry_run_decides_and_writes_nothing(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host("n1", gpus=2)) as it:
            await it.create(it.pod("p"), it.pod("huge", 9))
            before = await it.pods()
            async with it.scheduling(dry_run=True):
                assert it.said("would place") == [
                    {"item": f"pod/{namespace}/p", "pods": 1, "nodes": 1, "node": "n1", "domain": None}
                ]
                assert [one["item"] for one in it.said("waits")] == [f"pod/{namespace}/huge"]
                await asyncio.sleep(0.5)
            assert await it.pods() == before
            assert await it.events("FailedScheduling") == []

    asyncio.run(run())


def test_two_hundred_pods_in_gangs_are_bound_once_and_within_what_there_is(
    control_plane: ControlPlane, namespace: str
) -> None:
    """10 racks of 5 hosts of 4 GPUs are 200 GPUs, and 25 gangs of 8 that each require a rack fill 10 x 2."""
    hosts = [host(f"h{i:02}", f"r{i // 5}", 4) for i in range(50)]

    async def run() -> None:
        async with world(control_plane, namespace, *hosts) as it, it.scheduling():
            await asyncio.gather(*(it.gang(f"g{i}", 8, required="rack") for i in range(25)))
            placed = await it.bound(160)
            await asyncio.sleep(0.5)
            assert await it.placed() == placed
            assert max(Counter(placed.values()).values()) <= 4
            racks: dict[str, set[str]] = {}
            for name, place in placed.items():
                racks.setdefault(name.partition("-")[0], set()).add(f"r{int(place[1:]) // 5}")
            assert {len(found) for found in racks.values()} == {1}
            assert set(Counter(name.partition("-")[0] for name in placed).values()) == {8}
            assert it.said("binding failed") == []
            # What ends makes room for what waits.
            done = next(iter(racks))
            for i in range(8):
                await it.api.delete(
                    f"/api/v1/namespaces/{namespace}/pods/{done}-{i}", {"gracePeriodSeconds": 0}
                )
            await it.bound(160)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_restart_of_the_server_loses_nothing(own_control_plane: ControlPlane, namespace: str) -> None:
    hosts = [host(f"h{i:02}", f"r{i // 5}", 8) for i in range(20)]
    server = own_control_plane.processes["kube-apiserver"]

    async def run() -> None:
        async with world(own_control_plane, namespace, *hosts) as it, it.scheduling():
            await asyncio.gather(*(it.gang(f"g{i}", 8, required="rack") for i in range(10)))
            await asyncio.to_thread(server.restart)
            for i in range(10, 15):
                await it.gang(f"g{i}", 8, required="rack")
            placed = await it.bound(120, 200)
            assert max(Counter(placed.values()).values()) <= 8
            racks: dict[str, set[int]] = {}
            for name, place in placed.items():
                racks.setdefault(name.partition("-")[0], set()).add(int(place[1:]) // 5)
            assert {len(found) for found in racks.values()} == {1}

    asyncio.run(run())
