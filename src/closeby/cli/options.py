"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

OUTPUTS = ("table", "json", "yaml")


def manifest_options(command: Command) -> Command:
    """``-f``, ``--config``, ``--keep-going``: what to read."""
    command = click.option(
        "--keep-going", is_flag=True, help="Leave documents out that can't be read, and report them."
    )(command)
    command = click.option(
        "--config",
        "config_path",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Configuration of the scheduler: its plugins and their arguments.",
    )(command)
    return click.option(
        "-f",
        "--filename",
        "paths",
        metavar="PATH",
        multiple=True,
        required=True,
        help="A file or folder of manifests (YAML or JSON), or - for standard input. May be repeated.",
    )(command)


def output_option(command: Command) -> Command:
    """``-o table|json|yaml``."""
    return click.option(
        "-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True, help="Form of the output."
    )(command)
