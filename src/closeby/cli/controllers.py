"""`closeby controllers`: keep PodGroups, AppGroups and NetworkTopologies of a live cluster true."""

from typing import TYPE_CHECKING, Any

import click

from closeby.cli.names import OneOf
from closeby.cli.operating.latency_options import knows_prometheus
from closeby.cli.options import Election, Metrics, configured, connects, elects, excludes, logs, serves

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

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
NAMES = (POD_GROUPER, APP_GROUPS, NETWORK_TOPOLOGIES)


@click.command(name="controllers", short_help="Create PodGroups for workloads, and keep statuses up to date.")
@connects
@configured
@click.option(
    "--only",
    metavar="NAME",
    type=OneOf(NAMES),
    multiple=True,
    help=f"Run only this controller: {', '.join(NAMES)}. May be repeated.",
)
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="closeby",
    show_default=True,
    help="The pod-grouper groups only pods whose spec.schedulerName is NAME.",
)
@knows_prometheus
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
    prometheus: "Acquaintance",
    max_age: float,
    election: Election,
    excluded_namespaces: tuple[str, ...],
    metrics: Metrics,
    say: "Say",
    dry_run: bool,
) -> None:
    """Run closeby's controllers on a live cluster until SIGTERM or Ctrl-C.

    pod-grouper creates a PodGroup for each workload that is a gang (by nature as a JobSet, or by annotations
    such as kai.scheduler/topology-required-placement) and labels its pods with it. app-groups and
    network-topologies maintain the status of AppGroups and NetworkTopologies. Exits with code 1 when it loses
    leadership to another replica, so that it is restarted. A dry run persists nothing and does not need
    leadership.

    \b
    Example:
      closeby controllers --only pod-grouper --dry-run
    """
    from closeby.cli.operating.identity import replica
    from closeby.cli.operating.long_running import lease_of, reach, run_until_told
    from closeby.cli.operating.serving import serving
    from closeby.cli.reading.inputs import read_configuration_file, usable_configuration
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
    connection = reach(kubeconfig, context)
    instance = replica(CONTROLLER)
    running = Running(lease=lease_of(election, connection, instance, dry_run=dry_run))
    meters, health = ControllerMeters(), Health()

    async def work(transport: "Transport", stop: "asyncio.Event") -> "ApiError | None":
        names = only or NAMES
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
            scheduler_name=scheduler_name, excluded_namespaces=excluded_namespaces, instance=instance
        )
        reconcilers = _reconcilers(transport, names, grouping, (networks, counting), say)
        runner = ControllerRunner(transport, reconcilers, running, say, meters)
        health.ready("shutdown", lambda: "it is stopping" if stop.is_set() else None)
        health.ready("informer-sync", lambda: runner.unready)
        health.ready("workers", lambda: runner.stuck)
        async with serving(metrics, health, meters, say, transport):
            return await runner.run(stop)

    client = DryTransport if dry_run else Transport
    transport = client(connection, on_request=meters.requests(connection.host))
    run_until_told(connection, transport, work, say)


def _reconcilers(
    transport: "Transport",
    names: "Sequence[str]",
    grouping: "Grouping",
    networks: "tuple[NetworkTopologyController, Counting]",
    say: "Say",
) -> "list[Reconciler[Any]]":
    from closeby.controllers.applications.controller import AppGroupController
    from closeby.controllers.grouping.pod_grouper import PodGrouper
    from closeby.kube.writing.writer import Writer

    writer = Writer(transport, CONTROLLER, grouping.instance)
    made: dict[str, Reconciler[Any]] = {
        POD_GROUPER: PodGrouper(transport, grouping, say),
        APP_GROUPS: AppGroupController(writer, say, counting=networks[1]),
        NETWORK_TOPOLOGIES: networks[0],
    }
    return [made[name] for name in dict.fromkeys(names)]
