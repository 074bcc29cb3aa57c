"""What a command reads of the live cluster, instead of files."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TextIO, TypeVar

import click
from msgspec import Struct

from closeby.applications.networks import live_scope
from closeby.cli.options import Sources
from closeby.cli.reading.inputs import Inputs, Unusable, read_configuration_file
from closeby.kube.client.connection import Connection, connect, own_namespace
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.gangs.records import MIRRORS
from closeby.kube.scheduler.live import DEFAULT_NAME
from closeby.kube.state.reading import WholeCluster, read_cluster, read_nodes
from closeby.kube.state.recorded import read_recorded
from closeby.kube.watch.collector import settle
from closeby.kube.watch.resources import PODS
from closeby.objects.problems import Problem
from closeby.objects.recorded import SchedulerStatus
from closeby.objects.words import harmless
from closeby.reading.manifests import Manifests
from closeby.report.documents.subjects import POD, Subject

T = TypeVar("T")

#: Seconds until the first message about progress, and between two of them.
_LONG = 0.5
_EVERY = 0.1


class ReadCluster(Struct, frozen=True):
    """A cluster that was read, for questions about single objects."""

    connection: Connection
    whole: WholeCluster

    @property
    def namespace(self) -> str:
        """The namespace of the context."""
        return self.connection.namespace

    def recorded(self, subject: Subject) -> SchedulerStatus:
        """What schedulers wrote about a pod, and about the gang that it belongs to."""
        asked = [(PODS, subject.key)] if subject.kind == POD else []
        gang = self.whole.gang_kinds.get(subject.item)
        if gang is not None:
            asked.append((gang, subject.item))
            if gang.group != MIRRORS.group:  # What others' kinds have no place for stands in the mirror.
                asked.append((MIRRORS, subject.item))

        async def read(transport: Transport) -> list[SchedulerStatus | ApiError]:
            return [await read_recorded(transport, kind, key) for kind, key in asked]

        found = SchedulerStatus()
        for (kind, _), one in zip(
            asked, _with_transport(self.connection, read) if asked else (), strict=True
        ):
            if isinstance(one, ApiError):
                click.echo(f"skipped: what the scheduler wrote can't be read: {harmless(str(one))}", err=True)
                continue
            mirror = kind is MIRRORS and gang is not None and gang.group != MIRRORS.group
            found = SchedulerStatus(
                conditions=found.conditions if mirror else (*found.conditions, *one.conditions),
                last_decision=one.last_decision or found.last_decision,
                reservation=one.reservation or found.reservation,
            )
        return found


def read_live(sources: Sources) -> tuple[Inputs, ReadCluster]:
    """Reads the cluster that the options name.

    Raises:
        Unusable: there is none, or it can't be read.
    """
    configuration = read_configuration_file(sources.config_path)
    connection = connect(sources.kubeconfig, sources.context)
    if isinstance(connection, Problem):
        raise Unusable(str(connection), "or read manifests: -f PATH")
    progress = Progress(sys.stderr)

    async def read(transport: Transport) -> WholeCluster | Problem:
        return await read_cluster(
            transport,
            keep_going=sources.keep_going,
            pod_grouper=sources.pod_grouper,
            progress=progress.tell,
        )

    try:
        whole = _with_transport(connection, read)
    finally:
        progress.clear()
    settle()
    if isinstance(whole, Problem):
        raise Unusable(str(whole))
    for line in whole.skipped:
        click.echo(f"skipped: {harmless(line)}", err=True)
    inputs = Inputs(
        manifests=whole.manifests,
        configuration=configuration,
        errors=whole.skipped,
        scheduler_name=sources.scheduler_name or configuration.scheduler_name or DEFAULT_NAME,
        networks=live_scope(
            configuration.network_topology_namespaces,
            own_namespace(),
            beside=configuration.tenant_network_topologies,
        ),
    )
    return inputs, ReadCluster(connection, whole)


def read_live_nodes(kubeconfig: str | None, context: str | None) -> Manifests:
    """The nodes of the cluster that the options name, which takes no right but to list them.

    Raises:
        Unusable: there is none, or it can't be read.
    """
    connection = connect(kubeconfig, context)
    if isinstance(connection, Problem):
        raise Unusable(str(connection), "or read manifests: -f PATH")
    progress = Progress(sys.stderr)
    try:
        nodes = _with_transport(connection, lambda transport: read_nodes(transport, progress.tell))
    finally:
        progress.clear()
    if isinstance(nodes, Problem):
        raise Unusable(str(nodes))
    return nodes


def _with_transport(connection: Connection, ask: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with Transport(connection) as transport:
            return await ask(transport)

    return asyncio.run(run())


class Progress:
    """One line on a terminal that says how far a long reading is; nothing anywhere else."""

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        """``stream`` is None where standard error is closed."""
        self._stream = stream if stream is not None and stream.isatty() else None
        self._clock = clock
        self._next = clock() + _LONG
        self._shown = False

    def tell(self, objects: int) -> None:
        """So many were read."""
        now = self._clock()
        if self._stream is None or now < self._next:
            return
        self._next, self._shown = now + _EVERY, True
        self._stream.write(f"\rreading the cluster: {objects:,} objects")
        self._stream.flush()

    def clear(self) -> None:
        """The line is gone."""
        if self._stream is not None and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
