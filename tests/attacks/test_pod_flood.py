"""Attack: a tenant makes pods without end. 8,000 come at once and go at once on 500 nodes, again and again
for minutes (CLOSEBY_SOAK_SECONDS; 300 if nothing is said), half of them in gangs.

What must hold: all of each wave are placed, no node is overcommitted, no gang is split; the scheduler does
not grow from wave to wave, ends on its own when it is told to, and has stumbled over nothing.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.attacks.programs import Program, running
from tests.control_plane.api import Api, ApiError, Object, create_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.control_plane.nodes import node
from tests.kube.auditing import GPU, broken, overcommitted, pages
from tests.kube.live import direct
from tests.kube.live_world import RACK, ZONE, World

SECONDS = float(os.environ.get("CLOSEBY_SOAK_SECONDS", "300"))
NODES, GPUS, PODS, MEMBERS = 500, 16, 8_000, 8
#: A wave has this long, on a machine that does much else besides.
LONGEST = 600.0
#: By how much the scheduler may be bigger after the last wave than after the second.
TOLERANCE, SLACK = 1.1, 20 << 20


def hosts() -> list[Object]:
    """Racks of 20."""
    return [
        node(
            f"n{i:03}",
            labels={ZONE: f"z{i // 100}", RACK: f"r{i // 20:02}"},
            allocatable={GPU: str(GPUS), "pods": "110"},
        )
        for i in range(NODES)
    ]


@asynccontextmanager
async def cluster(control_plane: ControlPlane) -> AsyncIterator[World]:
    async with Api(control_plane.access()) as api, direct(control_plane.kubeconfig) as transport:
        await define(api)
        await asyncio.gather(*(api.create("/api/v1/nodes", one) for one in hosts()))
        it = World(api, transport, await create_namespace(api, service_accounts=False))
        await it.declare()
        yield it


class Waves:
    """8,000 pods come; once all are bound they go."""

    def __init__(self, it: World, scheduler: Program) -> None:
        self._it = it
        self._scheduler = scheduler
        self._pods = f"/api/v1/namespaces/{it.namespace}/pods"
        self._groups = f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups"
        #: How long each took to come, and to be bound after that; what the scheduler had after it (bytes).
        self.coming: list[float] = []
        self.binding: list[float] = []
        self.memory: list[int] = []

    async def one(self) -> None:
        number, it = len(self.coming), self._it
        start = time.monotonic()
        gangs = [f"w{number}-g{i}" for i in range(PODS // 2 // MEMBERS)]
        await asyncio.gather(*(it.create_group(gang, MEMBERS, required="rack") for gang in gangs))
        pods = [it.pod(f"{gang}-{i}", gang=gang, cpu="50m") for gang in gangs for i in range(MEMBERS)]
        pods += [it.pod(f"w{number}-p{i}", 0, cpu="50m") for i in range(PODS // 2)]
        await it.create(*pods)
        self.coming.append(time.monotonic() - start)
        await self._until(self._all_bound)
        self.binding.append(time.monotonic() - start - self.coming[-1])
        await self._judge()
        self.memory.append(self._resident())
        await self._until(self._none)

    async def _judge(self) -> None:
        pods = await pages(self._it.api, self._pods)
        nodes = await pages(self._it.api, "/api/v1/nodes")
        assert overcommitted(pods, nodes) == []
        racks = {one["metadata"]["name"]: one["metadata"]["labels"][RACK] for one in nodes}
        groups = await pages(self._it.api, self._groups)
        split = [one for one in broken(groups, pods, racks) if "plan" not in one]
        assert split == []

    async def _all_bound(self) -> bool:
        waiting = await self._it.api.get(self._pods, fieldSelector="spec.nodeName=", limit="1")
        return not waiting["items"]

    async def _none(self) -> bool:
        """Deletes them until none is left: of so many the server takes longer than it gives itself."""
        try:
            await self._it.api.delete(self._pods, {"gracePeriodSeconds": 0})
            await self._it.api.delete(self._groups)
        except ApiError as error:
            assert error.status in (500, 504), error
        return not (await self._it.api.get(self._pods, limit="1"))["items"]

    async def _until(self, met: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(LONGEST):
            while not await met():
                assert self._scheduler.process.poll() is None
                await asyncio.sleep(0.5)

    def _resident(self) -> int:
        status = Path(f"/proc/{self._scheduler.process.pid}/status").read_text()
        return int(next(one.split()[1] for one in status.splitlines() if one.startswith("VmRSS"))) << 10


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 1500)
def test_eight_thousand_pods_in_and_out(
    bare_control_plane: ControlPlane, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    said: list[str] = []

    async def run() -> None:
        end = time.monotonic() + SECONDS
        async with cluster(bare_control_plane) as it:
            arguments = ("--scheduler-name", it.name, "--no-leader-elect", "--metrics-address", "off")
            async with running(tmp_path, "scheduler", bare_control_plane.kubeconfig, *arguments) as scheduler:
                await scheduler.until_said("msg=ready")
                waves = Waves(it, scheduler)
                while time.monotonic() < end or len(waves.memory) < 2:
                    await waves.one()
                    came, bound, size = waves.coming[-1], waves.binding[-1], waves.memory[-1] / 2**20
                    said.append(
                        f"{PODS} pods came in {came:.0f} s, all bound {bound:.1f} s later; {size:.0f} MiB"
                    )
                assert waves.memory[-1] <= waves.memory[1] * TOLERANCE + SLACK
                scheduler.process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(scheduler.process.wait, 120) == 0
                assert "raceback" not in scheduler.said()

    try:
        asyncio.run(run())
    finally:
        for line in ("", *said):
            tell(line)
