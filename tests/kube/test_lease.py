"""Replicas that want to lead, on a real API server."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from closeby.kube.client.transport import Transport
from closeby.kube.watch.resources import LEASES
from closeby.kube.writing.lease import Elector, LeaseSettings, LeaseStatus
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Fault, Refuse
from tests.kube.live import direct, eventually, through_proxy


def candidate(transport: Transport, namespace: str, identity: str, duration: int = 2) -> Elector:
    """A fast one: fail-over takes ``duration`` seconds and a bit, which is five looks."""
    settings = LeaseSettings(
        namespace=namespace,
        name="closeby",
        identity=identity,
        duration=duration,
        deadline=duration * 0.7,
        retry=duration * 0.2,
    )
    return Elector(transport, settings, time.time, random.Random(identity))


class Watcher:
    """Runs a candidate and keeps its standings."""

    def __init__(self, elector: Elector) -> None:
        self.elector = elector
        self.told: list[LeaseStatus] = []
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self.elector.standings()) as standings:
            async for standing in standings:
                self.told.append(standing)
                self._news.set()

    async def until(self, leading: bool, holder: str | None = None, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not (
                self.told and self.told[-1].leading is leading and holder in (None, self.told[-1].holder)
            ):
                self._news.clear()
                await self._news.wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def spec(control_plane: ControlPlane, namespace: str) -> Object:
    async with Api(control_plane.access()) as api:
        found: Object = (await api.get(LEASES.item(namespace, "closeby")))["spec"]
        return found


async def making(control_plane: ControlPlane, namespace: str) -> Callable[[], Awaitable[Object]]:
    """What is returned waits for the Lease that is made from now on: as it was first, be it renewed since."""
    path = LEASES.collection(namespace)
    async with Api(control_plane.access()) as api:
        version = (await api.get(path))["metadata"]["resourceVersion"]

    async def made() -> Object:
        async with Api(control_plane.access()) as api, asyncio.timeout(60):
            async for _, lease in api.watch(path, version):
                found: Object = lease["spec"]
                return found
        raise AssertionError("the watch has ended")

    return made


def test_one_leads_and_hands_over_when_it_stops(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with direct(control_plane.kubeconfig) as transport, through_proxy(access) as (proxy, another):
            made = await making(control_plane, namespace)
            one = Watcher(candidate(transport, namespace, "one", duration=10))
            await one.until(leading=True)
            first = await made()
            assert (first["holderIdentity"], first["leaseDurationSeconds"]) == ("one", 10)
            assert first["acquireTime"] == first["renewTime"]
            other = Watcher(candidate(another, namespace, "other", duration=10))
            await other.until(leading=False, holder="one")
            assert (one.elector.leading, other.elector.leading) == (True, False)
            await one.stop()
            assert not one.elector.leading
            before = proxy.count("GET", "/leases")
            await other.until(leading=True)
            # Its next look tells it; one may have been on the way before.
            assert proxy.count("GET", "/leases") - before <= 2
            taken = await spec(control_plane, namespace)
            assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("other", 1)
            await other.stop()
            released = await spec(control_plane, namespace)
            assert (released.get("holderIdentity", ""), released["leaseDurationSeconds"]) == ("", 1)

    asyncio.run(run())


@pytest.mark.slow
def test_a_dead_leader_is_replaced_when_its_lease_has_run_out(
    control_plane: ControlPlane, namespace: str
) -> None:
    renewals: list[float] = []

    def note(method: str, path: str) -> None:
        if method == "PUT" and "/leases" in path:
            renewals.append(time.monotonic())

    async def renewed() -> bool:
        return bool(renewals)

    async def run() -> None:
        access = control_plane.access()
        async with through_proxy(access) as (fine, healthy), through_proxy(access) as (proxy, sick):
            one = Watcher(candidate(sick, namespace, "one", duration=4))
            await one.until(leading=True)
            other = Watcher(candidate(healthy, namespace, "other", duration=4))
            await other.until(leading=False, holder="one")
            proxy.chance = note
            await eventually(renewed)
            for method in ("GET", "PUT"):
                proxy.inject(method, "/leases", Refuse(503), times=10_000)
            before = fine.count("GET", "/leases")
            leaders_at_once = False

            async def both() -> bool:
                nonlocal leaders_at_once
                leaders_at_once = leaders_at_once or (one.elector.leading and other.elector.leading)
                return other.elector.leading

            await asyncio.gather(other.until(leading=True), eventually(both))
            assert time.monotonic() - renewals[-1] >= 4.0
            # One look on the way, one that sees the last renewal, and five until that is 4 s ago.
            assert fine.count("GET", "/leases") - before <= 7
            assert not leaders_at_once
            await one.until(leading=False)
            assert one.told[-1].error is not None
            # Once it hears again it follows; nobody leads twice.
            proxy.forgive()
            await one.until(leading=False, holder="other")
            assert other.elector.leading
            await asyncio.gather(one.stop(), other.stop())

    asyncio.run(run())


def test_a_short_trouble_costs_no_leadership(control_plane: ControlPlane, namespace: str) -> None:
    refused: list[int] = []

    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):

            def once(method: str, path: str) -> Fault | None:
                if method != "GET" or refused:
                    return None
                refused.append(proxy.count("PUT", "/leases"))
                return Refuse(500)

            async def renewed() -> bool:
                return bool(refused) and proxy.count("PUT", "/leases") > refused[0]

            one = Watcher(candidate(transport, namespace, "one", duration=8))
            await one.until(leading=True)
            proxy.chance = once
            await eventually(renewed)
            assert one.told == [LeaseStatus(True, "one")]
            await one.stop()

    asyncio.run(run())


def test_a_leader_that_the_server_does_not_know_any_more_says_so(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The last attempt ends with the deadline; why those before it failed counts."""

    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            watcher = Watcher(candidate(transport, namespace, "a"))
            await watcher.until(True)
            proxy.chance = lambda method, path: Refuse(401, reason="Unauthorized")
            await watcher.until(False)
            error = watcher.told[-1].error
            assert error is not None and error.code == 401
            await watcher.stop()

    asyncio.run(run())


def test_a_lease_of_client_go_is_respected_and_then_taken(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its holder is gone, and its clock was an hour ahead: only how long the record stays the same counts."""
    record = {
        "metadata": {"name": "closeby", "labels": {"keep": "me"}},
        "spec": {
            "holderIdentity": "kube-scheduler-1_5f1c",
            "leaseDurationSeconds": 1,
            "acquireTime": "2099-01-01T00:00:00.000000Z",
            "renewTime": "2099-01-01T00:00:00.000000Z",
            "leaseTransitions": 6,
        },
    }

    async def run() -> None:
        async with Api(control_plane.access()) as api, direct(control_plane.kubeconfig) as transport:
            await api.create(LEASES.collection(namespace), record)
            began = time.monotonic()
            one = Watcher(candidate(transport, namespace, "one"))
            await one.until(leading=False, holder="kube-scheduler-1_5f1c")
            await one.until(leading=True)
            assert time.monotonic() - began >= 1.0
            found = await api.get(LEASES.item(namespace, "closeby"))
            assert found["spec"]["leaseTransitions"] == 7
            assert found["metadata"]["labels"] == {"keep": "me"}
            await one.stop()

    asyncio.run(run())
