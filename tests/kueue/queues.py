"""Queues, Jobs and Workloads of Kueue, as the tests make and read them."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tests.control_plane.api import Api, Object, create_namespace, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.kube.live_world import until
from tests.kueue.running import API


class KueueWorld:
    """A namespace whose Jobs Kueue queues."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._made: list[str] = []

    async def put(self, plural: str, kind: str, name: str, spec: Object, *, namespaced: bool = False) -> None:
        """Creates an object of Kueue's; one without a namespace is deleted at the end."""
        place = f"{API}/namespaces/{self.namespace}/{plural}" if namespaced else f"{API}/{plural}"
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.api.create(place, body)
        if not namespaced:
            self._made.append(f"{place}/{name}")

    async def queue(
        self,
        name: str,
        *,
        gpus: int,
        flavor: Object | None = None,
        checks: Sequence[str] = (),
        cohort: str = "",
        strategy: str = "",
    ) -> None:
        """A ResourceFlavor, a ClusterQueue and a LocalQueue of one name."""
        unique = f"{name}-{self.namespace}"
        await self.put("resourceflavors", "ResourceFlavor", unique, flavor or {})
        quotas = {"cpu": "1000", "nvidia.com/gpu": gpus}
        resources = [{"name": one, "nominalQuota": amount} for one, amount in quotas.items()]
        spec: Object = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "resourceGroups": [
                {
                    "coveredResources": list(quotas),
                    "flavors": [{"name": unique, "resources": resources}],
                }
            ],
        }
        if checks:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": one} for one in checks]}
        if cohort:
            spec["cohortName"] = cohort
        if strategy:
            spec["queueingStrategy"] = strategy
        await self.put("clusterqueues", "ClusterQueue", unique, spec)
        await self.put("localqueues", "LocalQueue", name, {"clusterQueue": unique}, namespaced=True)

    async def job(
        self,
        name: str,
        queue: str,
        *,
        pods: int,
        gpus: int,
        scheduler: str = "",
        template: Mapping[str, Any] | None = None,
        metadata: Object | None = None,
        volumes: Sequence[Object] = (),
        **spec: Any,
    ) -> None:
        """A Job of so many pods at once; ``template`` is the metadata of its pods."""
        asked = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
        container = {
            "name": "main",
            "image": "none",
            "resources": {"requests": asked, "limits": {"nvidia.com/gpu": str(gpus)}},
        }
        pod: Object = {"restartPolicy": "Never", "containers": [container]}
        if scheduler:
            pod["schedulerName"] = scheduler
        if volumes:
            pod["volumes"] = list(volumes)
        about = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}, **(metadata or {})}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": about,
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "completionMode": "Indexed",
                "suspend": True,
                "template": {"metadata": template or {}, "spec": pod},
                **spec,
            },
        }
        await self.api.create(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body)

    async def workload(self, job: str) -> Object:
        """The Workload that Kueue made of a Job; empty while there is none."""
        found = await self.api.get(f"{API}/namespaces/{self.namespace}/workloads")
        for one in found["items"]:
            if any(owner["name"] == job for owner in one["metadata"].get("ownerReferences", ())):
                workload: Object = one
                return workload
        return {}

    async def condition(self, job: str, type_: str) -> Object:
        """A condition of the Job's Workload; empty where it is not there."""
        conditions = (await self.workload(job)).get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == type_), {})

    async def until_condition(self, job: str, type_: str, status: str, seconds: float = 60.0) -> Object:
        """Waits until the condition is so; returns it."""
        found: Object = {}

        async def so() -> bool:
            found.clear()
            found.update(await self.condition(job, type_))
            return found.get("status") == status

        try:
            await until(so, seconds)
        except TimeoutError:
            said = (await self.workload(job)).get("status")
            raise AssertionError(f"{job}: {type_} is not {status}: {said}") from None
        return found

    async def pods(self) -> dict[str, Object]:
        """The pods of the namespace, by name."""
        found = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods")
        return {one["metadata"]["name"]: one for one in found["items"]}

    async def clean(self) -> None:
        """Deletes what has no namespace, the newest first."""
        for path in reversed(self._made):
            await self.api.delete(path)


@contextlib.asynccontextmanager
async def kueue_world(control_plane: ControlPlane) -> AsyncIterator[KueueWorld]:
    """A new namespace beside Kueue, in a cluster that knows closeby's kinds."""
    async with Api(control_plane.access()) as api:
        await define(api)
        namespace = await create_namespace(api)
        it = KueueWorld(api, namespace)
        try:
            yield it
        finally:
            await delete_namespace(api, namespace)
            await it.clean()
