"""How long a good tenant's gang waits while another tenant attacks: each attack in turn, beside none.

The gang is a Job of eight pods that requires a rack: the pod-grouper makes its PodGroup, the scheduler places
it. Counted is the time from its last pod to its last binding. The aim is at most twice the time without an
attack; the figures are printed, and what is asserted leaves room for a machine that does much else besides.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from closeby.reading.decoding.keys import KAI_REQUIRED, KAI_TOPOLOGY
from tests.attacks.assaults import ASSAULTS, CONTROLS, Assault, under
from tests.attacks.programs import Program, running
from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World, host, world

#: 16 racks of 4 nodes of 8 GPUs.
HOSTS = [host(f"n{i:02}", f"r{i // 4:02}") for i in range(64)]
MEMBERS, ROUNDS = 8, 5
#: A gang has this long (seconds), and its median may be this many times the one without an attack, and more.
LONGEST, FACTOR, MORE = 120.0, 5.0, 3.0
#: Seconds that a probe may take, on a machine that does much else besides.
LONGEST_PROBE = 5.0


class Tenant:
    """Starts gangs, and measures them by a watch of its own."""

    def __init__(self, it: World) -> None:
        self._it = it
        self._pods = f"/api/v1/namespaces/{it.namespace}/pods"
        self._seen: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._count = 0
        self._news = asyncio.Event()

    async def watch(self) -> None:
        version = (await self._it.api.get(self._pods))["metadata"]["resourceVersion"]
        while True:
            with suppress(aiohttp.ClientError, ApiError):
                async for _, pod in self._it.api.watch(self._pods, version):
                    version = pod["metadata"]["resourceVersion"]
                    name = pod["metadata"].get("name", "")
                    self._seen.setdefault(name, time.monotonic())
                    if pod.get("spec", {}).get("nodeName"):
                        self._bound.setdefault(name, time.monotonic())
                        self._news.set()

    async def gang(self) -> float:
        """Seconds from the last pod of a new gang to its last binding; it ends then."""
        self._count += 1
        name = f"good{self._count}"
        path = f"/apis/batch/v1/namespaces/{self._it.namespace}/jobs"
        template = self._it.pod("", 1, cpu="100m")
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": MEMBERS, "completions": MEMBERS, "template": template}
        wish = {KAI_TOPOLOGY: self._it.topology, KAI_REQUIRED: "rack"}
        await self._it.api.create(path, {"metadata": {"name": name, "annotations": wish}, "spec": spec})
        async with asyncio.timeout(LONGEST):
            while len(bound := self._of(name, self._bound)) < MEMBERS:
                self._news.clear()
                await self._news.wait()
        taken = max(bound) - max(self._of(name, self._seen))
        await self._it.api.delete(f"{path}/{name}", {"propagationPolicy": "Background"})
        return taken

    def _of(self, name: str, times: dict[str, float]) -> list[float]:
        return [at for pod, at in times.items() if pod.startswith(f"{name}-")]


class Figures:
    """What came of one attack."""

    def __init__(self, name: str, waits: list[float], health: list[float]) -> None:
        self.name = name
        self.median = statistics.median(waits)
        self.worst = max(waits)
        self.health = max(health, default=0.0)

    def line(self, base: "Figures") -> str:
        """Of the table."""
        return (
            f"{self.name:32} {self.median:7.2f} {self.worst:7.2f} {self.median / base.median:6.1f}"
            f" {self.health:8.2f}"
        )


HEADER = f"{'attack':32} {'median':>7} {'worst':>7} {'times':>6} {'healthz':>8}   (seconds)"


@asynccontextmanager
async def at_work(
    control_plane: ControlPlane, it: World, folder: Path
) -> AsyncIterator[tuple[Program, Program]]:
    """The scheduler and the controllers, as open to tenants as an operator can make them."""
    config = folder / "config.yaml"
    config.write_text("tenantNetworkTopologies: true\n")
    shared = ("--lease-namespace", it.namespace, "--scheduler-name", it.name, "--config", str(config))
    kubeconfig = control_plane.kubeconfig
    served = ("--metrics-address", "127.0.0.1:0")
    async with (
        running(folder, "controllers", kubeconfig, *shared, *served) as controllers,
        running(folder, "scheduler", kubeconfig, *shared, *served, "--pod-grouper") as scheduler,
    ):
        await scheduler.until_said("msg=ready")
        yield scheduler, controllers


async def health_of(scheduler: Program, waits: list[float]) -> None:
    """Asks again and again whether the scheduler is alive; how long the answers take."""
    said = next(line for line in scheduler.said().splitlines() if "serving metrics" in line)
    port = said.rpartition("port=")[2].split()[0]
    async with aiohttp.ClientSession() as session:
        while True:
            start = time.monotonic()
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200
            waits.append(time.monotonic() - start)
            await asyncio.sleep(0.1)


async def measured(
    name: str, assault: Assault | None, it: World, tenant: Tenant, scheduler: Program
) -> Figures:
    health: list[float] = []
    async with under(it, assault):
        asking = asyncio.create_task(health_of(scheduler, health))
        waits = [await tenant.gang() for _ in range(ROUNDS)]
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
    return Figures(name, waits, health)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_good_tenants_gang_under_each_attack(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    if not control_plane.controllers:
        pytest.skip(f"{control_plane.origin} has no kube-controller-manager, which makes the pods of a Job")
    lines: list[str] = []

    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            at_work(control_plane, it, tmp_path) as (scheduler, controllers),
        ):
            tenant = Tenant(it)
            watching = asyncio.create_task(tenant.watch())
            await tenant.gang()
            base = await measured("none", None, it, tenant, scheduler)
            lines.extend((HEADER, base.line(base)))
            found = []
            for name, assault in ASSAULTS.items():
                found.append(await measured(name, assault, it, tenant, scheduler))
                lines.append(found[-1].line(base))
            for name, assault in CONTROLS.items():
                lines.append((await measured(f"({name})", assault, it, tenant, scheduler)).line(base))
            watching.cancel()
            memory = [one.memory / 2**20 for one in (scheduler, controllers)]
            lines.append("at most {:.0f} MiB in the scheduler, {:.0f} in the controllers".format(*memory))
            within = sum(one.median <= 2 * base.median for one in found)
            lines.append(f"{within} of {len(found)} attacks at most double the median")
            for one in found:
                assert one.median <= base.median * FACTOR + MORE, one.name
                assert one.health <= LONGEST_PROBE, one.name
            # Neither lost its Lease, after which it would have ended.
            assert [one.process.poll() for one in (scheduler, controllers)] == [None, None]

    try:
        asyncio.run(run())
    finally:
        for line in ("", *lines):
            tell(line)
    for log in tmp_path.glob("*-log-*.txt"):
        assert "Traceback" not in log.read_text()
