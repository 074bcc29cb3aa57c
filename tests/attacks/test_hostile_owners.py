"""A tenant who may create pods attacks the pod-grouper by the owner references of those pods.

The API server checks of an owner reference only that its fields are not empty, so name, kind and uid are
whatever their author likes. What must hold: a name never becomes another request; look-ups that hang, however
many, keep no other namespace from being grouped; an attempt that does not end is told, and `/readyz` is red.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import quote

import aiohttp
import pytest

from closeby.controllers.running import Running
from closeby.kube.client.errors import LATE, ApiError
from closeby.kube.client.transport import Limits, Transport
from closeby.kube.client.waiting import RequestPace
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import ListenAddress, Server
from closeby.kube.watch.resources import is_name
from closeby.kube.writing.work_queue import Places
from tests.control_plane.api import Object, create_namespace, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.controllers.grouper_world import World, until, world
from tests.kube.faulty_proxy import Proxy, Silence
from tests.kube.live import through_proxy

pytestmark = pytest.mark.slow

NOBODY = "00000000-0000-0000-0000-000000000000"
#: Names that are other requests where they are not quoted, and names that no API server takes.
HOSTILE = (
    "?watch=true",
    "x?watch=true&timeoutSeconds=3600",
    "../..",
    "..",
    ".",
    "a/b",
    "../../../../api/v1/secrets",
    "%2e%2e",
    "%3Fwatch%3Dtrue",
    "x" * 5000,
    "x#fragment",
    "ünïcødé-名前",
    "a b\r\nHost: evil",
    "x;y=z",
)
#: What hangs for so many seconds does not end while a test runs.
FOR_EVER = 3600.0
#: Requests that a fault meets, however many there are.
ALL = 10**9


class Attack:
    """A pod-grouper at work behind a proxy, a good tenant (``it``) and namespaces of an attacker."""

    def __init__(self, it: World, proxy: Proxy, transport: Transport, namespaces: list[str]) -> None:
        self.it = it
        self.proxy = proxy
        self.transport = transport
        self.namespaces = namespaces

    async def pod(
        self, namespace: str, name: str, owner: Object, annotations: Mapping[str, str] = {}
    ) -> None:
        body = self.it.pod(name, annotations=annotations)
        body["metadata"]["ownerReferences"] = [owner]
        await self.it.api.create(f"/api/v1/namespaces/{namespace}/pods", body)

    async def pods_that_hang(self, namespace: str, number: int) -> None:
        """Pods with owners of their own, which are there; the proxy answers no look-up of them."""
        self.proxy.inject("GET", f"/namespaces/{namespace}/configmaps/hang-", Silence(), ALL)

        async def one(place: int) -> None:
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            made = await self.it.api.create(path, {"metadata": {"name": f"hang-{place}"}})
            await self.pod(
                namespace, f"p{place}", owner("ConfigMap", f"hang-{place}", made["metadata"]["uid"])
            )

        await asyncio.gather(*(one(place) for place in range(number)))

    async def good_jobs_are_grouped(self, names: Iterable[str]) -> None:
        """Those of the good tenant, one after the other."""
        for name in names:
            job = await self.it.job(name, 3, self.it.wish())
            if not self.it.control_plane.controllers:
                await self.it.pods_of(job, name, 3)
            await self.it.members(name, 3)

    def hanging(self, namespace: str) -> int:
        return self.proxy.count("GET", f"/namespaces/{namespace}/configmaps/hang-")


def owner(kind: str, name: str, uid: str = NOBODY, api_version: str = "v1") -> Object:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


@asynccontextmanager
async def attack(
    control_plane: ControlPlane, namespace: str, *, attackers: int = 1, answer_within: float = FOR_EVER
) -> AsyncIterator[Attack]:
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(world(control_plane, namespace, {"r1": 1}))
        limits = Limits(pace=RequestPace(0.02, 0.2), answer_within=answer_within)
        proxy, transport = await stack.enter_async_context(through_proxy(control_plane.access(), limits))
        names = []
        for _ in range(attackers):
            names.append(await create_namespace(it.api, service_accounts=control_plane.controllers))
            stack.push_async_callback(delete_namespace, it.api, names[-1])
        yield Attack(it, proxy, transport, names)


@pytest.mark.parametrize("pods", [8, 40])
def test_owners_named_like_a_watch_do_not_keep_another_tenant_waiting(
    control_plane: ControlPlane, namespace: str, pods: int
) -> None:
    """A tenant makes pods whose owner is the pod ``?watch=true``; as a request that would never end."""

    async def run() -> None:
        async with attack(control_plane, namespace) as they, they.it.grouping(they.transport):
            (mallory,) = they.namespaces
            for number in range(pods):
                await they.pod(mallory, f"p{number}", owner("Pod", "?watch=true", f"00-{number}"))
            await they.good_jobs_are_grouped(["j1", "j2", "j3"])
            assert they.proxy.count("WATCH", f"/namespaces/{mallory}/") == 0

    asyncio.run(run())


def test_no_name_becomes_another_request(control_plane: ControlPlane, namespace: str) -> None:
    """A tenant names owners by queries, parents of paths, escapes, lines, and all sorts of letters."""

    async def run() -> None:
        async with attack(control_plane, namespace) as they, they.it.grouping(they.transport):
            (mallory,) = they.namespaces
            pods = f"/api/v1/namespaces/{mallory}/pods"
            for number, name in enumerate(HOSTILE):
                await they.pod(mallory, f"p{number}", owner("Pod", name, f"00-{number}"))
            for number, version in enumerate(("v1?watch=true", "..", "../secrets", "%2e%2e/v1", "apps/..")):
                await they.pod(mallory, f"v{number}", owner("Pod", "x", f"01-{number}", version))

            async def told() -> bool:
                """Those that the garbage collector has not deleted, as their owner is not there."""
                found = (await they.it.api.get(pods))["items"]
                return all("closeby.dev/pod-group" in one["metadata"].get("annotations", {}) for one in found)

            await until(told)
            await they.good_jobs_are_grouped(["j1"])
            looked_up = {
                path
                for method, path in (key.split(" ", 1) for key in they.proxy.seen)
                if method in ("GET", "WATCH") and (mallory in path or "secrets" in path or ".." in path)
            }
            assert looked_up <= {f"{pods}/{name}" for name in HOSTILE if is_name(name)}

    asyncio.run(run())


def test_a_gang_of_a_nameless_owner_has_a_name_that_the_server_takes(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A tenant's pods ask for a gang, and name an owner of which no object can have the name."""

    async def run() -> None:
        async with attack(control_plane, namespace) as they, they.it.grouping(they.transport):
            (mallory,) = they.namespaces
            # Of a kind that the garbage collector does not know either, which would delete the pod.
            reference = owner("Thing", "../../X_y", api_version="nobody.example/v1")
            await they.pod(mallory, "p1", reference, they.it.wish())

            async def grouped() -> str | None:
                found = await they.it.api.get(f"/api/v1/namespaces/{mallory}/pods/p1")
                group: str | None = found["metadata"].get("labels", {}).get("closeby.dev/pod-group")
                return group

            group = await until(grouped)
            path = f"/apis/closeby.dev/v1alpha1/namespaces/{mallory}/podgroups/{quote(group)}"
            made = await they.it.api.get(path)
            assert made["metadata"]["ownerReferences"][0]["name"] == "../../X_y"

    asyncio.run(run())


