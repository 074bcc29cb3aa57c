"""The HTML report as text: what it says, that it fetches nothing, and that names can't break it."""

import json
import re
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from closeby.report.pictures.headings import Heading
from closeby.report.pictures.markup import markup
from closeby.report.pictures.page import page_of_comparison, page_of_history, page_of_run
from closeby.report.views.layout import plain_table, section
from tests.report.pictures.histories import STORY, UNTIL, Job, applications, history, story
from tests.report.pictures.test_files import some_run

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
        "<table>",
        '<tr><th>size</th><th class="number">jobs</th></tr>',
        '<tr><td>&lt;all&gt;</td><td class="number">12</td></tr>',
        "</table>",
        "<p>a &amp; b</p>",
    ]


def test_a_run_over_time_has_measures_a_slider_and_distributions() -> None:
    page = page_of_history(story(), HEADING, [section("Told", Text("as in the table"))])
    assert "<h1>a story on seven nodes</h1>" in page
    assert "<p>as in the table</p>" in page
    found = charts(page)
    assert list(found) == ["over-time", "delay", "span"]
    (moment,) = [one for one in found["over-time"]["params"] if one["name"] == "moment"]
    assert moment["value"] == 10
    assert moment["bind"] == {"input": "range", "min": 0, "max": 40, "step": 0.05, "name": "Time [min]"}


def test_a_state_has_no_slider() -> None:
    page = page_of_run(some_run(), HEADING, [])
    assert list(charts(page)) == ["state"]
    assert 'id="moment"' not in page


def test_a_comparison_has_distributions() -> None:
    page = page_of_comparison({"ours": [story()], "theirs": [story()]}, HEADING, [])
    assert list(charts(page)) == ["delay", "span"]


def test_applications_have_talk_in_place_of_the_span_of_gangs() -> None:
    both = {name: [applications(name)] for name in ("ours", "theirs")}
    page = page_of_comparison(both, HEADING, [])
    assert list(charts(page)) == ["delay", "talk"]
    assert "Excess span is not drawn" in page
    one = page_of_history(applications(), HEADING, [])
    assert list(charts(one)) == ["over-time", "delay", "talk"]
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
    jobs = {
        f"short-{number}": Job(nodes=("n1",), start=number * 0.01, end=number * 0.01 + 0.01)
        for number in range(100)
    }
    past = history({**jobs, "long": Job(nodes=("n2",), start=0.0, end=500.0)}, until=500.0)
    page = page_of_history(past, HEADING, [])
    assert "99 of 101 jobs that started ran only between two such moments" in page
