"""`closeby discover diff`: what differs between two descriptions of a network."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from closeby.cli.discovering.options import label_keys
from closeby.cli.names import OneOf
from closeby.cli.options import OUTPUTS
from closeby.discovery.findings import ScanFindings
from closeby.discovery.source_files import read_text
from closeby.reading.decoding.sources import STDIN_NAME

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Exit code with ``--exit-code`` when there is a difference.
DIFFERENT = 3


@click.command(name="diff", short_help="Compare two descriptions of a network.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--from",
    "kind",
    metavar="KIND",
    help="Type of both files: findings (the output of -o json), the name of a source, or labels:PRESET.  "
    "[default: detected from their contents]",
)
@click.option(
    "--labels",
    "keys",
    metavar="KEY,KEY",
    callback=label_keys,
    help="Keys of the labels that a source would write, closest first; the output of -o json has its own.",
)
@click.option(
    "-o",
    "--output",
    type=OneOf(OUTPUTS),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option("--exit-code", is_flag=True, help=f"Exit with code {DIFFERENT} if there is a difference.")
def command(
    *, before: str, after: str, kind: str | None, keys: tuple[str, ...] | None, output: str, exit_code: bool
) -> None:
    """Report what moved, appeared or disappeared between A and B, and which links were lost or became slower.

    A and B are outputs of `closeby discover … -o json`, or files that one of its sources reads.

    \b
    Examples:
      closeby discover diff yesterday.json today.json
      closeby discover diff topology.conf scan.txt -o json --exit-code
    """
    from closeby.cli.discovering.output import read
    from closeby.cli.output import emit
    from closeby.cli.reading.inputs import Unusable
    from closeby.discovery.diff import diff
    from closeby.discovery.exchange import READERS, kind_of
    from closeby.objects.words import not_known

    if kind is not None and kind not in READERS:
        raise Unusable(not_known(kind, READERS, "kind"))
    if before == after == "-":
        raise Unusable("standard input can be read once, so only one of the two can be -")

    def findings(path: str) -> ScanFindings:
        text = read_text(path)
        name = STDIN_NAME if path == "-" else path
        return READERS[kind_of(name, text) if kind is None else kind](name, text, keys)

    difference = diff(read(lambda: findings(before)), read(lambda: findings(after)))

    def views() -> "Iterable[RenderableType]":
        from closeby.discovery.views.diff import difference_views

        return difference_views(difference)

    emit(difference, output, views)
    if exit_code and difference.any:
        raise click.exceptions.Exit(DIFFERENT)
