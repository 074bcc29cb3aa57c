"""What tests of the live scheduler share: a cluster with a scheduler of its own name at work in it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from closeby.kube.client.transport import Transport
from closeby.kube.gangs.binder import PreBindStep
from closeby.kube.scheduler.live import LiveScheduler, SchedulerSettings
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.writing.lease import LeaseSettings
from closeby.kube.writing.statuses import ReportingSettings
from closeby.reading.configuration import Configuration
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.control_plane.nodes import joined, kubelets, node
from tests.kube.faulty_proxy import Proxy
from tests.kube.live import direct, through_proxy, unique

RACK, ZONE = "tests.closeby.dev/rack", "tests.closeby.dev/zone"
DEFAULT = Configuration()
#: On a busy machine what is left at the end takes its time.
SOON = ReportingSettings(stands=0.2, settles=0.2, rephrased_after=1.0, retold_after=1.0, finish_within=15.0)


class World:
    """A scheduler of its own name at work, and what a user sees of the cluster."""

    def __init__(
        self, api: Api, transport: Transport, namespace: str, *, topology: str = "", name: str = ""
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.name = name or unique("closeby")
        self.topology = topology or unique("fabric")
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.transport = transport

    def successor(self) -> Self:
        """The same scheduler as a process that starts later: it has logged nothing yet."""
        return type(self)(self.api, self.transport, self.namespace, topology=self.topology, name=self.name)

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, fields))

    def said(self, message: str) -> list[dict[str, object]]:
        return [fields for text, fields in self.lines if text == message]

    @asynccontextmanager
    async def scheduling(
        self,
        configuration: Configuration = DEFAULT,
        *,
        dry_run: bool = False,
        lease: LeaseSettings | None = None,
        meters: SchedulerMeters | None = None,
        own_namespace: str | None = None,
        discover_every: float = 0.5,
        steps: Sequence[PreBindStep] = (),
        reporting: ReportingSettings = SOON,
        gates: bool = False,
        excluded_namespaces: tuple[str, ...] = (),
    ) -> AsyncIterator[LiveScheduler]:
        """The scheduler runs and is ready inside the context; its state is valid at the end."""
        settings = SchedulerSettings(
            scheduler_name=self.name,
            gates=gates,
            excluded_namespaces=excluded_namespaces,
            dry_run=dry_run,
            reporting=reporting,
            discover_every=discover_every,
            lease=lease,
            own_namespace=own_namespace,
        )
        scheduler = LiveScheduler(self.transport, configuration, settings, self.say, meters, steps)
        stop = asyncio.Event()
        running = asyncio.create_task(scheduler.run(stop))
        ready = asyncio.create_task(scheduler.ready.wait())
        try:
            async with asyncio.timeout(60):
                await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
            assert ready.done(), await running
            yield scheduler
            scheduler.engine.validate_state()
        except BaseException:
            # pytest shows it with the failure.
            sys.stderr.writelines(f"{message} {fields}\n" for message, fields in self.lines)
            raise
        finally:
            ready.cancel()
            stop.set()
            async with asyncio.timeout(60):
                assert await running is None

    def pod(
        self, name: str, gpus: int = 1, *, gang: str | None = None, cpu: str = "1", **spec: Any
    ) -> Object:
        requests = {"cpu": cpu, "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": cpu}
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": limits}}
        labels = {} if gang is None else {"closeby.dev/pod-group": gang}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": self.name, "containers": [container], **spec},
        }

    async def create(self, *pods: Object) -> None:
        await asyncio.gather(*(self.api.create(self._path(), one) for one in pods))

    async def gang(self, name: str, members: int, *, required: str | None = None, gpus: int = 1) -> None:
        """A PodGroup and its pods."""
        await self.create_group(name, members, required=required)
        await self.create(*(self.pod(f"{name}-{i}", gpus, gang=name) for i in range(members)))

    async def create_group(
        self, name: str, members: int, *, required: str | None = None, preferred: str | None = None
    ) -> None:
        spec: Object = {"minMember": members}
        levels = {"requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
        if asked := {field: level for field, level in levels.items() if level}:
            spec["topologyConstraint"] = {"topology": self.topology, **asked}
        await self.declare_group(name, spec)

    async def declare_group(self, name: str, spec: Object, **metadata: Any) -> None:
        """A PodGroup of closeby's own kind."""
        await self.api.create(
            f"/apis/closeby.dev/v1alpha1/namespaces/{self.namespace}/podgroups",
            {
                "apiVersion": "closeby.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": name, **metadata},
                "spec": spec,
            },
        )

    async def change_group(self, name: str, change: Object) -> None:
        """Merges this into the PodGroup."""
        path = f"/apis/closeby.dev/v1alpha1/namespaces/{self.namespace}/podgroups/{name}"
        await self.api.patch(path, change)

    async def delete(self, *names: str) -> None:
        """Deletes pods at once."""
        options = {"gracePeriodSeconds": 0}
        await asyncio.gather(*(self.api.delete(f"{self._path()}/{name}", options) for name in names))

    async def declare(self) -> None:
        """A topology of zones and racks."""
        levels = [{"nodeLabel": ZONE}, {"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        await self.api.create(
            "/apis/closeby.dev/v1alpha1/topologies",
            {
                "apiVersion": "closeby.dev/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": self.topology},
                "spec": {"levels": levels},
            },
        )

    @asynccontextmanager
    async def declared(self) -> AsyncIterator[None]:
        """The topology is there inside the context: no other test meets it, however this one ends."""
        await self.declare()
        try:
            yield
        finally:
            await self.api.delete(f"/apis/closeby.dev/v1alpha1/topologies/{self.topology}")

    async def pods(self) -> dict[str, Object]:
        found = await self.api.get(self._path())
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def placed(self) -> dict[str, str]:
        """The node of each bound pod."""
        pods = await self.pods()
        return {name: one["spec"]["nodeName"] for name, one in pods.items() if one["spec"].get("nodeName")}

    async def events(self, reason: str) -> list[Object]:
        found = await self.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [one for one in found["items"] if one["reason"] == reason]

    async def bound(self, number: int, seconds: float = 60.0) -> dict[str, str]:
        """Waits until so many pods are bound."""
        placed: dict[str, str] = {}

        async def enough() -> bool:
            now = await self.placed()
            placed.clear()
            placed.update(now)
            return len(placed) >= number

        await until(enough, seconds)
        assert len(placed) == number
        return placed

    async def refusal(self, name: str, says: str = "") -> str:
        """Waits for the pod's condition that it can't be scheduled, with these words; its message.

        Members of a gang that come one by one may be told first that it is incomplete.
        """
        found: list[str] = []

        async def told() -> bool:
            pod = (await self.pods())[name]
            for one in pod["status"].get("conditions", ()):
                if one["type"] == "PodScheduled" and one["status"] == "False":
                    # What kube-apiserver writes itself as a pod with gates is made.
                    gated = one["reason"] == "SchedulingGated"
                    assert gated or one["reason"] == "Unschedulable"
                    if says in one["message"] and not gated:
                        found.append(one["message"])
            return bool(found)

        await until(told)
        return found[0]

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"


