"""`closeby scheduler`: schedule the pods of a live cluster that ask for it."""

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
    from closeby.objects.process import Say


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

    Runs next to the cluster's own scheduler, or in --mode gate before it. It waits for the API server as
    long as it takes. A replica that loses leadership stops writing and stands by. A dry run writes nothing
    and does not need leadership.

    \b
    Example:
      closeby scheduler --dry-run
    """
    from closeby.cli.operating.scheduler_work import LiveSchedulerOptions, run

    options = LiveSchedulerOptions(
        kubeconfig=kubeconfig,
        context=context,
        config_path=config_path,
        scheduler_name=scheduler_name,
        gates=gates,
        pod_grouper=pod_grouper,
        election=election,
        excluded_namespaces=excluded_namespaces,
        dry_run=dry_run,
        events=events,
        metrics=metrics,
    )
    run(options, say)
