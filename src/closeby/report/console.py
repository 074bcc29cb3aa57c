"""The terminal, as far as views need it. Everything of rich is imported here and in the views, never earlier."""

import os
import sys
from collections.abc import Iterable
from typing import IO

from rich.console import Console, RenderableType

#: Width of output that does not go to a terminal and has no COLUMNS to say otherwise.
PIPED_WIDTH = 100


def show(views: Iterable[RenderableType], file: IO[str] | None = None) -> None:
    """Print views with colours on a terminal only; NO_COLOR is honoured."""
    target = sys.stdout if file is None else file
    width = None if target.isatty() or os.environ.get("COLUMNS", "").isdecimal() else PIPED_WIDTH
    console = Console(file=target, width=width, highlight=False, markup=False, emoji=False)
    for view in views:
        console.print(view)