async def until(met: Callable[[], Any], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if await met():
                return
            await asyncio.sleep(0.05)


async def until_placed(it: World, *names: str, seconds: float = 120.0) -> None:
    """Waits until these pods are bound, whatever others are."""

    async def placed() -> bool:
        return set(names) <= (await it.placed()).keys()

    await until(placed, seconds)


async def until_running(it: World, *names: str) -> None:
    """Waits until these pods run: the stand-in for the kubelets writes their status no more."""

    async def run() -> bool:
        pods = await it.pods()
        return all(pods[name]["status"].get("phase") == "Running" for name in names)

    await until(run)


async def until_logged(it: World, message: str, times: int = 1) -> None:
    """Waits until the scheduler has logged the message so many times."""

    async def logged() -> bool:
        return len(it.said(message)) >= times

    await until(logged)


async def until_none(find: Callable[[], Awaitable[list[str]]]) -> None:
    """Waits until nothing is found that should not be; AssertionError with what is there to the end."""
    found: list[str] = []

    async def none() -> bool:
        found[:] = await find()
        return not found

    try:
        await until(none)
    except TimeoutError:
        raise AssertionError(found) from None


@asynccontextmanager
async def world(control_plane: ControlPlane, namespace: str, *nodes: Object) -> AsyncIterator[World]:
    """A cluster of these nodes whose pods run as soon as they are bound."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(control_plane.access()))
        await define(api)
        names = {one["metadata"]["name"] for one in nodes}
        await stack.enter_async_context(joined(api, nodes))
        await stack.enter_async_context(kubelets(api, names))
        transport = await stack.enter_async_context(direct(control_plane.kubeconfig))
        it = World(api, transport, namespace)
        await stack.enter_async_context(it.declared())
        yield it


def host(name: str, rack: str = "r1", gpus: int = 8) -> Object:
    labels = {ZONE: "z1", RACK: rack}
    return node(name, labels=labels, allocatable={"nvidia.com/gpu": str(gpus)})


async def until_heard(scheduler: LiveScheduler, node_name: str, gpus: int | None) -> None:
    """Waits until the scheduler knows a node of so many GPUs by that name, or (None) that there is none.

    Nodes and pods come by watches of their own: who made a pod last may be heard first.
    """

    async def heard() -> bool:
        cluster = scheduler.engine.cluster
        slot = cluster.slot(node_name)
        return gpus == (None if slot is None else cluster.node_at(slot).allocatable.get("nvidia.com/gpu", 0))

    await until(heard)


async def group_of(it: World, name: str) -> Object:
    """The PodGroup as it stands."""
    return await it.api.get(f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups/{name}")


async def condition(it: World, name: str, type_: str = "Scheduled") -> Object:
    """A condition of the PodGroup; empty when it is not there."""
    conditions = (await group_of(it, name)).get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == type_), {})


async def until_said(
    it: World, name: str, reason: str, type_: str = "Scheduled", *, says: str = ""
) -> Object:
    """Waits until the condition has this reason, with these words."""
    found: Object = {}

    async def said() -> bool:
        found.clear()
        found.update(await condition(it, name, type_))
        return found.get("reason") == reason and says in found.get("message", "")

    await until(said)
    return found


def planned(group: Object) -> dict[str, str]:
    """pod -> node of a PodGroup's plan."""
    nodes = group.get("status", {}).get("plan", {}).get("nodes", ())
    return {pod["name"]: one["name"] for one in nodes for pod in one["pods"]}


@asynccontextmanager
async def behind_proxy(
    control_plane: ControlPlane, namespace: str, *hosts: Object
) -> AsyncIterator[tuple[World, Proxy]]:
    async with (
        world(control_plane, namespace, *hosts) as seen,
        through_proxy(control_plane.access()) as (proxy, transport),
    ):
        yield World(seen.api, transport, namespace, topology=seen.topology), proxy


def kubeconfig_to(proxy: Proxy, folder: Path) -> Path:
    """A file for programs that are to talk to the server through the proxy."""
    kubeconfig = folder / f"{unique('kubeconfig')}.yaml"
    kubeconfig.write_text(
        f"""
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{proxy.url}"}}}}]
users: [{{name: u, user: {{token: "{proxy.access.token or ""}"}}}}]
"""
    )
    return kubeconfig


@asynccontextmanager
async def replica(
    it: World, proxy: Proxy, folder: Path, *arguments: str
) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """`closeby scheduler` as a process of its own, which is killed in the end."""
    kubeconfig = kubeconfig_to(proxy, folder)
    command = [sys.executable, "-m", "closeby", "scheduler", "--kubeconfig", str(kubeconfig)]
    command += ["--scheduler-name", it.name, "--lease-namespace", it.namespace, *arguments]
    with (folder / f"{unique('log')}.txt").open("wb") as log:
        process = await asyncio.to_thread(subprocess.Popen, command, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
