"""The views of a terminal as HTML, so that a report says what the table output says."""

from collections.abc import Iterable, Iterator
from html import escape

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from closeby.objects.words import harmless
from closeby.report.views.layout import Section


def markup(views: Iterable[RenderableType]) -> str:
    """Sections, tables and lines of text; everything from the input is escaped."""
    return "\n".join(part for view in views for part in _parts(view))


def _parts(view: RenderableType) -> Iterator[str]:
    if isinstance(view, Section):
        yield f"<h3>{_escaped(view.title)}</h3>"
        yield from _parts(view.body)
    elif isinstance(view, Group):
        for one in view.renderables:
            yield from _parts(one)
    elif isinstance(view, Padding):
        yield from _parts(view.renderable)
    elif isinstance(view, Table):
        yield _table(view)
    elif text := _plain(view).strip("\n"):
        yield f"<p>{_escaped(text)}</p>"


def _table(table: Table) -> str:
    numeric = [column.justify == "right" for column in table.columns]
    heads = [_plain(column.header) for column in table.columns]
    rows = zip(*(list(column.cells) for column in table.columns), strict=True)
    lines = [_row("th", heads, numeric)] if any(heads) and table.show_header else []
    lines += [_row("td", [_plain(cell) for cell in row], numeric) for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _row(tag: str, cells: Iterable[str], numeric: Iterable[bool]) -> str:
    inner = "".join(
        f'<{tag} class="number">{_escaped(cell)}</{tag}>' if number else f"<{tag}>{_escaped(cell)}</{tag}>"
        for cell, number in zip(cells, numeric, strict=True)
    )
    return f"<tr>{inner}</tr>"


def _plain(view: RenderableType) -> str:
    """What a line or a cell says, without its colours."""
    return view.plain if isinstance(view, Text) else str(view)


def _escaped(text: str) -> str:
    return escape(harmless(text))
