"""`closeby controllers`: keep PodGroups, statuses and admission checks of a live cluster up to date."""

from typing import TYPE_CHECKING

import click

from closeby.cli.names import OneOf
from closeby.cli.operating.admission_options import limits_admission
from closeby.cli.operating.latency_options import knows_prometheus
from closeby.cli.options import Election, Metrics, configured, connects, elects, excludes, gates, logs, serves

if TYPE_CHECKING:
    from closeby.controllers.admission.verdicts import AdmissionLimits
    from closeby.controllers.networks.settings import PrometheusAccess
    from closeby.objects.process import Say

#: Who the controllers are in Events and Leases.
CONTROLLER = "closeby-controllers"
#: Those that run unless `--only` says otherwise.
DEFAULT = ("pod-grouper", "app-groups", "network-topologies")
NAMES = (*DEFAULT, "admission-checks")


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
@limits_admission
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
    admission: "AdmissionLimits",
    admission_controller_name: str,
    prometheus: "PrometheusAccess",
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
    AdmissionChecks: a Workload is admitted when the scheduler holds places for its pods (docs/kueue.md).
    It waits for the API server as long as it takes. A replica that loses leadership stops writing and stands
    by. A dry run persists nothing and does not need leadership.

    \b
    Example:
      closeby controllers --only pod-grouper --dry-run
      closeby controllers --only admission-checks --admission-deadline 120
    """
    from closeby.cli.operating.controller_work import ControllerOptions, run

    options = ControllerOptions(
        kubeconfig=kubeconfig,
        context=context,
        config_path=config_path,
        names=only or DEFAULT,
        scheduler_name=scheduler_name,
        admission=admission,
        admission_controller_name=admission_controller_name,
        prometheus=prometheus,
        max_age=max_age,
        gates=gates,
        election=election,
        excluded_namespaces=excluded_namespaces,
        metrics=metrics,
        dry_run=dry_run,
    )
    run(CONTROLLER, options, say)
