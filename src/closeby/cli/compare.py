"""`closeby compare`: the same jobs under several configurations, seed by seed, and how surely they differ."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from closeby.cli.names import CONFIGURATION_NAME
from closeby.cli.options import (
    MANIFESTS_HELP,
    Sources,
    keeps_going,
    manifests_option,
    output_option,
    with_options,
)
from closeby.cli.simulating.over_time import (
    CLUSTER_OPTION,
    COMPARED_APPLICATIONS,
    COMPARED_JOBS,
    FROM_EMPTY_OPTION,
    LOAD_OPTION,
    PRIORITY_OPTIONS,
    TRACE_OPTION,
    WORKLOAD_OPTION,
    OverTime,
    jobs_option,
    says_where,
    takes_over_time,
)
from closeby.cli.simulating.pictures import Pictures, check_written, draws_distributions

if TYPE_CHECKING:
    from rich.console import RenderableType

SEEDS = 10


@click.command(name="compare", short_help="Run the same jobs under several configurations.")
@click.option(
    "--config",
    "configs",
    metavar="FILE|NAME",
    type=CONFIGURATION_NAME,
    multiple=True,
    required=True,
    help="Scheduler configuration: a file or the name of a built-in one, such as default, kube-scheduler or "
    "slurm-tree; a file of that name takes precedence. Give at least two: the others are compared with the "
    "first.",
)
@WORKLOAD_OPTION
@TRACE_OPTION
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    metavar="NUMBER",
    help="Number of workloads, generated with the seeds 1, 2, ...; does not apply to a trace.  [default: "
    f"{SEEDS}]",
)
@jobs_option("each", f"{COMPARED_JOBS}; {COMPARED_APPLICATIONS} for applications")
@LOAD_OPTION
@FROM_EMPTY_OPTION
@manifests_option(f"{MANIFESTS_HELP} They describe the cluster to run on.")
@CLUSTER_OPTION
@keeps_going
@says_where
@partial(with_options, PRIORITY_OPTIONS)
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    metavar="NUMBER",
    help="Number of runs in parallel.  [default: one per core]",
)
@output_option
@draws_distributions
@takes_over_time
def command(
    *,
    configs: tuple[str, ...],
    seeds: int | None,
    paths: tuple[str, ...],
    keep_going: bool,
    over_time: OverTime,
    processes: int | None,
    output: str,
    pictures: Pictures,
) -> None:
    """Run the same jobs under several configurations and test whether the results differ.

    Each seed generates one workload, which every configuration runs. Differences from the first configuration
    are paired by seed and come with a 95 % confidence interval.

    \b
    Examples:
      closeby compare --config default --config most-allocated --workload seren
      closeby compare --config default --config mine.yaml --trace jobs.csv -f cluster.yaml
      closeby compare --config default --config random --workload microservices
    """
    from closeby.cli.output import emit_and_then
    from closeby.cli.simulating.comparing import Wanted, compare

    check_written({"--html": pictures.page}, (*paths, *configs, over_time.trace))
    pictures.check(over_time=True)
    over_time.check(seeds=seeds)
    wanted = Wanted(
        configs=configs,
        sources=Sources(paths, None, keep_going=keep_going),
        over_time=over_time,
        seeds=SEEDS if seeds is None else seeds,
        processes=processes,
        with_histories=pictures.wanted,
    )
    compared = compare(wanted)

    def views(*, quality: bool = False) -> "Iterable[RenderableType]":
        from closeby.lab.views.comparison import comparison_views

        return comparison_views(compared.report, quality=quality)

    emit_and_then(
        compared.report,
        output,
        views,
        # A page has room for the constants.
        lambda: pictures.of_comparison(compared.histories, compared.report, lambda: views(quality=True)),
    )
