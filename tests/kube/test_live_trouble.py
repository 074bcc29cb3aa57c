"""Trouble in the middle of a gang's start, on a real API server: nothing is lost, doubled or split."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from random import Random

import pytest

from closeby.kube.scheduler.live import LiveScheduler
from tests.control_plane.api import Api, create_namespace, delete_namespace
from tests.control_plane.binaries import find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.commands import Settings
from tests.control_plane.nodes import RUN_SECONDS, joined
from tests.kube.faulty_proxy import Cut, Fault, Proxy, Refuse
from tests.kube.live import through_proxy, unique
from tests.kube.live_world import (
    RACK,
    World,
    condition,
    group_of,
    host,
    planned,
    replica,
    until,
    until_heard,
    until_said,
)
from tests.kube.troubled import held_back, hold, sound, trouble

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def fragile(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of these tests' own: after a restart, the controllers of the others' would be slow."""
    if not control_plane.ours:
        pytest.skip("stops programs of the control plane: run it without CLOSEBY_TEST_KUBECONFIG")
    with started(
        find_programs(lambda line: None), tmp_path_factory.mktemp("fragile"), Settings(controllers=False)
    ) as running:
        yield running


@pytest.fixture
def corner(fragile: ControlPlane) -> Iterator[str]:
    """An empty namespace of the fragile control plane."""

    async def create() -> str:
        async with Api(fragile.access()) as api:
            return await create_namespace(api, service_accounts=False)

    async def delete(name: str) -> None:
        async with Api(fragile.access()) as api:
            await delete_namespace(api, name)

    name = asyncio.run(create())
    yield name
    asyncio.run(delete(name))


class TestTheServer:
    @pytest.mark.slow
    def test_restarts_in_the_middle(self, fragile: ControlPlane, corner: str) -> None:
        server = fragile.processes["kube-apiserver"]

        async def run() -> None:
            async with trouble(fragile, corner) as (it, proxy, _), it.scheduling():
                again = asyncio.Event()

                async def restart() -> None:
                    await asyncio.to_thread(server.restart)
                    again.set()

                proxy.before("POST", "/pods/g-2/binding", restart)
                await it.gang("g", 8, required="rack")
                await again.wait()
                await it.bound(8, 90)
                await until_said(it, "g", "Placed")
                await it.gang("next", 8, required="rack")
                await it.bound(16)

        asyncio.run(run())

    @pytest.mark.slow
    def test_loses_its_store_for_a_while(self, fragile: ControlPlane, corner: str) -> None:
        """etcd says nothing for 8 s from the third binding on."""
        store = fragile.processes["etcd"]

        async def run() -> None:
            async with trouble(fragile, corner) as (it, proxy, _), it.scheduling():
                pauses: list[asyncio.Task[None]] = []

                async def pause() -> None:
                    store.pause()
                    pauses.append(asyncio.create_task(resume()))

                async def resume() -> None:
                    try:
                        await asyncio.sleep(8.0)
                    finally:
                        store.resume()

                proxy.before("POST", "/pods/g-2/binding", pause)
                await it.gang("g", 8, required="rack")
                await until(lambda: _done(pauses))
                await it.bound(8, 90)
                await until_said(it, "g", "Placed")
                assert it.said("binding failed") == []

        async def _done(pauses: list[asyncio.Task[None]]) -> bool:
            return bool(pauses) and pauses[0].done()

        asyncio.run(run())

    def test_has_forgotten_the_versions_of_all_watches(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """410 for every kind while a gang is half bound; members go and others come unheard."""

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling():
                plan = await held_back(it, proxy, 5)
                proxy.inject("WATCH", "", Refuse(503), times=100_000)
                proxy.cut_streams()
                await it.delete("g-1", "g-6")
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in (9, 10)))
                proxy.forgive()
                hold(proxy, 7)
                for kind in ("/pods", "/podgroups", "/nodes", "/topologies"):
                    proxy.inject("WATCH", kind, Refuse(410, reason="Expired"), times=2)
                proxy.end_streams()
                placed = await it.bound(7)
                assert {"g-9", "g-10"} <= placed.keys()
                proxy.forgive()
                placed = await it.bound(8)
                assert placed["g-7"] == plan["g-7"]
                await until_said(it, "g", "Placed")

        asyncio.run(run())

    def test_refuses_and_cuts_at_random(
        self, control_plane: ControlPlane, namespace: str, pytestconfig: pytest.Config
    ) -> None:
        """Every fourth write of bindings, plans and conditions meets a fault; the seed is pytest's."""
        chance = Random(pytestconfig.option.hypothesis_seed)
        faults: list[Fault] = [
            Refuse(409, reason="Conflict"),
            Refuse(429, {"Retry-After": "1"}),
            Refuse(500),
            Refuse(503),
            Cut(),
            Cut(carried_out=True),
        ]
        met: Counter[str] = Counter()

        def maybe(method: str, path: str) -> Fault | None:
            written = "/binding" in path or "/status" in path
            if method not in ("POST", "PATCH") or not written or chance.random() > 0.25:
                return None
            fault = chance.choice(faults)
            met[type(fault).__name__] += 1
            return fault

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, proxy, audit), it.scheduling():
                proxy.chance = maybe
                for turn in range(4):
                    for i in range(3):
                        await it.gang(f"t{turn}-{i}", 8, required="rack")
                    placed = await it.bound(24, 90)
                    await it.delete(*placed)
                proxy.forgive()
                await it.gang("last", 8, required="rack")
                await it.bound(8)
                await audit.seen_bound(104)
                assert met.total() > 10, met

        asyncio.run(run())