def test_look_ups_of_one_tenant_that_never_end_leave_places_to_others(
    control_plane: ControlPlane, namespace: str
) -> None:
    """No answer ever comes for forty owners of one tenant, and no deadline ends that here."""

    async def run() -> None:
        async with (
            attack(control_plane, namespace) as they,
            they.it.grouping(they.transport, lookup_within=FOR_EVER),
        ):
            (mallory,) = they.namespaces
            await they.pods_that_hang(mallory, 40)
            await they.good_jobs_are_grouped(["j1", "j2", "j3"])
            # Half of the places, which all of them still have.
            assert they.hanging(mallory) == Places().all // 2
            assert they.it.said("owner unknown") == []

    asyncio.run(run())


def test_look_ups_that_hang_in_many_namespaces_end_and_others_have_their_turn(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A tenant of six namespaces lets look-ups hang in all of them: more than there are places."""

    async def run() -> None:
        async with (
            attack(control_plane, namespace, attackers=6) as they,
            they.it.grouping(they.transport, lookup_within=2.0),
        ):
            for name in they.namespaces:
                await they.pods_that_hang(name, 10)
            await they.good_jobs_are_grouped(["j1", "j2", "j3"])

            async def late() -> bool:
                errors = [fields["error"] for text, fields in they.it.lines if text == "owner unknown"]
                return any(isinstance(one, ApiError) and one.reason == LATE for one in errors)

            await until(late)

    asyncio.run(run())


def test_an_attempt_that_does_not_end_is_reported_and_turns_readyz_red(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The API server does not answer a write of a PodGroup; the pod-grouper is not ready until it is over."""

    async def run() -> None:
        running = Running(stuck_after=0.5)
        async with (
            attack(control_plane, namespace, answer_within=8.0) as they,
            they.it.grouping(they.transport, running) as runner,
        ):
            health = Health()
            health.ready("workers", lambda: runner.stuck)
            server = Server(ListenAddress("127.0.0.1", 0), health, Meters())
            assert await server.open() is None
            try:
                async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

                    async def ready() -> tuple[int, str]:
                        async with session.get("/readyz") as answer:
                            return answer.status, await answer.text()

                    async def red() -> bool:
                        status, text = await ready()
                        return status == 500 and "[-]workers failed: pod-grouper: " in text

                    async def green() -> bool:
                        return (await ready())[0] == 200

                    # What other tests left may take its time.
                    await until(green)
                    they.proxy.inject("PATCH", f"/namespaces/{namespace}/podgroups/", Silence())
                    job = asyncio.create_task(they.good_jobs_are_grouped(["j1"]))
                    await until(red)
                    about = {"controller": "pod-grouper", "object": f"Job/{namespace}/j1"}

                    async def told(message: str) -> bool:
                        return any(about.items() <= one.items() for one in they.it.said(message))

                    await until(lambda: told("stuck"))
                    # The request is given up and sent again.
                    await job
                    await until(green)
                    await until(lambda: told("no longer stuck"))
            finally:
                await server.close()

    asyncio.run(run())
