"""All kinds followed together, on a real API server."""

import asyncio

from closeby.kube.state.following import Following
from tests.control_plane.cluster import ControlPlane
from tests.kube.live import direct
from tests.kube.live_world import until


def test_what_is_listed_anew_is_not_relied_on_from_the_first_moment(control_plane: ControlPlane) -> None:
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
