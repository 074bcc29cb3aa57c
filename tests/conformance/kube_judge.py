"""Which nodes the real kube-scheduler allows.

All objects of a world, and the pods to be judged, are there before kube-scheduler starts, so that it judges
all pods by one state. Its filters say which nodes each pod could go to. After them it asks an extender, ours:
it notes these nodes and lets the pod go nowhere. So no pod takes anything from another one, and a pod is
judged on all nodes at once. Evictions are switched off.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from tests.conformance.worlds import SCHEDULER, World
from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.binaries import Programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.commands import Settings

CONFIGURATION = "judge.json"
_PATIENCE = 120.0

#: What closeby is to read of a cluster.
COLLECTIONS = (
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/pods",
    "/api/v1/services",
    "/api/v1/replicationcontrollers",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/csistoragecapacities",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
#: What a world leaves behind otherwise, in the order in which it goes.
_OF_A_WORLD = [
    path
    for path in COLLECTIONS
    if path.rpartition("/")[2] not in ("namespaces", "priorityclasses", "services")
]


def settings(folder: Path) -> Settings:
    """A control plane for judging; kube-scheduler reads its configuration from the folder."""
    return Settings(
        controllers=False,
        flags={
            # Nothing takes off the finalizers that it adds.
            "kube-apiserver": ("--disable-admission-plugins=StorageObjectInUseProtection",),
            "kube-scheduler": (f"--config={folder / CONFIGURATION}",),
        },
    )


class Judge:
    """A control plane, and the extender of its kube-scheduler."""

    def __init__(self, plane: ControlPlane, folder: Path, api: Api) -> None:
        self._plane = plane
        self._folder = folder
        self._api = api
        #: uid of a pod -> the nodes that all filters let it go to, when it was judged first.
        self._allowed: dict[str, frozenset[str]] = {}
        #: Path of a pod that the API server did not take -> why.
        self.refused: dict[str, str] = {}

    async def judge(self, world: World) -> tuple[dict[str, tuple[frozenset[str], str]], list[Object]]:
        """For each pod the nodes it may go to and what its condition says; and all objects as they stand.

        The world is gone from the cluster afterwards, but for its namespaces.
        """
        try:
            await self._make(world)
            objects = [one for path in COLLECTIONS for one in await self._listed(path)]
            async with self._extender(world):
                with self._plane.also("kube-scheduler"):
                    answers = await self._answers(world)
            return answers, objects
        finally:
            await self._clear(world)

    async def _make(self, world: World) -> None:
        """Creates all objects: those of one collection at once, collections in their order."""
        await asyncio.gather(*(self._api.create("/api/v1/nodes", one) for one in world.nodes))
        for path in dict.fromkeys(path for path, _ in world.objects):
            made = [one for at, one in world.objects if at == path]
            await asyncio.gather(*(self._create(path, one) for one in made))
        for path, status in world.statuses:
            if path not in self.refused:
                await self._api.patch(f"{path}/status", {"status": status}, kind="strategic")
        pods = f"/api/v1/namespaces/{world.namespace}/pods"
        await asyncio.gather(*(self._create(pods, one) for one in world.probes))
        await self._make_owned(world)

    async def _make_owned(self, world: World) -> None:
        """Claims that belong to pods, which must be there to be named; without a pod they are another's."""
        path = f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims"
        listed = await self._listed(f"/api/v1/namespaces/{world.namespace}/pods")
        uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in listed}
        for name, claim, status in world.owned:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name or "another", "controller": True}
            claim["metadata"]["ownerReferences"] = [{**owner, "uid": uids.get(name, "another")}]
            await self._create(path, claim)
            if status:
                await self._api.patch(f"{path}/{claim['metadata']['name']}/status", {"status": status})

    async def _create(self, path: str, made: Object) -> None:
        try:
            await self._api.create(path, made)
        except ApiError as error:
            # Chance may make a pod that no API server takes; of all else that is a mistake.
            if not path.endswith("/pods") or error.status not in (403, 422):
                raise ValueError(f"{error}: {json.dumps(made)}") from error
            self.refused[f"{path}/{made['metadata']['name']}"] = error.message

    async def _listed(self, path: str) -> list[Object]:
        found = await self._api.get(path)
        head = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [{**head, **one} for one in found["items"]]

    async def _answers(self, world: World) -> dict[str, tuple[frozenset[str], str]]:
        path = f"/api/v1/namespaces/{world.namespace}/pods"
        async with asyncio.timeout(_PATIENCE):
            while True:
                pods = [one for one in await self._listed(path) if one["spec"]["schedulerName"] == SCHEDULER]
                said = {one["metadata"]["uid"]: _said(one) for one in pods}
                if all(said.values()):
                    break
                await asyncio.sleep(0.2)
        nothing = frozenset[str]()
        found = {}
        for one in pods:
            uid, name = one["metadata"]["uid"], one["metadata"]["name"]
            found[f"{world.namespace}/{name}"] = self._allowed.get(uid, nothing), said[uid]
        return found

    @contextlib.asynccontextmanager
    async def _extender(self, world: World) -> AsyncIterator[None]:
        """Serves the extender, and writes the configuration that names it."""
        application = web.Application()
        application.router.add_post("/filter", self._filter)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            configuration = _configuration(self._plane, f"http://127.0.0.1:{port}", world)
            (self._folder / CONFIGURATION).write_text(json.dumps(configuration))
            yield
        finally:
            await runner.cleanup()

    async def _filter(self, request: web.Request) -> web.Response:
        asked = await request.json()
        names = frozenset[str](asked["NodeNames"] or ())
        # Judged again, after an event, it may be by another state.
        self._allowed.setdefault(asked["Pod"]["metadata"]["uid"], names)
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "it was asked only")})

    async def _clear(self, world: World) -> None:
        for path in _OF_A_WORLD:
            for one in await self._listed(path):
                metadata = one["metadata"]
                group, _, plural = path.rpartition("/")
                namespace = metadata.get("namespace")
                where = f"{group}/namespaces/{namespace}/{plural}" if namespace else path
                with contextlib.suppress(ApiError):
                    await self._api.delete(f"{where}/{metadata['name']}", {"gracePeriodSeconds": 0})


def _said(pod: Object) -> str:
    """What kube-scheduler wrote about a pod; empty while it did not judge it."""
    assert "nodeName" not in pod["spec"], "the extender lets no pod go anywhere"
    for one in pod["status"].get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            # A gate, or an error that is no judgement.
            assert one["reason"] == "Unschedulable", one
            return str(one["message"])
    return ""


def _configuration(plane: ControlPlane, extender: str, world: World) -> Object:
    profile: Object = {"schedulerName": SCHEDULER, "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    if world.default_constraints:
        arguments = {"defaultingType": "List", "defaultConstraints": world.default_constraints}
        profile["pluginConfig"] = [{"name": "PodTopologySpread", "args": arguments}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(plane.kubeconfig.parent / "kube-scheduler.kubeconfig"),
            "qps": 5000,
            "burst": 10000,
        },
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [profile],
        "extenders": [
            {"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "60s"}
        ],
    }


@contextlib.asynccontextmanager
async def judging(programs: Programs, folder: Path) -> AsyncIterator[Judge]:
    """A judge with a control plane of its own."""
    with started(programs, folder / "plane", settings(folder)) as plane:
        async with Api(plane.access()) as api:
            yield Judge(plane, folder, api)
