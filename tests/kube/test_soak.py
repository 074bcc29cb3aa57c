"""Gangs come and go on 2,000 nodes for minutes, while requests fail, watches end, the API server restarts and
schedulers are killed. CLOSEBY_SOAK_SECONDS says for how long (300 if nothing is said).
"""

import asyncio
import os
import signal
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.control_plane.api import Api, Object, create_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.control_plane.nodes import node
from tests.control_plane.processes import Process
from tests.kube.auditing import GPU, GROUP_LABEL, audited
from tests.kube.faulty_proxy import Proxy
from tests.kube.live import direct, through_proxy
from tests.kube.live_world import RACK, ZONE, World, replica
from tests.kube.soaking import Harm, at, background, judged, persist, settled

SECONDS = float(os.environ.get("CLOSEBY_SOAK_SECONDS", "300"))
#: 5 zones of 25 racks of 16 nodes of 8 GPUs.
NODES, IN_RACK, IN_ZONE, GPUS = 2_000, 16, 400, 8
#: Pods that are there at once, as far as they can be made so fast; and how many go in a second.
PODS, RATE = 10_000, 60
#: Of the time: when the API server restarts, and when a scheduler is killed. In the second half nobody is.
RESTART, KILLS = 0.3, (0.15, 0.42)
#: Bytes by which the scheduler may be bigger at the end than it was when all pods were there, and the share.
SLACK, TOLERANCE = 20 << 20, 1.1


@dataclass
class Gang:
    """What was asked for."""

    name: str
    size: int
    gpus: int
    spec: Object
    #: It asks for a rack, and fits in none.
    too_big: bool = False


