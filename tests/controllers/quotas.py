"""Workloads of Kueue whose quotas a test gives and takes, in Kueue's place, on a real API server.

The tests in ``tests/kueue`` have Kueue itself. Here only its kinds are served, as far as the admission check
reads and writes them, so that a test says when a Workload has quota, and what happens between.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from closeby.controllers.admission.controller import AdmissionSettings
from closeby.objects.groups import POD_SET, WORKLOAD
from closeby.objects.labels import PLACEMENT
from closeby.objects.quantities import utc
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import applied, define
from tests.control_plane.nodes import joined, kubelets
from tests.controllers.checking import checking
from tests.kube.live import direct, unique
from tests.kube.live_world import RACK, World, until

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
API = f"/apis/{GROUP}/{VERSION}"
CHECK, ANY = "placement", "any"
_KINDS = (
    ("Workload", "workloads", True),
    ("ResourceFlavor", "resourceflavors", False),
    ("AdmissionCheck", "admissionchecks", False),
)


def _definitions() -> list[Object]:
    """Kueue's kinds; lists that several write to are merged by the keys that Kueue's definitions name."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    def by(key: str) -> Object:
        items = {**free, "required": [key], "properties": {key: {"type": "string"}}}
        merged = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
        return {"type": "array", "items": items, **merged}

    status = {**free, "properties": {"conditions": by("type"), "admissionChecks": by("name")}}
    schema = {"type": "object", "properties": {"spec": free, "status": status}}
    served = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue"}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}", "annotations": approved},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced" if namespaced else "Cluster",
                "names": {"kind": kind, "plural": plural},
                "versions": [served],
            },
        }
        for kind, plural, namespaced in _KINDS
    ]


