"""The live scheduler when something goes wrong in the middle: with requests, with kinds, with nodes."""

import asyncio
from collections import Counter

import pytest

from closeby.kube.scheduler.live import LiveScheduler
from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, served
from tests.control_plane.nodes import joined
from tests.kube.faulty_proxy import Cut, Refuse
from tests.kube.live import through_proxy, unique
from tests.kube.live_world import World, host, until, until_heard, world

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


def test_bindings_that_are_refused_or_cut_in_the_middle_of_a_gang(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Whatever happens to a binding, the gang is complete in the end, in one rack, and nowhere twice."""
    hosts = [host(f"r{rack}-{i}", f"r{rack}", 4) for rack in range(3) for i in range(2)]

    async def run() -> None:
        access = control_plane.access()
        async with (
            world(control_plane, namespace, *hosts) as seen,
            through_proxy(access) as (proxy, transport),
        ):
            it = World(seen.api, transport, namespace, topology=seen.topology)
            async with it.scheduling() as scheduler:
                proxy.inject("POST", "/binding", Refuse(500))
                proxy.inject("POST", "/binding", Cut())
                proxy.inject("POST", "/binding", Cut(carried_out=True))
                proxy.inject("POST", "/binding", Refuse(409, reason="Conflict"))
                proxy.inject("POST", "/binding", Refuse(403, reason="Forbidden"))
                proxy.inject("POST", "/binding", Refuse(429, {"Retry-After": "1"}))
                await it.gang("g", 8, required="rack")
                placed = await it.bound(8)
                assert len({node.partition("-")[0] for node in placed.values()}) == 1
                assert set(Counter(placed.values()).values()) == {4}
                assert len(it.said("binding failed")) == 2
                await until(lambda: _bound_by_engine(scheduler, 8))
                ranks = [one["metadata"]["labels"]["closeby.dev/rank"] for one in (await it.pods()).values()]
                assert sorted(ranks, key=int) == [str(i) for i in range(8)]

    async def _bound_by_engine(scheduler: LiveScheduler, number: int) -> bool:
        state = scheduler.engine.state
        return sum(pod.node_name is not None for pod in state.pods.values()) >= number

    asyncio.run(run())


def test_watches_that_end_and_fail_meanwhile(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with (
            world(control_plane, namespace, *(host(f"n{i}") for i in range(4))) as seen,
            through_proxy(access) as (proxy, transport),
        ):
            it = World(seen.api, transport, namespace, topology=seen.topology)
            async with it.scheduling():
                for turn in range(8):
                    await it.gang(f"g{turn}", 4, required="rack")
                    if turn % 2:
                        proxy.cut_streams()
                    else:
                        proxy.end_streams()
                    if turn == 4:
                        proxy.inject("WATCH", "/pods", Refuse(410, reason="Expired"))
                assert set(Counter((await it.bound(32)).values()).values()) == {8}

    asyncio.run(run())


def test_conditions_that_can_not_be_written_are_written_later(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with (
            world(control_plane, namespace, host("n1")) as seen,
            through_proxy(access) as (proxy, transport),
        ):
            it = World(seen.api, transport, namespace, topology=seen.topology)
            async with it.scheduling():
                # More often than one request is repeated.
                proxy.inject("PATCH", "/status", Refuse(503), times=7)
                await it.create(it.pod("huge", 9))
                assert (await it.refusal("huge")).startswith("InsufficientResources: ")

    asyncio.run(run())


def test_a_kind_that_arrives_later_counts_from_then_on(control_plane: ControlPlane, namespace: str) -> None:
    group = "scheduling.run.ai"
    definition: Object = {
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [
                {
                    "name": "v2alpha2",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    },
                }
            ],
        },
    }

    async def create_group(api: Api, name: str) -> None:
        body = {
            "apiVersion": f"{group}/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": 2},
        }
        await api.create(f"/apis/{group}/v2alpha2/namespaces/{namespace}/podgroups", body)

    async def run() -> None:
        async with world(control_plane, namespace, host("n1")) as it, it.scheduling() as scheduler:
            await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2)))
            assert (await it.refusal("g-0")).startswith("GangIncomplete: ")
            # Another test's definition of that name may be on its way out.
            await until(lambda: _created(it.api))
            try:
                await until(lambda: _there(it.api))
                await served(it.api, definition)
                await create_group(it.api, "g")
                await it.bound(2)
            finally:
                await it.api.delete(f"{CRDS}/podgroups.{group}")
            # With the kind its objects are gone.
            await until(lambda: _forgotten(scheduler))

    async def _created(api: Api) -> bool:
        try:
            await api.create(CRDS, definition)
        except ApiError as error:
            assert error.status == 409
            return False
        return True

    async def _there(api: Api) -> bool:
        found = await api.get(f"{CRDS}/podgroups.{group}")
        conditions = found["status"].get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    async def _forgotten(scheduler: LiveScheduler) -> bool:
        return f"{namespace}/g" not in scheduler.engine.state.groups

    asyncio.run(run())


def test_a_node_that_goes_away_is_not_used_any_more(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host("n1", gpus=2)) as it, it.scheduling() as scheduler:
            late = host(unique("late"), gpus=8)
            async with joined(it.api, [late]):
                await it.create(it.pod("big", 4))
                assert await it.bound(1) == {"big": late["metadata"]["name"]}
            await until_heard(scheduler, late["metadata"]["name"], None)
            await it.create(it.pod("next", 4))
            assert (await it.refusal("next")).startswith("InsufficientResources: ")

    asyncio.run(run())


def test_a_restarted_scheduler_goes_on_where_the_other_was(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Half of a gang is bound when the first one ends; the rest joins it."""
    hosts = [host(f"r{rack}-{i}", f"r{rack}", 4) for rack in range(3) for i in range(2)]

    async def run() -> None:
        access = control_plane.access()
        async with (
            world(control_plane, namespace, *hosts) as seen,
            through_proxy(access) as (proxy, transport),
        ):
            first = World(seen.api, transport, namespace, topology=seen.topology)
            async with first.scheduling():
                proxy.inject("POST", f"/{namespace}/pods/g-3/binding", Refuse(503), times=1000)
                proxy.inject("POST", f"/{namespace}/pods/g-6/binding", Refuse(503), times=1000)
                await first.gang("g", 8, required="rack")
                await first.bound(6)
            proxy.forgive()
            second = World(seen.api, transport, namespace, topology=seen.topology, name=first.name)
            async with second.scheduling():
                placed = await second.bound(8)
                assert len({node.partition("-")[0] for node in placed.values()}) == 1
                assert set(Counter(placed.values()).values()) == {4}

    asyncio.run(run())
