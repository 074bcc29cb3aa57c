"""``make conformance``: random worlds before the real kube-scheduler and closeby."""

import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

import click

from tests.conformance.comparing import Comparison, compare
from tests.control_plane.binaries import UnavailableError, find_programs
from tests.control_plane.processes import StartError


@click.command()
@click.option("--seed", type=int, help="Of a run that is to be repeated; else a new one.")
@click.option("--worlds", default=6, show_default=True)
@click.option("--nodes", default=16, show_default=True, help="In a world.")
@click.option("--pods", default=60, show_default=True, help="That are judged in a world.")
@click.option(
    "--only",
    multiple=True,
    help="Families of features beside the first; else all that are switched on. May be repeated.",
)
def main(seed: int | None, worlds: int, nodes: int, pods: int, only: tuple[str, ...]) -> None:
    """Judges random pods on all nodes of random clusters, and prints where the two do not agree."""
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}: {worlds * nodes * pods:,} pairs of a pod and a node")
    with tempfile.TemporaryDirectory(prefix="closeby-conformance-") as name:
        try:
            programs = find_programs(click.echo)
            run = compare(
                programs,
                Path(name),
                seed,
                worlds=worlds,
                nodes=nodes,
                probes=pods,
                only=only,
                tell=click.echo,
            )
            found = asyncio.run(run)
        except (UnavailableError, StartError) as error:
            raise click.ClickException(str(error)) from error
    _show(found, seed)
    sys.exit(bool(found.disagreements))


def _show(found: Comparison, seed: int) -> None:
    click.echo("\nnodes that kube-scheduler refused, by reason:")
    for reason, count in found.reasons.most_common():
        click.echo(f"  {count:5}  {reason}")
    for pod in found.refused:
        click.echo(f"not taken by the API server: {pod}")
    for one in found.disagreements:
        click.echo(f"\n{one}")
    click.echo(
        f"\n{found.pods} pods, {found.pairs:,} pairs, of which kube-scheduler allows {found.allowed:,}: "
        f"{len(found.disagreements)} pods judged differently (seed {seed})"
    )


if __name__ == "__main__":
    main()
