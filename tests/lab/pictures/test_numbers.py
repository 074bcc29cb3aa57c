"""The numbers that tell gangs of one colour apart, and the legend that they lead to."""

import csv
import io

import pytest

from closeby.lab.pictures.album import Heading, pictures_of_history, to_svg
from closeby.lab.pictures.below_the_map import GANGS_NAMED
from closeby.lab.pictures.boxes import boxes_of
from closeby.lab.pictures.gang_marks import GANGS, colours_of, ink_on, pieces_of
from closeby.lab.pictures.gang_numbers import LEAST_WIDTH, numbers
from closeby.lab.pictures.paper import ON_DARK, ON_LIGHT, Sheet, with_datasets
from closeby.lab.pictures.scene import Scene, scene_of
from tests.lab.pictures.histories import Job, history, story, tree_of
from tests.lab.pictures.test_boxes import grid
from tests.lab.pictures.test_files import texts

HEADING = Heading(title="", details="")


def placed(scene: Scene) -> list[tuple[str, float, float]]:
    """Tenants with the places of their numbers."""
    boxes = boxes_of(scene.tree)
    sheet = Sheet(boxes.width, boxes.height)
    _, chart = numbers(sheet, boxes, scene, pieces_of(scene), colours_of(scene), 12)
    (values,) = with_datasets(chart)["datasets"].values()
    rows = list(csv.DictReader(io.StringIO(values)))
    return [
        (scene.tenants[int(row["number"])].name, float(row["x"]), float(row["y"]))
        for row in rows
        if row["there"] == "1"
    ]


def test_a_gang_has_its_number_once_in_each_leaf_and_on_its_own_bars() -> None:
    """wide is in two leaves, later in one; single pods have none."""
    scene = scene_of(story())
    found = placed(scene)
    assert sorted(name for name, _, _ in found) == ["later", "wide", "wide"]
    boxes, pieces = boxes_of(scene.tree), pieces_of(scene)
    for name, x, y in found:
        mine = [
            slot
            for slot, tenant in zip(pieces.slots, pieces.tenants, strict=True)
            if scene.tenants[int(tenant)].name == name
        ]
        bars = boxes.bars[scene.tree.position_of[mine]]
        assert ((bars[:, 0] <= x) & (x <= bars[:, 2]) & (bars[:, 1] <= y) & (y <= bars[:, 3])).any()


def test_a_number_stays_on_its_bar_where_its_part_of_it_is_narrower() -> None:
    """A sixteenth of each of sixteen nodes in several columns: wide enough together, not alone."""
    nodes = [f"n{number}" for number in range(1, 17)]
    drawing = "a l1 : " + " ".join(f"{one}=64" for one in nodes)
    past = history({"a": Job(nodes=nodes, gpus=4, start=0.0, end=9.0)}, until=9.0, drawing=drawing)
    scene = scene_of(past)
    bars = boxes_of(scene.tree).bars
    assert len(set(bars[:, 0].tolist())) > 1
    ((_, x, _),) = placed(scene)
    edges = bars[(bars[:, 0] <= x) & (x <= bars[:, 2])]
    assert len(edges)
    assert (edges[:, 2] - edges[:, 0] >= LEAST_WIDTH).all()
    assert (x - edges[:, 0] >= LEAST_WIDTH / 2).all()


def test_numbers_of_the_map_are_those_of_the_names_below_it() -> None:
    """At minute 10 wide is the only gang: 1 on its two leaves, with an edge each, and by its name."""
    (rack_map, *_) = pictures_of_history(story(), HEADING, 600.0)
    said = texts(to_svg(rack_map.document()))
    assert said.count("1") == 5
    assert "2" not in said


def many_gangs(count: int) -> str:
    """The rack map of so many gangs of two nodes each, as SVG."""
    drawing = grid(1, count, 2)
    nodes = [
        one.split("=")[0]
        for line in drawing.splitlines()
        if ":" in line
        for one in line.split(":")[1].split()
    ]
    jobs = {
        f"g{number}": Job(nodes=nodes[2 * number : 2 * number + 2], start=0.0, end=9.0)
        for number in range(count)
    }
    past = history(jobs, until=9.0, drawing=drawing)
    (rack_map, *_) = pictures_of_history(past, HEADING, 1.0)
    return to_svg(rack_map.document())


def test_dozens_of_gangs_are_all_named_and_numbered() -> None:
    """Forty gangs, more than there are colours: each has its number on its nodes and in the legend."""
    said = texts(many_gangs(40))
    assert len(GANGS) < 40
    assert sum(text.endswith(tuple("0123456789")) and ": 2 pods" in text for text in said) == 40
    assert {number: said.count(str(number)) for number in range(1, 41)} == dict.fromkeys(range(1, 41), 3)
    assert not [text for text in said if text.startswith("and ")]


def test_more_gangs_than_the_legend_names_are_counted() -> None:
    said = texts(many_gangs(GANGS_NAMED + 7))
    assert "and 7 smaller gangs" in said
    assert sum(": 2 pods" in text for text in said) == GANGS_NAMED


@pytest.mark.parametrize(("fill", "ink"), [("#332288", ON_DARK), ("#DDCC77", ON_LIGHT)])
def test_ink_is_read_on_its_colour(fill: str, ink: str) -> None:
    assert ink_on(fill) == ink


def test_large_leaves_have_their_names_however_small_their_nodes_are() -> None:
    """Fifty leaves of a hundred nodes, as of the cluster racks."""
    boxes = boxes_of(tree_of(grid(5, 10, 100)))
    assert [box.label for box in boxes.boxes if box.is_leaf and not box.label] == []
