"""`closeby simulate`: schedule the pods of manifests, or run a workload over time, and report."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import click

from closeby.cli.names import OneOf
from closeby.cli.options import Sources, counts_lost_work, may_read_manifests, output_or_csv_option
from closeby.cli.simulating.over_time import OverTime, runs_over_time
from closeby.cli.simulating.pictures import Pictures, check_written, draws

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.report.documents.tables import CsvTable
    from closeby.simulator.runs import Run
    from closeby.whatif.gathering import Found

STILL_PENDING = 3


class Scheduled(NamedTuple):
    """Whose pods are scheduled, whether others make room, and the time by which their lost work counts."""

    scheduler_name: str | None
    preempt: bool
    now: float | None


@click.command(name="simulate", short_help="Schedule the pods of manifests, or run jobs over time.")
@may_read_manifests
@output_or_csv_option
@click.option(
    "--explain",
    type=OneOf(["some", "all"]),
    is_flag=False,
    flag_value="some",
    help="Add candidates, scores and rejections. some (the default without a value) covers all nodes of "
    "clusters of up to 200, else the best 20; all covers every node.",
)
@click.option(
    "--quality",
    is_flag=True,
    help="Add placement quality to the table: all measures, and the constants of the model.",
)
@click.option("--strict", is_flag=True, help="Exit with code 3 if anything stays pending.")
@click.option(
    "--no-preemption",
    is_flag=True,
    help="Let nothing that runs end to make room for pods of higher priority.",
)
@counts_lost_work
@click.option(
    "--scheduler-name",
    metavar="NAME",
    help="Schedule only pending pods whose spec.schedulerName is NAME.  [default: all]",
)
@draws
@runs_over_time
def command(
    *,
    sources: Sources,
    output: str,
    explain: str | None,
    quality: bool,
    strict: bool,
    no_preemption: bool,
    now: float | None,
    scheduler_name: str | None,
    over_time: OverTime,
    pictures: Pictures,
) -> None:
    """Schedule the pods of manifests and report what went where, and why; or simulate a workload over time.

    Pods that have a node count as running there. All others are scheduled until nothing changes. With
    --workload or --trace, jobs arrive, wait, run and end in virtual time, on the nodes of the manifests or on
    a synthetic cluster; pending pods of the manifests are ignored.

    The options from --workload on, and --plot-at, apply to simulations over time. --explain, --now and
    --scheduler-name apply to the pods of manifests.

    \b
    Examples:
      kubectl get nodes,pods,jobs,priorityclasses -A -o yaml > cluster.yaml
      closeby simulate -f cluster.yaml -f my-job.yaml
      closeby simulate --workload seren --jobs 2000 --load 0.85
    """
    check_written(
        {"--write-trace": over_time.write_trace, "--html": pictures.page},
        (*sources.paths, sources.config_path, over_time.trace),
    )
    pictures.check(over_time=over_time.wanted, until=over_time.until)
    if over_time.wanted:
        for option, given in (
            ("--explain", explain),
            ("--scheduler-name", scheduler_name),
            ("--now", now),
        ):
            if given is not None:
                raise click.UsageError(f"{option} is for the pods of manifests, not for a run over time")
        waiting = _over_time(sources, over_time, output, quality, pictures, preempt=not no_preemption)
    else:
        _only_over_time(over_time)
        if not sources.paths:
            raise click.UsageError(
                "Missing option '-f' / '--filename': give manifests, or --workload or --trace to run jobs."
            )
        scheduled = Scheduled(scheduler_name, not no_preemption, now)
        waiting = _once(sources, output, explain, scheduled, quality, pictures)
    if strict and waiting:
        click.get_current_context().exit(STILL_PENDING)


def _once(
    sources: Sources,
    output: str,
    explain: str | None,
    scheduled: Scheduled,
    quality: bool,
    pictures: Pictures,
) -> bool:
    """Schedule what the manifests hold; returns whether something still waits."""
    from closeby.cli.output import emit_and_then
    from closeby.cli.reading.inputs import read_inputs, usable_configuration
    from closeby.cli.reading.measuring import measures
    from closeby.report.documents.scheduling import scheduling_report
    from closeby.simulator.runs import Asked, simulate

    inputs = read_inputs(sources)
    with usable_configuration():
        run = simulate(
            inputs.manifests,
            inputs.configuration,
            Asked(
                scheduler_name=scheduled.scheduler_name,
                # The report of pictures explains what the table does not.
                explain=explain is not None or pictures.page is not None,
                explain_everything=explain == "all",
                measure=measures(inputs.configuration, live=False),
                preempt=scheduled.preempt,
                now=scheduled.now,
            ),
        )
    report = scheduling_report(
        run,
        explain=explain is not None,
        errors=inputs.errors,
        counterfactuals=_counterfactuals(run) if explain is not None else {},
    )

    def views() -> "Iterable[RenderableType]":
        from closeby.report.views.scheduling import scheduling_views

        return scheduling_views(report, quality=quality)

    def summary() -> "CsvTable":
        from closeby.report.documents.tables import gangs_table

        return gangs_table(report)

    def draw() -> None:
        pictures.of_run(run, report, sources.config_path, views)

    emit_and_then(report, output, views, draw, summary)
    return report.waiting or run.idle


def _counterfactuals(run: "Run") -> "Found":
    from closeby.whatif.gathering import counterfactuals

    return counterfactuals(run)


def _over_time(
    sources: Sources,
    over_time: OverTime,
    output: str,
    quality: bool,
    pictures: Pictures,
    *,
    preempt: bool,
) -> bool:
    """Run a workload over time; returns whether jobs never started."""
    from closeby.cli.output import emit_and_then
    from closeby.cli.simulating.replaying import run_over_time
    from closeby.lab.documents.simulation import jobs_table
    from closeby.lab.documents.simulation_report import simulation_report

    ran = run_over_time(sources, over_time, preempt=preempt)
    full = over_time.full or output == "csv"
    report = simulation_report(ran.history, ran.measures, ran.asked, full=full)

    def views(*, quality: bool) -> "Iterable[RenderableType]":
        from closeby.lab.views.simulation import simulation_views

        return simulation_views(report, quality=quality)

    emit_and_then(
        report,
        output,
        lambda: views(quality=quality),
        # A page has room for all measures.
        lambda: pictures.of_history(ran.history, report, lambda: views(quality=True)),
        lambda: jobs_table(report),
    )
    return report.waiting


def _only_over_time(over_time: OverTime) -> None:
    for name, value in over_time._asdict().items():
        if value is not None and value is not False and value != ():
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} belongs to a run over time: add --workload or --trace")
