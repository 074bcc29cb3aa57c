"""docs/pictures.md names the files that there are, its limits are the code's, and its pictures open."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from closeby.lab.pictures.album import (
    MOST_NODES,
    Heading,
    distributions,
    pictures_of_history,
    pictures_of_run,
)
from closeby.lab.pictures.below_the_map import GANGS_NAMED
from closeby.lab.pictures.boxes import HEIGHT, boxes_of
from closeby.lab.pictures.drawn_domains import MOST_DOMAINS
from closeby.lab.pictures.gang_marks import GANGS
from closeby.lab.pictures.heat_map import MOST_BARS, MOST_TILES
from closeby.lab.pictures.lookup import MOST_JOBS
from closeby.lab.pictures.moments import STOPS
from closeby.lab.pictures.scene import MOST_PODS
from tests.lab.pictures.histories import applications, empty_run, story, tree_of
from tests.lab.pictures.test_boxes import grid

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pictures.md").read_text()
FILES = re.findall(r"^\| `([a-z-]+)` \| .+ \| (.+) \|$", PAGE, re.MULTILINE)
HEADING = Heading(title="", details="")


@pytest.mark.parametrize(
    ("kind", "pictures"),
    [
        ("files", pictures_of_run(empty_run(), HEADING)),
        ("a run over time", pictures_of_history(story(), HEADING)),
        ("a comparison", distributions({"ours": [story()], "theirs": [story()]}, HEADING)),
        ("applications", distributions({"ours": [applications()], "theirs": [applications()]}, HEADING)),
    ],
)
def test_the_files_of_each_kind_are_named(kind: str, pictures: tuple[object, ...]) -> None:
    assert [getattr(one, "name", "") for one in pictures] == [name for name, of in FILES if kind in of]


def test_limits_are_those_of_the_code() -> None:
    assert len(GANGS) == 15
    assert f"The {GANGS_NAMED} largest" in PAGE
    for limit in (MOST_NODES, MOST_BARS, MOST_TILES, MOST_DOMAINS, MOST_JOBS, STOPS, MOST_PODS):
        assert f" {limit:,} " in PAGE
    assert boxes_of(tree_of(grid(5, 125, 8))).height <= HEIGHT


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").iterdir()), ids=lambda path: path.name)
def test_pictures_are_small_and_shown(picture: Path) -> None:
    assert picture.stat().st_size < 300_000
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert f"](pictures/{picture.name})" in PAGE


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert len(links) > 3
    assert [link for link in links if not (DOCS / link).exists()] == []