@dataclass
class Load:
    """Makes and deletes gangs, whatever the server says meanwhile."""

    it: World
    random: Random
    gangs: dict[str, Gang] = field(default_factory=dict)
    made: int = 0
    deleted: int = 0
    replaced: int = 0

    @property
    def pods(self) -> int:
        return sum(gang.size for gang in self.gangs.values())

    async def keep_up(self, until: float) -> None:
        """Keeps so many pods there, and exchanges some of them all the time."""
        going = 0.0
        last = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            slots = asyncio.Semaphore(24)

            async def begin(work: Coroutine[Any, Any, None]) -> None:
                await slots.acquire()
                tasks.create_task(work).add_done_callback(lambda _: slots.release())

            while time.monotonic() < until:
                now = time.monotonic()
                # What was not done while the server was away is not made up for.
                going = min(going + (now - last) * RATE, RATE)
                last = now
                while going > 0 and self.gangs:
                    gang = self.gangs.pop(self.random.choice(list(self.gangs)))
                    going -= gang.size
                    await begin(self.delete(gang))
                if self.pods < PODS:
                    gang = self.invent()
                    self.gangs[gang.name] = gang
                    await begin(self.make(gang))
                else:
                    await asyncio.sleep(0.05)
                if self.random.random() < 0.15:
                    await begin(self.change_something())

    def invent(self) -> Gang:
        """A gang of 1 to 64 pods of 1 or 2 GPUs."""
        kind, name = self.random.random(), f"g{self.made}"
        self.made += 1
        size = self.random.choice((1, 1, 2, 4, 8, 8, 16, 16, 32, 64))
        gpus = 2 if size <= 32 and self.random.random() < 0.3 else 1
        spec: Object = {"minMember": size if self.random.random() < 0.8 else max(1, size * 3 // 4)}
        too_big = kind < 0.03
        if too_big:
            size, gpus = 64, 4
            spec = {"minMember": 64}
        if too_big or kind < 0.45:
            spec["topologyConstraint"] = {"topology": self.it.topology, "requiredTopologyLevel": "rack"}
        elif kind < 0.7:
            spec["topologyConstraint"] = {"topology": self.it.topology, "preferredTopologyLevel": "rack"}
        return Gang(name, size, gpus, spec, too_big)

    async def make(self, gang: Gang) -> None:
        await persist(lambda: self.it.declare_group(gang.name, gang.spec), 409)
        await asyncio.gather(*(self.make_pod(gang, i) for i in range(gang.size)))

    async def make_pod(self, gang: Gang, place: int) -> None:
        pod = self.it.pod(f"{gang.name}-{place}", gang.gpus, gang=gang.name, cpu="100m")
        await persist(lambda: self.it.create(pod), 409)

    async def delete(self, gang: Gang) -> None:
        options = {"gracePeriodSeconds": 0}
        namespace = self.it.namespace
        selector = f"{GROUP_LABEL}={gang.name}"
        pods = f"/api/v1/namespaces/{namespace}/pods"
        await persist(lambda: self.it.api.delete(pods, options, labelSelector=selector), 404)
        group = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/{gang.name}"
        await persist(lambda: self.it.api.delete(group), 404)
        # Pods whose making was under way meanwhile.
        await persist(lambda: self.it.api.delete(pods, options, labelSelector=selector), 404)
        self.deleted += gang.size

    async def change_something(self) -> None:
        """A gang that was too big asks for less, or a member is made anew that its gang can do without."""
        if not self.gangs:
            return
        gang = self.random.choice(list(self.gangs.values()))
        if gang.too_big:
            gang.too_big = False
            constraint = {"topologyConstraint": {"requiredTopologyLevel": "zone"}}
            await persist(lambda: self.it.change_group(gang.name, {"spec": constraint}), 404)
        elif gang.spec["minMember"] < gang.size:
            await persist(lambda: self.it.delete(f"{gang.name}-0"), 404)
            if gang.name in self.gangs:
                await self.make_pod(gang, 0)
                self.replaced += 1


@dataclass
class Memory:
    """The scheduler's resident memory: (time, bytes), of the process that runs at the end."""

    samples: list[tuple[float, int]] = field(default_factory=list)

    async def watch(self, process: "subprocess.Popen[bytes]") -> None:
        while True:
            assert process.poll() is None, "the scheduler ended by itself; its log says why"
            self.samples.append((time.monotonic(), resident(process.pid)))
            await asyncio.sleep(1.0)

    def between(self, start: float, end: float) -> float:
        """The median of a span of time."""
        return statistics.median(size for at, size in self.samples if start <= at <= end)


def resident(pid: int) -> int:
    """A process's resident memory in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kilobytes) << 10


def hosts() -> Iterator[Object]:
    for i in range(NODES):
        labels = {ZONE: f"z{i // IN_ZONE}", RACK: f"r{i // IN_RACK}"}
        yield node(f"n{i:04}", labels=labels, allocatable={GPU: str(GPUS)})


@asynccontextmanager
async def cluster(control_plane: ControlPlane) -> AsyncIterator[tuple[World, Proxy]]:
    async with (
        Api(control_plane.access()) as api,
        direct(control_plane.kubeconfig) as transport,
        through_proxy(control_plane.access()) as (proxy, _),
    ):
        await define(api)
        await asyncio.gather(*(api.create("/api/v1/nodes", one) for one in hosts()))
        it = World(api, transport, await create_namespace(api, service_accounts=False))
        await it.declare()
        yield it, proxy


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
def test_ten_thousand_pods_come_and_go(
    bare_control_plane: ControlPlane, tmp_path: Path, pytestconfig: pytest.Config, tell: Callable[[str], None]
) -> None:
    seed = pytestconfig.option.hypothesis_seed
    began = time.monotonic()
    said: list[str] = [f"soak: seed {seed}"]

    async def run() -> None:
        server = bare_control_plane.processes["kube-apiserver"]
        async with (
            cluster(bare_control_plane) as (it, proxy),
            audited(it.api, it.namespace, GPUS) as audit,
            AsyncExitStack() as stack,
        ):
            start = time.monotonic()
            end = start + SECONDS
            said.append(f"{start - began:.0f} s to set up")
            load, harm, memory = (
                Load(it, Random(f"{seed} load")),
                Harm(proxy, Random(f"{seed} harm")),
                Memory(),
            )
            async with asyncio.TaskGroup() as tasks:
                loading = tasks.create_task(load.keep_up(end))
                restarting = tasks.create_task(restart(server, start + RESTART * SECONDS))
                async with background(harm.run()):
                    for share in KILLS:
                        async with replica(it, proxy, tmp_path, "--no-leader-elect") as process:
                            await at(start + share * SECONDS)
                            process.send_signal(signal.SIGKILL)
                    process = await stack.enter_async_context(
                        replica(it, proxy, tmp_path, "--no-leader-elect")
                    )
                    async with background(memory.watch(process)):
                        await loading
                        await restarting
            proxy.forgive()
            ended = time.monotonic()
            await settled(it, audit)
            said.append(f"settled in {time.monotonic() - ended:.0f} s")
            bound, waiting = await judged(it, audit)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 120) == 0
            half = memory.between(start + 0.6 * SECONDS, start + 0.7 * SECONDS)
            final = memory.between(end - 0.1 * SECONDS, end)
            said.append(
                f"{len(audit.names)} pods made, {len(audit.nodes)} bound, {load.deleted} deleted, "
                f"{load.replaced} replaced; in the end {bound} bound and {waiting} waiting"
            )
            said.append(f"harm done: {dict(harm.done)}")
            said.append(f"memory {half / 2**20:.0f} MiB, then {final / 2**20:.0f} MiB")
            assert final <= half * TOLERANCE + SLACK
            assert bound > 0

    async def restart(server: Process, moment: float) -> None:
        await at(moment)
        await asyncio.to_thread(server.restart)

    try:
        asyncio.run(run())
    finally:
        tell("; ".join(said))
    for log in tmp_path.glob("log-*.txt"):
        assert "Traceback" not in log.read_text()
