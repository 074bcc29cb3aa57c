"""Events on a real API server: in the background, in bounds, and never in the way of anything else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from closeby.kube.watch.resources import EVENTS
from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import Note, Reference, Writer
from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Act, Fault, Proxy, Refuse
from tests.kube.live import through_proxy
from tests.kube.live_world import SOON, behind_proxy, host, until

NOTE = Note(reason="Scheduled", action="Binding", text="to a node")


class Posting:
    """What is posted, and what the log says."""

    def __init__(self, api: Api, proxy: Proxy, writer: Writer, namespace: str) -> None:
        self.api = api
        self.proxy = proxy
        self.writer = writer
        self.namespace = namespace
        self.lines: list[tuple[str, dict[str, object]]] = []

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        assert warning
        self.lines.append((message, fields))

    def about(self, name: str) -> Reference:
        return Reference(api_version="v1", kind="Pod", name=name, namespace=self.namespace)

    async def posted(self) -> set[str]:
        """Pods that have an Event."""
        return {one["regarding"]["name"] for one in (await self.api.get(self._path()))["items"]}

    def _path(self) -> str:
        return EVENTS.collection(self.namespace)


@asynccontextmanager
async def posting(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Posting]:
    access = control_plane.access()
    async with Api(access) as api, through_proxy(access) as (proxy, transport):
        yield Posting(api, proxy, Writer(transport, "closeby-test", "replica-0"), namespace)


def hanging(proxy: Proxy, *parts: str) -> asyncio.Event:
    """Requests to write with one of these in their paths hang until the event is set."""
    go_on = asyncio.Event()

    async def hang() -> None:
        await go_on.wait()

    def chance(method: str, path: str) -> Fault | Act | None:
        hangs = method in ("POST", "PATCH") and any(part in path for part in parts) and not go_on.is_set()
        return hang if hangs else None

    proxy.chance = chance
    return go_on


def test_a_refused_event_is_logged(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with posting(control_plane, namespace) as it:
            events = Events(it.writer, it.say)
            events.post(it.about("train-0"), NOTE)
            # No server takes Events in a namespace that is not there; that says nothing to the operator.
            events.post(replace(it.about("x"), namespace="closeby-none"), NOTE)
            await events.finish(60)
            assert (it.lines, await it.posted()) == ([], {"train-0"})

            it.proxy.inject("POST", "/events", Refuse(403))
            unwanted = Events(it.writer, it.say, wanted=False)
            unwanted.post(it.about("train-0"), NOTE)
            await unwanted.finish(60)
            assert it.lines == []
            events.post(it.about("train-0"), NOTE)
            await events.finish(60)
            ((message, fields),) = it.lines
            assert (message, str(fields["object"]), fields["event"]) == (
                "event not written",
                f"Pod/{namespace}/train-0",
                "Scheduled",
            )
            assert fields["error"]

    asyncio.run(run())


def test_while_the_server_is_slow_the_oldest_are_dropped(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with posting(control_plane, namespace) as it:
            events = Events(it.writer, it.say, most=10)
            go_on = hanging(it.proxy, "/events")
            for number in range(30):
                events.post(it.about(f"p{number}"), NOTE)
            assert it.lines == [("event queue full", {"queued": 10})]
            go_on.set()
            await events.finish(60)
            # Those that were on their way, and the newest ones.
            assert await it.posted() == {f"p{number}" for number in (*range(8), *range(20, 30))}
            assert it.lines[1:] == [("events dropped", {"dropped": 12})]

    asyncio.run(run())


def test_in_the_end_the_server_is_waited_for_only_so_long(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with posting(control_plane, namespace) as it:
            events = Events(it.writer, it.say)
            go_on = hanging(it.proxy, "/events")
            for number in range(30):
                events.post(it.about(f"p{number}"), NOTE)
            async with asyncio.timeout(20):
                await events.finish(0.2)
            assert it.lines == [("events dropped", {"dropped": 30})]
            # Nothing is left that would be posted later.
            go_on.set()
            events.post(it.about("later"), NOTE)
            await events.finish(60)
            assert "p29" not in await it.posted()
            assert len(it.lines) == 1

    asyncio.run(run())


def test_a_scheduler_ends_while_a_binding_hangs(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n1")) as (it, proxy):
            go_on = hanging(proxy, "/binding")
            async with it.scheduling(reporting=replace(SOON, finish_within=0.5)):
                await it.create(it.pod("p"))

                async def sent() -> bool:
                    return proxy.count("POST", "/binding") > 0

                await until(sent)
                ends = time.monotonic()
            # One attempt alone is waited for 30 s.
            assert time.monotonic() - ends < 25
            assert it.said("bindings not finished")
            go_on.set()

    asyncio.run(run())


def test_a_scheduler_works_and_ends_while_events_and_statuses_hang(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n1")) as (it, proxy):
            reporting = replace(SOON, finish_within=0.5)
            go_on = hanging(proxy, "/events")
            async with it.scheduling(reporting=reporting):
                # More refusals than Events are posted at the same time.
                await it.create(*(it.pod(f"large-{number}", gpus=9) for number in range(12)))
                for number in range(12):
                    await it.refusal(f"large-{number}")
                await it.gang("gang", 4)
                await it.bound(4)
                assert await it.events("Scheduled") == []
                before = proxy.count("PATCH", "/podgroups/")
                hanging(proxy, "/events", "/status")
                await it.delete("gang-0")

                async def writing() -> bool:
                    return proxy.count("PATCH", "/podgroups/") > before

                await until(writing)
                ends = time.monotonic()
            # One attempt alone is waited for 30 s.
            assert time.monotonic() - ends < 25
            assert it.said("statuses not finished") and it.said("events dropped")
            go_on.set()

    asyncio.run(run())