class TestObjects:
    def test_a_node_goes_under_a_placed_gang(self, control_plane: ControlPlane, namespace: str) -> None:
        """Its pods go with it; those made anew join the others where there is room, else they wait."""

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, _, _), it.scheduling() as scheduler:
                await it.gang("g", 8, required="rack")
                placed = await it.bound(8)
                await until_said(it, "g", "Placed")
                rack, lost = placed["g-0"].partition("-")[0], placed["g-0"]
                victims = [name for name, place in placed.items() if place == lost]
                await it.api.delete(f"/api/v1/nodes/{lost}")
                await until_heard(scheduler, lost, None)
                await it.delete(*victims)
                await it.create(*(it.pod(name, gang="g") for name in victims))
                said = await until_said(it, "g", "TopologyPlacementFailed")
                assert said["status"] == "False"
                assert len(await it.placed()) == 4
                spare = host(f"{rack}-{unique('spare')}", rack, 4)
                async with joined(it.api, [spare]):
                    placed = await it.bound(8)
                    assert {placed[name] for name in victims} == {spare["metadata"]["name"]}
                    await until_said(it, "g", "Placed")
                    await sound(it)

        asyncio.run(run())

    def test_a_gang_that_lost_members_says_so(self, control_plane: ControlPlane, namespace: str) -> None:
        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, _, _), it.scheduling():
                await it.gang("g", 8, required="rack")
                await it.bound(8)
                await until_said(it, "g", "Placed")
                await it.delete("g-0", "g-1")

                async def told() -> bool:
                    group = await group_of(it, "g")
                    return bool(group["status"]["scheduled"] == 6)

                await until(told)
                said = await condition(it, "g")
                assert (said["status"], said["reason"]) == ("False", "PartlyPlaced")
                assert "6 of at least 8 members are placed" in said["message"]
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
                await it.bound(8)
                assert (await until_said(it, "g", "Placed"))["status"] == "True"

        asyncio.run(run())

    def test_members_that_have_done_their_work_are_not_waited_for(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """Six of eight finish; of the others one is made anew, and joins the last one in its rack."""

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, _, _), it.scheduling():
                await it.create_group("g", 8, required="rack")
                pods = [it.pod(f"g-{i}", gang="g") for i in range(8)]
                for pod in pods[2:]:
                    pod["metadata"]["annotations"] = {RUN_SECONDS: "0.2"}
                await it.create(*pods)
                placed = await it.bound(8)
                await until(lambda: _finished(it, 6))
                await it.delete("g-0")
                await it.create(it.pod("g-0", gang="g"))
                again = await it.bound(8)
                assert again["g-0"].partition("-")[0] == placed["g-1"].partition("-")[0]
                assert (await until_said(it, "g", "Placed"))["status"] == "True"

        async def _finished(it: World, number: int) -> bool:
            phases = Counter(one["status"]["phase"] for one in (await it.pods()).values())
            return phases["Succeeded"] == number

        asyncio.run(run())

    def test_a_pod_goes_between_decision_and_binding(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling():
                proxy.before("POST", "/pods/g-3/binding", lambda: it.delete("g-3"))
                await it.gang("g", 8, required="rack")
                placed = await it.bound(7)
                said = await until_said(it, "g", "PartlyPlaced")
                assert said["status"] == "False"
                await it.create(it.pod("g-3", gang="g"))
                again = await it.bound(8)
                assert {name: again[name] for name in placed} == placed
                await until_said(it, "g", "Placed")

        asyncio.run(run())

    def test_a_pod_group_is_deleted_and_recreated_in_the_middle(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling() as scheduler:
                await held_back(it, proxy, 3)
                path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/g"
                await it.api.delete(path)
                await until(lambda: _forgotten(scheduler))
                await it.create_group("g", 8, required="rack")
                proxy.forgive()
                await it.bound(8)
                await until_said(it, "g", "Placed")

        async def _forgotten(scheduler: LiveScheduler) -> bool:
            return f"{namespace}/g" not in scheduler.engine.state.groups

        asyncio.run(run())

    def test_a_pod_group_is_edited_in_the_middle(self, control_plane: ControlPlane, namespace: str) -> None:
        """It wants one more member, which comes last, and then fewer than there are."""

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling() as scheduler:
                hold(proxy, *range(3, 6))
                await it.gang("g", 6, required="rack")
                await it.bound(3)
                promised = planned(await group_of(it, "g"))
                await it.change_group("g", {"spec": {"minMember": 7}})
                proxy.forgive()
                assert await it.bound(6) == promised
                await until_said(it, "g", "PartlyPlaced", says="6 of at least 7")
                await it.create(it.pod("g-6", gang="g"))
                await it.bound(7)
                assert (await until_said(it, "g", "Placed"))["observedGeneration"] == 2
                await it.change_group("g", {"spec": {"minMember": 2}})
                await until(lambda: _wants(scheduler, 2))
                await it.delete("g-0")
                await until(lambda: _counted(it, 6))
                assert (await condition(it, "g"))["status"] == "True"

        async def _wants(scheduler: LiveScheduler, members: int) -> bool:
            return scheduler.engine.state.groups[f"{namespace}/g"].min_member == members

        async def _counted(it: World, members: int) -> bool:
            return bool((await group_of(it, "g"))["status"]["scheduled"] == members)

        asyncio.run(run())

    def test_two_gangs_want_the_same_rack(self, control_plane: ControlPlane, namespace: str) -> None:
        """Only one rack has room for eight; the gang that lost starts there when the other has ended."""

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, _, _), it.scheduling():
                for rack in range(2):
                    blocker = it.pod(f"blocker-{rack}", 1, nodeSelector={RACK: f"r{rack}"})
                    await it.create(blocker)
                await it.bound(2)
                for name in ("one", "two"):
                    await it.create_group(name, 8, required="rack")
                await it.create(
                    *(it.pod(f"{name}-{i}", gang=name) for i in range(8) for name in ("one", "two"))
                )
                placed = await it.bound(10)
                winner = "one" if "one-0" in placed else "two"
                loser = "two" if winner == "one" else "one"
                said = await until_said(it, loser, "TopologyPlacementFailed")
                assert said["status"] == "False"
                await sound(it)
                await it.delete(*(f"{winner}-{i}" for i in range(8)))
                placed = await it.bound(10)
                assert {placed[f"{loser}-{i}"].partition("-")[0] for i in range(8)} == {"r2"}

        asyncio.run(run())

    def test_a_namespace_goes_while_its_gang_waits(self, control_plane: ControlPlane, namespace: str) -> None:
        if not control_plane.controllers:
            pytest.skip("needs a controller manager, which empties namespaces")

        async def run() -> None:
            async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling() as scheduler:
                doomed = World(
                    it.api, it.transport, await create_namespace(it.api), topology=it.topology, name=it.name
                )
                await doomed.gang("wide", 9, required="rack")
                await until_said(doomed, "wide", "TopologyPlacementFailed")
                await delete_namespace(it.api, doomed.namespace)
                state = scheduler.engine.state
                await until(lambda: _gone(f"{doomed.namespace}/wide", state.groups))
                await until(lambda: _gone(f"{doomed.namespace}/wide", scheduler.engine.unschedulable))
                await until(lambda: _gone(doomed.namespace, {pod.namespace for pod in state.pods.values()}))
                await it.gang("g", 8, required="rack")
                await it.bound(8)
                # Nobody writes any more on what is gone, once what was on the way has been answered.
                await until(lambda: _silent(proxy, doomed.namespace))

        async def _gone(key: str, among: Container[str]) -> bool:
            return key not in among

        async def _silent(proxy: Proxy, part: str) -> bool:
            before = proxy.count("PATCH", part)
            await asyncio.sleep(1.5)
            return proxy.count("PATCH", part) == before

        asyncio.run(run())


class TestTwoSchedulers:
    def test_started_at_once_with_one_lease(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """One of them leads; the other sends no binding, whatever comes while they make that out."""

        async def run() -> None:
            async with (
                trouble(control_plane, namespace) as (it, proxy, audit),
                through_proxy(control_plane.access()) as (other, _),
            ):
                first, second = replica(it, proxy, tmp_path), replica(it, other, tmp_path)
                async with first, second:
                    for i in range(3):
                        await it.gang(f"g{i}", 8, required="rack")
                    await it.bound(24)
                    sent = sorted(one.count("POST", "/binding") for one in (proxy, other))
                    assert sent == [0, 24]
                    await sound(it)
                await audit.seen_bound(24)

        asyncio.run(run())
