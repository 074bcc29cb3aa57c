"""What `closeby scheduler` does: the live scheduler, joined to the cluster's client and the HTTP server."""

import asyncio
from functools import partial

from msgspec import Struct

from closeby import full_version
from closeby.cli.operating.identity import replica
from closeby.cli.operating.long_running import lease_of, reach, run_until_told
from closeby.cli.operating.serving import serving
from closeby.cli.options import Election, Metrics
from closeby.cli.reading.inputs import read_configuration_file, usable_configuration
from closeby.kube.client.connection import own_namespace
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.stories import story_json
from closeby.kube.scheduler.live import CONTROLLER, DEFAULT_NAME, LiveScheduler, SchedulerSettings
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.writing.leading import terms
from closeby.kube.writing.statuses import ReportingSettings
from closeby.objects.process import Say


class LiveSchedulerOptions(Struct, frozen=True, kw_only=True):
    """As on the command line."""

    kubeconfig: str | None
    context: str | None
    config_path: str | None
    #: None: the configuration's.
    scheduler_name: str | None
    gates: bool
    pod_grouper: bool
    election: Election
    excluded_namespaces: tuple[str, ...]
    dry_run: bool
    events: bool
    metrics: Metrics


def run(options: LiveSchedulerOptions, say: Say) -> None:
    """Schedules until SIGTERM or Ctrl-C.

    Raises:
        Unusable: something of the options can't be used, or the cluster can't be talked to.
    """
    configuration = read_configuration_file(options.config_path)
    connection = reach(options.kubeconfig, options.context)
    instance = replica(CONTROLLER)
    settings = SchedulerSettings(
        scheduler_name=options.scheduler_name or configuration.scheduler_name or DEFAULT_NAME,
        instance=instance,
        gates=options.gates,
        pod_grouper=options.pod_grouper,
        excluded_namespaces=options.excluded_namespaces,
        dry_run=options.dry_run,
        reporting=ReportingSettings(events=options.events),
        lease=lease_of(options.election, connection, instance, dry_run=options.dry_run),
        own_namespace=own_namespace(),
    )
    meters, health = SchedulerMeters(settings.scheduler_name), Health()

    async def work(transport: Transport, stop: asyncio.Event) -> ApiError | None:
        say(
            "starting",
            version=full_version(),
            cluster=transport.source,
            scheduler=settings.scheduler_name,
            mode="gate" if settings.gates else None,
            dry_run=settings.dry_run or None,
        )
        health.ready("shutdown", lambda: "it is stopping" if stop.is_set() else None)
        async with serving(options.metrics, health, meters, say, transport) as server:

            async def term() -> ApiError | None:
                with usable_configuration():
                    scheduler = LiveScheduler(transport, configuration, settings, say, meters)
                if server is not None:
                    server.story = partial(story_json, scheduler.engine, settings.scheduler_name)
                health.ready("informer-sync", lambda: scheduler.unready)
                return await scheduler.run(stop)

            return await terms(term, say)

    transport = Transport(connection, on_request=meters.requests(connection.host))
    run_until_told(connection, transport, work)
