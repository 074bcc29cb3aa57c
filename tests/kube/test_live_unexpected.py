"""What nobody expected with one pod or gang: the scheduler goes on with all others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.extension import PreFilter
from closeby.scheduling.plugin_view import CycleState
from tests.control_plane.cluster import ControlPlane
from tests.kube.live import FAST
from tests.kube.live_world import World, host, until, until_logged, until_said, world

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


class Stumbling(Transport):
    """Brings a fault of ours to light when something is written at this end of a path, so many times."""

    where = "nowhere"
    times = 10_000

    async def send(self, request: Request) -> bytes | ApiError:
        if request.method in ("PATCH", "POST") and request.path.endswith(self.where) and self.times:
            self.times -= 1
            raise ZeroDivisionError("nobody thought of this")
        return await super().send(request)


class Puzzled(PreFilter):
    """Stumbles over pods called odd, until it is mended."""

    name: ClassVar[str] = "Puzzled"
    mended: ClassVar[bool] = False

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        if pods[0].name.startswith("odd") and not self.mended:
            raise ZeroDivisionError("nobody thought of this")
        return None


@asynccontextmanager
async def stumbling(control_plane: ControlPlane, namespace: str) -> AsyncIterator[tuple[World, Stumbling]]:
    """Two hosts, and a transport that stumbles when it is told where."""
    connection = connect(str(control_plane.kubeconfig))
    assert isinstance(connection, Connection)
    async with (
        world(control_plane, namespace, host("n1"), host("n2")) as seen,
        Stumbling(connection, FAST) as transport,
    ):
        yield World(seen.api, transport, namespace, topology=seen.topology), transport


def test_an_unexpected_error_is_logged_and_ends_nothing(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with stumbling(control_plane, namespace) as (it, transport), it.scheduling():
            transport.where = "/odd/status"
            await it.create(it.pod("odd", gpus=9))
            await it.gang("odd", 3, gpus=9)
            odd = {f"{kind}/{namespace}/odd" for kind in ("Pod", "PodGroup")}

            async def stumbled() -> bool:
                return {str(one["object"]) for one in it.said("reconcile failed")} == odd

            await until(stumbled)
            await it.create(it.pod("wide", gpus=9), it.pod("fits"))
            await it.gang("fine", 2, required="rack")
            await it.bound(3)
            assert "InsufficientResources" in await it.refusal("wide")
            await until_said(it, "fine", "Placed")
            assert await stumbled()
            for one in it.said("reconcile failed"):
                assert "nobody thought of this" in str(one["error"])
                assert "in send" in str(one["traceback"])

    asyncio.run(run())


def test_a_binding_is_tried_again_and_the_others_go_on(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with stumbling(control_plane, namespace) as (it, transport), it.scheduling():
            transport.where, transport.times = "/odd/binding", 2
            await it.create(it.pod("odd"), it.pod("fine"))
            assert set(await it.bound(2)) == {"odd", "fine"}
            told = it.said("binding failed")
            assert [one["pod"] for one in told] == [f"{namespace}/odd"] * 2
            assert "in send" in str(told[0]["traceback"])

    asyncio.run(run())


def test_a_gang_whose_plan_cannot_be_written_binds_no_pod(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with stumbling(control_plane, namespace) as (it, transport), it.scheduling() as scheduler:
            transport.where = "/podgroups/odd/status"
            await it.gang("odd", 3, required="rack")
            await until_logged(it, "status not written")
            await it.gang("fine", 2, required="rack")
            assert all(name.startswith("fine") for name in await it.bound(2))
            transport.times = 0
            # What can't be written rests for ten seconds.
            await it.bound(5)
            scheduler.engine.validate_state()

    asyncio.run(run())


def test_a_fault_while_deciding_is_reported_to_the_user(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        Puzzled.mended = False
        configuration = Configuration(plugins=(PluginEntry(name=f"{__name__}:Puzzled"),))
        async with (
            world(control_plane, namespace, host("n1"), host("n2")) as it,
            it.scheduling(configuration),
        ):
            await it.create(it.pod("odd"))
            await it.gang("odd-gang", 2, required="rack")
            await it.create(it.pod("fine"))
            await it.gang("good", 2, required="rack")
            assert all(name.startswith(("fine", "good")) for name in await it.bound(3))
            await until_said(it, "odd-gang", "SchedulerError")

            async def told() -> bool:
                conditions = (await it.pods())["odd"]["status"].get("conditions", ())
                return any(
                    one["type"] == "PodScheduled"
                    and one["reason"] == "SchedulerError"
                    and "ZeroDivisionError: nobody thought of this (test_live_unexpected.py:"
                    in one["message"]
                    for one in conditions
                )

            await until(told)
            told_of = {str(one["item"]) for one in it.said("decision failed")}
            assert told_of == {f"pod/{namespace}/odd", f"gang/{namespace}/odd-gang"}
            assert len(it.said("decision failed")) == 2
            assert "in pre_filter" in str(it.said("decision failed")[0]["traceback"])
            Puzzled.mended = True
            # Something happens that may help.
            await it.delete("fine")
            await it.bound(5)

    asyncio.run(run())
