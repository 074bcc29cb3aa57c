"""The HTML report in a real browser without a network: it draws, the slider moves the map, all is there."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from closeby.lab.pictures.album import Heading
from closeby.lab.pictures.gang_marks import SINGLE, TINT, colours_of
from closeby.lab.pictures.page import page_of_comparison, page_of_history, page_of_run
from closeby.lab.pictures.paper import DARK
from closeby.lab.pictures.scene import scene_of
from closeby.lab.replay.history import History
from closeby.report.views.layout import plain_table, section
from tests.lab.pictures.histories import (
    STORY,
    UNTIL,
    Job,
    applications,
    history,
    reserving_story,
    story,
    who_holds,
)
from tests.lab.pictures.test_files import some_run
from tests.lab.pictures.test_heat_map import large

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    # The first one starts the browser.
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs a Chromium and its chromedriver in the PATH"
    ),
]

#: Seconds until the page has shown what it was asked for, on any machine.
PATIENCE = 60.0
HEADING = Heading(title="a story on seven nodes", details="5 jobs")

#: All rectangles whose datum has some field, and a place on the canvas beside the number that may be in the
#: middle: [[datum, x, y], …].
MARKS = """
const view = (await window.closeby)[arguments[0]];
await view.runAsync();
const [left, top] = view.origin();
const padding = view.padding();
const found = [], field = arguments[1];
const walk = (item, x, y) => {
  for (const mark of item.items || []) {
    for (const one of mark.items || []) {
      if (mark.marktype === "group") walk(one, x + one.x, y + one.y);
      else if (mark.marktype === "rect" && one.datum[field])
        found.push([one.datum, x + one.x + one.width / 4, y + one.y + one.height / 2]);
    }
  }
};
walk({items: [view.scenegraph().root]}, left + padding.left, top + padding.top);
return found;
"""
#: The colour of a pixel of the map's canvas, as #RRGGBB.
PIXEL = """
const canvas = document.querySelector("#" + arguments[0] + " canvas");
const scale = canvas.width / canvas.getBoundingClientRect().width;
const [r, g, b] = canvas.getContext("2d").getImageData(arguments[1] * scale, arguments[2] * scale, 1, 1).data;
return "#" + [r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("").toUpperCase();
"""
#: What is said beside the pointer.
TOOLTIP = "return (document.querySelector('#vg-tooltip-element.visible') || {}).innerText || '';"
#: What text marks of a view say.
TEXTS = """
const view = (await window.closeby)[arguments[0]];
await view.runAsync();
const found = [];
const walk = (item) => {
  for (const mark of item.items || [])
    for (const one of mark.items || [])
      mark.marktype === "group" ? walk(one) : mark.marktype === "text" && found.push(String(one.text));
};
walk({items: [view.scenegraph().root]});
return found;
"""
#: How many marks each view has by their type, guides aside, of those that cover some of the paper.
DRAWN = """
return (await window.closeby).map((view) => {
  const found = {};
  const walk = (item) => {
    for (const mark of item.items || []) {
      if (mark.role !== "mark" && mark.role !== "scope" && mark.role !== "frame") continue;
      if (mark.marktype === "group") mark.items.forEach(walk);
      else if (mark.marktype === "line" || mark.marktype === "area") {
        const xs = new Set(mark.items.map(({x}) => x)), ys = new Set(mark.items.map(({y}) => y));
        if (xs.size + ys.size > 2) found[mark.marktype] = (found[mark.marktype] || 0) + 1;
      } else {
        const wide = mark.items.filter(({bounds}) => bounds.x2 - bounds.x1 + bounds.y2 - bounds.y1 > 0);
        if (wide.length) found[mark.marktype] = (found[mark.marktype] || 0) + wide.length;
      }
    }
  };
  view.scenegraph().root.items.forEach(walk);
  return found;
});
"""
#: The paths of lines in a chart that is SVG.
PATHS = """
const lines = document.querySelectorAll("#" + arguments[0] + " svg .mark-line path");
return [...lines].map((one) => one.getTotalLength());
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A Chromium that finds no host; what it asks for is recorded."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--no-sandbox",
        "--headless=new",
        "--disable-gpu",
        "--window-size=1400,1600",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_script_timeout(100)
    yield driver
    driver.quit()


def run(browser: webdriver.Chrome, script: str, *arguments: object) -> Any:
    """What a script of the page returns, once it is done."""
    return browser.execute_async_script(
        f"const body = async function() {{ {script} }}, done = arguments[arguments.length - 1];"
        "body.apply(null, arguments).then(done, (error) => done('failed: ' + error));",
        *arguments,
    )


def logged(browser: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    """What the browser noted since it was last asked."""
    found: list[dict[str, Any]] = browser.execute("getLog", {"type": kind})["value"]
    return found


def opened(browser: webdriver.Chrome, folder: Path, page: str) -> None:
    """Open a page as a file and wait until all is drawn."""
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    logged(browser, "browser")
    logged(browser, "performance")
    browser.get(file.as_uri())
    assert isinstance(run(browser, "return (await window.closeby).length;"), int)


def check_quiet(browser: webdriver.Chrome, folder: Path) -> None:
    """No complaint in the console, and nothing asked for but the file itself."""
    assert logged(browser, "browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in logged(browser, "performance")]
    asked = {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    elsewhere = {url for url in asked if not url.startswith(("data:", "blob:"))}
    assert elsewhere == {(folder / "report.html").as_uri()}


def move_to(browser: webdriver.Chrome, minutes: float, past: History | None = None) -> None:
    """Drag the slider to the last stop up to a time; that of the story without a past."""
    stop = scene_of(past or story()).moments.holding(minutes * 60)
    run(
        browser,
        """
        const slider = document.querySelector("#moment input[type=range]");
        slider.value = arguments[0];
        slider.dispatchEvent(new Event("input", {bubbles: true}));
        await (await window.closeby)[0].runAsync();
        """,
        stop,
    )


def drawn(browser: webdriver.Chrome, view: int = 0) -> dict[str, set[str]]:
    """Jobs by the nodes that they are drawn on."""
    found: dict[str, set[str]] = {}
    for datum, _, _ in run(browser, MARKS, view, "job"):
        found.setdefault(datum["node"], set()).add(datum["job"])
    return found


def expected(past: History, minutes: float) -> dict[str, set[str]]:
    return {node: set(jobs) for node, jobs in who_holds(past, minutes * 60).items()}


def test_the_slider_moves_the_map_to_what_the_history_says(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Before, at and after every moment at which something changes, in any order."""
    past = story()
    opened(browser, tmp_path, page_of_history(past, HEADING, []))
    assert drawn(browser) == expected(past, 10.0)
    for minutes in (0.0, 9.95, 10.0, 19.95, 20.0, 40.0, 30.0, 29.95, 5.0):
        move_to(browser, minutes)
        assert drawn(browser) == expected(past, minutes)
    check_quiet(browser, tmp_path)


def test_what_is_seen_has_the_colour_of_its_gang(browser: webdriver.Chrome, tmp_path: Path) -> None:
    past = story()
    scene = scene_of(past)
    colours = dict(zip([tenant.name for tenant in scene.tenants], colours_of(scene), strict=True))
    opened(browser, tmp_path, page_of_history(past, HEADING, []))
    for minutes in (0.0, 10.0, 20.0):
        move_to(browser, minutes)
        marks = run(browser, MARKS, 0, "job")
        assert marks
        for datum, x, y in marks:
            assert browser.execute_script(PIXEL, "over-time", x, y) == colours[datum["job"]].upper()


def test_a_node_changes_its_colour_and_is_white_when_it_is_free(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    """n3 belongs to wide until minute 20 and to nobody afterwards."""
    opened(browser, tmp_path, page_of_history(story(), HEADING, []))
    (at,) = [(x, y) for datum, x, y in run(browser, MARKS, 0, "job") if datum["node"] == "n3"]
    assert browser.execute_script(PIXEL, "over-time", *at) not in ("#FFFFFF", SINGLE)
    move_to(browser, 20.0)
    assert browser.execute_script(PIXEL, "over-time", *at) == "#FFFFFF"
    move_to(browser, 19.95)
    assert browser.execute_script(PIXEL, "over-time", *at) not in ("#FFFFFF", SINGLE)


def test_the_slider_answers_to_keys_and_the_words_follow(browser: webdriver.Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, page_of_history(story(), HEADING, []))
    slider = browser.find_element(By.CSS_SELECTOR, "#moment input[type=range]")
    texts = run(browser, TEXTS, 0)
    assert "At 10 min: 15 of 28 GPUs busy, 1 job waiting for 8 GPUs" in texts
    assert "wide: 3 pods × 4 GPUs in 2 leaves of a" in texts
    slider.send_keys(Keys.END)
    texts = texts_with(browser, "At 40 min: 8 of 28 GPUs busy, 1 job waiting for 36 GPUs")
    assert "later: 2 pods × 4 GPUs in a/l1" in texts
    assert not [text for text in texts if text.startswith("wide")]


def texts_with(browser: webdriver.Chrome, wanted: str) -> list[str]:
    """What the first view says once it says this."""
    end = time.monotonic() + PATIENCE
    while wanted not in (texts := run(browser, TEXTS, 0)):
        assert time.monotonic() < end, texts
        time.sleep(0.1)
    return [str(one) for one in texts]


def check_told_at(browser: webdriver.Chrome, x: float, y: float, *wanted: str) -> None:
    """All of this is said beside the pointer soon after it came there on the canvas of a run over time."""
    canvas = browser.find_element(By.CSS_SELECTOR, "#over-time canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    size = canvas.size
    pointer = ActionChains(browser)
    pointer.move_to_element_with_offset(
        canvas, round(x - size["width"] / 2), round(y - size["height"] / 2)
    ).perform()
    end = time.monotonic() + PATIENCE
    while not all(said in (tooltip := str(browser.execute_script(TOOLTIP))) for said in wanted):
        assert time.monotonic() < end, tooltip
        time.sleep(0.1)


def test_a_gang_tells_about_itself_below_the_pointer(browser: webdriver.Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, page_of_history(story(), HEADING, []))
    (at,) = [(x, y) for datum, x, y in run(browser, MARKS, 0, "job") if datum["node"] == "n3"]
    check_told_at(browser, *at, "wide", "3 pods × 4 GPUs", "0 s", "1 zone, 2 leaves, 3 nodes", "n3")


def test_nodes_are_kept_free_while_a_reservation_holds(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Minute 12 to 20: n1, which wide has, and n5 for later; from minute 25 to the end: n6 for never."""
    opened(browser, tmp_path, page_of_history(reserving_story(), HEADING, []))
    line = "2 nodes kept free for later: 2 pods × 4 GPUs"
    last = "1 node kept free for never: 9 pods × 4 GPUs"
    for minutes, kept, told in (
        (11.95, set(), None),
        (12.0, {("later", "n1"), ("later", "n5")}, line),
        (19.95, {("later", "n1"), ("later", "n5")}, line),
        (20.0, set(), None),
        (25.0, {("never", "n6")}, last),
        (40.0, {("never", "n6")}, last),
        (0.0, set(), None),
    ):
        move_to(browser, minutes, reserving_story())
        marks = run(browser, MARKS, 0, "gang")
        assert {(datum["gang"], datum["node"]) for datum, _, _ in marks} == kept
        assert [text for text in run(browser, TEXTS, 0) if "kept free" in text] == ([told] if told else [])
        assert drawn(browser) == expected(reserving_story(), minutes)
    check_quiet(browser, tmp_path)


def test_a_node_that_is_kept_free_is_tinted_and_says_for_whom(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    """n5 is free and kept for later; n1 is kept too, but wide still has all of it and its colour."""
    opened(browser, tmp_path, page_of_history(reserving_story(), HEADING, []))
    move_to(browser, 15.0, reserving_story())
    at = {datum["node"]: (x, y) for datum, x, y in run(browser, MARKS, 0, "gang")}
    assert browser.execute_script(PIXEL, "over-time", *at["n5"]) == TINT
    assert browser.execute_script(PIXEL, "over-time", *at["n1"]) not in (TINT, "#FFFFFF")
    check_told_at(browser, *at["n5"], "kept free for", "later", "2 pods × 4 GPUs", "n5")
    check_told_at(browser, *at["n1"], "wide")


def test_every_chart_of_every_page_has_marks(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Curves of distributions and of the timeline, bars of the maps; a grid and a legend are no marks."""
    several = {name: [story(name)] for name in ("ours", "theirs")}
    calling = {name: [applications(name)] for name in ("ours", "theirs")}
    for page, over_time in (
        (page_of_history(story(), HEADING, []), True),
        (page_of_history(applications(), HEADING, []), True),
        (page_of_comparison(several, HEADING, []), False),
        (page_of_comparison(calling, HEADING, []), False),
    ):
        opened(browser, tmp_path, page)
        marks = run(browser, DRAWN)
        assert len(marks) > 1
        assert [one for one in marks if not one.get("line") and not one.get("area")] == []
        assert bool(marks[0].get("rect")) is over_time
    opened(browser, tmp_path, page_of_run(some_run(), HEADING, []))
    (state,) = run(browser, DRAWN)
    assert state["rect"]


def test_distributions_are_drawn_as_svg(browser: webdriver.Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, page_of_history(story(), HEADING, []))
    for name in ("delay", "span"):
        lengths = browser.execute_script(PATHS, name)
        assert lengths
        assert min(lengths) > 0
        assert browser.find_elements(By.CSS_SELECTOR, f"#{name} svg .role-legend")


def test_a_state_is_drawn(browser: webdriver.Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, page_of_run(some_run(), HEADING, []))
    jobs = {job for jobs in drawn(browser).values() for job in jobs}
    assert jobs == {"default/train", "default/solo-0"}
    check_quiet(browser, tmp_path)


def test_policies_side_by_side_are_drawn(browser: webdriver.Chrome, tmp_path: Path) -> None:
    both = {name: [story(name)] for name in ("ours", "theirs")}
    opened(browser, tmp_path, page_of_comparison(both, HEADING, []))
    assert {"ours", "theirs", "2-8 GPUs"} <= set(run(browser, TEXTS, 0))
    assert {"ours", "theirs", "9-64 GPUs"} <= set(run(browser, TEXTS, 1))
    check_quiet(browser, tmp_path)


def test_applications_side_by_side_are_drawn(browser: webdriver.Chrome, tmp_path: Path) -> None:
    both = {name: [applications(name)] for name in ("ours", "theirs")}
    opened(browser, tmp_path, page_of_comparison(both, HEADING, []))
    assert {"ours", "theirs", "cost of a pair"} <= set(run(browser, TEXTS, 2))
    assert {"ours", "theirs", "pairs in one zone"} <= set(run(browser, TEXTS, 4))
    check_quiet(browser, tmp_path)


@contextmanager
def window(browser: webdriver.Chrome, width: int, scheme: str = "light") -> Iterator[None]:
    """A window of this width, on a screen that likes light or dark pages."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def wide_table() -> Table:
    """Wider than a telephone."""
    table = plain_table(*(f"a column that is number {number}" for number in range(9)), right=())
    table.add_row(*("a-word-that-can-not-be-broken" for _ in range(9)))
    return table


@pytest.mark.parametrize("width", [420, 1024, 1600])
def test_no_page_is_wider_than_its_window(browser: webdriver.Chrome, tmp_path: Path, width: int) -> None:
    views: list[RenderableType] = [section("Told", wide_table()), Text("in use  " + "▇" * 200)]
    both = {name: [story(name)] for name in ("ours", "theirs")}
    pages = (
        page_of_history(story(), HEADING, views),
        page_of_run(some_run(), HEADING, views),
        page_of_comparison(both, HEADING, views),
    )
    with window(browser, width):
        for page in pages:
            opened(browser, tmp_path, page)
            seen, all_of_it = run(
                browser,
                "return [document.documentElement.clientWidth, document.documentElement.scrollWidth];",
            )
            assert all_of_it == seen


@pytest.mark.parametrize(("width", "hinted"), [(420, [True, False]), (1600, [False, False])])
def test_tables_that_are_cut_say_that_they_scroll(
    browser: webdriver.Chrome, tmp_path: Path, width: int, hinted: list[bool]
) -> None:
    wide, narrow = plain_table(*(f"column{number}" for number in range(12))), plain_table("a", "b")
    wide.add_row(*("some-words" for _ in range(12)))
    narrow.add_row("1", "2")
    hints = """
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const hint = (one) => getComputedStyle(one, "::before").content;
    return [...document.querySelectorAll(".table")].map((one) => hint(one) !== "none");
    """
    with window(browser, width):
        opened(browser, tmp_path, page_of_run(some_run(), HEADING, [wide, narrow]))
        assert run(browser, hints) == hinted
        check_quiet(browser, tmp_path)


def test_a_dark_screen_gets_a_dark_page(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Paper and free nodes are dark, gangs keep their colours, and the other way round when that changes."""
    past = story()
    scene = scene_of(past)
    colours = dict(zip([tenant.name for tenant in scene.tenants], colours_of(scene), strict=True))
    paper = "return getComputedStyle(document.body).backgroundColor;"
    with window(browser, 1400, "dark"):
        opened(browser, tmp_path, page_of_history(past, HEADING, []))
        assert run(browser, paper) == "rgb(18, 22, 29)"
        (wide,) = [(x, y) for one, x, y in run(browser, MARKS, 0, "job") if one["node"] == "n3"]
        (free,) = [(x, y) for one, x, y in run(browser, MARKS, 0, "has") if one["node"] == "n7"]
        assert browser.execute_script(PIXEL, "over-time", *free) == DARK["#FFFFFF"]
        assert browser.execute_script(PIXEL, "over-time", *wide) == colours["wide"].upper()
    assert run(browser, paper) == "rgb(255, 255, 255)"
    end = time.monotonic() + PATIENCE
    while (
        run(browser, "await window.closeby;")
        or browser.execute_script("return document.querySelectorAll('#over-time canvas').length") != 1
        or browser.execute_script(PIXEL, "over-time", *free) != "#FFFFFF"
    ):
        assert time.monotonic() < end
        time.sleep(0.1)


def sought(browser: webdriver.Chrome, text: str) -> list[str]:
    """What is told when this is searched for."""
    lines: list[str] = run(
        browser,
        """
        const box = document.getElementById("sought");
        window.searched = undefined;
        box.value = arguments[0];
        box.dispatchEvent(new Event("input", {bubbles: true}));
        while (!window.searched) await new Promise((done) => setTimeout(done, 20));
        await window.searched;
        return [...document.querySelectorAll("#found li")].map((one) => one.innerText);
        """,
        text,
    )
    return lines


def test_a_job_is_found(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """It is told in words, the slider moves to where it runs, and tables show nothing else."""
    table = plain_table("job", "what")
    for name in ("wide", "later"):
        table.add_row(name, "some words")
    opened(browser, tmp_path, page_of_history(story(), HEADING, [table]))
    (told,) = sought(browser, "LATER")
    assert told.startswith("later: 2 pods × 4 GPUs; came at 10 min, waited 10 min, ran until the end; ")
    assert told.endswith("1 zone, 1 leaf, 2 nodes; on the map from 20 min to 40 min")
    assert drawn(browser) == expected(story(), 20.0)
    rows = "return [...document.querySelectorAll('tr:has(td)')].filter((one) => one.offsetParent).length;"
    assert run(browser, rows) == 1
    (waits,) = sought(browser, "never")
    assert waits == "never: 9 pods × 4 GPUs; came at 15 min and never started"
    assert sought(browser, "no such job") == ["Nothing of this name is in the report."]
    assert sought(browser, "") == []
    assert run(browser, rows) == 2
    check_quiet(browser, tmp_path)


def test_what_is_found_stands_out_on_the_map(browser: webdriver.Chrome, tmp_path: Path) -> None:
    opened(browser, tmp_path, page_of_run(some_run(), HEADING, []))
    marks = {one["job"]: (x, y) for one, x, y in run(browser, MARKS, 0, "job")}
    before = {job: browser.execute_script(PIXEL, "state", *at) for job, at in marks.items()}
    assert sought(browser, "train")[0].startswith("default/train: 2 pods × 4 GPUs on nodes; ")
    after = {job: browser.execute_script(PIXEL, "state", *at) for job, at in marks.items()}
    assert after["default/train"] == before["default/train"]
    assert after["default/solo-0"] != before["default/solo-0"]


def test_names_that_are_patterns_or_markup_are_searched_as_they_are(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    evil = "a.*(b[</script><img src=x onerror=alert(1)>"
    past = history({evil: Job(nodes=("n1", "n2"), start=0.0, end=9.0), **STORY}, UNTIL)
    opened(browser, tmp_path, page_of_history(past, Heading(title=evil, details=evil), [Text(evil)]))
    (told,) = sought(browser, "a.*(b[")
    assert told.startswith(f"{evil}: 2 pods")
    assert sought(browser, ".*") == [told]
    check_quiet(browser, tmp_path)


def test_a_large_cluster_shows_the_use_and_the_gangs_of_each_domain(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    """wide and small in the first leaf, wide in the second, a single pod in another; what is sought has an
    outline."""
    opened(browser, tmp_path, page_of_history(large(), HEADING, []))
    tiles = {one["name"]: one for one, _, _ in run(browser, MARKS, 0, "name") if "gangs" in one}
    assert len([name for name in tiles if "/" in name]) == 80
    told = {name: (one["gangs"], one["busy"]) for name, one in tiles.items()}
    assert told["z0/l0, 20 nodes"] == (2, 0.6)
    assert told["z0/l1, 20 nodes"] == (1, 0.5)
    assert told["z1/l0, 20 nodes"] == (0, 0.05)
    sought(browser, "wide")
    assert len(run(browser, MARKS, 0, "job")) == 2
    check_quiet(browser, tmp_path)
