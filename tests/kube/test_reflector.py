"""Following a kind on a real API server, through everything that happens to a watch."""

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import aiohttp
import pytest

from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import RequestPace
from closeby.kube.state.decoding import Decoded, Decoder
from closeby.kube.watch.reflector import Reflector, Watching
from closeby.kube.watch.resources import PODS
from closeby.objects.pods import Pod
from tests.control_plane.api import Api
from tests.control_plane.binaries import find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.commands import Settings
from tests.kube.faulty_proxy import Cut, EndAtOnce, Refuse, Silence
from tests.kube.live import Follower, create_pods, delete_now, direct, eventually, following, through_proxy

SOON = RequestPace(0.02, 0.2)


def more_than(seen: Follower, number: int) -> bool:
    return len(seen.objects) > number


def pods_of(transport: Transport, namespace: str, *, page: int = 500, idle: float = 60.0) -> Reflector:
    watching = Watching(page=page, fields=f"metadata.namespace={namespace}", idle=idle, pace=SOON)
    return Reflector(transport, PODS, watching, random.Random(1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_thousand_pods_come_in_pages_and_their_changes_after_them(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with Api(control_plane.access()) as api, direct(control_plane.kubeconfig) as transport:
            await create_pods(api, namespace, 1000)
            async with following(pods_of(transport, namespace, page=300)) as seen:
                assert len(seen.objects) == 1000
                await create_pods(api, namespace, 1000, start=1000)
                await delete_now(api, namespace, "p0", "p1999")
                await seen.until(lambda: seen.upserts >= 2000 and len(seen.objects) == 1998)
                assert {change.key for change in seen.deleted} == {f"{namespace}/p0", f"{namespace}/p1999"}
                assert (len(seen.synced), seen.troubles) == (1, [])
                decoder = Decoder()
                read = [decoder.read(PODS, change) for change in seen.objects.values()]
            records = [one.record for one in read if isinstance(one, Decoded)]
            pods = [one for one in records if isinstance(one, Pod)]
            assert len({pod.key for pod in pods}) == 1998
            assert len({id(pod.spec) for pod in pods}) == 1

    asyncio.run(run())


def test_the_end_of_a_watch_is_normal(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with Api(access) as api, through_proxy(access) as (proxy, transport):
            async with following(pods_of(transport, namespace)) as seen:
                for turn in range(15):
                    await create_pods(api, namespace, 4, start=4 * turn)
                    await seen.until(partial(more_than, seen, 4 * turn))
                    proxy.end_streams()
                await seen.until(lambda: len(seen.objects) == 60)
                assert (seen.upserts, len(seen.synced), seen.troubles) == (60, 1, [])
            assert proxy.count("WATCH", "/pods") >= 15
            assert proxy.count("GET", "/pods") == 1

    asyncio.run(run())


def test_cut_and_refused_watches_lose_nothing(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with (
            Api(access) as api,
            through_proxy(access) as (proxy, transport),
            following(pods_of(transport, namespace)) as seen,
        ):
            await proxy.streaming()
            proxy.inject("WATCH", "/pods", Refuse(429, {"Retry-After": "1"}))
            proxy.inject("WATCH", "/pods", Refuse(500))
            # The HTTP library itself repeats a GET that it sent over a kept connection.
            proxy.inject("WATCH", "/pods", Cut(), times=2)
            proxy.inject("WATCH", "/pods", EndAtOnce(), times=2)
            began = asyncio.get_running_loop().time()
            proxy.cut_streams()
            await create_pods(api, namespace, 3)
            await seen.until(lambda: len(seen.objects) == 3)
            assert asyncio.get_running_loop().time() - began >= 1.0
            reasons = [(trouble.error.code, trouble.error.reason) for trouble in seen.troubles]
            # Without a kept connection the library does not repeat, and each cut is told.
            told = [reason for reason, _ in groupby(reasons)]
            assert told[-3:] == [(429, "Injected"), (500, "Injected"), (None, "ConnectionCut")]
            assert seen.resumed >= 1
            assert (seen.upserts, len(seen.synced)) == (3, 1)

    asyncio.run(run())


UNREADABLE_OBJECTS = {
    "not UTF-8": b'{"metadata": {"name": "\xff"}}',
    "too deep": b'{"metadata": {}, "spec": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no JSON": b'{"metadata": {',
}


@pytest.mark.parametrize("what", UNREADABLE_OBJECTS)
def test_answers_that_cannot_be_read_are_a_trouble_and_lose_nothing(
    control_plane: ControlPlane, namespace: str, what: str
) -> None:
    garbled = UNREADABLE_OBJECTS[what]

    async def run() -> None:
        access = control_plane.access()
        async with Api(access) as api, through_proxy(access) as (proxy, transport):
            proxy.inject("GET", "/pods", EndAtOnce(b'{"metadata": {}, "items": [' + garbled + b"]}"))
            async with following(pods_of(transport, namespace)) as seen:
                await proxy.streaming()
                proxy.inject("WATCH", "/pods", EndAtOnce(b'{"type": "ADDED", "object": ' + garbled + b"}\n"))
                proxy.end_streams()
                await create_pods(api, namespace, 3)
                await seen.until(lambda: len(seen.objects) == 3 and len(seen.troubles) == 2)
                assert {trouble.error.reason for trouble in seen.troubles} == {"UnreadableAnswer"}

    asyncio.run(run())


def test_a_silent_watch_is_dead(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with Api(access) as api, through_proxy(access) as (proxy, transport):
            proxy.inject("WATCH", "/pods", Silence())
            async with following(pods_of(transport, namespace, idle=0.5)) as seen:
                await create_pods(api, namespace, 1)
                await seen.until(lambda: len(seen.objects) == 1)
                assert seen.troubles[0].error.reason == "NoAnswerInTime"

    asyncio.run(run())


def test_a_list_is_tried_again(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with Api(access) as api, through_proxy(access) as (proxy, transport):
            await create_pods(api, namespace, 3)
            proxy.inject("GET", "/pods", Cut(), times=2)
            proxy.inject("GET", "/pods", Refuse(503), times=2)
            proxy.inject("GET", "/pods", Refuse(403))
            async with following(pods_of(transport, namespace, page=1)) as seen:
                assert [trouble.error.code for trouble in seen.troubles] == [403]
                assert len(seen.objects) == 3

    asyncio.run(run())


def test_after_410_everything_is_listed_and_what_is_gone_is_found(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        access = control_plane.access()
        async with (
            Api(access) as api,
            through_proxy(access) as (proxy, transport),
        ):
            pods = await create_pods(api, namespace, 5)
            async with following(pods_of(transport, namespace)) as seen:
                # Nobody hears of what happens meanwhile; p1 comes back as another pod.
                await proxy.streaming()
                proxy.inject("WATCH", "/pods", Refuse(503), times=1000)
                proxy.end_streams()
                await delete_now(api, namespace, "p0", "p1")
                again = await create_pods(api, namespace, 1, start=1)
                changed = {"metadata": {"labels": {"a": "b"}}}
                await api.patch(f"/api/v1/namespaces/{namespace}/pods/p3", changed)
                proxy.forgive()
                proxy.inject("WATCH", "/pods", Refuse(410, reason="Expired"))
                await seen.until(lambda: len(seen.synced) == 2)
                assert {change.uid for change in seen.deleted} == {pods[0].uid, pods[1].uid}
                assert seen.objects[f"{namespace}/p1"].uid == again[0].uid
                # What did not change is not told again.
                assert seen.upserts == 7

    asyncio.run(run())


@pytest.fixture
def restarted(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own: after a restart, the controllers of the others' would be slow."""
    assert own_control_plane.ours
    with started(find_programs(print_nothing), tmp_path, Settings(controllers=False)) as running:
        asyncio.run(takes_pods(running))
        yield running


async def takes_pods(control_plane: ControlPlane) -> None:
    """A server that is ready may have made its namespaces, or make them now."""
    async with Api(control_plane.access()) as api:

        async def made() -> bool:
            names = [one["metadata"]["name"] for one in (await api.get("/api/v1/namespaces"))["items"]]
            return "default" in names

        await eventually(made)


def print_nothing(line: str) -> None:
    """The programs are there already."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_server_that_lost_its_history_is_listed_again(restarted: ControlPlane) -> None:
    """A restarted API server knows no version before its start: the watch gets 410 as an event."""
    namespace, server = "default", restarted.processes["kube-apiserver"]

    async def run() -> None:
        access = restarted.access()
        async with Api(access) as api, through_proxy(access) as (proxy, transport):
            await create_pods(api, namespace, 20)
            async with following(pods_of(transport, namespace)) as seen:
                await asyncio.to_thread(server.restart)
                await create_pods(api, namespace, 5, start=20)
                await seen.until(lambda: len(seen.objects) == 25)
                # The next one misses deletions: nobody listens from the last event to the restart.
                await proxy.streaming()
                proxy.inject("WATCH", "/pods", Refuse(503), times=1000)
                proxy.cut_streams()
                await delete_now(api, namespace, "p0", "p1", "p2")
                await create_pods(api, namespace, 200, start=100)
                await asyncio.to_thread(server.restart)
                proxy.forgive()
                await seen.until(lambda: len(seen.objects) == 222)
                assert {change.key for change in seen.deleted} == {
                    f"{namespace}/p{place}" for place in (0, 1, 2)
                }
                assert len(seen.synced) >= 2
                assert seen.upserts == 225
                assert seen.troubles
                await create_pods(api, namespace, 1, start=999)
                await seen.until(lambda: len(seen.objects) == 223)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_pages_of_a_forgotten_version(restarted: ControlPlane) -> None:
    """The server's store forgets the version of the first page before the second is asked for."""
    flags = Path(f"/proc/{restarted.processes['etcd'].pid}/cmdline").read_text().split("\0")
    etcd = next(flag for flag in flags if flag.startswith("--listen-client-urls=")).partition("=")[2]

    namespace = "default"

    async def forget(api: Api) -> None:
        await create_pods(api, namespace, 1, start=10)
        last = (await api.get("/api/v1/namespaces", limit="1"))["metadata"]["resourceVersion"]
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{etcd}/v3/kv/compaction", json={"revision": last, "physical": True}) as answer,
        ):
            assert answer.status == 200, await answer.text()
        # It keeps copies of its own for a while; these must go too.
        await asyncio.to_thread(restarted.processes["kube-apiserver"].restart)

    async def run() -> None:
        access = restarted.access()
        async with Api(access) as api, through_proxy(access) as (proxy, transport):
            await create_pods(api, namespace, 10)
            proxy.before("GET", "continue=", lambda: forget(api))
            async with following(pods_of(transport, namespace, page=4)) as seen:
                assert len(seen.objects) == 11
            # Once more if nobody waited for the first answer, for the restart took so long.
            assert proxy.refused[410] >= 1

    asyncio.run(run())
