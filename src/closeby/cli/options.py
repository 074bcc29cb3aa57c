"""Options that several commands share."""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple

import click

Command = Callable[..., None]

OUTPUTS = ("table", "json", "yaml")


class Sources(NamedTuple):
    """What a command is to read."""

    #: Files, folders, or ``-`` for standard input.
    paths: tuple[str, ...]
    config_path: str | None
    keep_going: bool


def reads_manifests(command: Command) -> Command:
    """Adds ``-f``, ``--config`` and ``--keep-going``; the command gets them as ``sources``."""

    @click.option(
        "-f",
        "--filename",
        "paths",
        metavar="PATH",
        multiple=True,
        required=True,
        help="A file or folder of manifests (YAML or JSON), or - for standard input. May be repeated.",
    )
    @click.option(
        "--config",
        "config_path",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Configuration of the scheduler: its plugins and their arguments.",
    )
    @click.option(
        "--keep-going", is_flag=True, help="Leave documents out that can't be read, and report them."
    )
    @wraps(command)
    def with_sources(
        *, paths: tuple[str, ...], config_path: str | None, keep_going: bool, **options: object
    ) -> None:
        command(sources=Sources(paths, config_path, keep_going), **options)

    return with_sources


def output_option(command: Command) -> Command:
    """``-o table|json|yaml``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        default="table",
        show_default=True,
        help="Form of the output.",
    )(command)
