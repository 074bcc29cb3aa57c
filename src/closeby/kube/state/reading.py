"""Reads a cluster once, as it is now, into the records that manifests give, for commands that look at it."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from msgspec import Struct

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.state.decoding import Decoder, held, held_for_its_gang, in_its_task
from closeby.kube.state.following import FOLLOWED
from closeby.kube.state.names import clash
from closeby.kube.watch.changes import Change, Deleted, Synced, Troubled, Upserted
from closeby.kube.watch.reflector import Reflector, Watching, collector_paused
from closeby.kube.watch.resources import (
    ABOUT_VOLUMES,
    NODES,
    PODS,
    SELECTED_BY,
    VOLUMES,
    Discovery,
    Resource,
)
from closeby.objects.applications import AppGroup
from closeby.objects.bounds import some
from closeby.objects.disruption import PodDisruptionBudget
from closeby.objects.groups import PodGroup
from closeby.objects.networks import NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PriorityClass
from closeby.objects.problems import Problem
from closeby.objects.reasons import Condition
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import Topology
from closeby.objects.volumes import StorageObject
from closeby.reading.decoding.keys import POD_GROUPER
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.dialects.grouping import held_for_the_grouper, says_it_has_none, undecided
from closeby.reading.manifests import Manifests
from closeby.reading.registry import Record

#: Without these there is nothing to look at.
_NEEDED: Final = (NODES, PODS)
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_GONE: Final = 404
#: Stands in PodGroups of the pod-grouper: it is their manager.
_MADE_BY_THE_GROUPER: Final = f'"{POD_GROUPER}"'.encode()

R = TypeVar("R")


class WholeCluster(Struct, frozen=True, kw_only=True):
    """What one reading gave."""

    manifests: Manifests
    #: Kinds that could not be read, and why, one sentence each.
    skipped: tuple[str, ...] = ()
    #: Which kind of PodGroup describes each gang, by ``namespace/name``.
    gang_kinds: Mapping[str, Resource] = {}


async def read_cluster(
    transport: Transport,
    *,
    keep_going: bool = False,
    pod_grouper: bool | None = None,
    progress: Callable[[int], None] = lambda objects: None,
) -> WholeCluster | Problem:
    """All objects of the kinds that the scheduler follows, read as it reads them.

    A kind that this user may not list is left out and reported, unless it is nodes or pods; ``keep_going``:
    also one that the server can't give. With a ``pod_grouper`` at work pods wait for its word, as for the
    scheduler; None: there is one for the pods of a scheduler if it has spoken of any that is there.
    ``progress`` gets the number of objects so far.
    """
    served = await Discovery(transport, FOLLOWED).served()
    if isinstance(served, ApiError):
        return _unreachable(transport, served)
    reader = _Reader(transport, progress)
    kinds = (*_NEEDED, *SELECTED_BY, *VOLUMES, *served)
    skipped, hidden = [], []
    for kind, error in zip(kinds, await asyncio.gather(*map(reader.read, kinds)), strict=True):
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
    reader = _Reader(transport, progress)
    error = await reader.read(NODES)
    if error is None:
        return reader.whole((NODES,), (), False).manifests
    if error.code == _FORBIDDEN:
        return Problem(f"{NODES.plural} can't be listed: {error}", "let this user list nodes")
    return _unreachable(transport, error)


class _Reader:
    """What was read so far, by kind and key."""

    def __init__(self, transport: Transport, progress: Callable[[int], None]) -> None:
        self._transport = transport
        self._progress = progress
        self._reading = DocumentReading()
        self._decoder = Decoder(self._reading)
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

    def _take(self, resource: Resource, change: Change) -> None:
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
        records = [record for _, record in kept.values()]
        manifests = Manifests(
            nodes=_all(records, Node),
            pods=tuple(map(in_its_task, self._held(_all(records, Pod), pod_grouper, hidden))),
            groups=_all(records, PodGroup),
            topologies=_all(records, Topology),
            priority_classes=_all(records, PriorityClass),
            app_groups=_all(records, AppGroup),
            network_topologies=_all(records, NetworkTopology),
            namespaces=_all(records, Namespace),
            services=_all(records, PodOwner),
            budgets=_all(records, PodDisruptionBudget),
            storage=tuple(one for one in records if isinstance(one, StorageObject)),
            notices=(*self._reading.all_notices(), *self._problems.values(), *clashes),
            whole=True,
        )
        return WholeCluster(
            manifests=manifests,
            skipped=skipped,
            gang_kinds={key: sources[0] for (kind, key), (sources, _) in kept.items() if kind == "PodGroup"},
        )

    def _held(self, pods: Sequence[Pod], pod_grouper: bool | None, hidden: Sequence[str]) -> Iterator[Pod]:
        """Those without a node so that they wait for their gang, or for the pod-grouper's word."""
        grouped = {pod.spec.scheduler_name for pod in pods if self._has_its_word(pod)}
        for pod in pods:
            waits = pod.spec.scheduler_name in grouped if pod_grouper is None else pod_grouper
            if pod.node_name is not None:
                yield pod
            elif pod.spec.claims and hidden:
                yield held(pod, f"spec.volumes[*] with a claim, as this user may not list {some(hidden)}")
            else:
                yield held_for_the_grouper(pod) if waits and undecided(pod) else held_for_its_gang(pod)

    def _has_its_word(self, pod: Pod) -> bool:
        if pod.group is None:
            return says_it_has_none(pod)
        return f"{pod.namespace}/{pod.group}" in self._grouped


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
