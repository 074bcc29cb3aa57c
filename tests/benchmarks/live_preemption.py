"""How fast room is made on a real API server: for a gang and plain pods, for these beside kube-scheduler.

200 nodes in two blocks are full of pods of low priority. From the creation of the first pod of high priority
to the last binding, as one watch sees them. No kubelets run: a stand-in ends each victim after its grace.

    python -m tests.benchmarks.live_preemption [--repeat 3]
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import click

from tests.benchmarks.live_cluster import CLOSEBY_EVENTS, KUBE, Contender, running, until_ready
from tests.benchmarks.live_loads import GPU
from tests.control_plane.api import Api, ApiError, Object, create_namespace, delete_namespace
from tests.control_plane.binaries import find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.commands import Settings
from tests.control_plane.definitions import define
from tests.control_plane.nodes import joined, node

NODES, IN_BLOCK, PODS, IN_GANG = 200, 100, 64, 8
BLOCK: Final = "benchmarks.closeby.dev/block"
#: Seconds that a victim takes to end.
GRACE: Final = 1
_SETTLED: Final = 6.0
_PATIENCE: Final = 120.0
_CLASSES: Final = {"benchmark-low": 10, "benchmark-high": 1_000}


@dataclass(frozen=True)
class Cleared:
    """One run: seconds from the first creation to the last binding, and how many victims there were."""

    contender: str
    load: str
    pods: int
    seconds: float
    victims: int


async def compare(
    plane: ControlPlane, folder: Path, repeat: int, tell: Callable[[Cleared], None]
) -> list[Cleared]:
    """All contenders, ``repeat`` times in turn."""
    results = []
    async with Api(plane.access()) as api:
        await define(api)
        await _declare(api)
        nodes = [
            node(f"n-{i:03}", labels={BLOCK: f"block-{i // IN_BLOCK}"}, allocatable={GPU: "8"})
            for i in range(NODES)
        ]
        async with joined(api, nodes):
            for _ in range(repeat):
                for contender, gang in ((CLOSEBY_EVENTS, True), (CLOSEBY_EVENTS, False), (KUBE, False)):
                    results.append(await _measure(api, plane, contender, folder, gang=gang))
                    tell(results[-1])
    return results


def line(one: Cleared) -> str:
    """A result as a line of a table."""
    took = f"{one.seconds:.2f} s from the first creation to the last binding"
    return (
        f"{one.load:20} {one.contender:24} {one.pods} pods of 8 GPUs: {took}, "
        f"{one.seconds - GRACE:.2f} s beyond the grace; {one.victims} victims"
    )


async def _declare(api: Api) -> None:
    topology = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "blocks"},
        "spec": {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    await api.create("/apis/closeby.dev/v1alpha1/topologies", topology)
    for name, value in _CLASSES.items():
        body = {"metadata": {"name": name}, "value": value}
        await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    # Admission hears of the classes by a watch.
    await asyncio.sleep(2.0)


async def _measure(
    api: Api, plane: ControlPlane, contender: Contender, folder: Path, *, gang: bool
) -> Cleared:
    namespace = await create_namespace(api)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    try:
        low = [_pod(f"low-{i}", contender, "benchmark-low", on=f"n-{i:03}") for i in range(NODES)]
        if gang:
            for first in range(0, NODES, IN_GANG):
                await _group(api, namespace, f"low-{first // IN_GANG}", IN_GANG, required=False)
            for number, one in enumerate(low):
                one["metadata"]["labels"] = {"closeby.dev/pod-group": f"low-{number // IN_GANG}"}
        await asyncio.gather(*(api.create(pods, one) for one in low))
        high = [_pod(f"high-{i}", contender, "benchmark-high") for i in range(PODS)]
        if gang:
            for one in high:
                one["metadata"]["labels"] = {"closeby.dev/pod-group": "train"}
        own = Path(tempfile.mkdtemp(dir=folder))
        with running(contender, plane, own):
            await _ready(contender, own)
            async with _following(api, namespace) as seen:
                began = time.perf_counter()
                if gang:
                    await _group(api, namespace, "train", PODS, required=True)
                await asyncio.gather(*(api.create(pods, one) for one in high))
                await asyncio.wait_for(seen.complete.wait(), _PATIENCE)
        return Cleared(
            contender=contender.name,
            load="a gang in one block" if gang else "plain pods",
            pods=PODS,
            seconds=seen.last - began,
            victims=len(seen.victims),
        )
    finally:
        await api.delete(pods, {"gracePeriodSeconds": 0})
        await delete_namespace(api, namespace)


async def _ready(contender: Contender, folder: Path) -> None:
    """Waits until the scheduler has listed everything."""
    if contender is KUBE:
        await asyncio.sleep(_SETTLED)
        return
    await asyncio.to_thread(until_ready, folder / "closeby.log")
    await asyncio.sleep(1.0)


def _pod(name: str, contender: Contender, class_name: str, on: str | None = None) -> Object:
    requests = {"cpu": "100m", GPU: "8"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec: Object = {
        "schedulerName": contender.scheduler_name,
        "priorityClassName": class_name,
        "terminationGracePeriodSeconds": GRACE,
        "containers": [container],
    }
    if on is not None:
        spec["nodeName"] = on
    return {"metadata": {"name": name}, "spec": spec}


async def _group(api: Api, namespace: str, name: str, size: int, *, required: bool) -> None:
    spec: Object = {"minMember": size}
    if required:
        spec["topologyConstraint"] = {"topology": "blocks", "requiredTopologyLevel": "block"}
    body = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    await api.create(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups", body)


class _Pods:
    """What is seen of the pods, which end after their grace when they are deleted, as kubelets do it."""

    def __init__(self, api: Api, path: str) -> None:
        self._api = api
        self._path = path
        self._tasks: set[asyncio.Task[None]] = set()
        self.victims: set[str] = set()
        self._bound: set[str] = set()
        self.last = 0.0
        #: Set once all pods of high priority are bound.
        self.complete = asyncio.Event()

    async def follow(self, version: str) -> None:
        """Follows until cancelled."""
        async for _, pod in self._api.watch(self._path, version):
            name = pod["metadata"]["name"]
            if name.startswith("low") and "deletionTimestamp" in pod["metadata"]:
                if name not in self.victims:
                    self.victims.add(name)
                    self._tasks.add(asyncio.create_task(self._end(name)))
            elif name.startswith("high") and pod["spec"].get("nodeName"):
                if name not in self._bound:
                    self._bound.add(name)
                    self.last = time.perf_counter()
                if len(self._bound) == PODS:
                    self.complete.set()

    async def _end(self, name: str) -> None:
        await asyncio.sleep(GRACE)
        while True:
            try:
                await self._api.delete(f"{self._path}/{name}", {"gracePeriodSeconds": 0})
            except ApiError as error:
                if error.status == 404:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _following(api: Api, namespace: str) -> AsyncIterator[_Pods]:
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = await api.get(path, limit="1")
    seen = _Pods(api, path)
    task = asyncio.create_task(seen.follow(listed["metadata"]["resourceVersion"]))
    try:
        yield seen
    finally:
        task.cancel()


@click.command()
@click.option("--repeat", default=1, show_default=True, help="Rounds; all contenders take turns in each.")
def main(repeat: int) -> None:
    """Measures how long it takes until room is made."""
    with tempfile.TemporaryDirectory(prefix="closeby-benchmark-") as name:
        folder = Path(name)
        with started(find_programs(click.echo), folder, Settings()) as plane:
            asyncio.run(compare(plane, folder, repeat, lambda one: click.echo(line(one))))


if __name__ == "__main__":
    main()
