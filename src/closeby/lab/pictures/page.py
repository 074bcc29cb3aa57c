"""One HTML file that holds a whole report: what a table says, pictures, and the script that draws them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from closeby.lab.pictures.album import (
    Heading,
    Picture,
    distributions,
    hint_on,
    maps_of,
    not_drawn,
    notes_on,
    stop_of,
)
from closeby.lab.pictures.library import library
from closeby.lab.pictures.lookup import explanations_of, index_of_history, index_of_run
from closeby.lab.pictures.paper import (
    DARK,
    Spec,
    finished,
    moment_by_slider,
    moment_of,
    nothing_sought,
)
from closeby.lab.pictures.scene import scene_of
from closeby.lab.pictures.snapshot import snapshot
from closeby.lab.pictures.timeline import axis_of, scrubbed_timeline
from closeby.lab.replay.history import History
from closeby.objects.words import harmless
from closeby.report.documents.explanations import Explanation
from closeby.report.views.explanation import explanation_views
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
        # What is aligned by spaces, such as a line of bars below another, needs letters of one width.
        yield f"<pre>{_escaped(text)}</pre>" if "  " in text else f"<p>{_escaped(text)}</p>"


def _table(table: Table) -> str:
    numeric = [column.justify == "right" for column in table.columns]
    heads = [_plain(column.header) for column in table.columns]
    rows = zip(*(list(column.cells) for column in table.columns), strict=True)
    lines = [_row("th", heads, numeric)] if any(heads) and table.show_header else []
    lines += [_row("td", [_plain(cell) for cell in row], numeric) for row in rows]
    return '<div class="table" tabindex="0"><table>\n' + "\n".join(lines) + "\n</table></div>"


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
#: Said where a screen is narrower than the maps.
WIDE = '<p class="aside narrow">The pictures are wider than this window: move them sideways.</p>'
#: So many gangs, applications and pods are explained; few of them are unfolded from the start.
MOST_EXPLAINED = 200
FEW = 3
#: Where the slider is put.
SLIDER = '<div id="moment"></div>'


def page_of_history(
    history: History, heading: Heading, views: Iterable["RenderableType"], at: float | None = None
) -> str:
    """A run over time: the cluster at a moment that a slider chooses, distributions, and measures as
    ``views`` tell them. The slider begins at ``at`` (seconds), by default when most GPUs are busy."""
    scene = scene_of(history, at)
    moments = scene.moments
    charts = _above_each_other(scrubbed_timeline(history, moments), *maps_of(scene).values())
    chosen = moment_by_slider(moments.stops.tolist(), stop_of(history, scene, at), "Moment")
    return _page(
        heading,
        _search("job", index_of_history(history, scene)),
        _section(
            "The cluster over time",
            SLIDER,
            _asides(
                f"Move the slider: each step is what happens next. {hint_on(scene)}",
                *axis_of(history, moments).notes,
                *notes_on(scene),
            ),
            WIDE,
            _chart(
                "over-time", finished(charts, "", (), *chosen, nothing_sought()), CANVAS, slider="#moment"
            ),
        ),
        _distributions({history.policy: [history]}, heading),
        _section("Measures", markup(views)),
    )


def page_of_run(run: Run, heading: Heading, views: Iterable["RenderableType"]) -> str:
    """The state after a run over manifests: the maps, what ``views`` tell, and why all of it is so.

    Gangs, applications and pods are explained as far as the run recorded explanations.
    """
    scene = snapshot(run)
    maps = list(maps_of(scene).values())
    charts = finished(_above_each_other(*maps), "", (), moment_of(0.0), nothing_sought()) if maps else None
    return _page(
        heading,
        _search("gang or pod", index_of_run(run, scene)),
        _section(
            "The cluster",
            _asides(hint_on(scene), *notes_on(scene)),
            "" if charts is None else WIDE + _chart("state", charts, CANVAS),
        ),
        _section("What went where", markup(views)),
        _explained(run),
    )


def _above_each_other(*charts: Spec) -> Spec:
    return {"vconcat": list(charts), "spacing": 26}


def _search(what: str, index: dict[str, Any]) -> str:
    """The box in which a name is sought, and what it knows."""
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=False)
    return (
        f'<div id="search"><input type="search" id="sought" placeholder="Search for a {what}" '
        f'aria-label="Search for a {what}" autocomplete="off"><ul id="found" aria-live="polite"></ul></div>\n'
        f'<script type="application/json" id="jobs">{_harmless(text)}</script>'
    )


def _explained(run: Run) -> str:
    """What `closeby explain` says, of what waits first; empty where the run recorded no explanations."""
    found = list(explanations_of(run, MOST_EXPLAINED + 1))
    if not found:
        return ""
    left = (
        f"Of more than {MOST_EXPLAINED} the first are explained, those that wait before all others; for "
        "another run: closeby explain NAME -f with the same files."
    )
    parts = [
        f'<details data-name="{escape(_name(one))}"{" open" if len(found) <= FEW else ""}>'
        f"<summary>{_escaped(_headline(one))}</summary>\n{markup(explanation_views(one))}\n</details>"
        for one in found[:MOST_EXPLAINED]
    ]
    return _section("Why", _asides(left if len(found) > MOST_EXPLAINED else ""), *parts)


def _headline(explanation: Explanation) -> str:
    """``podgroup/default/train waits (…): …``: the first sentence, in which the name stands once."""
    told = explanation.sentences[1 if explanation.is_by_this_command else 0 :]
    if not told:
        return explanation.subject
    name = re.compile(rf"(?<![\w./-]){re.escape(_name(explanation))}(?!\w|[./-]\w)")
    said, count = name.subn(lambda _: explanation.subject, told[0], count=1)
    return said if count else f"{explanation.subject}: {said}"


def _name(explanation: Explanation) -> str:
    """``namespace/name``."""
    return explanation.subject.split("/", 1)[1]


def page_of_comparison(
    histories: Mapping[str, Sequence[History]], heading: Heading, views: Iterable["RenderableType"]
) -> str:
    """Policies side by side: distributions with a line for each policy, and what ``views`` tell."""
    return _page(heading, _distributions(histories, heading), _section("Measures", markup(views)))


def _distributions(histories: Mapping[str, Sequence[History]], heading: Heading) -> str:
    pictures = distributions(histories, heading)
    charts = "\n".join(
        f"<div>\n<h3>{escape(one.title)}</h3>\n{_asides(*one.notes)}\n{_panels(one)}\n</div>"
        for one in pictures
    )
    return _section("Distributions", _asides(not_drawn(histories)), f'<div class="beside">\n{charts}\n</div>')


def _panels(picture: Picture) -> str:
    """Each panel as a chart of its own: the page puts as many beside each other as it has room for."""
    panels: list[Spec] = picture.chart.get("hconcat", [picture.chart])
    names = [picture.name, *(f"{picture.name}-{number}" for number in range(2, len(panels) + 1))]
    charts = (_chart(name, finished(panel, "", ()), SVG) for name, panel in zip(names, panels, strict=True))
    return '<div class="beside">\n' + "\n".join(charts) + "\n</div>"


def _page(heading: Heading, *body: str) -> str:
    return Template(_text("page.html")).substitute(
        title=escape(heading.title),
        subtitle=escape(heading.details),
        body="\n".join(body),
        dark=json.dumps(DARK, separators=(",", ":")),
        library=library(),
        script=Template(_text("page.js")).substitute(),
    )


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _section(title: str, *parts: str) -> str:
    return "\n".join((f"<h2>{escape(title)}</h2>", *parts))


def _asides(*sentences: str) -> str:
    return "\n".join(f'<p class="aside">{escape(sentence)}</p>' for sentence in sentences if sentence)


def _chart(name: str, document: Spec, renderer: str, slider: str = "") -> str:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return (
        f'<div class="chart" id="{name}" data-renderer="{renderer}" data-slider="{slider}">'
        f'<script type="application/json">{_harmless(text)}</script></div>'
    )


def _harmless(text: str) -> str:
    """JSON without the character that could end the element it is put into."""
    return text.replace("<", "\\u003c")
