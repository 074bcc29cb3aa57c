"""`closeby discover ibnetdiscover`: where nodes are in an InfiniBand fabric."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from closeby.cli.discovering.options import Chosen, discovers
from closeby.cli.names import FILE_NAME
from closeby.discovery.device_names import NameMap, read_names
from closeby.discovery.findings import ScanFindings
from closeby.discovery.source_files import read_text
from closeby.errors import UnreadableError
from closeby.reading.decoding.sources import STDIN_NAME

_STDIN = "-"
_PORT = re.compile(r"([A-Za-z0-9][\w.-]*)(?::([0-9]{1,3}))?", re.ASCII)


def _ports(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """The arguments of ibnetdiscover for each port; a callback of an option."""
    found = []
    for text in texts:
        port = _PORT.fullmatch(text)
        if port is None:
            raise click.BadParameter(f"{text!r} is not a port of an adapter; give such as mlx5_0:1")
        found.append(("-C", port[1], *(("-P", port[2]) if port[2] else ())))
    return tuple(found)


@click.command(name="ibnetdiscover", short_help="An InfiniBand fabric, from ibnetdiscover's output.")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--map",
    "map_path",
    metavar="FILE",
    type=FILE_NAME,
    help='Names of adapters and switches, one per line, such as: 0x2c5eab0300b87b40 "node-1"',
)
@click.option(
    "--adapters",
    metavar="PATTERN",
    help="Use only adapters whose description contains a word of this pattern, such as mlx5_[0-7].",
)
@click.option(
    "--plane",
    metavar="SWITCH",
    help="If planes group the same hosts differently, use the plane of this switch.  [default: the plane "
    "with the most hosts, then with the most domains]",
)
@click.option(
    "--program",
    metavar="PATH",
    type=FILE_NAME,
    default="ibnetdiscover",
    show_default=True,
    help="Program to run if no file is given.",
)
@click.option(
    "--port",
    "ports",
    metavar="ADAPTER[:PORT]",
    multiple=True,
    callback=_ports,
    help="Port at which the scan starts, such as mlx5_0:1. May be repeated, to scan each plane.  [default: "
    "the first port that is up]",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    help="Deadline for each scan.",
)
@discovers
def command(
    *,
    files: tuple[str, ...],
    map_path: str | None,
    adapters: str | None,
    plane: str | None,
    program: str,
    ports: tuple[tuple[str, ...], ...],
    timeout: float,
    chosen: Chosen,
) -> None:
    """Discover where nodes are in an InfiniBand fabric.

    Reads the output of `ibnetdiscover` or `ibnetdiscover -p` from files, or from standard input with -.
    Without a file it runs ibnetdiscover on this host. A scan covers one plane: give one file or one --port
    per plane, and the planes are merged.

    \b
    Examples:
      ibnetdiscover | closeby discover ibnetdiscover -
      closeby discover ibnetdiscover plane-1.txt plane-2.txt --map names.txt -o labels
      closeby discover ibnetdiscover --port mlx5_0 --port mlx5_4 --apply --watch 300
    """
    from closeby.cli.discovering.publish import publish
    from closeby.discovery.fabric_findings import fabric_findings, read_scans

    if chosen.watch is not None and _STDIN in files:
        raise click.UsageError("standard input can be read once: --watch needs files, or none")
    if ports and files:
        raise click.UsageError("--port says where a scan starts that is made here: give it or files")

    def discover(keys: tuple[str, ...] | None) -> ScanFindings:
        names: NameMap = {} if map_path is None else read_names(map_path, read_text(map_path))
        source = " ".join(_named(one) for one in files) or program
        with ExitStack() as stack:
            scans = read_scans(_opened(files, program, ports, timeout, stack))
        return fabric_findings(source, scans, keys=keys, names=names, adapters=adapters, plane=plane)

    publish(discover, chosen)


def _opened(
    files: tuple[str, ...],
    program: str,
    ports: tuple[tuple[str, ...], ...],
    timeout: float,
    stack: ExitStack,
) -> Iterator[tuple[str, BinaryIO]]:
    """The scans, each opened when its turn comes."""
    if not files:
        from closeby.cli.discovering.programs import output_of

        for arguments in ports or ((),):
            name = " ".join((program, *arguments))
            yield name, stack.enter_context(output_of(program, timeout, *arguments))
    for path in files:
        if path == _STDIN:
            if sys.stdin is None:
                raise UnreadableError(STDIN_NAME, "is closed", "give a file")
            yield STDIN_NAME, sys.stdin.buffer
            continue
        yield path, stack.enter_context(_opened_file(path))


def _opened_file(path: str) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise UnreadableError(path, f"can't be read: {error.strerror or error}", "check the path") from error


def _named(path: str) -> str:
    return STDIN_NAME if path == _STDIN else path
