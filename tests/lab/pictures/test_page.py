"""The HTML report as text: what it says, that it fetches nothing, and that names can't break it."""

import json
import re
from typing import Any

import altair as alt
from rich.console import Group, RenderableType
from rich.text import Text

from closeby.lab.pictures.album import Heading, pictures_of_history
from closeby.lab.pictures.cdfs import COLOURS
from closeby.lab.pictures.gang_marks import GANGS
from closeby.lab.pictures.page import markup, page_of_comparison, page_of_history, page_of_run
from closeby.lab.pictures.paper import DARK, ON_DARK, ON_LIGHT
from closeby.objects.labels import HOSTNAME
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.report.views.layout import plain_table, section
from closeby.simulator.runs import Asked, simulate
from tests.lab.pictures.histories import (
    STORY,
    UNTIL,
    Job,
    applications,
    history,
    reserving_story,
    story,
)
from tests.lab.pictures.test_files import some_run
from tests.lab.pictures.test_heat_map import large
from tests.worlds import draw, fabric, gang, pods, spec

HEX = re.compile(r"#[0-9A-Fa-f]{6}\b")
HEADING = Heading(title="a story on seven nodes", details="5 jobs")
CHART = re.compile(
    r'<div class="chart" id="([\w-]+)"[^>]*><script type="application/json">(.*?)</script>', re.DOTALL
)


def charts(page: str) -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in CHART.findall(page)}


def test_views_become_headings_tables_and_lines() -> None:
    table = plain_table("size", "jobs", right=("jobs",))
    table.add_row(Text("<all>", style="bold"), "12")
    views: list[RenderableType] = [
        Text("two\nlines", style="red"),
        section("Waiting", Group(table, Text("a & b"))),
    ]
    assert markup(views).split("\n") == [
        "<p>two",
        "lines</p>",
        "<h3>Waiting</h3>",
        '<div class="table" tabindex="0"><table>',
        '<tr><th>size</th><th class="number">jobs</th></tr>',
        '<tr><td>&lt;all&gt;</td><td class="number">12</td></tr>',
        "</table></div>",
        "<p>a &amp; b</p>",
    ]


def test_a_run_over_time_has_measures_a_slider_and_distributions() -> None:
    page = page_of_history(story(), HEADING, [section("Told", Text("as in the table"))])
    assert "<h1>a story on seven nodes</h1>" in page
    assert "<p>as in the table</p>" in page
    found = charts(page)
    assert list(found) == ["over-time", "delay", "span"]
    assert page.index('id="over-time"') < page.index('id="delay"') < page.index("<p>as in the table</p>")
    stop, moment = [one for one in found["over-time"]["params"] if one["name"] in ("moment", "stop")]
    assert stop["value"] == 2
    assert stop["bind"] == {"input": "range", "min": 0, "max": 6, "step": 1, "name": "Moment"}
    assert moment["expr"] == "[0,5,10,15,20,30,40][stop]"


def test_a_state_has_no_slider() -> None:
    page = page_of_run(some_run(), HEADING, [])
    assert list(charts(page)) == ["state"]
    assert 'id="moment"' not in page


def test_a_comparison_has_distributions() -> None:
    page = page_of_comparison({"ours": [story()], "theirs": [story()]}, HEADING, [])
    assert list(charts(page)) == ["delay", "delay-2", "span", "span-2"]


def test_applications_have_talk_in_place_of_the_span_of_gangs() -> None:
    both = {name: [applications(name)] for name in ("ours", "theirs")}
    page = page_of_comparison(both, HEADING, [])
    assert list(charts(page)) == ["delay", "delay-2", "talk", "talk-2", "talk-3", "talk-4"]
    assert "Excess span is not drawn" in page
    one = page_of_history(applications(), HEADING, [])
    assert list(charts(one)) == ["over-time", "delay", "talk", "talk-2", "talk-3", "talk-4"]
    assert "Excess span is not drawn" not in page_of_history(story(), HEADING, [])


