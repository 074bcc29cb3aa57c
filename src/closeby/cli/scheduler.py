"""`closeby scheduler`: schedule the pods of a live cluster that ask for it."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from closeby.kube.connection import Connection
    from closeby.kube.errors import ApiError
    from closeby.kube.live import Settings
    from closeby.objects.configuration import Configuration


@click.command(name="scheduler")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="How to reach the cluster; else KUBECONFIG, ~/.kube/config, or the cluster around this pod.",
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig file, else its current one.")
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Configuration of the scheduler: its plugins and their arguments.",
)
@click.option(
    "--scheduler-name",
    metavar="NAME",
    help="Schedule pods whose spec.schedulerName is this.  [default: the configuration's, else closeby]",
)
@click.option("--dry-run", is_flag=True, help="Decide and say what would be done, but write nothing.")
@click.option("--events/--no-events", default=True, show_default=True, help="Write Events about pods.")
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    config_path: str | None,
    scheduler_name: str | None,
    dry_run: bool,
    events: bool,
) -> None:
    """Schedule the pods of a live cluster that name this scheduler, until SIGTERM or Ctrl-C.

    Runs beside the cluster's own scheduler. One replica only: there is no leader election yet.

    \b
    Example:
      closeby scheduler --dry-run
    """
    import socket

    from closeby.cli.inputs import Unusable, read_configuration_file
    from closeby.kube.connection import connect
    from closeby.kube.faults import Fault
    from closeby.kube.live import CONTROLLER, DEFAULT_NAME, Settings
    from closeby.kube.notices import Manners

    configuration = read_configuration_file(config_path)
    connection = connect(kubeconfig, context)
    if isinstance(connection, Fault):
        raise Unusable(str(connection))
    settings = Settings(
        scheduler_name=scheduler_name or configuration.scheduler_name or DEFAULT_NAME,
        instance=f"{CONTROLLER}-{socket.gethostname()}"[:128],
        dry_run=dry_run,
        manners=Manners(events=events),
    )
    error = _schedule(connection, configuration, settings)
    if error is not None:
        raise Unusable(
            f"{connection.url} ({connection.source}) can't be talked to: {error}",
            "check the address, the credentials and whether the server runs",
        )


def _schedule(
    connection: "Connection", configuration: "Configuration", settings: "Settings"
) -> "ApiError | None":
    """Runs the scheduler to its end; what fails inside of it comes out as itself, not as a group."""
    import asyncio
    import signal

    from closeby.cli.inputs import usable_configuration
    from closeby.cli.log_lines import log_line
    from closeby.kube.live import LiveScheduler
    from closeby.kube.transport import Transport

    async def run() -> "ApiError | None":
        stop = asyncio.Event()
        for one in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(one, stop.set)
        async with Transport(connection) as transport:
            with usable_configuration():
                scheduler = LiveScheduler(transport, configuration, settings, log_line)
            log_line(
                "starting",
                cluster=transport.source,
                scheduler=settings.scheduler_name,
                dry_run=settings.dry_run or None,
            )
            return await scheduler.run(stop)

    try:
        return asyncio.run(run())
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
