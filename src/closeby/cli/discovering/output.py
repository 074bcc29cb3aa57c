"""Reading a source of `closeby discover`, and printing what it found."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from closeby.cli.discovering.options import EXCHANGED, Chosen
from closeby.cli.reading.inputs import Unusable
from closeby.discovery.assembling import level_keys, topology_manifests
from closeby.discovery.findings import ScanFindings
from closeby.discovery.labelling import nameless, node_manifests
from closeby.errors import UnreadableError
from closeby.topology.families import listed

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")

#: Reads a source. It is given the label keys that the user chose, closest first, or None.
Discover = Callable[[tuple[str, ...] | None], ScanFindings]


def read(source: Callable[[], T]) -> T:
    """What ``source`` gives, with a file that can't be used as an error for the user.

    Raises:
        Unusable: it can't be used.
    """
    try:
        return source()
    except UnreadableError as error:
        raise Unusable(str(error)) from error


def show(findings: ScanFindings, chosen: Chosen) -> None:
    """Prints the findings in the form that was asked for."""
    from closeby.cli.output import emit

    if chosen.output in ("topology", "labels", *EXCHANGED):
        # The output is for files and pipes, and has no place for them.
        for one in findings.warnings:
            click.echo(f"warning: {one.object}: {one.sentence()}", err=True)
    if chosen.output in ("topology", "labels"):
        from closeby.discovery.views.findings import manifests_text

        keys = level_keys(findings, chosen.keys)
        shown = (
            topology_manifests(findings, keys, chosen.name)
            if chosen.output == "topology"
            else node_manifests(findings, with_quality=chosen.rules.with_quality)
        )
        click.echo(manifests_text(shown), nl=False)
        if chosen.output == "labels" and (odd := nameless(findings)):
            click.echo(f"note: {listed(odd)} left out: no node can be called so", err=True)
        return
    if chosen.output in EXCHANGED:
        from closeby.discovery.exchange import WRITERS

        click.echo(WRITERS[chosen.output](findings), nl=False)
        return

    def views() -> "Iterable[RenderableType]":
        from closeby.discovery.views.findings import discovery_views

        return discovery_views(findings)

    emit(findings, chosen.output, views)
