"""Prints a report in the form that was asked for."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from closeby.cli.reading.inputs import Unusable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.report.documents.tables import CsvTable


def emit(
    document: Struct,
    output: str,
    views: Callable[[], Iterable["RenderableType"]],
    summary: Callable[[], "CsvTable"] | None = None,
) -> None:
    """``views`` is only called for a table, so that JSON and YAML do not wait for what draws tables.

    ``summary`` is what is printed as CSV, by the commands that offer it.
    """
    if sys.stdout is None:
        raise Unusable("standard output is closed, so the report can't be printed")
    try:
        _print(document, output, views, summary)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise Unusable(f"the report can't be written: {error.strerror or error}") from error


def emit_and_then(
    document: Struct,
    output: str,
    views: Callable[[], Iterable["RenderableType"]],
    rest: Callable[[], None],
    summary: Callable[[], "CsvTable"] | None = None,
) -> None:
    """As ``emit``; ``rest`` writes files, even if the reader stops after the first lines."""
    try:
        emit(document, output, views, summary)
    except BrokenPipeError:
        rest()
        raise
    rest()


def discard_output() -> None:
    """What is still buffered for a standard output that takes no more must not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(
    document: Struct,
    output: str,
    views: Callable[[], Iterable["RenderableType"]],
    summary: Callable[[], "CsvTable"] | None,
) -> None:
    if output == "table":
        from closeby.report.views.console import show

        show(views())
        return
    if summary is not None and output == "csv":
        from closeby.report.documents.tables import to_csv

        click.echo(to_csv(summary()), nl=False)
        return
    from closeby.report.documents.common import to_json, to_yaml

    click.echo(to_json(document) if output == "json" else to_yaml(document), nl=False)
