"""Reads a cluster once, as it is now, into the records that manifests give, for commands that look at it."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.metrics.asking import DEFAULT_NAMESPACE
from closeby.kube.state.asked_places import PlacesOfWorkloads
from closeby.kube.state.decoding import Decoder, held, in_its_task
from closeby.kube.state.following import FOLLOWED
from closeby.kube.state.names import clash
from closeby.kube.state.ownership import OurPods, scheduler_of
from closeby.kube.watch.changes import Change, Deleted, Synced, Troubled, Upserted
from closeby.kube.watch.reflector import Reflector, Watching
from closeby.kube.watch.resources import (
    ABOUT_OWNERS,
    ABOUT_VOLUMES,
    NODES,
    OWNERS,
    PODS,
    REPLICATION_CONTROLLERS,
    SELECTED_BY,
    VOLUMES,
    Discovery,
    Resource,
)
from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.bounds import some
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass, gang_key
from closeby.objects.process import collector_paused
from closeby.objects.reasons import Condition, Problem
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import Topology
from closeby.objects.volumes import StorageObject
from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE, POD_GROUPER
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.dialects.grouping import (
    held_for_the_grouper,
    is_gated,
    says_it_has_none,
    undecided,
)
from closeby.reading.manifests import Manifests
from closeby.reading.registry import Record
from closeby.scheduling.events import PlacesAsked

#: Without these there is nothing to look at.
_NEEDED: Final = (NODES, PODS)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_GONE: Final = 404
#: Stands in PodGroups of the pod-grouper: it is their manager.
_MADE_BY_THE_GROUPER: Final = f'"{POD_GROUPER}"'.encode()

R = TypeVar("R")


class ExplainedPods(OurPods):
    """Pods that a scheduler of this name schedules, and those with our gate that name another scheduler.

    The latter only a scheduler in gate mode handles (``--mode gate``); its name is not known from outside.
    """

    def wait(self, pod: Pod) -> bool:
        return super().wait(pod) or is_gated(pod)

    def for_engine(self, pod: Pod) -> Pod:
        """A pod that waits for its node from us, or to be bound where we sent it, as one that names us."""
        spec = pod.spec
        if pod.node_name is not None or scheduler_of(pod) == self.scheduler_name:
            return pod
        if PLACEMENT_GATE not in spec.scheduling_gates and PLACED_ON not in pod.annotations:
            return pod
        left = tuple(gate for gate in spec.scheduling_gates if gate != PLACEMENT_GATE)
        return replace(pod, spec=replace(spec, scheduling_gates=left, scheduler_name=self.scheduler_name))


class WholeCluster(Struct, frozen=True, kw_only=True):
    """What one reading gave."""

    manifests: Manifests
    #: The places that are asked for, for pods that are still to come.
    places: tuple[PlacesAsked, ...] = ()
    #: Kinds that could not be read, and why, one sentence each.
    skipped: tuple[str, ...] = ()
    #: Which kind of PodGroup describes each gang, by ``namespace/name``.
    gang_kinds: Mapping[str, Resource] = {}


async def read_cluster(
    transport: Transport,
    *,
    keep_going: bool = False,
    pod_grouper: bool | None = None,
    scheduler_name: str = "",
    progress: Callable[[int], None] = lambda objects: None,
    look: Callable[[Resource, Change], object] = lambda resource, change: None,
) -> WholeCluster | Problem:
    """All objects of the kinds that the scheduler of this name follows, read as it reads them.

    A kind that this user may not list is left out and reported, unless it is nodes or pods; ``keep_going``:
    also one that the server can't give. With a ``pod_grouper`` at work pods wait for its word, as for the
    scheduler; None: there is one for the pods of a scheduler if it has spoken of any that is there.
    Workloads are read where one of them owns a pod that waits: default spread goes by what they select.
    ``progress`` gets the number of objects so far, and ``look`` each object as it is.
    """
    served = await Discovery(transport, (*FOLLOWED, *OWNERS)).served()
    if isinstance(served, ApiError):
        return _unreachable(transport, served)
    reader = _Reader(transport, progress, ExplainedPods(scheduler_name), look)
    owners = (REPLICATION_CONTROLLERS, *(kind for kind in served if kind.kind in ABOUT_OWNERS))
    first = (*_NEEDED, *SELECTED_BY, *VOLUMES, *(kind for kind in served if kind.kind not in ABOUT_OWNERS))
    errors = await asyncio.gather(*map(reader.read, first))
    later = tuple(kind for kind in owners if kind.kind in reader.owners_of_waiting_pods())
    errors += await asyncio.gather(*map(reader.read, later))
    kinds = (*first, *later)
    skipped, hidden = [], []
    for kind, error in zip(kinds, errors, strict=True):
        # A kind that has left meanwhile has no objects.
        if error is None or (error.code == _GONE and kind not in _NEEDED):
            continue
        may_be_missing = kind not in _NEEDED and (keep_going or error.code == _FORBIDDEN)
        if not may_be_missing:
            return _unreadable(transport, kind, error)
        if kind.kind in ABOUT_VOLUMES:
            hidden.append(kind.plural)
        skipped.append(f"{kind.plural}.{kind.api_version} can't be read: {error}{_remedy(kind, error)}")
    return reader.whole(kinds, tuple(skipped), pod_grouper, hidden)


async def read_nodes(
    transport: Transport, progress: Callable[[int], None] = lambda objects: None
) -> Manifests | Problem:
    """All nodes and nothing else."""
    reader = _Reader(transport, progress, ExplainedPods(""), lambda resource, change: None)
    error = await reader.read(NODES)
    if error is None:
        return reader.whole((NODES,), (), False).manifests
    if error.code == _FORBIDDEN:
        return Problem(f"{NODES.plural} can't be listed: {error}", "let this user list nodes")
    return _unreachable(transport, error)


class _Reader:
    """What was read so far, by kind and key."""

    def __init__(
        self,
        transport: Transport,
        progress: Callable[[int], None],
        ours: ExplainedPods,
        look: Callable[[Resource, Change], object],
    ) -> None:
        self._transport = transport
        self._progress = progress
        self._ours = ours
        self._reading = DocumentReading()
        self._decoder = Decoder(self._reading, selectors=True)
        self._look = look
        self._records: dict[Resource, dict[str, Record]] = {}
        self._problems: dict[tuple[Resource, str], Condition] = {}
        #: Gangs whose PodGroup the pod-grouper made.
        self._grouped: set[str] = set()
        self._number = 0

    async def read(self, resource: Resource) -> ApiError | None:
        """All objects of a kind."""
        self._records[resource] = {}
        async with aclosing(Reflector(self._transport, resource, Watching()).changes()) as batches:
            async for batch in batches:
                with collector_paused():
                    for change in batch:
                        self._take(resource, change)
                self._progress(self._number)
                match batch[-1]:
                    case Synced():
                        return None
                    case Troubled(error):
                        return error
        raise AssertionError("a reflector never ends by itself")

    def owners_of_waiting_pods(self) -> set[str]:
        """The kinds of workloads that own pods which wait."""
        pods = (one for one in self._records[PODS].values() if isinstance(one, Pod) and one.node_name is None)
        return {pod.owner.partition("/")[0] for pod in pods} & ABOUT_OWNERS

    def _take(self, resource: Resource, change: Change) -> None:
        self._look(resource, change)
        match change:
            case Upserted(key=key):
                self._number += 1
                if resource.kind == "PodGroup" and _MADE_BY_THE_GROUPER in change.raw:
                    self._grouped.add(key)
                read = self._decoder.read(resource, change)
                if isinstance(read, Condition):
                    self._problems[resource, key] = read
                elif read.record is not None:
                    self._records[resource][key] = read.record
            # Gone between two pages of the list.
            case Deleted(key=key):
                self._records[resource].pop(key, None)
                self._problems.pop((resource, key), None)

    def whole(
        self,
        kinds: Iterable[Resource],
        skipped: tuple[str, ...],
        pod_grouper: bool | None,
        hidden: Sequence[str] = (),
    ) -> WholeCluster:
        """All of it. Of objects with one name that of the earlier kind counts, as for the scheduler.

        Pods with claims wait where kinds about volumes are ``hidden``.
        """
        kept: dict[tuple[str, str], tuple[list[Resource], Record]] = {}
        for resource in kinds:
            for key, record in self._records[resource].items():
                kept.setdefault((resource.kind, key), ([], record))[0].append(resource)
        clashes = [
            condition
            for (_, key), (sources, _) in kept.items()
            if len(sources) > 1
            for condition in clash(sources[-1], key, tuple(sources))
        ]
        asking = {key: one for (_, key), (_, one) in kept.items() if isinstance(one, PodGroup) and one.places}
        records = [record for _, record in kept.values() if record not in asking.values()]
        places = PlacesOfWorkloads(self._ours, _asked_in(asking))
        wrong = [condition for key, group in asking.items() for condition in places.put(key, group)]
        pods = map(self._ours.for_engine, _all(records, Pod))
        manifests = Manifests(
            nodes=_all(records, Node),
            pods=tuple(map(in_its_task, self._held(tuple(pods), places, pod_grouper, hidden))),
            groups=_all(records, PodGroup),
            topologies=_all(records, Topology),
            priority_classes=_all(records, PriorityClass),
            app_groups=_all(records, AppGroup),
            network_topologies=_all(records, NetworkTopology),
            namespaces=_all(records, Namespace),
            services=_all(records, PodOwner),
            budgets=_all(records, PodDisruptionBudget),
            storage=tuple(one for one in records if isinstance(one, StorageObject)),
            notices=(*self._reading.all_notices(), *self._problems.values(), *clashes, *wrong),
            whole=True,
        )
        return WholeCluster(
            manifests=manifests,
            places=tuple(one for one in places.news() if isinstance(one, PlacesAsked)),
            skipped=skipped,
            gang_kinds={key: sources[0] for (kind, key), (sources, _) in kept.items() if kind == "PodGroup"},
        )

    def _held(
        self,
        pods: Sequence[Pod],
        places: PlacesOfWorkloads,
        pod_grouper: bool | None,
        hidden: Sequence[str],
    ) -> Iterator[Pod]:
        """Those without a node so that they wait for their gang, or for the pod-grouper's word."""
        grouped = {pod.spec.scheduler_name for pod in pods if self._has_its_word(pod)}
        for pod in pods:
            waits = pod.spec.scheduler_name in grouped if pod_grouper is None else pod_grouper
            if pod.node_name is not None:
                yield pod
            elif pod.spec.claims and hidden:
                yield held(pod, f"spec.volumes[*] with a claim, as this user may not list {some(hidden)}")
            else:
                yield held_for_the_grouper(pod) if waits and undecided(pod) else places.held(pod)

    def _has_its_word(self, pod: Pod) -> bool:
        if pod.group is None:
            return says_it_has_none(pod)
        return gang_key(pod) in self._grouped