def test_the_same_run_gives_the_same_page() -> None:
    assert page_of_history(story(), HEADING, []) == page_of_history(story(), HEADING, [])


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = page_of_history(story(), HEADING, [])
    assert "<script src" not in page
    assert "<link" not in page
    assert "default-src 'none'" in page


def test_names_can_not_end_the_script_that_holds_them() -> None:
    evil = "</script><script>alert(1)</script>"
    past = history({evil: Job(nodes=("n1", "n2"), start=0.0, end=9.0), **STORY}, UNTIL)
    page = page_of_history(past, Heading(title=evil, details=evil), [Text(evil)])
    assert "alert(1)</script>" not in page
    assert evil in json.dumps(charts(page)["over-time"])


def test_what_is_left_out_is_said() -> None:
    """Of 1,500 jobs that run for a moment each, one after the other, the slider can't stop at every one."""
    jobs = {
        f"short-{number}": Job(nodes=("n1",), start=number * 0.01, end=number * 0.01 + 0.01)
        for number in range(1500)
    }
    past = history({**jobs, "long": Job(nodes=("n2",), start=0.0, end=500.0)}, until=500.0)
    page = page_of_history(past, HEADING, [])
    assert "The maps show the state at 1,000 of 1,502 moments at which something happened" in page
    assert "501 of 1,501 jobs that started ran only between two of them" in page
    assert "only between two of them" not in page_of_history(story(), HEADING, [])


def test_the_time_after_jobs_came_and_waited_is_drawn_short_and_said_so() -> None:
    """The last job comes after ten seconds and starts at once; it ends after 500."""
    jobs = {"a": Job(nodes=("n1",), start=0.0, end=10.0), "b": Job(nodes=("n2",), submitted=10.0, start=10.0)}
    page = page_of_history(history(jobs, until=500.0), HEADING, [])
    said = (
        "Jobs came or waited for 10 s; the 8 min 10 s after that, in which the last of them ended, are drawn"
    )
    assert said in page
    assert "are drawn shorter" not in page_of_history(story(), HEADING, [])


def test_what_spaces_align_keeps_its_width() -> None:
    assert markup([Text("in use  ▁▂▇")]) == "<pre>in use  ▁▂▇</pre>"


def test_a_report_of_files_explains_what_waits_first() -> None:
    run = simulate(
        Manifests(
            nodes=tuple(draw("a l1 : n1=4", ["zone", "leaf"])),
            topologies=(fabric("zone", "leaf", HOSTNAME),),
            groups=(gang("fits", min_member=1), gang("large", min_member=9)),
            pods=(*pods("fits", 1, spec(gpu=1)), *pods("large", 9, spec(gpu=4))),
        ),
        Configuration(),
        Asked(explain=True),
    )
    page = page_of_run(run, HEADING, [])
    found = re.findall(r'<details data-name="([^"]+)"', page)
    assert found == ["default/large", "default/fits"]
    for name, headline in zip(found, re.findall("<summary>(.*)</summary>", page), strict=True):
        assert f"podgroup/{name} " in headline
        assert headline.count(name) == 1
    assert "<details" not in page_of_run(some_run(), HEADING, [])


def test_documents_obey_the_schema_of_their_language() -> None:
    """Nothing is checked while it is drawn."""
    pages = (
        page_of_history(reserving_story(), HEADING, []),
        page_of_history(applications(), HEADING, []),
        page_of_run(some_run(), HEADING, []),
    )
    documents = [document for page in pages for document in charts(page).values()]
    for past in (reserving_story(), applications(), large()):
        documents += [picture.document() for picture in pictures_of_history(past, HEADING)]
    for document in documents:
        alt.Chart.from_dict(document)


def test_every_colour_of_ink_and_paper_has_one_for_dark_paper() -> None:
    """Gangs keep theirs; what is drawn with any other colour is read on both papers."""
    known = {*DARK, *GANGS, ON_DARK, ON_LIGHT, *COLOURS}
    for past in (reserving_story(), applications()):
        page = page_of_history(past, HEADING, [])
        used = {one for document in charts(page).values() for one in HEX.findall(json.dumps(document))}
        assert used - known == set()
