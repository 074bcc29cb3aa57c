"""What `closeby controllers` does: the controllers that were chosen, joined to the client and the server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click
from msgspec import Struct

from closeby import full_version
from closeby.cli.operating.identity import replica
from closeby.cli.operating.long_running import lease_of, reach, run_until_told
from closeby.cli.operating.serving import serving
from closeby.cli.options import Election, Metrics
from closeby.cli.reading.inputs import read_configuration_file, usable_configuration
from closeby.controllers.admission.controller import AdmissionChecks, AdmissionSettings
from closeby.controllers.admission.verdicts import AdmissionLimits
from closeby.controllers.applications.controller import AppGroupController
from closeby.controllers.counting import Counting, counting_of
from closeby.controllers.grouping.objects import RIGHTS
from closeby.controllers.grouping.pod_grouper import Grouping, PodGrouper
from closeby.controllers.meters import ControllerMeters
from closeby.controllers.networks.controller import NetworkTopologyController, Timing
from closeby.controllers.networks.settings import PrometheusAccess
from closeby.controllers.running import ControllerRunner, Reconciler, Running
from closeby.kube.client.connection import own_namespace
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import DryTransport, Transport
from closeby.kube.metrics.health import Health
from closeby.kube.writing.leading import terms
from closeby.kube.writing.writer import Writer
from closeby.objects.process import Say


class ControllerOptions(Struct, frozen=True, kw_only=True):
    """As on the command line."""

    kubeconfig: str | None
    context: str | None
    config_path: str | None
    #: Names of controllers.
    names: tuple[str, ...]
    scheduler_name: str
    admission: AdmissionLimits
    admission_controller_name: str
    prometheus: PrometheusAccess
    #: Of costs, in hours.
    max_age: float
    gates: bool
    election: Election
    excluded_namespaces: tuple[str, ...]
    metrics: Metrics
    dry_run: bool


def run(controller: str, options: ControllerOptions, say: Say) -> None:
    """Runs controllers until SIGTERM or Ctrl-C; ``controller`` names them in Events and the Lease.

    Raises:
        Unusable: something of the options can't be used, or the cluster can't be talked to.
    """
    configuration = read_configuration_file(options.config_path)
    with usable_configuration():
        counting = counting_of(configuration, own_namespace())
    admission = _admission(options) if AdmissionChecks.name in options.names else None
    connection = reach(options.kubeconfig, options.context)
    instance = replica(controller)
    running = Running(
        lease=lease_of(options.election, connection, instance, dry_run=options.dry_run),
        needed=RIGHTS if PodGrouper.name in options.names else (),
    )
    meters, health = ControllerMeters(), Health()

    async def work(transport: Transport, stop: asyncio.Event) -> ApiError | None:
        say(
            "starting",
            version=full_version(),
            cluster=transport.source,
            controllers=",".join(options.names),
            dry_run=options.dry_run or None,
        )
        prometheus = options.prometheus
        for warning in prometheus.access.warnings(prometheus.address):
            say("insecure measurements", warning=True, source=prometheus.address, why=warning)
        health.ready("shutdown", lambda: "it is stopping" if stop.is_set() else None)

        async def term() -> ApiError | None:
            reconcilers = _reconcilers(transport, controller, instance, options, counting, admission, say)
            runner = ControllerRunner(transport, reconcilers, running, say, meters)
            health.ready("informer-sync", lambda: runner.unready)
            health.ready("workers", lambda: runner.stuck)
            return await runner.run(stop)

        async with serving(options.metrics, health, meters, say, transport):
            return await terms(term, say)

    client = DryTransport if options.dry_run else Transport
    transport = client(connection, on_request=meters.requests(connection.host))
    run_until_told(connection, transport, work)


def _admission(options: ControllerOptions) -> AdmissionSettings:
    namespace = own_namespace()
    if namespace is None:
        raise click.UsageError(
            "admission-checks asks for places in the namespace in which the scheduler runs, and this process "
            "is not a pod: set POD_NAMESPACE to that namespace"
        )
    return AdmissionSettings(
        namespace=namespace,
        scheduler_name=options.scheduler_name,
        controller_name=options.admission_controller_name,
        limits=options.admission,
    )


def _reconcilers(
    transport: Transport,
    controller: str,
    instance: str,
    options: ControllerOptions,
    counting: Counting,
    admission: AdmissionSettings | None,
    say: Say,
) -> Sequence[Reconciler[Any]]:
    """Those that were chosen, in the order in which they were named."""
    writer = Writer(transport, controller, instance)
    grouping = Grouping(
        scheduler_name=options.scheduler_name,
        gates=options.gates,
        excluded_namespaces=options.excluded_namespaces,
        instance=instance,
    )
    networks = NetworkTopologyController(
        writer,
        say,
        timing=Timing(max_age=options.max_age * 3600),
        prometheus=options.prometheus,
        counting=counting,
    )
    made: list[Reconciler[Any]] = [
        PodGrouper(transport, grouping, say),
        AppGroupController(writer, say, counting=counting),
        networks,
    ]
    if admission is not None:
        made.append(AdmissionChecks(transport, writer, say, admission))
    by_name = {one.name: one for one in made}
    return [by_name[name] for name in dict.fromkeys(options.names)]
