"""`closeby compare`: the same jobs under several configurations, seed by seed, and how surely they differ."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from closeby.cli.options import Sources, keeps_going, output_option
from closeby.cli.simulating.over_time import (
    APPLICATIONS_CLUSTER,
    COMPARED_APPLICATIONS,
    COMPARED_JOBS,
    DEFAULT_CLUSTER,
    LOAD_HELP,
    LoadRange,
    OverTime,
    says_where,
)
from closeby.cli.simulating.overwriting import check_written
from closeby.cli.simulating.pictures import Pictures, draws_distributions

if TYPE_CHECKING:
    from rich.console import RenderableType

SEEDS = 10


@click.command(name="compare", short_help="Run the same jobs under several configurations.")
@click.option(
    "--config",
    "configs",
    metavar="FILE|NAME",
    multiple=True,
    required=True,
    help="A configuration, or the name of one that comes with closeby, such as closeby or slurm-tree. "
    "At least two; the others are compared with the first.",
)
@click.option("--workload", metavar="NAME", help="A made-up workload, such as seren or microservices.")
@click.option(
    "--trace", metavar="FILE", help="Jobs of a CSV file, or - for standard input; there are no seeds then."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    help=f"Make so many workloads, with the seeds 1, 2, ...  [default: {SEEDS}]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 10_000_000),
    help=f"Jobs of each.  [default: {COMPARED_JOBS}; {COMPARED_APPLICATIONS} applications]",
)
@click.option("--load", type=LoadRange(), help=LOAD_HELP)
@click.option("--from-empty", is_flag=True, help="Begin with an empty cluster: it takes days to fill up.")
@click.option(
    "-f", "--filename", "paths", metavar="PATH", multiple=True, help="Manifests of the cluster to run on."
)
@click.option(
    "--cluster",
    metavar="NAME",
    help="The made-up cluster to run on, if -f gives no nodes: lingjun, small, superpod, zones or racks.  "
    f"[default: {DEFAULT_CLUSTER}; {APPLICATIONS_CLUSTER} for applications]",
)
@keeps_going
@says_where
@click.option("--processes", type=click.IntRange(1, 1024), help="Runs at the same time.  [default: cores]")
@output_option
@draws_distributions
def command(
    *,
    configs: tuple[str, ...],
    workload: str | None,
    trace: str | None,
    seeds: int | None,
    jobs: int | None,
    load: float | None,
    from_empty: bool,
    paths: tuple[str, ...],
    cluster: str | None,
    keep_going: bool,
    resource: str | None,
    topology: str | None,
    required: str | None,
    preferred: str | None,
    processes: int | None,
    output: str,
    pictures: Pictures,
) -> None:
    """Run the same jobs under several configurations and say how surely they differ.

    Each seed makes one workload, which all configurations get. Differences from the first one are paired by
    seed, with a 95 % confidence interval.

    \b
    Examples:
      closeby compare --config closeby --config most-allocated --workload seren
      closeby compare --config mine.yaml --config closeby --workload philly --seeds 20 --cluster small
      closeby compare --config default --config least-allocated --workload microservices --jobs 100
    """
    from closeby.cli.output import emit_and_then
    from closeby.cli.simulating.comparing import Wanted, compare

    check_written({"--html": pictures.page}, (*paths, *configs, trace))
    pictures.check(over_time=True)
    over_time = OverTime(
        workload=workload,
        trace=trace,
        jobs=jobs,
        load=load,
        from_empty=from_empty,
        cluster=cluster,
        resource=resource,
        topology=topology,
        required=required,
        preferred=preferred,
    )
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
        from closeby.report.views.comparison import comparison_views

        return comparison_views(compared.report, quality=quality)

    emit_and_then(
        compared.report,
        output,
        views,
        # A page has room for the constants.
        lambda: pictures.of_comparison(compared.histories, compared.report, lambda: views(quality=True)),
    )
