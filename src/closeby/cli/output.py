"""Prints a report in the form that was asked for."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from msgspec import Struct

if TYPE_CHECKING:
    from rich.console import RenderableType


def emit(document: Struct, output: str, views: Callable[[], Iterable["RenderableType"]]) -> None:
    """``views`` is only called for a table, so that JSON and YAML do not wait for what draws tables."""
    if output == "table":
        from closeby.report.console import show

        show(views())
        return
    from closeby.report.encoding import to_json, to_yaml

    click.echo(to_json(document) if output == "json" else to_yaml(document), nl=False)
