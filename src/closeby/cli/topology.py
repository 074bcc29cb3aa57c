"""`closeby topology`: the topology trees with what is free, what is used and who runs where."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from closeby.cli.options import Sources, output_option, reads_cluster_or_manifests
from closeby.objects.bounds import shown, whole_number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.report.documents.topologies import GangSize
    from closeby.simulator.runs import Run

#: No gang has as many pods, and no node as many accelerators.
_MOST: Final = 1_000_000


@click.command(name="topology", short_help="Show what is free, what is used and who runs where.")
@reads_cluster_or_manifests
@output_option
@click.option("--topology", "name", metavar="NAME", help="Show only this topology.")
@click.option(
    "--level",
    metavar="LEVEL",
    help="Show only the domains of this level (label, alias, short name or its last word).",
)
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Number of levels to show below the whole cluster. Tables omit single nodes unless there are few.",
)
@click.option(
    "--fits",
    metavar="PODSxNUMBER",
    help="Show how many gangs of this many pods, each with this many accelerators, every level could take "
    "now, and if nothing ran there, such as 8x8. More resources of a pod follow after commas, such as "
    "8x8,cpu=16,memory=64Gi.",
)
@click.option(
    "--resource",
    metavar="NAME",
    help="With --fits: the resource that counts as the accelerator.  [default: each accelerator that nodes "
    "offer]",
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
    fits: str | None,
    resource: str | None,
) -> None:
    """Show the topology trees: what is free, what is used and who runs where.

    Reads the live cluster, or manifests with -f.

    \b
    Examples:
      closeby topology --level rack
      closeby topology -f cluster.yaml --after
      closeby topology --fits 8x8
    """
    from closeby.cli.output import emit
    from closeby.cli.reading.inputs import read_cluster_or_files, usable_configuration
    from closeby.cli.reading.measuring import measures
    from closeby.report.documents.topologies import topology_report
    from closeby.simulator.runs import Asked, simulate

    size = _size(fits)
    if resource is not None and size is None:
        raise click.UsageError("--resource says what --fits counts: give both")
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
    level = _level(run, name, level)
    names = _names(run, name, level)
    report = topology_report(
        run,
        names=names,
        levels=None if depth is None else tuple(range(-1, depth)),
        level_name=level,
        gangs=_gangs(run, size, resource),
        tolerate=inputs.configuration.extended_resource_toleration,
        errors=inputs.errors,
    )

    def views() -> "Iterable[RenderableType]":
        from closeby.report.views.topology import topology_views

        return topology_views(report, with_nodes=None if depth is None and level is None else True)

    emit(report, output, views)


def _level(run: "Run", name: str | None, level: str | None) -> str | None:
    """The level that is meant: ``rack`` is ``example.com/topology-rack`` if it is the only one that ends so.

    Raises:
        Unusable: several levels end so.
    """
    from closeby.cli.reading.inputs import Unusable
    from closeby.quality.placements import NODE_LEVEL
    from closeby.topology.tree import level_meant

    topologies = run.engine.topologies
    if level is None or level == NODE_LEVEL or topologies.having_level(level):
        return level
    names = topologies.usable() if name is None else (name,)
    trees = [tree for one in names if (tree := topologies.tree(one)) is not None]
    try:
        return level_meant((one for tree in trees for one in tree.levels), level)
    except ValueError as error:
        raise Unusable(str(error)) from error


def _names(run: "Run", name: str | None, level: str | None) -> tuple[str, ...] | None:
    """The topologies to show; None means all of them."""
    from closeby.cli.reading.inputs import Unusable
    from closeby.objects.words import suggestion
    from closeby.quality.placements import NODE_LEVEL
    from closeby.topology.constraints import ANY_KEYS, writes_one

    topologies = run.engine.topologies
    known = ", ".join(topologies.usable()) or "none"
    if name is not None and topologies.tree(name) is None:
        declared, guess = topologies.declared(name), suggestion(name, topologies.usable())
        why = f"; {declared.conditions[0].sentence()}" if declared is not None and declared.conditions else ""
        raise Unusable(f"there is no usable topology {name!r}{why}; usable are: {known}{guess}")
    names = topologies.usable() if name is None else (name,)
    if level is None or level == NODE_LEVEL:
        return None if name is None else names
    having = tuple(one for one in names if one in topologies.having_level(level))
    if not having:
        trees = [tree for one in names if (tree := topologies.tree(one)) is not None]
        guess = suggestion(level, dict.fromkeys(known for tree in trees for known in tree.level_names))
        listed = "; ".join(f"{tree.name} has {', '.join(tree.level_names)}" for tree in trees)
        none = f"there is no topology; {writes_one(ANY_KEYS)}"
        raise Unusable(f"no topology has a level {level!r}; {listed or none}{guess}")
    return having


class _Size(NamedTuple):
    """What ``--fits`` asks: pods, accelerators of each, and amounts of other resources, as written."""

    pods: int
    accelerators: str
    others: Mapping[str, str]


def _size(text: str | None) -> _Size | None:
    """A size as it was written.

    Raises:
        UsageError: it can't be understood.
    """
    if text is None:
        return None
    first, *more = text.split(",")
    pods, separator, accelerators = first.partition("x")
    others = dict(one.split("=", 1) for one in more if one.count("=") == 1)
    numbers = all(0 < (whole_number(one) or 0) < _MOST for one in (pods, accelerators))
    if not separator or not numbers or len(others) < len(more) or not all(others):
        raise click.UsageError(
            f"--fits {shown(text)}: write pods x accelerators of each, such as 8x8, and more resources of a "
            "pod as 8x8,cpu=16,memory=64Gi; numbers are at least 1"
        )
    return _Size(int(pods), accelerators, others)


def _gangs(run: "Run", size: _Size | None, resource: str | None) -> tuple["GangSize", ...]:
    """The gangs of a size, one for each resource that counts as the accelerator.

    Raises:
        Unusable: there is no such resource, or a resource is given twice or by no amount.
    """
    from closeby.cli.reading.inputs import Unusable
    from closeby.cluster.columns import offered, offered_accelerators
    from closeby.errors import QuantityError
    from closeby.objects.nodes import is_part_of_a_device
    from closeby.objects.quantities import amount
    from closeby.report.documents.topologies import GangSize

    if size is None:
        return ()
    known = offered(run.engine.cluster)
    found = offered_accelerators(run.engine.cluster) if resource is None else (resource,)
    listed = ", ".join(known) or "nothing"
    if not found:
        raise Unusable(
            f"no node offers an accelerator: name a resource with --resource; nodes offer {listed}"
        )
    for name in (*found, *size.others):
        if name not in known:
            raise Unusable(f"no node offers {name}; nodes offer {listed}")
        if is_part_of_a_device(name):
            raise Unusable(
                f"--fits can't count {name}: what a node has of it does not say how much one device has free"
            )
    gangs = []
    for name in found:
        if name in size.others:
            raise Unusable(f"--fits gives two amounts of {name}: leave out {name}={size.others[name]}")
        needs = {}
        for key, value in {name: size.accelerators, **size.others}.items():
            try:
                needs[key] = amount(key, value, "up")
            except QuantityError as error:
                raise Unusable(f"--fits: {key}={value}: {error}") from error
            if needs[key] <= 0:
                raise Unusable(f"--fits: {key}={value}: give more than 0, or leave it out")
        gangs.append(GangSize(size.pods, needs, name))
    return tuple(gangs)
