"""What a command reads of the live cluster, instead of files."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.networks import live_scope
from closeby.cli.options import SchedulerOptions, Sources
from closeby.cli.reading.inputs import Inputs, Unusable, read_configuration_file
from closeby.cli.reading.progress import Progress
from closeby.kube.client.connection import Connection, connect, connection_to, own_namespace
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.status import SCHEDULED
from closeby.kube.gangs.status_records import MIRRORS
from closeby.kube.metrics.asking import DEFAULT_NAMESPACE, SchedulerAddress, ask_for_story
from closeby.kube.preempting.nominated import NominatedPods
from closeby.kube.preempting.records import PodPlan
from closeby.kube.preempting.restoring import written_plans
from closeby.kube.scheduler.live import DEFAULT_NAME
from closeby.kube.state.ownership import ForeignMembers, OwnGangs
from closeby.kube.state.reading import WholeCluster, read_cluster, read_nodes
from closeby.kube.state.recorded import read_pods_of, read_recorded
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import PODS, Resource, is_name
from closeby.objects.applications import APP_GROUP_LABEL
from closeby.objects.process import settle
from closeby.objects.reasons import Problem
from closeby.objects.recorded import SchedulerStatus, Story
from closeby.objects.words import harmless
from closeby.reading.manifests import Manifests
from closeby.report.documents.subjects import APP_GROUP, POD, Subject
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, PreemptionRestored
from closeby.scheduling.outcomes import ItemKind

T = TypeVar("T")


class ReadCluster(Struct, frozen=True):
    """A cluster that was read, for questions about single objects."""

    connection: Connection
    whole: WholeCluster
    #: All PodGroups as they are, and by uid what waiting pods with a nominated node say.
    objects: GangObjects
    nominated: Mapping[str, PodPlan]

    @property
    def namespace(self) -> str:
        """The namespace of the context."""
        return self.connection.namespace

    @property
    def has_plans(self) -> bool:
        """Whether a plan of preemption may be in force."""
        return bool(self.nominated) or any(one.preemption for one in self.objects)

    def besides(self, engine: Engine, scheduler: str) -> Iterator[Event]:
        """What the scheduler of this name wrote down, beside what the records of the cluster say."""
        yield from self.whole.places
        own = OwnGangs(scheduler, engine.state, ForeignMembers())
        plans = written_plans(engine.state, self.objects, own, self.nominated)
        yield from (PreemptionRestored(one.plan) for one in plans)

    def places_asked_for(self, name: str, namespace: str | None) -> list[str]:
        """What the scheduler says of Workloads of Kueue that a user may mean, with pods still to come."""
        lines = []
        for one in self.whole.places:
            asked = one.group.places
            if asked is None or namespace not in (None, asked.namespace) or not asked.means(name):
                continue
            found = self.objects.asking(asked.asker)
            said = None if found is None else found.conditions.get(SCHEDULED)
            answer = "nothing is said yet" if said is None else f"{said.reason}: {said.message}"
            lines.append(
                f"Workload {asked.namespace}/{asked.workload} of Kueue asks for places, and its pods are "
                f"still to come; PodGroup {asked.asker} says {harmless(answer)}"
            )
        return lines

    def decided(
        self, subject: Subject, scheduler: str | None, address: SchedulerAddress | None
    ) -> SchedulerStatus:
        """What schedulers wrote about a pod, gang or application, and what the one at work tells.

        ``scheduler`` is its name; it is asked only where that and its address are known.
        """
        asked = [(PODS, subject.key)] if subject.kind == POD else []
        gang = self.whole.gang_kinds.get(subject.item) if subject.item_kind is ItemKind.GANG else None
        if gang is not None:
            asked.append((gang, subject.item))
            if gang.group != MIRRORS.group:  # What others' kinds have no place for stands in the mirror.
                asked.append((MIRRORS, subject.item))

        async def read(
            transport: Transport,
        ) -> tuple[list[SchedulerStatus | ApiError], Story | Problem | None]:
            found = [await read_recorded(transport, kind, key) for kind, key in asked]
            if subject.kind == APP_GROUP:
                namespace, name = subject.key.split("/", 1)
                found.append(await read_pods_of(transport, namespace, APP_GROUP_LABEL, name))
            if address is None or scheduler is None:
                return found, None
            return found, await ask_for_story(transport, address, scheduler, subject.item_kind, subject.item)

        answers, story = _with_transport(self.connection, read)
        found = SchedulerStatus()
        for place, one in enumerate(answers):
            if isinstance(one, ApiError):
                click.echo(f"skipped: what the scheduler wrote can't be read: {harmless(str(one))}", err=True)
                continue
            mirror = place < len(asked) and asked[place][0] is MIRRORS and asked[place][0] is not gang
            found = SchedulerStatus(
                conditions=found.conditions if mirror else (*found.conditions, *one.conditions),
                last_decision=one.last_decision or found.last_decision,
                reservation=one.reservation or found.reservation,
                pods={**found.pods, **one.pods},
            )
        return replace(
            found,
            story=story if isinstance(story, Story) else None,
            unasked=story if isinstance(story, Problem) else None,
        )


def scheduler_address(options: SchedulerOptions) -> SchedulerAddress | None:
    """Where the scheduler is asked; None where it is not to be.

    Raises:
        Unusable: the options contradict each other, or they name what can't be used.
    """
    url = options.where if options.where is not None and "://" in options.where else None
    if url is None and (options.ca_file is not None or options.insecure):
        raise Unusable(
            "--scheduler-ca-file and --scheduler-insecure are for a URL; give --scheduler https://…"
        )
    if options.where == "off":
        return None
    if url is None and options.where is not None and not is_name(options.where):
        raise Unusable(f"--scheduler: {options.where!r} is neither a URL nor a namespace")
    if url is not None:
        connection = connection_to(url, ca_file=options.ca_file, insecure=options.insecure)
        if isinstance(connection, Problem):
            raise Unusable(f"--scheduler: {connection}")
    address = SchedulerAddress(
        url=url,
        namespace=DEFAULT_NAMESPACE if url is not None or options.where is None else options.where,
        token_file=options.token_file,
        ca_file=options.ca_file,
        insecure=options.insecure,
    )
    if address.exposes_token:
        raise Unusable(
            f"--scheduler: the token would go to {url} unencrypted; give https://…, the address of a "
            "kubectl port-forward on this machine, or no --scheduler-token-file"
        )
    return address


def read_live(sources: Sources) -> tuple[Inputs, ReadCluster]:
    """Reads the cluster that the options name.

    Raises:
        Unusable: there is none, or it can't be read.
    """
    configuration = read_configuration_file(sources.config_path)
    connection = connect(sources.kubeconfig, sources.context)
    if isinstance(connection, Problem):
        raise Unusable(str(connection), "or read manifests: -f PATH")
    progress = Progress(sys.stderr, "reading the cluster")
    scheduler_name = sources.scheduler_name or configuration.scheduler_name or DEFAULT_NAME
    objects, nominated = GangObjects(), NominatedPods()

    def look(resource: Resource, change: Change) -> None:
        objects.take([(resource, change)])
        nominated.take([(resource, change)])

    async def read(transport: Transport) -> WholeCluster | Problem:
        return await read_cluster(
            transport,
            keep_going=sources.keep_going,
            pod_grouper=sources.pod_grouper,
            scheduler_name=scheduler_name,
            progress=progress.tell,
            look=look,
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
        scheduler_name=scheduler_name,
        networks=live_scope(
            configuration.network_topology_namespaces,
            own_namespace(),
            beside=configuration.tenant_network_topologies,
        ),
    )
    return inputs, ReadCluster(connection, whole, objects, nominated.plans)


def read_live_nodes(kubeconfig: str | None, context: str | None) -> Manifests:
    """The nodes of the cluster that the options name, which takes no right but to list them.

    Raises:
        Unusable: there is none, or it can't be read.
    """
    connection = connect(kubeconfig, context)
    if isinstance(connection, Problem):
        raise Unusable(str(connection), "or read manifests: -f PATH")
    progress = Progress(sys.stderr, "reading the cluster")
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
