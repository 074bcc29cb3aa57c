"""How fast pods get their nodes on a real API server: closeby, kube-scheduler and the bare server.

All run one after another on the same server, with the same nodes and pods. The pods are there before the
scheduler starts; the clock runs from the first to the last binding, as one watch sees them. No kubelets run.
CPU is that of each process from its start to the last binding, less what it needs to start on the same
cluster without pods to schedule.

    python -m tests.benchmarks.live_cluster [--repeat 3] [--only terms] [--json FILE]

With ``--start`` it measures instead how long closeby takes from its start until it is ready, on a cluster of
5,000 nodes and 30,000 bound pods; with ``--claims`` each of these has a claim with an attached volume, and
some pods with claims wait.
"""

import asyncio
import contextlib
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import click
import msgspec

from tests.benchmarks.into_etcd import put_all
from tests.benchmarks.live_loads import (
    GPU,
    LEAF,
    LEAVES,
    NODES,
    WAITING,
    all_nodes,
    check_terms,
    storage_of,
    volumes,
    with_terms,
    with_volume,
)
from tests.control_plane.api import Api, ApiError, Object, create_namespace, delete_namespace
from tests.control_plane.binaries import find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.commands import Settings
from tests.control_plane.definitions import define
from tests.control_plane.nodes import joined

GANG = 16
PLAIN_PODS, GANGS = 5_000, 125
TERM_PODS, VOLUME_PODS = 1_500, 200
MANY_NODES, BOUND_PODS = 5_000, 30_000
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 300.0
#: Without any pod: long enough for a scheduler to have listed everything.
_SETTLED = 4.0


@dataclass(frozen=True)
class Result:
    """One run. Milliseconds of CPU are per pod; ``start`` holds seconds of CPU to start without pods."""

    contender: str
    load: str
    pods: int
    seconds: float
    to_first: float
    cpu_ms: dict[str, float]
    start: float
    memory_mb: float

    @property
    def rate(self) -> float:
        """Pods a second from the first to the last binding."""
        return (self.pods - 1) / self.seconds


@dataclass(frozen=True)
class Load:
    """What is to be scheduled."""

    name: str
    pods: int
    gang: int = 0
    #: Whether each pod has a claim; the number of the first pod.
    claims: bool = False
    first: int = 0
    #: Whether pods mind each other; whether each has a volume, half of which are made with its node.
    terms: bool = False
    volumes: bool = False


PLAIN, IN_GANGS = Load("plain", PLAIN_PODS), Load("gangs", GANGS * GANG, GANG)
LOADS = (PLAIN, IN_GANGS, Load("terms", TERM_PODS, terms=True), Load("volumes", VOLUME_PODS, volumes=True))


@dataclass(frozen=True)
class Contender:
    """Who schedules: the name that pods bear, and how its process is started."""

    name: str
    scheduler_name: str
    upstream_gangs: bool = False
    arguments: tuple[str, ...] = ()


CLOSEBY = Contender("closeby, no Events", "closeby", arguments=("--no-events",))
CLOSEBY_EVENTS = Contender("closeby, an Event a pod", "closeby")
KUBE = Contender("kube-scheduler", "default-scheduler", upstream_gangs=True)
RAW = Contender("bindings alone", "nobody")


@contextlib.contextmanager
def running(contender: Contender, plane: ControlPlane, folder: Path) -> Iterator[int]:
    """The contender's process; yields its id."""
    if contender is KUBE:
        with plane.also("kube-scheduler") as process:
            yield process.pid
        return
    command = [sys.executable, "-m", "closeby", "scheduler", "--kubeconfig", str(plane.kubeconfig)]
    with (folder / "closeby.log").open("ab") as log:
        mine = subprocess.Popen([*command, "--no-leader-elect", *contender.arguments], stderr=log)
        try:
            yield mine.pid
        finally:
            mine.terminate()
            mine.wait()


