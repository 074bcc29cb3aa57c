"""Nodes without machines: plain Node objects, and a stand-in for their kubelets.

The stand-in does what the rest of Kubernetes waits for: a bound pod runs, one with the annotation
`tests.closeby.dev/run-seconds` succeeds after so many seconds, and a deleted one goes. It renews no leases.
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping

import aiohttp

from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.clouds import on_a_cloud

RUN_SECONDS = "tests.closeby.dev/run-seconds"

_NODES = "/api/v1/nodes"
_BOUND_PODS = "spec.nodeName!="
_GONE = (404, 409, 410)
_INVALID = 422
_PAGE = "1000"
_RETRY_SECONDS = 0.2


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: Collection[Mapping[str, str]] = (),
) -> Object:
    """A Ready node with its hostname label; 32 CPUs, 128 GiB and 110 pods but for what `allocatable` says."""
    resources = {"cpu": "32", "memory": "128Gi", "pods": "110", **(allocatable or {})}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made by a test"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{**ready, "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}],
        },
    }


@contextlib.asynccontextmanager
async def joined(api: Api, nodes: Iterable[Object]) -> AsyncIterator[list[str]]:
    """The nodes are in the cluster inside the context, labelled like a cloud's; yields their names."""
    nodes = [on_a_cloud(each) for each in nodes]
    names = [str(each["metadata"]["name"]) for each in nodes]
    try:
        await asyncio.gather(*(api.create(_NODES, each) for each in nodes))
        yield names
    finally:
        await asyncio.gather(*(_unless_gone(api.delete(f"{_NODES}/{name}")) for name in names))


@contextlib.asynccontextmanager
async def kubelets(api: Api, only: Collection[str] | None = None) -> AsyncIterator[None]:
    """Runs the stand-in inside the context, for all nodes or for those named by `only`.

    What goes wrong in it ends the context with an ExceptionGroup. It survives a restart of the API server.
    """
    async with asyncio.TaskGroup() as tasks:
        stand_in = tasks.create_task(_Kubelets(api, only, tasks).run())
        try:
            yield
        finally:
            stand_in.cancel()


class _Kubelets:
    def __init__(self, api: Api, only: Collection[str] | None, tasks: asyncio.TaskGroup) -> None:
        self._api = api
        self._only = only
        self._tasks = tasks
        # What was begun for a pod, by uid: its task, and whether that is the pod's end.
        self._lives: dict[str, tuple[asyncio.Task[None], bool]] = {}

    async def run(self) -> None:
        try:
            while True:
                await _until_answered(self._follow)
        finally:
            for task, _ in self._lives.values():
                task.cancel()

    async def _follow(self) -> None:
        """Lists and watches until a request fails, with 410 if the version seen last is too old."""
        version = await self._list()
        while True:
            async for kind, pod in self._api.watch("/api/v1/pods", version, fieldSelector=_BOUND_PODS):
                version = pod["metadata"]["resourceVersion"]
                if kind == "DELETED":
                    self._end(pod["metadata"]["uid"])
                elif kind != "BOOKMARK":
                    self._see(pod)

    async def _list(self) -> str:
        seen = set()
        query = {"fieldSelector": _BOUND_PODS, "limit": _PAGE}
        while True:
            page = await self._api.get("/api/v1/pods", **query)
            for pod in page["items"]:
                seen.add(pod["metadata"]["uid"])
                self._see(pod)
            following = page["metadata"].get("continue")
            if not following:
                for uid in self._lives.keys() - seen:
                    self._end(uid)
                return str(page["metadata"]["resourceVersion"])
            query["continue"] = following

    def _see(self, pod: Object) -> None:
        """Begins what is to be done for a pod, unless it was begun before."""
        uid = pod["metadata"]["uid"]
        if self._only is not None and pod["spec"]["nodeName"] not in self._only:
            return
        ending = "deletionTimestamp" in pod["metadata"]
        begun = self._lives.get(uid)
        if begun is not None and begun[1] == ending:
            return
        if begun is not None:
            begun[0].cancel()
        life = self._remove(pod) if ending else self._live(pod)
        self._lives[uid] = (self._tasks.create_task(life), ending)

    def _end(self, uid: str) -> None:
        begun = self._lives.pop(uid, None)
        if begun is not None:
            begun[0].cancel()

    async def _live(self, pod: Object) -> None:
        phase = pod["status"].get("phase", "Pending")
        if phase == "Pending":
            await self._set_status(pod, _running_status(pod))
            phase = "Running"
        seconds = pod["metadata"].get("annotations", {}).get(RUN_SECONDS)
        if phase == "Running" and seconds is not None:
            await asyncio.sleep(float(seconds))
            await self._set_status(pod, _finished_status(pod))

    async def _remove(self, pod: Object) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await _until_answered(lambda: self._api.delete(_path(pod), options))

    async def _set_status(self, pod: Object, status: Object) -> None:
        # With the uid it is refused if the name has passed to another pod, of which nothing was heard yet.
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await _until_answered(lambda: self._api.patch(f"{_path(pod)}/status", body, kind="strategic"))


def _path(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _running_status(pod: Object) -> Object:
    state = {"running": {"startedAt": _now()}}
    return {
        "phase": "Running",
        "startTime": _now(),
        "conditions": [_condition(name, "True") for name in ("Initialized", "ContainersReady", "Ready")],
        "containerStatuses": [_container(each, state, ready=True) for each in pod["spec"]["containers"]],
    }


def _finished_status(pod: Object) -> Object:
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": _now()}
    state = {"running": None, "terminated": ended}
    return {
        "phase": "Succeeded",
        "conditions": [_condition(name, "False") for name in ("ContainersReady", "Ready")],
        "containerStatuses": [_container(each, state, ready=False) for each in pod["spec"]["containers"]],
    }


def _condition(name: str, status: str) -> Object:
    return {"type": name, "status": status, "lastTransitionTime": _now()}


def _container(container: Object, state: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
        "ready": ready,
        "started": ready,
        "state": state,
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _until_answered(request: Callable[[], Awaitable[object]]) -> None:
    """Repeats what a server that is down or busy didn't do; for a pod that is gone nothing is left to do."""
    while True:
        try:
            return await _unless_gone(request())
        except aiohttp.ClientError:
            await asyncio.sleep(_RETRY_SECONDS)
        except ApiError as error:
            # A server that has just started may refuse what it is not ready to judge.
            unready = error.status == 403 and "not yet ready" in error.message
            if error.status != 429 and error.status < 500 and not unready:
                raise
            await asyncio.sleep(_RETRY_SECONDS)


async def _unless_gone(request: Awaitable[object]) -> None:
    try:
        await request
    except ApiError as error:
        # A patch that names another uid is invalid, where a deletion would be a conflict.
        another = error.status == _INVALID and "metadata.uid" in error.message
        if error.status not in _GONE and not another:
            raise
