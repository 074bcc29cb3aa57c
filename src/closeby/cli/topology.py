"""`closeby topology`: the topology trees with what is free, what is used and who runs where."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from closeby.cli.options import Sources, output_option, reads_cluster_or_manifests

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.simulator.runs import Run


@click.command(name="topology", short_help="Show what is free, what is used and who runs where.")
@reads_cluster_or_manifests
@output_option
@click.option("--topology", "name", metavar="NAME", help="Show only this topology.")
@click.option(
    "--level", metavar="LEVEL", help="Show only the domains of this level (label, alias or short name)."
)
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Number of levels to show below the whole cluster. Tables omit single nodes unless there are few.",
)
@click.option("--after", is_flag=True, help="Schedule the pending pods first and show the resulting state.")
def command(
    *,
    sources: Sources,
    output: str,
    name: str | None,
    level: str | None,
    depth: int | None,
    after: bool,
) -> None:
    """Show the topology trees: what is free, what is used and who runs where.

    Reads the live cluster, or manifests with -f.

    \b
    Examples:
      closeby topology --level rack
      closeby topology -f cluster.yaml --after
    """
    from closeby.cli.output import emit
    from closeby.cli.reading.inputs import read_cluster_or_files, usable_configuration
    from closeby.cli.reading.measuring import measures
    from closeby.report.documents.topologies import topology_report
    from closeby.simulator.runs import Asked, simulate

    inputs, cluster = read_cluster_or_files(sources)
    with usable_configuration():
        run = simulate(
            inputs.manifests,
            inputs.configuration,
            Asked(
                scheduler_name=inputs.scheduler_name,
                schedule=after,
                measure=measures(inputs.configuration, live=cluster is not None),
                networks=inputs.networks,
            ),
        )
    names = _names(run, name, level)
    report = topology_report(
        run,
        names=names,
        levels=None if depth is None else tuple(range(-1, depth)),
        level_name=level,
        errors=inputs.errors,
    )

    def views() -> "Iterable[RenderableType]":
        from closeby.report.views.topology import topology_views

        return topology_views(report, with_nodes=None if depth is None and level is None else True)

    emit(report, output, views)


def _names(run: "Run", name: str | None, level: str | None) -> tuple[str, ...] | None:
    """The topologies to show; None means all of them."""
    from closeby.cli.reading.inputs import Unusable
    from closeby.report.documents.common import NODE_LEVEL

    topologies = run.engine.topologies
    known = ", ".join(topologies.usable()) or "none"
    if name is not None and topologies.tree(name) is None:
        declared = topologies.declared(name)
        why = f"; {declared.conditions[0].sentence()}" if declared is not None and declared.conditions else ""
        raise Unusable(f"there is no usable topology {name!r}{why}; usable are: {known}")
    names = topologies.usable() if name is None else (name,)
    if level is None or level == NODE_LEVEL:
        return None if name is None else names
    having = tuple(one for one in names if one in topologies.having_level(level))
    if not having:
        levels = [
            f"{one} has {', '.join(tree.level_names)}" for one in names if (tree := topologies.tree(one))
        ]
        raise Unusable(f"no topology has a level {level!r}; {'; '.join(levels) or 'there is no topology'}")
    return having
