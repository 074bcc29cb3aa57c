"""What the live tests share: closeby's client on a real control plane, and somebody who follows a kind."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.credentials import Fixed
from closeby.kube.client.transport import Limits, OnRequest, Transport
from closeby.kube.client.waiting import RequestPace
from closeby.kube.watch.changes import Change, Deleted, Resumed, Synced, Troubled, Upserted
from closeby.kube.watch.reflector import Reflector
from closeby.objects.pods import Pod, PodSpec
from tests.control_plane.access import Access
from tests.control_plane.api import Api, Object
from tests.kube.faulty_proxy import Proxy

#: So that tests need not wait.
FAST = Limits(pace=RequestPace(0.02, 0.2))


@asynccontextmanager
async def direct(kubeconfig: Path, limits: Limits = FAST) -> AsyncIterator[Transport]:
    """closeby's client as the kubeconfig file says."""
    connection = connect(str(kubeconfig))
    assert isinstance(connection, Connection), connection
    async with Transport(connection, limits) as transport:
        yield transport


@asynccontextmanager
async def through_proxy(
    access: Access,
    limits: Limits = FAST,
    on_request: OnRequest = lambda method, code, seconds: None,
) -> AsyncIterator[tuple[Proxy, Transport]]:
    """closeby's client behind a proxy that can do harm."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(access).running())
        # Who has no token shows a certificate, which the proxy does for us.
        who = Fixed(None if access.token is None else f"Bearer {access.token}")
        connection = Connection(url=proxy.url, credentials=who, source="a test")
        yield proxy, await stack.enter_async_context(Transport(connection, limits, on_request))


def waiting_pod(name: str) -> Object:
    """A pod that no other scheduler takes."""
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "closeby-test",
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


async def create_pods(api: Api, namespace: str, number: int, start: int = 0) -> list[Pod]:
    """``number`` pods p0, p1, ... as records."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = await asyncio.gather(
        *(api.create(path, waiting_pod(f"p{place}")) for place in range(start, start + number))
    )
    return [
        Pod(namespace=namespace, name=one["metadata"]["name"], uid=one["metadata"]["uid"], spec=PodSpec())
        for one in made
    ]


async def delete_now(api: Api, namespace: str, *names: str) -> None:
    """Deletes pods at once, as no kubelet would end them."""
    for name in names:
        await api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})


class Follower:
    """Keeps what a reflector tells."""

    def __init__(self) -> None:
        self.objects: dict[str, Upserted] = {}
        self.deleted: list[Deleted] = []
        self.upserts = 0
        self.synced: list[Synced] = []
        self.troubles: list[Troubled] = []
        self.resumed = 0
        self._news = asyncio.Event()

    def take(self, change: Change) -> None:
        match change:
            case Upserted(key=key):
                self.objects[key] = change
                self.upserts += 1
            case Deleted(key=key):
                assert self.objects.pop(key).uid == change.uid
                self.deleted.append(change)
            case Synced():
                self.synced.append(change)
                assert change.objects == len(self.objects)
            case Troubled():
                self.troubles.append(change)
            case Resumed():
                self.resumed += 1

    async def follow(self, reflector: Reflector) -> None:
        async with aclosing(reflector.changes()) as batches:
            async for batch in batches:
                assert batch
                for change in batch:
                    self.take(change)
                self._news.set()

    async def until(self, met: Callable[[], bool], seconds: float = 60.0) -> None:
        """Waits for changes until the condition is met."""
        async with asyncio.timeout(seconds):
            while not met():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def following(reflector: Reflector) -> AsyncIterator[Follower]:
    """A follower that has seen the first list."""
    follower = Follower()
    task = asyncio.create_task(follower.follow(reflector))
    try:
        synced = asyncio.create_task(follower.until(lambda: bool(follower.synced)))
        await asyncio.wait([synced, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            synced.cancel()
            await task
        await synced
        yield follower
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(met: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Looks again and again until it is so."""
    async with asyncio.timeout(seconds):
        while True:
            if await met():
                return
            await asyncio.sleep(0.02)


def unique(name: str) -> str:
    """A name that no other test has."""
    return f"{name}-{secrets.token_hex(3)}"
