"""One HTML file that holds a whole report: what a table says, pictures, and the script that draws them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from closeby.lab.pictures.album import (
    VEGA_LITE,
    Heading,
    distributions,
    maps_of,
    not_drawn,
    notes_on,
    stop_of,
)
from closeby.lab.pictures.paper import finished, moment_by_slider, moment_of
from closeby.lab.pictures.scene import scene_of
from closeby.lab.pictures.snapshot import snapshot
from closeby.lab.pictures.timeline import axis_of, scrubbed_timeline
from closeby.lab.replay.history import History
from closeby.objects.words import harmless
from closeby.report.views.layout import Section
from closeby.simulator.runs import Run

if TYPE_CHECKING:
    from rich.console import RenderableType


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


#: Drawn as a bitmap, which is quick with thousands of marks; small charts are drawn as SVG.
CANVAS = "canvas"
SVG = "svg"
#: What the page needs of the libraries.
SNIPPET = "window.vegaEmbed = vegaEmbed;"
HINT = "Point at a gang to see where the rest of it is."
#: Where the slider is put.
SLIDER = '<div id="moment"></div>'


def page_of_history(history: History, heading: Heading, views: Iterable["RenderableType"]) -> str:
    """A run over time: measures as ``views`` tell them, the cluster at a moment that a slider chooses, and
    distributions."""
    scene = scene_of(history)
    moments = scene.moments
    slider = alt.binding_range(min=0, max=moments.count - 1, step=1, name="Moment")
    charts = alt.vconcat(scrubbed_timeline(history, moments), *maps_of(scene).values(), spacing=26)
    chosen = moment_by_slider(moments.stops.tolist(), stop_of(history, scene, None), slider)
    return _page(
        heading,
        _section("Measures", markup(views)),
        _section(
            "The cluster over time",
            SLIDER,
            _asides(
                f"Move the slider: each step is what happens next. {HINT}",
                *axis_of(history, moments).notes,
                *notes_on(scene),
            ),
            _chart("over-time", finished(charts, "", (), *chosen), CANVAS, slider="#moment"),
        ),
        _distributions({history.policy: [history]}, heading),
    )


def page_of_run(run: Run, heading: Heading, views: Iterable["RenderableType"]) -> str:
    """The state after a run over manifests: the maps, and what ``views`` tell."""
    scene = snapshot(run)
    maps = list(maps_of(scene).values())
    charts = finished(alt.vconcat(*maps, spacing=26), "", (), moment_of(0.0)) if maps else None
    return _page(
        heading,
        _section(
            "The cluster",
            _asides(HINT, *notes_on(scene)),
            "" if charts is None else _chart("state", charts, CANVAS),
        ),
        _section("What went where", markup(views)),
    )


def page_of_comparison(
    histories: Mapping[str, Sequence[History]], heading: Heading, views: Iterable["RenderableType"]
) -> str:
    """Policies side by side: what ``views`` tell, and distributions with a line for each policy."""
    return _page(heading, _section("Measures", markup(views)), _distributions(histories, heading))


def _distributions(histories: Mapping[str, Sequence[History]], heading: Heading) -> str:
    pictures = distributions(histories, heading)
    charts = "\n".join(
        f"<div>\n<h3>{escape(one.title)}</h3>\n{_asides(*one.notes)}\n"
        f"{_chart(one.name, finished(one.chart, '', ()), SVG)}\n</div>"
        for one in pictures
    )
    return _section("Distributions", _asides(not_drawn(histories)), f'<div class="beside">\n{charts}\n</div>')


def _page(heading: Heading, *body: str) -> str:
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(heading.title),
        subtitle=escape(heading.details),
        body="\n".join(body),
        library=_library(),
    )


@cache
def _library() -> str:
    """The script that draws: Vega, Vega-Lite and Vega-Embed as one."""
    return vl_convert.javascript_bundle(SNIPPET, VEGA_LITE).replace("</script", "<\\/script")


def _section(title: str, *parts: str) -> str:
    return "\n".join((f"<h2>{escape(title)}</h2>", *parts))


def _asides(*sentences: str) -> str:
    return "\n".join(f'<p class="aside">{escape(sentence)}</p>' for sentence in sentences if sentence)


def _chart(name: str, document: dict[str, Any], renderer: str, slider: str = "") -> str:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return (
        f'<div class="chart" id="{name}" data-renderer="{renderer}" data-slider="{slider}">'
        f'<script type="application/json">{_harmless(text)}</script></div>'
    )


def _harmless(text: str) -> str:
    """JSON without the character that could end the element it is put into."""
    return text.replace("<", "\\u003c")
