"""A cluster with a pod-grouper and a scheduler of its own name at work, and what a user sees of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from closeby.controllers.grouping.owners import LOOKUP_WITHIN, Ref
from closeby.controllers.grouping.pod_grouper import Grouping, PodGrouper
from closeby.controllers.running import ControllerRunner, Running
from closeby.kube.client.transport import Transport
from closeby.kube.scheduler.live import LiveScheduler, SchedulerSettings
from closeby.reading.configuration import Configuration
from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, define, served
from tests.control_plane.nodes import joined, kubelets, node
from tests.kube.live import direct, unique

RACK, ZONE = "tests.closeby.dev/rack", "tests.closeby.dev/zone"
TOPOLOGIES = "/apis/closeby.dev/v1alpha1/topologies"
REQUIRED = "kai.scheduler/topology-required-placement"
TOPOLOGY = "kai.scheduler/topology"
DEFAULT_RUNNING = Running()


async def until(met: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """Looks again and again, until something is found."""
    async with asyncio.timeout(seconds):
        while True:
            found = await met()
            if found:
                return found
            await asyncio.sleep(0.05)


class World:
    """What the tests do and see in one namespace."""

    def __init__(self, control_plane: ControlPlane, api: Api, transport: Transport, namespace: str) -> None:
        self.control_plane = control_plane
        self.api = api
        self.transport = transport
        self.namespace = namespace
        self.name = unique("closeby")
        self.topology = unique("fabric")
        self.lines: list[tuple[str, dict[str, object]]] = []

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, fields))

    def said(self, message: str) -> list[dict[str, object]]:
        """Lines of that text, but for those about what other tests left, which may be going just now."""
        lines = (fields for text, fields in self.lines if text == message)
        return [one for one in lines if self._ours(one.get("owner"))]

    def _ours(self, owner: object) -> bool:
        return not isinstance(owner, Ref) or owner.namespace == self.namespace

    # Who is at work

    @asynccontextmanager
    async def grouping(
        self,
        transport: Transport | None = None,
        running: Running = DEFAULT_RUNNING,
        lookup_within: float = LOOKUP_WITHIN,
    ) -> AsyncIterator[ControllerRunner]:
        """The pod-grouper runs inside the context."""
        transport = transport or self.transport
        settings = Grouping(
            scheduler_name=self.name, refresh=0.5, refresh_blocked=0.5, lookup_within=lookup_within
        )
        runner = ControllerRunner(transport, [PodGrouper(transport, settings, self.say)], running, self.say)
        stop = asyncio.Event()
        work = asyncio.create_task(runner.run(stop))
        try:
            async with asyncio.timeout(60):
                await runner.ready.wait()
            yield runner
        finally:
            stop.set()
            async with asyncio.timeout(60):
                assert await work is None

    @asynccontextmanager
    async def scheduling(self) -> AsyncIterator[LiveScheduler]:
        """A scheduler that waits for the pod-grouper's word runs inside the context."""
        settings = SchedulerSettings(scheduler_name=self.name, pod_grouper=True, discover_every=0.5)
        scheduler = LiveScheduler(self.transport, Configuration(), settings, self.say)
        stop = asyncio.Event()
        running = asyncio.create_task(scheduler.run(stop))
        try:
            async with asyncio.timeout(60):
                await scheduler.ready.wait()
            yield scheduler
            scheduler.engine.validate_state()
        finally:
            stop.set()
            async with asyncio.timeout(60):
                assert await running is None

    # What a user does

    def wish(self, level: str = "rack") -> dict[str, str]:
        """The annotations that require a level."""
        return {TOPOLOGY: self.topology, REQUIRED: level}

    def template(
        self, annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
    ) -> Object:
        """Pods of one GPU each."""
        gpu = {"nvidia.com/gpu": "1"}
        container = {"name": "main", "image": "none", "resources": {"requests": gpu, "limits": gpu}}
        return {
            "metadata": {"labels": {"app": "x", **(labels or {})}, "annotations": dict(annotations or {})},
            "spec": {
                "schedulerName": self.name,
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
            },
        }

    def pod(
        self,
        name: str,
        owner: Object | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Object:
        made = self.template(annotations, labels)
        made["metadata"] |= {"name": name, "ownerReferences": [reference(owner)] if owner else []}
        return made

    async def create(self, api_version: str, plural: str, body: Mapping[str, Any]) -> Object:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        made = await self.api.create(f"{root}/namespaces/{self.namespace}/{plural}", body)
        return {"apiVersion": api_version, **made}

    async def pods_of(
        self, owner: Object, prefix: str, number: int, labels: Mapping[str, str] | None = None
    ) -> None:
        await asyncio.gather(
            *(
                self.create("v1", "pods", self.pod(f"{prefix}-{i}", owner, labels=labels))
                for i in range(number)
            )
        )

    async def job(self, name: str, pods: int, annotations: Mapping[str, str], **metadata: Any) -> Object:
        restarting = self.template()
        restarting["spec"]["restartPolicy"] = "Never"
        return await self.create(
            "batch/v1",
            "jobs",
            {
                "metadata": {"name": name, "annotations": dict(annotations), **metadata},
                "spec": {"parallelism": pods, "completions": pods, "template": restarting},
            },
        )

    def path(self, api_version: str, plural: str, name: str = "") -> str:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def group_path(self, name: str) -> str:
        return self.path("closeby.dev/v1alpha1", "podgroups", name)

    # What a user sees

    async def pods(self) -> dict[str, Object]:
        found = await self.api.get(self.path("v1", "pods"))
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def groups(self) -> dict[str, Object]:
        found = await self.api.get(self.path("closeby.dev/v1alpha1", "podgroups"))
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def group(self, name: str) -> Object:
        """Waits for this PodGroup."""

        async def there() -> Object | None:
            return (await self.groups()).get(name)

        found: Object = await until(there)
        return found

    async def naming(self, group: str) -> dict[str, Object]:
        """The pods that name the group now."""
        return {
            name: one
            for name, one in (await self.pods()).items()
            if one["metadata"].get("labels", {}).get("closeby.dev/pod-group") == group
        }

    async def members(self, group: str, number: int) -> dict[str, Object]:
        """Waits until so many pods name the group."""

        async def enough() -> dict[str, Object] | None:
            found = await self.naming(group)
            return found if len(found) == number else None

        found: dict[str, Object] = await until(enough)
        return found

    async def bound(self, number: int) -> dict[str, str]:
        """Waits until so many pods are bound; their nodes."""

        async def enough() -> dict[str, str] | None:
            pods = await self.pods()
            placed = {n: one["spec"]["nodeName"] for n, one in pods.items() if one["spec"].get("nodeName")}
            return placed if len(placed) >= number else None

        found: dict[str, str] = await until(enough)
        assert len(found) == number
        return found

    async def events(self, reason: str) -> list[Object]:
        found = await self.api.get(self.path("events.k8s.io/v1", "events"))
        return [one for one in found["items"] if one["reason"] == reason]

    async def event(self, reason: str) -> Object:
        """Waits for an Event with this reason, which is posted in the background; the first one."""

        async def there() -> Object | None:
            return next(iter(await self.events(reason)), None)

        found: Object = await until(there)
        return found

    async def condition(self, group: str, status: str) -> Object:
        """Waits for the PodGroup's condition WorkloadValid."""

        async def there() -> Object | None:
            conditions = (await self.group(group)).get("status", {}).get("conditions") or ()
            return next(
                (one for one in conditions if one["type"] == "WorkloadValid" and one["status"] == status),
                None,
            )

        found: Object = await until(there)
        return found


def reference(owner: Object) -> Object:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


async def define_kind(api: Api, group: str, version: str, kind: str, plural: str) -> None:
    """A kind of somebody else, with any fields, once for all tests of a run."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups of the Kubernetes project ask for it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
    try:
        await api.create(CRDS, definition)
    except ApiError as error:
        if error.status != 409:
            raise

    async def listed() -> bool:
        try:
            found = await api.get(f"/apis/{group}/{version}")
        except ApiError:
            return False
        return any(one["kind"] == kind for one in found["resources"])

    await until(listed)
    async with asyncio.timeout(60):
        await served(api, definition)


@asynccontextmanager
async def world(
    control_plane: ControlPlane, namespace: str, racks: Mapping[str, int]
) -> AsyncIterator[World]:
    """Racks, each with so many nodes of 4 GPUs; pods run as soon as they are bound."""
    mark = unique("n")
    nodes = [
        node(
            f"{mark}-{rack}-{i}",
            labels={ZONE: "z1", RACK: f"{mark}-{rack}"},
            allocatable={"nvidia.com/gpu": "4"},
        )
        for rack, number in racks.items()
        for i in range(number)
    ]
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(control_plane.access()))
        await define(api)
        await stack.enter_async_context(joined(api, nodes))
        await stack.enter_async_context(kubelets(api, {one["metadata"]["name"] for one in nodes}))
        transport = await stack.enter_async_context(direct(control_plane.kubeconfig))
        it = World(control_plane, api, transport, namespace)
        levels = [{"nodeLabel": ZONE}, {"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        body = {
            "apiVersion": "closeby.dev/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": it.topology},
            "spec": {"levels": levels},
        }
        await api.create(TOPOLOGIES, body)
        try:
            yield it
        finally:
            await api.delete(f"{TOPOLOGIES}/{it.topology}")


def racks_of(placed: Mapping[str, str]) -> set[str]:
    """The racks of nodes."""
    return {place.rpartition("-")[0].rpartition("-")[2] for place in placed.values()}
