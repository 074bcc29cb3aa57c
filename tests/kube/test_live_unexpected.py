"""What nobody expected while users are told of one pod or gang: the scheduler goes on with all others."""

import asyncio

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from tests.control_plane.cluster import ControlPlane
from tests.kube.live import FAST
from tests.kube.live_world import World, host, until, until_said, world


class Stumbling(Transport):
    """Brings a fault of ours to light whenever something is written about what is called odd."""

    async def send(self, request: Request) -> bytes | ApiError:
        if request.method == "PATCH" and request.path.endswith("/odd/status"):
            raise ZeroDivisionError("nobody thought of this")
        return await super().send(request)


def test_it_is_told_in_the_log_and_ends_nothing(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        connection = connect(str(control_plane.kubeconfig))
        assert isinstance(connection, Connection)
        async with (
            world(control_plane, namespace, host("n1"), host("n2")) as seen,
            Stumbling(connection, FAST) as transport,
        ):
            it = World(seen.api, transport, namespace, topology=seen.topology)
            async with it.scheduling():
                await it.create(it.pod("odd", gpus=9))
                await it.gang("odd", 3, gpus=9)

                async def stumbled() -> bool:
                    return bool(it.said("users not told") and it.said("PodGroup not written"))

                await until(stumbled)
                await it.create(it.pod("wide", gpus=9), it.pod("fits"))
                await it.gang("fine", 2, required="rack")
                await it.bound(3)
                assert "InsufficientResources" in await it.refusal("wide")
                await until_said(it, "fine", "Placed")
                assert {one["pod"] for one in it.said("users not told")} == {f"{namespace}/odd"}
                assert {one["gang"] for one in it.said("PodGroup not written")} == {f"{namespace}/odd"}
                for one in (*it.said("users not told"), *it.said("PodGroup not written")):
                    assert "nobody thought of this" in str(one["error"])
                    assert "in send" in str(one["traceback"])

    asyncio.run(run())
