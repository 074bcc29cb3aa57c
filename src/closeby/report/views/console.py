"""The terminal, as far as views need it. Only this and the views import rich."""

import io
import os
import sys
from collections.abc import Iterable
from typing import IO

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments

from closeby.objects.words import harmless

#: Width of output that does not go to a terminal and has no COLUMNS to say otherwise.
PIPED_WIDTH = 100
#: Widths that COLUMNS may choose; narrower no table can be read, and wider ones only take time.
WIDTHS = range(20, 1001)


def show(views: Iterable[RenderableType], file: IO[str] | None = None) -> None:
    """Print views with colours on a terminal only; NO_COLOR is honoured."""
    target = sys.stdout if file is None else file
    if target.isatty():
        console = Console(file=target, highlight=False, markup=False, emoji=False)
        for view in views:
            _print(console, view)
        return
    # Into a pipe or file the padding at the ends of lines is of no use.
    target.writelines(f"{line.rstrip()}\n" for line in rendered(views).splitlines())


def rendered(views: Iterable[RenderableType]) -> str:
    """Views as text for a pipe or file: without colours unless FORCE_COLOR asks for them."""
    console = Console(
        file=io.StringIO(),
        width=_piped_width(os.environ.get("COLUMNS", "")),
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        for view in views:
            _print(console, view)
    return capture.get()


def _piped_width(columns: str) -> int:
    wanted = int(columns) if columns.isdecimal() and len(columns) < 10 else 0
    return min(max(wanted, WIDTHS[0]), WIDTHS[-1]) if wanted else PIPED_WIDTH


def _print(console: Console, view: RenderableType) -> None:
    """Names and values come from the input; what they hold must not steer the terminal."""
    segments = (
        one if one.control or one.text == "\n" else Segment(harmless(one.text), one.style)
        for one in console.render(view)
    )
    console.print(Segments(segments), end="")
