"""Looks over the scheduler's shoulder: what may never happen to pods, nodes and gangs."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.control_plane.api import Api, ApiError, Object

GPU = "nvidia.com/gpu"
GROUP_LABEL = "closeby.dev/pod-group"
_PAGE = "2000"
_AGAIN = 0.2
_BEHIND = 60.0
_FINISHED = ("Succeeded", "Failed")


@dataclass
class Audit:
    """All pods of a namespace ever seen, by uid, and what each node held at any moment of the server's order.

    A pod that changed its node is a violation, and so is a node that held more than ``room`` GPUs.
    """

    room: int | None = None
    nodes: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    #: By uid: the node of a pod that is there now, and what it takes.
    _now: dict[str, tuple[str, int]] = field(default_factory=dict)
    _taken: Counter[str] = field(default_factory=Counter)
    #: Pods that went while nobody watched: they may have been bound just before.
    _lost: set[str] = field(default_factory=set)
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    async def seen_bound(self, number: int) -> None:
        """Waits until the watch has told of so many bound pods; it may come behind what a list shows."""
        async with asyncio.timeout(_BEHIND):
            while len(self.nodes) < number:
                self._told.clear()
                await self._told.wait()
        assert len(self.nodes) == number

    def never_bound(self, uids: Iterable[str]) -> list[str]:
        """Those that were watched from their coming to their end, and were on no node."""
        return [uid for uid in uids if uid in self.names and uid not in self.nodes and uid not in self._lost]

    def begin(self, pods: list[Object]) -> None:
        """A list of all pods: others are gone."""
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in self._now.keys() - there:
            self._leave(uid)
        self._lost |= self.names.keys() - there
        for pod in pods:
            self.see("MODIFIED", pod)

    def see(self, kind: str, pod: Object) -> None:
        """What a watch tells."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        self.names[uid] = pod["metadata"]["name"]
        before = self.nodes.get(uid)
        if before is not None and node != before:
            self.violations.append(f"{self.names[uid]}: on {before}, then on {node}")
        if node is not None:
            self.nodes[uid] = node
            self._told.set()
        finished = pod.get("status", {}).get("phase") in _FINISHED
        if kind == "DELETED" or finished:
            self._leave(uid)
        elif node is not None and uid not in self._now:
            self._now[uid] = node, takes(pod, GPU)
            self._taken[node] += self._now[uid][1]
            if self.room is not None and self._taken[node] > self.room:
                self.violations.append(f"{node}: {self._taken[node]} of {self.room} with {self.names[uid]}")

    def _leave(self, uid: str) -> None:
        node, number = self._now.pop(uid, ("", 0))
        self._taken[node] -= number


@asynccontextmanager
async def audited(api: Api, namespace: str, room: int | None = None) -> AsyncIterator[Audit]:
    """Watches all pods of the namespace inside the context, past restarts of the server."""
    audit, begun = Audit(room), asyncio.Event()
    path = f"/api/v1/namespaces/{namespace}/pods"

    async def follow() -> None:
        while True:
            try:
                found = await api.get(path)
                audit.begin(found["items"])
                begun.set()
                version = found["metadata"]["resourceVersion"]
                while True:
                    async for kind, pod in api.watch(path, version):
                        version = pod["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            audit.see(kind, pod)
            except (aiohttp.ClientError, ApiError):
                await asyncio.sleep(_AGAIN)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow())
        try:
            # A pod that came and went before the first list would never be heard of.
            async with asyncio.timeout(_BEHIND):
                await begun.wait()
            yield audit
        finally:
            task.cancel()
    assert audit.violations == []


async def pages(api: Api, path: str) -> list[Object]:
    """All objects of a collection."""
    items: list[Object] = []
    query = {"limit": _PAGE}
    while True:
        page = await api.get(path, **query)
        items += page["items"]
        following = page["metadata"].get("continue")
        if not following:
            return items
        query["continue"] = following


def takes(pod: Object, resource: str) -> int:
    """What a pod takes of its node; nothing once it is finished."""
    if pod.get("status", {}).get("phase") in _FINISHED:
        return 0
    requests = [one["resources"].get("requests", {}) for one in pod["spec"]["containers"]]
    return sum(int(one.get(resource, 0)) for one in requests)


def overcommitted(pods: Iterable[Object], nodes: Iterable[Object], resource: str = GPU) -> list[str]:
    """Nodes on which more is taken than there is; what is on nodes that are gone is passed over."""
    taken: Counter[str] = Counter()
    for pod in pods:
        if pod["spec"].get("nodeName"):
            taken[pod["spec"]["nodeName"]] += takes(pod, resource)
    offered = {one["metadata"]["name"]: int(one["status"]["allocatable"].get(resource, 0)) for one in nodes}
    return [name for name, number in taken.items() if name in offered and number > offered[name]]


def gangs_of(pods: Iterable[Object]) -> dict[str, list[Object]]:
    """Members by gang."""
    found: dict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        gang = pod["metadata"].get("labels", {}).get(GROUP_LABEL)
        if gang:
            found[gang].append(pod)
    return found


def broken(groups: Iterable[Object], pods: Iterable[Object], racks: Mapping[str, str]) -> list[str]:
    """What is wrong with gangs: started with too few, or split over their required rack, or still planned.

    ``racks`` has each node's rack; what is on nodes that are gone is passed over.
    """
    members = gangs_of(pods)
    wrong = []
    for group in groups:
        name, spec = group["metadata"]["name"], group["spec"]
        places = [one["spec"]["nodeName"] for one in members[name] if one["spec"].get("nodeName")]
        if 0 < len(places) < spec["minMember"]:
            wrong.append(f"{name}: {len(places)} of at least {spec['minMember']}")
        required = spec.get("topologyConstraint", {}).get("requiredTopologyLevel")
        domains = {racks[place] for place in places if place in racks}
        if required == "rack" and len(domains) > 1:
            wrong.append(f"{name}: in {sorted(domains)}")
        if "plan" in group.get("status", {}):
            stand = [state(pod) for pod in members[name]]
            wrong.append(f"{name}: a plan is left: {group['status']}; {stand}")
    return wrong


def state(pod: Object) -> str:
    """Where a pod is, and what it says of itself."""
    metadata, status = pod["metadata"], pod.get("status", {})
    said = [f"{one['type']}={one['status']}: {one.get('message')}" for one in status.get("conditions", ())]
    leaves = " leaves" if "deletionTimestamp" in metadata else ""
    return f"{metadata['name']}{leaves} on {pod['spec'].get('nodeName')}: {status.get('phase')} {said}"
