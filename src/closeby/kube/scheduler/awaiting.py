"""Keeps pods out of the queue while what they depend on is not known: an AppGroup, volumes, their owners.

An AppGroup is looked for on the server. One look serves all pods: what the server serves, and the names of
the AppGroups in the namespaces of pods whose grace is over. While any pod waits there is one look a second,
however many there are. Each namespace is decided as soon as its own names are known, and asked about again
when that is over: one with many AppGroups does not hold back the others.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

import msgspec

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.kube.state.awaited_kinds import AwaitedKinds, no_pod, uses_volumes
from closeby.kube.state.following import Following
from closeby.kube.state.unknown_groups import APP_GROUP, UnknownGroups
from closeby.kube.watch.changes import read_object, read_page
from closeby.kube.watch.resources import ABOUT_OWNERS, ABOUT_VOLUMES, Resource
from closeby.objects.applications import APP_GROUP_LABEL
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.pod_topology_spread import PodTopologySpread
from closeby.scheduling.extension import Handle, NoArguments, PreEnqueue
from closeby.scheduling.profile import Profile

#: Seconds between two looks.
_EVERY: Final = 1.0
#: Requests at the same time, and names in one answer.
_AT_ONCE: Final = 4
_PAGE: Final = 500
#: Seconds in which a namespace is answered for; beyond that it is asked about again.
_WITHIN: Final = 30.0
#: Only the names are wanted; specs may be long.
_ACCEPT: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: A client that may not list a kind, or where it is not served, has none of it.
_NONE: Final = frozenset({403, 404})


class AwaitedAppGroups(PreEnqueue):
    """Keeps a pod out of the queue while it waits for its AppGroup."""

    name = "AwaitedAppGroups"

    def __init__(self, unknown: UnknownGroups, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self._unknown = unknown

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        if not self._unknown.holds(pod.uid):
            return None
        return Condition(
            reason=Reason.APP_GROUP_NOT_FOUND,
            object=f"Pod/{pod.key}",
            field=f"metadata.labels[{APP_GROUP_LABEL}]",
            message=f"AppGroup {pod.namespace}/{pod.labels.get(APP_GROUP_LABEL, '')} is not known",
            remedy="create it; if it does not appear soon the pod is scheduled without it",
            blocking=True,
        )


class _Awaited(PreEnqueue):
    """Keeps a pod out of the queue while not all is known of kinds that it depends on."""

    #: Why it depends on them, and by which field.
    why: ClassVar[str]
    field: ClassVar[str]

    def __init__(self, kinds: AwaitedKinds, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self._kinds = kinds

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        lack = self._kinds.lack(pod)
        if not lack:
            return None
        return Condition(
            reason=Reason.UNSUPPORTED,
            object=f"Pod/{pod.key}",
            field=self.field,
            message=f"{self.why}, and {lack}",
            remedy="add them to the scheduler's ClusterRole" if self._kinds.hidden else "",
            blocking=True,
        )


class AwaitedVolumes(_Awaited):
    """Keeps a pod with claims or disks out of the queue while what there is of volumes is not known."""

    name = "AwaitedVolumes"
    why = "the pod has claims or disks"
    field = "spec.volumes"


class AwaitedOwners(_Awaited):
    """Keeps a pod with default spread out of the queue while it is not known what its owner selects."""

    name = "AwaitedOwners"
    why = "default topology spread goes by what the pod's owner selects"
    field = "metadata.ownerReferences"


def awaited_kinds(following: Following) -> tuple[AwaitedKinds, AwaitedKinds]:
    """What is followed from the first pod on that needs it: volumes, and owners that select pods.

    Which pods depend on their owners the profile says (``awaiting``).
    """

    def awaited(kinds: frozenset[str], what: str, concerns: Callable[[Pod], bool]) -> AwaitedKinds:
        return AwaitedKinds(
            kinds,
            what,
            concerns,
            follow=lambda: following.follow(kinds),
            listed=lambda: following.follows_all(kinds),
        )

    volumes = awaited(ABOUT_VOLUMES, "the claims and volumes", uses_volumes)
    return volumes, awaited(ABOUT_OWNERS, "the workloads", no_pod)


def awaiting(
    profile: Profile, unknown: UnknownGroups, kinds: tuple[AwaitedKinds, AwaitedKinds], handle: Handle
) -> Profile:
    """The profile in which pods wait for their AppGroups, and until volumes and owners are known."""
    volumes, owners = kinds
    for one in profile.plugins:
        if isinstance(one, PodTopologySpread):
            owners.concerns = one.goes_by_owner
            # Where the defaults are wishes, pods are spread by their Services at least.
            owners.needed = one.has_hard_defaults
    plugins = (
        AwaitedAppGroups(unknown, handle),
        AwaitedVolumes(volumes, handle),
        AwaitedOwners(owners, handle),
    )
    return msgspec.structs.replace(
        profile, plugins=(*profile.plugins, *plugins), pre_enqueue=(*profile.pre_enqueue, *plugins)
    )


class GroupLooks:
    """Asks the server as long as anything waits."""

    def __init__(self, transport: Transport, following: Following, unknown: UnknownGroups) -> None:
        self._transport = transport
        self._following = following
        self._unknown = unknown
        self._slots = asyncio.Semaphore(_AT_ONCE)
        #: Namespaces that are being asked about.
        self._asking: set[str] = set()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._unknown.wanted.wait()
                self._unknown.wanted.clear()
                while self._unknown.waiting:
                    await self._look(tasks)
                    # Also what was received meanwhile may be ready to go on.
                    self._following.news.set()
                    await asyncio.sleep(_EVERY)

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        began = time.monotonic()
        served = await self._following.look_again()
        if isinstance(served, ApiError):
            return
        kinds = [one for one in served if one.kind == APP_GROUP]
        for namespace in sorted(set(self._unknown.due(began)) - self._asking):
            self._asking.add(namespace)
            tasks.create_task(self._ask(namespace, kinds, began))

    async def _ask(self, namespace: str, kinds: Iterable[Resource], began: float) -> None:
        """Decides about the pods of one namespace, if the server answers in time."""
        try:
            async with asyncio.timeout(_WITHIN):
                names = await self._in(namespace, kinds)
        except TimeoutError:
            return
        finally:
            self._asking.discard(namespace)
        if names is not None:
            self._unknown.looked(began, {namespace: names})
            self._following.news.set()

    async def _in(self, namespace: str, kinds: Iterable[Resource]) -> frozenset[str] | None:
        """The names of all AppGroups of a namespace; None where the server does not say."""
        found: set[str] = set()
        for kind in kinds:
            names = await self._names(kind, namespace)
            if names is None:
                return None
            found |= names
        return frozenset(found)

    async def _names(self, kind: Resource, namespace: str) -> set[str] | None:
        found: set[str] = set()
        query = {"limit": str(_PAGE)}
        while True:
            request = Request(
                path=kind.collection(namespace), query=query, headers={"Accept": _ACCEPT}, longest=None
            )
            # For each page again, so that namespaces take turns.
            async with self._slots:
                body = await self._transport.send(request)
            if isinstance(body, ApiError):
                return found if body.code in _NONE else None
            try:
                page = read_page(body)
                found.update(read_object(raw).metadata.name for raw in page.items or ())
            except msgspec.DecodeError:
                return None
            if not page.metadata.continuation:
                return found
            query = {**query, "continue": page.metadata.continuation}
