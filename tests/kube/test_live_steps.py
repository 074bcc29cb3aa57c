"""Steps before bindings on a real API server: slow ones, ones that fail, and ones that are interrupted."""

import asyncio
from contextlib import suppress

import pytest

from closeby.scheduling.outcomes import Binding
from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live_world import behind_proxy, group_of, host, planned, until, until_said

HOSTS = [host(f"r{rack}-{i}", f"r{rack}", 2) for rack in range(2) for i in range(2)]
#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


class Claims:
    """Makes a ConfigMap for each member of a gang, which names its node, as a volume would."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        #: Pods that fail, and how often.
        self.failing: dict[str, int] = {}
        #: Pods that wait until it is set, and pods that ran, in order.
        self.waiting: set[str] = set()
        self.ready = asyncio.Event()
        self.ran: list[str] = []
        self.finished: set[str] = set()

    def needed(self, binding: Binding) -> bool:
        return binding.pod.group is not None

    async def run(self, binding: Binding) -> str | None:
        name = binding.pod.name
        self.ran.append(name)
        with suppress(ApiError):  # An earlier process made it.
            await self.api.create(
                self.path, {"metadata": {"name": f"claim-{name}"}, "data": {"node": binding.node}}
            )
        if name in self.waiting:
            await self.ready.wait()
        if self.failing.get(name):
            self.failing[name] -= 1
            return "no volume is left"
        self.finished.add(name)
        return None

    async def undo(self, binding: Binding) -> None:
        with suppress(ApiError):
            await self.api.delete(f"{self.path}/claim-{binding.pod.name}")

    async def made(self) -> dict[str, str]:
        """The node of each pod for which there is one."""
        found = (await self.api.get(self.path))["items"]
        names = {one["metadata"]["name"].removeprefix("claim-"): one.get("data", {}) for one in found}
        return {name: data["node"] for name, data in names.items() if "node" in data}


def test_no_member_is_bound_before_the_steps_of_all_are_done(
    control_plane: ControlPlane, namespace: str
) -> None:
    finished: list[set[str]] = []

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
            claims = Claims(it.api, namespace)
            claims.waiting = {"g-2"}

            async def look() -> None:
                finished.append(set(claims.finished))

            async def running() -> bool:
                return len(await claims.made()) == 4

            proxy.before("POST", "/pods/g-", look)
            async with it.scheduling(steps=[claims]):
                await it.gang("g", 4, required="rack")
                await until(running)
                # The plan stands before the first step; a plain pod does not wait for the gang.
                assert planned(await group_of(it, "g")) == await claims.made()
                await it.create(it.pod("plain", 0))
                assert set(await it.bound(1)) == {"plain"}
                claims.ready.set()
                placed = await it.bound(5)
                await until_said(it, "g", "Placed")
            del placed["plain"]
            assert await claims.made() == placed
            assert finished == [set(placed)]
            assert sorted(claims.ran) == [f"g-{i}" for i in range(4)]

    asyncio.run(run())


def test_a_step_that_fails_gives_the_whole_gang_back(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
            claims = Claims(it.api, namespace)
            claims.failing = {"g-1": 2}
            async with it.scheduling(steps=[claims]):
                await it.gang("g", 4, required="rack")
                placed = await it.bound(4)
                await until_said(it, "g", "Placed")
                assert "plan" not in (await group_of(it, "g"))["status"]
            assert await claims.made() == placed
            assert claims.ran.count("g-1") == 3
            assert proxy.count("POST", "/binding") == 4
            withdrawn = it.said("bindings withdrawn")
            assert [(one["gang"], one["pods"], one["why"]) for one in withdrawn] == [
                (f"{namespace}/g", 4, "no volume is left")
            ] * 2

    asyncio.run(run())


def test_steps_that_a_process_did_not_finish_are_run_again_by_the_next_one(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
            claims = Claims(it.api, namespace)
            claims.waiting = {"g-0", "g-3"}

            async def running() -> bool:
                return len(await claims.made()) == 4

            async with it.scheduling(steps=[claims]):
                await it.gang("g", 4, required="rack")
                await until(running)
                promised = planned(await group_of(it, "g"))
            # What was done is left to the next leader, for whom the plan stands.
            assert await claims.made() == promised
            assert planned(await group_of(it, "g")) == promised
            assert proxy.count("POST", "/binding") == 0
            claims.ready.set()
            again = it.successor()
            async with again.scheduling(steps=[claims]):
                assert await again.bound(4) == promised
                await until_said(again, "g", "Placed")
            assert await claims.made() == promised
            assert all(claims.ran.count(f"g-{i}") == 2 for i in range(4))

    asyncio.run(run())


def test_steps_are_not_run_while_the_plan_does_not_stand(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
            claims = Claims(it.api, namespace)
            proxy.inject("PATCH", "/podgroups/g/status", Refuse(503), times=1000)

            async def tried() -> bool:
                return proxy.count("PATCH", "/podgroups/g/status") > 3

            async with it.scheduling(steps=[claims]):
                await it.gang("g", 4, required="rack")
                await until(tried)
                assert claims.ran == []
                proxy.forgive()
                assert await it.bound(4) == await claims.made()

    asyncio.run(run())
