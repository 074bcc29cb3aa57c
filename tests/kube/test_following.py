"""All kinds followed together, on a real API server."""

import asyncio

from closeby.kube.client.waiting import RequestPace
from closeby.kube.state.following import Following
from closeby.kube.watch.reflector import Watching
from closeby.kube.watch.resources import ABOUT_VOLUMES, VOLUMES
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import direct, through_proxy
from tests.kube.live_world import until


def test_a_new_list_is_not_relied_on_from_the_first_moment(control_plane: ControlPlane) -> None:
    """A replica that takes the lead over lists anew, and decides nothing while the old watches are ended."""
    listed: list[object] = []

    def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
        if message == "listed":
            listed.append(fields["kind"])

    async def run() -> None:
        async with direct(control_plane.kubeconfig) as transport:
            following = Following(transport, say)
            assert await following.look() is None
            running = asyncio.create_task(following.run())

            async def complete() -> bool:
                return following.complete

            await until(complete)
            kinds = sorted(map(str, listed))
            listed.clear()
            refreshing = asyncio.create_task(following.refresh())
            await asyncio.sleep(0)
            assert not refreshing.done() and not following.complete
            await refreshing
            assert not following.complete
            await until(complete)
            assert sorted(map(str, listed)) == kinds
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(run())


def test_a_kind_that_cannot_be_listed_again_stops_no_other(control_plane: ControlPlane) -> None:
    """Its objects are kept as they were; nodes, pods and PodGroups must be listed again whatever happens."""
    said: list[tuple[str, object]] = []

    def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
        said.append((message, fields.get("kind")))

    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            following = Following(transport, say, watching=Watching(pace=RequestPace(0.02, 0.2)))
            assert await following.look() is None
            running = asyncio.create_task(following.run())

            async def complete() -> bool:
                return following.complete

            await until(complete)
            said.clear()
            proxy.inject("GET", "/priorityclasses", Refuse(500), times=10_000)
            for needed in ("/nodes", "/pods"):
                proxy.inject("GET", needed, Refuse(500), times=30)
            await following.refresh()
            assert not following.complete
            await until(complete)
            listed = {kind for message, kind in said if message == "listed"}
            assert {"Node", "Pod"} <= listed and "PriorityClass" not in listed
            assert ("watch failed", "Node") in said
            assert [kind for message, kind in said if message == "keeping the last list"] == ["PriorityClass"]
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(run())


def test_volumes_that_cannot_be_listed_hold_back_no_start(control_plane: ControlPlane) -> None:
    """A pod with claims is seen before all is listed. Such pods wait for the kind, and others need not."""
    said: list[tuple[str, object]] = []

    def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
        said.append((message, fields.get("kind")))

    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            watching = Watching(pace=RequestPace(0.02, 0.2))
            following = Following(transport, say, core=VOLUMES, watching=watching)
            proxy.inject("GET", "/persistentvolumeclaims", Refuse(503), times=10_000)
            assert await following.look() is None
            running = asyncio.create_task(following.run())
            await asyncio.sleep(0)
            following.follow(ABOUT_VOLUMES)
            assert not following.complete

            async def complete() -> bool:
                return following.complete

            await until(complete)
            assert not following.follows_all(ABOUT_VOLUMES)
            assert ("going on without a list", "PersistentVolumeClaim") in said
            proxy.forgive()

            async def listed() -> bool:
                return following.follows_all(ABOUT_VOLUMES)

            await until(listed)
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(run())
