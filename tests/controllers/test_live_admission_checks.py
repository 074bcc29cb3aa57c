"""The admission check and the scheduler together on a real API server, as objects change and processes end.

Quotas are given and taken by the tests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.control_plane.api import Object
from tests.control_plane.binaries import find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.nodes import node
from tests.controllers.quotas import API, CHECK, Quotas, quotas
from tests.kube.live_world import RACK, ZONE, planned, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def with_kueues_kinds(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane of the module's own: other tests are not to meet Kueue's kinds."""
    if not control_plane.ours:
        pytest.skip("Kueue's kinds are defined in a control plane of the tests' own")
    folder = tmp_path_factory.mktemp("quotas") / "control-plane"
    with started(find_programs(lambda line: None), folder) as running:
        yield running


def host(name: str, rack: str, **labels: str) -> Object:
    return node(name, labels={ZONE: "z1", RACK: rack, **labels}, allocatable={"nvidia.com/gpu": "4"})


HOSTS = [host("a1", "r1"), host("a2", "r1"), host("b1", "r2"), host("b2", "r2")]


def in_cluster(
    control_plane: ControlPlane, work: Callable[[Quotas], Awaitable[None]], *hosts: Object
) -> None:
    async def run() -> None:
        async with quotas(control_plane, *(hosts or HOSTS)) as it:
            await work(it)

    asyncio.run(run())


def test_a_workload_that_is_recreated_with_its_name_has_places_of_its_own(
    with_kueues_kinds: ControlPlane,
) -> None:
    """Once while no controller is there, and then faster than one can follow."""

    async def work(it: Quotas) -> None:
        async with it.scheduling():
            async with it.checking():
                first = await it.workload("train", main=4)
                await it.give("train", main=4)
                await it.until_state("train", "Ready", "4 places")
                await it.until_asked(first)
            await it.delete("train")
            second = await it.workload("train", main=3)
            await it.give("train", main=3)
            async with it.checking():
                await it.until_state("train", "Ready", "3 places")
                await it.until_asked(second)
                for pods in (2, 3, 4, 2, 3):
                    await it.delete("train")
                    last = await it.workload("train", main=pods)
                    await it.give("train", main=pods)
                await it.until_state("train", "Ready", "3 places")
                await it.until_asked(last)
                await it.world.create(*(it.pod(f"train-{i}", last) for i in range(3)))
                assert len({name[0] for name in (await it.world.bound(3)).values()}) == 1
                await it.delete("train")
                await it.until_asked()

    in_cluster(with_kueues_kinds, work)


def test_parameters_of_a_check_are_said_to_be_ignored(with_kueues_kinds: ControlPlane) -> None:
    async def work(it: Quotas) -> None:
        path = f"{API}/admissionchecks/{CHECK}"

        async def until_said(said: bool) -> None:
            async def so() -> bool:
                conditions = (await it.api.get(path)).get("status", {}).get("conditions", [])
                active = [one for one in conditions if one["type"] == "Active" and one["status"] == "True"]
                return [("spec.parameters" in one["message"]) for one in active] == [said]

            await until(so)

        async with it.checking():
            await until_said(False)
            await it.api.patch(path, {"spec": {"parameters": {"kind": "Racks", "name": "mine"}}})
            await until_said(True)
            await it.api.patch(path, {"spec": {"parameters": None}})
            await until_said(False)

    in_cluster(with_kueues_kinds, work)


def test_pod_sets_of_two_flavors_go_to_the_nodes_of_each(with_kueues_kinds: ControlPlane) -> None:
    """With the next quota each has the flavor of the other; no controller is there as that happens."""
    pools = ("red", "blue")
    hosts = [host(f"{pool}-{rack}", rack, pool=pool) for pool in pools for rack in ("r1", "r2")]

    async def work(it: Quotas) -> None:
        for pool in pools:
            await it.flavor(pool, pool=pool)
        uid = await it.workload("train", lead=1, work=2)

        async def pools_of() -> dict[str, str]:
            (request,) = await it.requests()
            nodes = planned(request)
            return {name.rsplit("-", 2)[1]: node.partition("-")[0] for name, node in nodes.items()}

        async with it.scheduling():
            async with it.checking():
                await it.give("train", {"lead": "red", "work": "blue"}, lead=1, work=2)
                await it.until_state("train", "Ready", "3 places")
                assert await pools_of() == {"lead": "red", "work": "blue"}
            await it.take("train")
            await it.give("train", {"lead": "blue", "work": "red"}, lead=1, work=2)
            async with it.checking():
                await it.until_state("train", "Ready", "3 places")
                assert await pools_of() == {"lead": "blue", "work": "red"}
                await it.world.create(it.pod("lead", uid, "lead"))
                await it.world.create(*(it.pod(f"work-{i}", uid, "work") for i in range(2)))
                found = await it.world.bound(3)
                assert {name[:4]: node.partition("-")[0] for name, node in found.items()} == {
                    "lead": "blue",
                    "work": "red",
                }

    in_cluster(with_kueues_kinds, work, *hosts)


def test_places_that_move_before_the_pods_come_are_said_and_those_that_are_lost(
    with_kueues_kinds: ControlPlane,
) -> None:
    """The first node goes while neither process is there, the second while no controller is."""

    async def work(it: Quotas) -> None:
        await it.workload("train", main=4)

        async def lose() -> None:
            (request,) = await it.requests()
            await it.api.delete(f"/api/v1/nodes/{sorted(planned(request).values())[0]}")

        async with it.working():
            await it.give("train", main=4)
            await it.until_state("train", "Ready", "held in z1/r1")
        await lose()
        async with it.scheduling():
            async with it.checking():
                await it.until_state("train", "Ready", "held in z1/r2")
            await lose()
            async with it.checking():
                await it.until_state("train", "Retry", "TopologyPlacementFailed")
                await it.until_asked()

    in_cluster(with_kueues_kinds, work)


def test_workloads_for_which_there_is_no_room_get_it_one_after_another(
    with_kueues_kinds: ControlPlane,
) -> None:
    """Both processes are started again in each round; a rack has room for two Workloads."""

    async def work(it: Quotas) -> None:
        uids = {f"train-{number}": await it.workload(f"train-{number}", main=2) for number in range(8)}
        for name in uids:
            await it.give(name, main=2)
        while uids:
            await one_round(it, uids)

    in_cluster(with_kueues_kinds, work)


async def one_round(it: Quotas, uids: dict[str, str]) -> None:
    """As many have places as there is room for; two of them run and are done."""
    ready: set[str] = set()

    async def enough() -> bool:
        found = await it.requests()
        placed = [one for one in found if one.get("status", {}).get("scheduled") == 2]
        ready.clear()
        ready.update(one["spec"]["placesFor"]["workload"]["name"] for one in placed)
        return len(ready) == min(4, len(uids)) and len(found) == len(uids)

    async with it.working():
        await until(enough)
        some = sorted(ready)[:2]
        for name in some:
            await it.until_state(name, "Ready")
        await it.world.create(*(it.pod(f"{name}-{i}", uids[name]) for name in some for i in range(2)))
        bound = await it.world.bound(4)
        assert all(bound[f"{name}-0"][0] == bound[f"{name}-1"][0] for name in some)
    await it.world.delete(*bound)
    for name in some:
        await it.delete(name)
        del uids[name]
