"""`closeby scheduler`: schedule the pods of a live cluster that ask for it."""

from functools import partial
from typing import TYPE_CHECKING

import click

from closeby.cli.options import (
    POD_GROUPER_HELP,
    Election,
    Metrics,
    configured,
    connects,
    elects,
    excludes,
    gates,
    logs,
    serves,
)

if TYPE_CHECKING:
    import asyncio

    from closeby.kube.client.errors import ApiError
    from closeby.objects.saying import Say


@click.command(name="scheduler", short_help="Schedule the pods of a live cluster.")
@connects
@configured
@click.option(
    "--scheduler-name",
    metavar="NAME",
    help="Schedule only pods whose spec.schedulerName is NAME.  [default: the configuration's name, else "
    "closeby]",
)
@click.option(
    "--pod-grouper/--no-pod-grouper",
    default=False,
    show_default=True,
    help=POD_GROUPER_HELP,
)
@gates
@elects("closeby-scheduler")
@excludes
@serves
@logs
@click.option("--dry-run", is_flag=True, help="Log what would be done, but write nothing.")
@click.option(
    "--events/--no-events", default=True, show_default=True, help="Write Events about pods and gangs."
)
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    config_path: str | None,
    scheduler_name: str | None,
    gates: bool,
    pod_grouper: bool,
    election: Election,
    excluded_namespaces: tuple[str, ...],
    dry_run: bool,
    events: bool,
    metrics: Metrics,
    say: "Say",
) -> None:
    """Schedule the pods of a live cluster that name this scheduler. Runs until SIGTERM or Ctrl-C.

    Runs next to the cluster's own scheduler, or in --mode gate before it. Exits with code 1 when it loses
    leadership to another replica, so that it is restarted. A dry run writes nothing and does not need
    leadership.

    \b
    Example:
      closeby scheduler --dry-run
    """
    from closeby.cli.operating.identity import replica
    from closeby.cli.operating.long_running import lease_of, reach, run_until_told
    from closeby.cli.operating.serving import serving
    from closeby.cli.reading.inputs import read_configuration_file, usable_configuration
    from closeby.kube.client.connection import own_namespace
    from closeby.kube.client.transport import Transport
    from closeby.kube.metrics.health import Health
    from closeby.kube.metrics.stories import story_json
    from closeby.kube.scheduler.live import CONTROLLER, DEFAULT_NAME, LiveScheduler, SchedulerSettings
    from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
    from closeby.kube.writing.statuses import ReportingSettings

    configuration = read_configuration_file(config_path)
    connection = reach(kubeconfig, context)
    instance = replica(CONTROLLER)
    settings = SchedulerSettings(
        scheduler_name=scheduler_name or configuration.scheduler_name or DEFAULT_NAME,
        instance=instance,
        gates=gates,
        pod_grouper=pod_grouper,
        excluded_namespaces=excluded_namespaces,
        dry_run=dry_run,
        reporting=ReportingSettings(events=events),
        lease=lease_of(election, connection, instance, dry_run=dry_run),
        own_namespace=own_namespace(),
    )
    meters, health = SchedulerMeters(settings.scheduler_name), Health()

    async def work(transport: Transport, stop: "asyncio.Event") -> "ApiError | None":
        health.ready("shutdown", lambda: "it is stopping" if stop.is_set() else None)
        async with serving(metrics, health, meters, say, transport) as server:
            with usable_configuration():
                scheduler = LiveScheduler(transport, configuration, settings, say, meters)
            if server is not None:
                server.story = partial(story_json, scheduler.engine, settings.scheduler_name)
            health.ready("informer-sync", lambda: scheduler.unready)
            say(
                "starting",
                cluster=transport.source,
                scheduler=settings.scheduler_name,
                mode="gate" if gates else None,
                dry_run=settings.dry_run or None,
            )
            return await scheduler.run(stop)

    transport = Transport(connection, on_request=meters.requests(connection.host))
    run_until_told(connection, transport, work, say)