class Quotas:
    """A namespace with Workloads, and one in which closeby runs."""

    def __init__(self, world: World, own: str) -> None:
        self.world = world
        self.own = own
        self.api = world.api

    def checking(self) -> contextlib.AbstractAsyncContextManager[None]:
        """`closeby controllers --only admission-checks` is at work inside the context."""
        settings = AdmissionSettings(namespace=self.own, scheduler_name=self.world.name)
        return checking(self.world.transport, self.world.say, settings)

    def scheduling(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """`closeby scheduler` is at work inside the context."""
        return self.world.scheduling(own_namespace=self.own)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Both are."""
        async with self.scheduling(), self.checking():
            yield

    async def put(self, plural: str, kind: str, name: str, spec: Object) -> None:
        """Creates an object without a namespace."""
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}
        await self.api.create(f"{API}/{plural}", body)

    async def flavor(self, name: str, **labels: str) -> None:
        """A ResourceFlavor of nodes with these labels."""
        await self.put("resourceflavors", "ResourceFlavor", name, {"nodeLabels": labels})

    async def workload(self, name: str, **sets: int) -> str:
        """A Workload with so many pods of two GPUs in each pod set, all of a set in one rack; its uid."""
        annotations = {
            "kai.scheduler/topology": self.world.topology,
            "kai.scheduler/topology-required-placement": RACK,
        }
        template = {"metadata": {"annotations": annotations}, "spec": self.world.pod("none", 2)["spec"]}
        found = [{"name": one, "count": count, "template": template} for one, count in sets.items()]
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Workload",
            "metadata": {"name": name},
            "spec": {"queueName": "team", "podSets": found},
        }
        made = await self.api.create(self._path(), body)
        uid: str = made["metadata"]["uid"]
        return uid

    async def give(self, name: str, flavors: Mapping[str, str] | None = None, **sets: int) -> None:
        """Gives a Workload quota for so many pods of each set, of the flavor of that set."""
        of = flavors or {}
        assigned = [
            {"name": one, "count": count, "flavors": {"nvidia.com/gpu": of.get(one, ANY)}}
            for one, count in sets.items()
        ]
        await self.change(
            name,
            conditions=[_condition("QuotaReserved", "True")],
            admission={"clusterQueue": "team", "podSetAssignments": assigned},
            admissionChecks=[_pending()],
        )

    async def take(self, name: str) -> None:
        """Takes the quota back, in two steps."""
        evicted = _condition("Evicted", "True")
        quota = _condition("QuotaReserved", "True")
        await self.change(name, conditions=[quota, evicted], admissionChecks=[_pending()])
        without = _condition("QuotaReserved", "False")
        await self.change(name, conditions=[without, evicted], admission=None)

    async def change(self, name: str, **status: Any) -> None:
        """Changes its status."""
        await self.api.patch(f"{self._path(name)}/status", {"status": status})

    async def delete(self, name: str) -> None:
        """Deletes a Workload."""
        await self.api.delete(self._path(name))

    async def until_state(self, name: str, state: str, says: str = "") -> None:
        """Waits until closeby's check says so."""
        found: Object = {}

        async def so() -> bool:
            workload = await self.api.get(self._path(name))
            found.update(workload["status"]["admissionChecks"][0])
            return found["state"] == state and says in found.get("message", "")

        try:
            await until(so)
        except TimeoutError:
            raise AssertionError(f"{name}: {found} is not {state} {says}") from None

    async def requests(self) -> list[Object]:
        """The PodGroups that ask for places."""
        found = await self.api.get(f"/apis/closeby.dev/v1alpha1/namespaces/{self.own}/podgroups")
        items: list[Object] = found["items"]
        return items

    async def until_asked(self, *uids: str) -> None:
        """Waits until places are asked for these Workloads, and for no others."""

        async def so() -> bool:
            asked = [one["spec"]["placesFor"]["workload"]["uid"] for one in await self.requests()]
            return sorted(asked) == sorted(uids)

        await until(so)

    def pod(self, name: str, uid: str, of: str = "main") -> Object:
        """A pod of a Workload, as its job makes it."""
        pod = self.world.pod(name, 2)
        pod["metadata"] |= {"annotations": {WORKLOAD: uid}, "labels": {POD_SET: of}}
        return pod

    def _path(self, name: str = "") -> str:
        path = f"{API}/namespaces/{self.world.namespace}/workloads"
        return f"{path}/{name}" if name else path


def _pending() -> Object:
    return {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": utc(time.time())}


def _condition(type_: str, status: str) -> Object:
    when = utc(time.time())
    return {"type": type_, "status": status, "reason": "Test", "message": "", "lastTransitionTime": when}


@contextlib.asynccontextmanager
async def quotas(control_plane: ControlPlane, *hosts: Object) -> AsyncIterator[Quotas]:
    """These nodes, a check of closeby's, and a flavor that asks for nothing."""
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(control_plane.access()))
        await define(api)
        for one in _definitions():
            await applied(api, one)
        namespace, own = unique("team"), unique("own")
        for name in (namespace, own):
            await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        await stack.enter_async_context(joined(api, hosts))
        await stack.enter_async_context(kubelets(api, {one["metadata"]["name"] for one in hosts}))
        transport = await stack.enter_async_context(direct(control_plane.kubeconfig))
        world = World(api, transport, namespace)
        await stack.enter_async_context(world.declared())
        # Other tests have nodes of the same names, on which these pods would take room.
        pods = f"/api/v1/namespaces/{namespace}/pods"
        stack.push_async_callback(api.delete, pods, {"gracePeriodSeconds": 0})
        it = Quotas(world, own)
        stack.push_async_callback(api.delete, f"{API}/namespaces/{namespace}/workloads")
        await it.put("admissionchecks", "AdmissionCheck", CHECK, {"controllerName": PLACEMENT})
        stack.push_async_callback(api.delete, f"{API}/admissionchecks/{CHECK}")
        await it.flavor(ANY)
        stack.push_async_callback(api.delete, f"{API}/resourceflavors")
        yield it
