"""The fabric as a tree: where its domains are, and what is told of them at a moment."""

import csv
import io
from typing import Any

import pytest

from closeby.lab.pictures.drawn_domains import MOST_DOMAINS, WIDTH, drawn_domains
from closeby.lab.pictures.fabric import fabric
from closeby.lab.pictures.paper import with_datasets
from closeby.lab.pictures.scene import scene_of
from closeby.topology.tree import Tree
from tests.lab.pictures.histories import story, tree_of
from tests.lab.pictures.test_boxes import grid


def check(tree: Tree) -> None:
    """Each bar is above those of the domains in it, and no two bars of a level meet."""
    drawn = drawn_domains(tree)
    assert drawn is not None
    assert len(set(drawn.domains)) == 1 + sum(tree.count(level) for level in range(drawn.levels))
    assert (drawn.left < drawn.right).all()
    assert drawn.left.min() >= 0
    assert drawn.right.max() <= WIDTH
    for index, domain in enumerate(drawn.domains):
        above = drawn.domains[int(drawn.above[index])]
        assert above == tree.ancestor(domain, max(domain.level - 1, -1))
        if domain.level > 0:
            middle = (drawn.left[index] + drawn.right[index]) / 2
            assert drawn.left[drawn.above[index]] <= middle <= drawn.right[drawn.above[index]]
        if domain.level >= 0:
            assert drawn.top[index] > drawn.top[drawn.above[index]]
    for level in range(drawn.levels):
        mine = [index for index, domain in enumerate(drawn.domains) if domain.level == level]
        assert (drawn.right[mine][:-1] <= drawn.left[mine][1:]).all()


@pytest.mark.parametrize(("zones", "leaves"), [(1, 1), (3, 40), (5, 125), (100, 1)])
def test_trees_of_any_width(zones: int, leaves: int) -> None:
    check(tree_of(grid(zones, leaves, 1)))


def test_levels_that_are_too_many_to_draw_are_left_out() -> None:
    drawn = drawn_domains(tree_of(grid(2, MOST_DOMAINS // 2 + 1, 1)))
    assert drawn is not None
    assert drawn.levels == 1


def test_nodes_side_by_side_are_no_fabric() -> None:
    assert drawn_domains(tree_of("n1=4".replace("n1", ": n1"), ())) is None


def rows(document: Any, field: str) -> list[dict[str, str]]:
    """The table of a chart that has a column of this name."""
    tables = [
        list(csv.DictReader(io.StringIO(values)))
        for values in document["datasets"].values()
        if field in values.split("\n", 1)[0].split(",")
    ]
    return tables[0]


def test_the_summary_of_a_moment() -> None:
    """At minute 10 wide holds n1, n2 and n3, other three GPUs of n4; wide's ring leaves both leaves of a."""
    scene = scene_of(story())
    drawn = drawn_domains(scene.tree)
    assert drawn is not None
    loads = rows(with_datasets(fabric(scene, drawn)), "flows")
    names = ["/".join(map(str, scene.tree.path(domain))) for domain in drawn.domains]
    held = dict.fromkeys(names, 0.0)
    flows = dict.fromkeys(names, 0.0)
    for row in loads:
        if float(row["since"]) <= 10 < float(row["until"]):
            held[names[int(row["domain"])]] += float(row["held"])
            flows[names[int(row["domain"])]] += float(row["flows"])
    assert held == {"": 15, "a": 15, "b": 0, "a/l1": 8, "a/l2": 7, "b/l1": 0, "b/l2": 0}
    assert flows == {"": 0, "a": 0, "b": 0, "a/l1": 4, "a/l2": 4, "b/l1": 0, "b/l2": 0}


def test_nodes_without_a_label_are_no_domains_of_the_fabric() -> None:
    """n4 and n5 lack the leaf's label, n6 the zone's."""
    tree = tree_of("a l1 : n1=4 n2=4\na - : n4=4 n5=4\n- l9 : n6=4\nb - : n7=4\n")
    drawn = drawn_domains(tree)
    assert drawn is not None
    assert [tree.path(domain) for domain in drawn.domains] == [(), ("a",), ("b",), ("a", "l1")]
    assert drawn.labels == ("all", "2 zones", "1 leaf")


def test_levels_with_long_names_have_room_for_them() -> None:
    """Bars begin behind the longest of them."""
    tree = tree_of(grid(2, 4, 1).replace("z", "zone-"), ("zone", "leaf"))
    long = drawn_domains(tree_of(grid(2, 4, 1), ("topology-block-of-the-cloud", "leaf")))
    short = drawn_domains(tree)
    assert long is not None
    assert short is not None
    assert long.left.min() > short.left.min()
    assert long.left.min() > 5.5 * max(map(len, long.labels))


def test_the_widths_of_links_have_a_legend() -> None:
    scene = scene_of(story())
    drawn = drawn_domains(scene.tree)
    assert drawn is not None
    (legend,) = [
        values
        for values in with_datasets(fabric(scene, drawn))["datasets"].values()
        if values.startswith("left,right,middle,number,text")
    ]
    assert len(legend.splitlines()) >= 3