def cpu(pid: int) -> float:
    """CPU seconds of a process since its start."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory(pid: int) -> float:
    """Resident megabytes at most."""
    for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def pod(name: str, contender: Contender, load: Load, gang: str) -> Object:
    """One pod of a load."""
    requests = {"cpu": "100m", **({GPU: "8"} if load.gang else {})}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec: Object = {"schedulerName": contender.scheduler_name, "containers": [container]}
    labels = {}
    if load.claims:
        claim = {"claimName": f"c-{name.removeprefix('p-')}"}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    if load.gang and contender.upstream_gangs:
        spec["schedulingGroup"] = {"podGroupName": gang}
    elif load.gang:
        labels["closeby.dev/pod-group"] = gang
    made: Object = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    if load.terms:
        with_terms(int(name.removeprefix("p-")), made)
    if load.volumes:
        with_volume(int(name.removeprefix("p-")), made)
    return made


def pod_group(name: str, contender: Contender) -> tuple[str, Object]:
    """API and body of a gang that requires one leaf."""
    if contender.upstream_gangs:
        spec: Object = {
            "schedulingPolicy": {"gang": {"minCount": GANG}},
            "schedulingConstraints": {"topology": [{"key": LEAF}]},
        }
        return "scheduling.k8s.io/v1beta1", {"metadata": {"name": name}, "spec": spec}
    constraint = {"topology": "benchmark", "requiredTopologyLevel": "leaf"}
    spec = {"minMember": GANG, "topologyConstraint": constraint}
    return "closeby.dev/v1alpha1", {"metadata": {"name": name}, "spec": spec}


async def submit(api: Api, namespace: str, contender: Contender, load: Load) -> None:
    """Creates the load's gangs and pods."""
    if load.gang:
        for number in range(load.pods // load.gang):
            version, body = pod_group(f"g-{number}", contender)
            body |= {"apiVersion": version, "kind": "PodGroup"}
            await api.create(f"/apis/{version}/namespaces/{namespace}/podgroups", body)
    path = f"/api/v1/namespaces/{namespace}/pods"
    numbers = range(load.first, load.first + load.pods)
    pods = (pod(f"p-{i}", contender, load, f"g-{i // load.gang}" if load.gang else "") for i in numbers)
    await create_all(api, ((path, one) for one in pods))


async def create_all(api: Api, objects: Iterator[tuple[str, Object]]) -> None:
    """Creates objects at their paths, some hundreds at a time."""
    while some := list(islice(objects, 500)):
        await asyncio.gather(*(api.create(path, one) for path, one in some))


class Watch:
    """When each pod was first seen with a node."""

    def __init__(self, api: Api, namespace: str, pods: int) -> None:
        """``pods``: how many there will be."""
        self._api = api
        self._pods = pods
        #: Set once all are bound.
        self.complete = asyncio.Event()
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self.nodes: dict[str, str] = {}
        self.first = self.last = 0.0

    async def run(self) -> None:
        """Follows until cancelled; the server may end a watch at any time."""
        listed = await self._api.get(self._path, limit="1")
        version = listed["metadata"]["resourceVersion"]
        while True:
            try:
                query = {"fieldSelector": "spec.nodeName!="}
                async for _, seen in self._api.watch(self._path, version, **query):
                    version = seen["metadata"]["resourceVersion"]
                    name, on = seen["metadata"].get("name"), seen.get("spec", {}).get("nodeName")
                    if name and on and name not in self.nodes:
                        self.last = time.perf_counter()
                        self.first = self.first or self.last
                        self.nodes[name] = on
                        if len(self.nodes) == self._pods:
                            self.complete.set()
            except ApiError as error:
                if error.status != 429:
                    raise


@contextlib.asynccontextmanager
async def watching(api: Api, namespace: str, pods: int) -> AsyncIterator[Watch]:
    """A watch that runs inside the context."""
    watch = Watch(api, namespace, pods)
    task = asyncio.create_task(watch.run())
    try:
        await asyncio.sleep(0.5)
        yield watch
    finally:
        task.cancel()


async def bind_all(plane: ControlPlane, namespace: str, pods: int, nodes: int = NODES) -> float:
    """Bindings alone, in a process of their own; returns its seconds of CPU."""
    command = [sys.executable, "-m", "tests.benchmarks.raw_bindings", str(plane.kubeconfig)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = await asyncio.create_subprocess_exec(*command, namespace, str(pods), str(nodes))
    assert await process.wait() == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def measure(plane: ControlPlane, contender: Contender, load: Load, folder: Path) -> Result:
    """One run in a namespace of its own."""
    async with Api(plane.access()) as api:
        start = 0.0
        if contender is not RAW:
            with running(contender, plane, folder) as pid:
                await asyncio.sleep(_SETTLED)
                start = cpu(pid)
        namespace = await create_namespace(api)
        try:
            async with contextlib.AsyncExitStack() as stack:
                if load.volumes:
                    await stack.enter_async_context(volumes(api, namespace, load.pods))
                await submit(api, namespace, contender, load)
                watch = await stack.enter_async_context(watching(api, namespace, load.pods))
                servers = {name: cpu(plane.processes[name].pid) for name in ("kube-apiserver", "etcd")}
                began = time.perf_counter()
                used, most = 0.0, 0.0
                if contender is RAW:
                    used = await bind_all(plane, namespace, load.pods)
                    await asyncio.wait_for(watch.complete.wait(), _PATIENCE)
                else:
                    with running(contender, plane, folder) as pid:
                        await asyncio.wait_for(watch.complete.wait(), _PATIENCE)
                        used, most = cpu(pid) - start, memory(pid)
                spent = {name: cpu(plane.processes[name].pid) - before for name, before in servers.items()}
                if load.gang:
                    check_leaves(watch.nodes, load)
                if load.terms:
                    check_terms(watch.nodes)
                return Result(
                    contender=contender.name,
                    load=load.name,
                    pods=load.pods,
                    seconds=watch.last - watch.first,
                    to_first=watch.first - began,
                    cpu_ms={"scheduler": 1e3 * used / load.pods}
                    | {name: 1e3 * seconds / load.pods for name, seconds in spent.items()},
                    start=start,
                    memory_mb=most,
                )
        finally:
            await api.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
            await delete_namespace(api, namespace)


def check_leaves(nodes: dict[str, str], load: Load) -> None:
    """Each gang is in one leaf, and no node holds two of its pods."""
    used: dict[int, set[str]] = defaultdict(set)
    for name, on in nodes.items():
        used[int(name.removeprefix("p-")) // load.gang].add(on)
    for gang, its in used.items():
        leaves = {int(name.removeprefix("n-")) // (NODES // LEAVES) for name in its}
        assert len(its) == load.gang, f"gang {gang} is on {len(its)} nodes"
        assert len(leaves) == 1, f"gang {gang} is in leaves {sorted(leaves)}"


def until_ready(log: Path) -> None:
    """Waits until the log says so."""
    while "msg=ready" not in log.read_text():
        time.sleep(0.05)


def full_cluster(namespace: str, load: Load) -> Iterator[tuple[str, Object]]:
    """Paths and objects of a cluster on whose nodes pods run in turn."""
    names = []
    for one in all_nodes(MANY_NODES):
        names.append(one["metadata"]["name"])
        yield "/api/v1/nodes", one
    if load.claims:
        yield from storage_of(namespace, load.pods, MANY_NODES)
    for number in range(load.pods):
        made = pod(f"p-{number}", CLOSEBY, load, "")
        made["spec"]["nodeName"] = names[number % len(names)]
        made["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        yield f"/api/v1/namespaces/{namespace}/pods", made


async def measure_starts(plane: ControlPlane, folder: Path, repeat: int, claims: bool) -> None:
    """Seconds from the start of the process to its first decision, and its memory, on a full cluster."""
    big = Load("bound", BOUND_PODS, claims=claims)
    async with Api(plane.access()) as api:
        await define(api)
        namespace = await create_namespace(api, service_accounts=False)
        began = time.perf_counter()
        await put_all(plane, full_cluster(namespace, big))
        if claims:
            await submit(api, namespace, CLOSEBY, Load("waiting", WAITING, claims=True, first=big.pods))
        click.echo(f"the cluster is there after {time.perf_counter() - began:.1f} s")
        for number in range(repeat):
            log = folder / f"start-{number}"
            log.mkdir()
            began = time.perf_counter()
            with running(CLOSEBY, plane, log) as pid:
                await asyncio.to_thread(until_ready, log / "closeby.log")
                took = time.perf_counter() - began
                click.echo(
                    f"{MANY_NODES:,} nodes, {big.pods:,} pods: ready after {took:.1f} s, "
                    f"{cpu(pid):.1f} s CPU, {memory(pid):.0f} MB"
                )


async def compare(
    plane: ControlPlane, folder: Path, repeat: int, loads: Sequence[Load], tell: Callable[[Result], None]
) -> list[Result]:
    """All contenders and these loads, ``repeat`` times in turn."""
    results = []
    async with Api(plane.access()) as api:
        await define(api)
        levels = [{"nodeLabel": LEAF}, {"nodeLabel": "kubernetes.io/hostname"}]
        topology = {
            "apiVersion": "closeby.dev/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "benchmark"},
            "spec": {"levels": levels},
        }
        await api.create("/apis/closeby.dev/v1alpha1/topologies", topology)
        async with joined(api, all_nodes()):
            for _ in range(repeat):
                for load in loads:
                    # What binds alone asks nobody whether pods may be there, nor for their volumes.
                    bare = [] if load.terms or load.volumes else [RAW]
                    for contender in [*bare, CLOSEBY, CLOSEBY_EVENTS, KUBE]:
                        results.append(await measure(plane, contender, load, folder))
                        tell(results[-1])
    return results


def line(result: Result) -> str:
    """A result as a line of a table."""
    spent = ", ".join(f"{name} {value:.2f}" for name, value in result.cpu_ms.items())
    return (
        f"{result.load:6} {result.contender:24} {result.rate:7,.0f} pods/s, "
        f"first after {result.to_first:.2f} s; "
        f"CPU ms a pod: {spent}; start {result.start:.2f} s CPU, {result.memory_mb:.0f} MB"
    )


@click.command()
@click.option("--repeat", default=1, show_default=True, help="Rounds; all contenders take turns in each.")
@click.option(
    "--only", multiple=True, type=click.Choice([one.name for one in LOADS]), help="These loads alone."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--start", is_flag=True, help="Measure starts on a cluster full of pods.")
@click.option("--claims", is_flag=True, help="With --start: each pod has a claim.")
def main(repeat: int, only: tuple[str, ...], json_file: Path | None, start: bool, claims: bool) -> None:
    """Measures closeby beside kube-scheduler on one real API server."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="closeby-benchmark-") as name:
        folder = Path(name)
        # Without kubelets the controllers would take the nodes for lost, and the pods from them.
        settings = Settings(controllers=not start)
        with started(find_programs(click.echo), folder, settings) as plane:
            if start:
                asyncio.run(measure_starts(plane, folder, repeat, claims))
            else:
                loads = [one for one in LOADS if not only or one.name in only]
                results = asyncio.run(
                    compare(plane, folder, repeat, loads, lambda one: click.echo(line(one)))
                )
    if json_file is not None:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
        rows = [asdict(one) | {"rate": one.rate} for one in results]
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode({"machine": machine, "results": rows})))


if __name__ == "__main__":
    main()