def _asked_in(asking: Mapping[str, PodGroup]) -> str:
    """The namespace in which a scheduler has answered such a question: only it writes their status."""
    answered = (key.partition("/")[0] for key, group in sorted(asking.items()) if group.plan)
    return next(answered, DEFAULT_NAMESPACE)


def _all(records: Iterable[Record], kind: type[R]) -> tuple[R, ...]:
    return tuple(one for one in records if isinstance(one, kind))


def _unreachable(transport: Transport, error: ApiError) -> Problem:
    return Problem(
        f"{transport.source} can't be talked to: {error}",
        "check the address, the credentials and whether the server runs",
    )


def _unreadable(transport: Transport, kind: Resource, error: ApiError) -> Problem:
    if error.code is None or error.code == _UNAUTHORIZED:
        return _unreachable(transport, error)
    if error.code == _FORBIDDEN:
        needed = ",".join(one.plural for one in _NEEDED)
        remedy = (
            "let this user list them in all namespaces, as with: kubectl create clusterrole closeby-reader "
            f"--verb=list --resource={needed}"
        )
        return Problem(f"{kind.plural} can't be listed: {error}", remedy)
    remedy = "" if kind in _NEEDED else "leave this kind out with --keep-going"
    return Problem(f"{kind.plural}.{kind.api_version} can't be read: {error}", remedy)


def _remedy(kind: Resource, error: ApiError) -> str:
    if error.code != _FORBIDDEN:
        return ""
    return f"; let this user list {kind.plural}{f'.{kind.group}' if kind.group else ''}"
