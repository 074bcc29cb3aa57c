"""`closeby controllers`: keep PodGroups, statuses and admission checks of a live cluster up to date."""

from typing import TYPE_CHECKING, Any

import click

from closeby.cli.names import OneOf
from closeby.cli.operating.latency_options import knows_prometheus
from closeby.cli.options import Election, Metrics, configured, connects, elects, excludes, gates, logs, serves

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from closeby.controllers.admission.controller import AdmissionSettings
    from closeby.controllers.counting import Counting
    from closeby.controllers.grouping.pod_grouper import Grouping
    from closeby.controllers.networks.controller import NetworkTopologyController
    from closeby.controllers.networks.settings import Acquaintance
    from closeby.controllers.running import Reconciler
    from closeby.kube.client.errors import ApiError
    from closeby.kube.client.transport import Transport
    from closeby.objects.saying import Say

#: Who the controllers are in Events and Leases.
CONTROLLER = "closeby-controllers"
POD_GROUPER = "pod-grouper"
APP_GROUPS = "app-groups"
NETWORK_TOPOLOGIES = "network-topologies"
ADMISSION_CHECKS = "admission-checks"
#: Those that run unless `--only` says otherwise.
DEFAULT = (POD_GROUPER, APP_GROUPS, NETWORK_TOPOLOGIES)
NAMES = (*DEFAULT, ADMISSION_CHECKS)


@click.command(name="controllers", short_help="Create PodGroups for workloads, and keep statuses up to date.")
@connects
@configured
@click.option(
    "--only",
    metavar="NAME",
    type=OneOf(NAMES),
    multiple=True,
    help=f"Run only this controller: {', '.join(NAMES)}. May be repeated. By default all run but the last, "
    "which needs Kueue.",
)
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="closeby",
    show_default=True,
    help="The pod-grouper groups, and the admission checks hold places for, only pods whose "
    "spec.schedulerName is NAME.",
)
@click.option(
    "--admission-deadline",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="How long a Workload may hold its quota without places until its admission check says Retry.",
)
@click.option(
    "--admission-retry-after",
    metavar="SECONDS",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How long such a Workload waits then before it may get its quota again. Kueue 0.19 gives the quota "
    "back when that time is over, and at once with 0.",
)
@knows_prometheus
@gates
@elects(CONTROLLER)
@excludes
@serves
@logs
@click.option(
    "--dry-run", is_flag=True, help="Send all writes as server-side dry runs; nothing is persisted."
)
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    config_path: str | None,
    only: tuple[str, ...],
    scheduler_name: str,
    admission_deadline: float,
    admission_retry_after: int,
    prometheus: "Acquaintance",
    max_age: float,
    gates: bool,
    election: Election,
    excluded_namespaces: tuple[str, ...],
    metrics: Metrics,
    say: "Say",
    dry_run: bool,
) -> None:
    """Run closeby's controllers on a live cluster until SIGTERM or Ctrl-C.

    pod-grouper creates a PodGroup for each workload that is a gang (by nature as a JobSet, or by annotations
    such as kai.scheduler/topology-required-placement) and labels its pods with it. app-groups and
    network-topologies maintain the status of AppGroups and NetworkTopologies. admission-checks is for Kueue's
    AdmissionChecks with spec.controllerName closeby.dev/placement: a Workload is admitted when the scheduler
    holds places for its pods (docs/kueue.md). Exits with code 1 when it loses
    leadership to another replica, so that it is restarted. A dry run persists nothing and does not need
    leadership.

    \b
    Example:
      closeby controllers --only pod-grouper --dry-run
      closeby controllers --only admission-checks --admission-deadline 120
    """
    from closeby.cli.operating.identity import replica
    from closeby.cli.operating.long_running import lease_of, reach, run_until_told
    from closeby.cli.operating.serving import serving
    from closeby.cli.reading.inputs import read_configuration_file, usable_configuration
    from closeby.controllers.admission.controller import AdmissionSettings
    from closeby.controllers.admission.workloads import Patience
    from closeby.controllers.counting import counting_of
    from closeby.controllers.grouping.pod_grouper import Grouping
    from closeby.controllers.meters import ControllerMeters
    from closeby.controllers.networks.controller import NetworkTopologyController, Timing
    from closeby.controllers.running import ControllerRunner, Running
    from closeby.kube.client.connection import own_namespace
    from closeby.kube.client.transport import DryTransport, Transport
    from closeby.kube.metrics.health import Health
    from closeby.kube.writing.writer import Writer

    configuration = read_configuration_file(config_path)
    with usable_configuration():
        counting = counting_of(configuration, own_namespace())
    admission = None
    if ADMISSION_CHECKS in only:
        patience = Patience(deadline=admission_deadline, retry_after=admission_retry_after)
        admission = AdmissionSettings(
            namespace=_namespace(own_namespace()), scheduler_name=scheduler_name, patience=patience
        )
    connection = reach(kubeconfig, context)
    instance = replica(CONTROLLER)
    running = Running(lease=lease_of(election, connection, instance, dry_run=dry_run))
    meters, health = ControllerMeters(), Health()

    async def work(transport: "Transport", stop: "asyncio.Event") -> "ApiError | None":
        names = only or DEFAULT
        say("starting", cluster=transport.source, controllers=",".join(names), dry_run=dry_run or None)
        for warning in prometheus.access.warnings(prometheus.address):
            say("insecure measurements", warning=True, source=prometheus.address, why=warning)
        networks = NetworkTopologyController(
            Writer(transport, CONTROLLER, instance),
            say,
            timing=Timing(max_age=max_age * 3600),
            acquaintance=prometheus,
            counting=counting,
        )
        grouping = Grouping(
            scheduler_name=scheduler_name,
            gates=gates,
            excluded_namespaces=excluded_namespaces,
            instance=instance,
        )
        reconcilers = _reconcilers(transport, names, grouping, (networks, counting), admission, say)
        runner = ControllerRunner(transport, reconcilers, running, say, meters)
        health.ready("shutdown", lambda: "it is stopping" if stop.is_set() else None)
        health.ready("informer-sync", lambda: runner.unready)
        health.ready("workers", lambda: runner.stuck)
        async with serving(metrics, health, meters, say, transport):
            return await runner.run(stop)

    client = DryTransport if dry_run else Transport
    transport = client(connection, on_request=meters.requests(connection.host))
    run_until_told(connection, transport, work, say)


def _namespace(own: str | None) -> str:
    if own is None:
        raise click.UsageError(
            "admission-checks asks for places in the namespace in which the scheduler runs, and this process "
            "is not a pod: set POD_NAMESPACE to that namespace"
        )
    return own


def _reconcilers(
    transport: "Transport",
    names: "Sequence[str]",
    grouping: "Grouping",
    networks: "tuple[NetworkTopologyController, Counting]",
    admission: "AdmissionSettings | None",
    say: "Say",
) -> "list[Reconciler[Any]]":
    from closeby.controllers.admission.controller import AdmissionChecks
    from closeby.controllers.applications.controller import AppGroupController
    from closeby.controllers.grouping.pod_grouper import PodGrouper
    from closeby.kube.writing.writer import Writer

    writer = Writer(transport, CONTROLLER, grouping.instance)
    made: dict[str, Reconciler[Any]] = {
        POD_GROUPER: PodGrouper(transport, grouping, say),
        APP_GROUPS: AppGroupController(writer, say, counting=networks[1]),
        NETWORK_TOPOLOGIES: networks[0],
    }
    if admission is not None:
        made[ADMISSION_CHECKS] = AdmissionChecks(transport, writer, say, admission)
    return [made[name] for name in dict.fromkeys(names)]
