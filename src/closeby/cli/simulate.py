"""`closeby simulate`: schedule the pods of manifests and report what went where, and why."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from closeby.cli.options import Sources, output_option, reads_manifests

if TYPE_CHECKING:
    from rich.console import RenderableType

STILL_PENDING = 3


@click.command(name="simulate")
@reads_manifests
@output_option
@click.option(
    "--explain",
    type=click.Choice(["some", "all"]),
    is_flag=False,
    flag_value="some",
    help="Add candidates, scores and refusals: of all nodes up to 200, else of the best 20; or of all.",
)
@click.option(
    "--optimum",
    is_flag=True,
    help="Add how cheap the talk of an application could have been, by a solver: up to 12 pods on 16 nodes.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 when something stayed pending.")
@click.option("--scheduler-name", metavar="NAME", help="Schedule only the pods that name this scheduler.")
def command(
    *,
    sources: Sources,
    output: str,
    explain: str | None,
    optimum: bool,
    strict: bool,
    scheduler_name: str | None,
) -> None:
    """Schedule the pods of manifests and say what went where, and why.

    Pods with a node run there already; all others are scheduled, until nothing changes.

    \b
    Example:
      kubectl get nodes,pods,podgroups -A -o yaml | closeby simulate -f - -f my-job.yaml
    """
    from closeby.cli.inputs import Unusable, read_inputs, usable_configuration
    from closeby.cli.output import emit
    from closeby.report.documents import scheduling_report
    from closeby.simulator.optimum import solver_is_here
    from closeby.simulator.runs import simulate

    if optimum and not solver_is_here():
        raise Unusable("--optimum needs a solver that this scipy lacks; pip install 'closeby[optimum]'")
    inputs = read_inputs(sources)
    with usable_configuration():
        run = simulate(
            inputs.manifests,
            inputs.configuration,
            scheduler_name=scheduler_name,
            explain=explain is not None,
            explain_everything=explain == "all",
            optimum=optimum,
        )
    report = scheduling_report(run, explain=explain is not None, errors=inputs.errors)

    def views() -> "Iterable[RenderableType]":
        from closeby.report.parts import all_parts
        from closeby.report.scheduling_view import scheduling_views

        return scheduling_views(report, all_parts(run))

    emit(report, output, views)
    if strict and report.waiting:
        click.get_current_context().exit(STILL_PENDING)
