"""Controllers at work on a real control plane, and what a user sees of the objects that they keep."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import yaml

from closeby.controllers.meters import ControllerMeters
from closeby.controllers.running import ControllerRunner, Reconciler, Running
from closeby.kube.client.transport import Transport
from closeby.kube.writing.writer import Writer
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, define, served
from tests.control_plane.nodes import joined, kubelets
from tests.kube.live import direct, eventually

KEP = "scheduling.sigs.k8s.io/v1alpha1"
GROUP, WORKLOAD = "appgroup.diktyo.x-k8s.io", "appgroup.diktyo.x-k8s.io.workload"


class Site:
    """A namespace in which controllers work."""

    def __init__(self, api: Api, transport: Transport, namespace: str) -> None:
        self.api = api
        self.transport = transport
        self.namespace = namespace
        self.writer = Writer(transport, "closeby-controllers", "a-test")
        #: What was said, and when (of ``time.monotonic``).
        self.lines: list[tuple[float, str, dict[str, object]]] = []

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((time.monotonic(), message, fields))

    def heard(self, *messages: str) -> list[tuple[float, str, dict[str, object]]]:
        """Lines of these texts, but for those about what other tests left, which may be going just now."""
        return [one for one in self.lines if one[1] in messages and self._ours(one[2].get("object"))]

    def said(self, message: str) -> list[dict[str, object]]:
        """What the lines of that text say, in their order."""
        return [fields for _, _, fields in self.heard(message)]

    def _ours(self, about: object) -> bool:
        return about is None or f"{self.namespace}/" in str(about)

    @asynccontextmanager
    async def running(self, *reconcilers: Reconciler[Any]) -> AsyncIterator[ControllerMeters]:
        """The controllers run, and have heard all there is, inside the context; what they count."""
        meters = ControllerMeters()
        runner = ControllerRunner(self.transport, reconcilers, Running(discover_every=0.5), self.say, meters)
        stop = asyncio.Event()
        work = asyncio.create_task(runner.run(stop))
        ready = asyncio.create_task(runner.ready.wait())
        try:
            async with asyncio.timeout(60):
                await asyncio.wait([work, ready], return_when=asyncio.FIRST_COMPLETED)
            assert ready.done(), await work
            yield meters
        finally:
            ready.cancel()
            stop.set()
            async with asyncio.timeout(60):
                assert await work is None

    def path(self, plural: str, name: str = "", api_version: str = KEP) -> str:
        """Of a collection in the namespace, or of one object."""
        path = f"/apis/{api_version}/namespaces/{self.namespace}/{plural}"
        return f"{path}/{name}" if name else path

    async def create(self, plural: str, name: str, content: str, api_version: str = KEP) -> None:
        """An object with this ``spec`` (YAML)."""
        kind = {"appgroups": "AppGroup", "networktopologies": "NetworkTopology"}[plural]
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
        await self.api.create(self.path(plural, api_version=api_version), body | yaml.safe_load(content))

    async def status(self, plural: str, name: str, api_version: str = KEP) -> Object:
        """Its status; empty when there is none."""
        found = await self.api.get(self.path(plural, name, api_version))
        status: Object = found.get("status", {})
        return status

    async def version(self, plural: str, name: str, api_version: str = KEP) -> str:
        """Its ``resourceVersion``, which changes with every write."""
        return str((await self.api.get(self.path(plural, name, api_version)))["metadata"]["resourceVersion"])

    async def until(
        self,
        plural: str,
        name: str,
        met: Callable[[Object], object],
        *,
        api_version: str = KEP,
        seconds: float = 60.0,
    ) -> Object:
        """Waits until the status is so, and returns it."""
        last: Object = {}

        async def so() -> bool:
            last.clear()
            last.update(await self.status(plural, name, api_version))
            return bool(met(last))

        try:
            await eventually(so, seconds)
        except TimeoutError as error:
            raise AssertionError(f"the status of {name} stays {last}") from error
        return last

    async def events(self, reason: str) -> list[Object]:
        found = await self.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [one for one in found["items"] if one["reason"] == reason]

    async def pod(self, name: str, app: str, workload: str, node: str | None = None) -> None:
        """A pod of an application, on a node if that is given."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        body: Object = {
            "metadata": {"name": name, "labels": {GROUP: app, WORKLOAD: workload}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
        }
        await self.api.create(path, body)
        if node is not None:
            target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            await self.api.create(f"{path}/{name}/binding", target)

    async def drop_pod(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        await self.api.delete(path, {"gracePeriodSeconds": 0})

    async def quiet(self, plural: str, name: str, seconds: float, api_version: str = KEP) -> None:
        """Nothing is written for a while."""
        before = await self.version(plural, name, api_version)
        await asyncio.sleep(seconds)
        assert await self.version(plural, name, api_version) == before


@asynccontextmanager
async def site(control_plane: ControlPlane, namespace: str, *nodes: Object) -> AsyncIterator[Site]:
    """A cluster of these nodes, with our kinds, whose pods run as soon as they are bound."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(control_plane.access()))
        await define(api)
        await stack.enter_async_context(joined(api, nodes))
        await stack.enter_async_context(kubelets(api, {one["metadata"]["name"] for one in nodes}))
        transport = await stack.enter_async_context(direct(control_plane.kubeconfig))
        yield Site(api, transport, namespace)


@asynccontextmanager
async def published(api: Api, group: str, kind: str, schema: str) -> AsyncIterator[None]:
    """Others' kind with the parts of its schema that matter, in the cluster inside the context.

    Like the published definitions it has no status subresource, and drops what it does not know.
    """
    plural = f"{kind.lower()}s" if kind == "AppGroup" else "networktopologies"
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": yaml.safe_load(schema)}},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    name = f"{plural}.{group}"
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, made by a test"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await api.create(CRDS, body)

    async def established() -> bool:
        conditions = (await api.get(f"{CRDS}/{name}")).get("status", {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    async def gone() -> bool:
        found = await api.get(CRDS)
        return all(one["metadata"]["name"] != name for one in found["items"])

    try:
        await eventually(established)
        async with asyncio.timeout(60):
            await served(api, body)
        yield
    finally:
        await api.delete(f"{CRDS}/{name}")
        await eventually(gone)
