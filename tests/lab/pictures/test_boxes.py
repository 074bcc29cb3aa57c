"""The layout of the rack map: boxes inside boxes, bars inside leaves, nothing upon another."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from closeby.lab.pictures.boxes import (
    HEIGHT,
    LEAST_BAR,
    WIDTH,
    Box,
    Boxes,
    boxes_of,
    shared_beginning,
    shortened,
    told_apart,
)
from closeby.topology.tree import ROOT, Tree
from tests.lab.pictures.histories import DRAWING, LEVELS, tree_of

Rectangle = tuple[float, float, float, float]


def rectangle(box: Box) -> Rectangle:
    return box.left, box.top, box.right, box.bottom


def within(inner: Rectangle, outer: Rectangle) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def check(tree: Tree, drawn: Boxes) -> None:
    """All that must hold of any map."""
    by_domain = {box.domain: rectangle(box) for box in drawn.boxes}
    sheet = (0.0, 0.0, drawn.width, drawn.height)
    assert len(by_domain) == len(drawn.boxes) == sum(tree.count(level) for level in range(tree.node_level))
    for domain, mine in by_domain.items():
        above = tree.ancestor(domain, domain.level - 1)
        assert within(mine, sheet if above == ROOT else by_domain[above])
    for level in range(tree.node_level):
        peers = [mine for domain, mine in by_domain.items() if domain.level == level]
        _apart(np.asarray(peers))
    assert drawn.bars.shape == (tree.size, 4)
    _apart(drawn.bars)
    assert (drawn.bars[:, 2] > drawn.bars[:, 0]).all()
    assert (drawn.bars[:, 3] > drawn.bars[:, 1]).all()
    for position, bar in enumerate(drawn.bars.tolist()):
        node = tree.node_domain(int(tree.slot_at[position]))
        assert node is not None
        leaf = tree.ancestor(node, tree.node_level - 1)
        assert within(tuple(bar), sheet if leaf == ROOT else by_domain[leaf])


def _apart(rectangles: np.ndarray) -> None:
    left, top, right, bottom = (rectangles[:, column] for column in range(4))
    for index in range(len(rectangles)):
        meets = (left < right[index]) & (left[index] < right) & (top < bottom[index]) & (top[index] < bottom)
        assert np.flatnonzero(meets).tolist() == [index]


def grid(zones: int, leaves: int, nodes: int) -> str:
    lines = [
        f"z{zone} l{leaf} : " + " ".join(f"z{zone}l{leaf}n{node}=8" for node in range(nodes))
        for zone in range(zones)
        for leaf in range(leaves)
    ]
    return "\n".join(lines)


def test_the_small_cluster_has_names_beside_its_bars() -> None:
    tree = tree_of()
    drawn = boxes_of(tree)
    check(tree, drawn)
    assert drawn.names == ("n1", "n2", "n3", "n4", "n5", "n6", "n7")
    assert [box.label for box in drawn.boxes if box.is_leaf] == ["l1", "l2", "l1", "l2"]
    assert drawn.boxes[0].label == "a, 4 nodes"


@pytest.mark.parametrize(
    ("zones", "leaves", "nodes"), [(1, 1, 8), (3, 40, 8), (5, 125, 8), (1, 4, 300), (40, 1, 2)]
)
def test_clusters_of_any_size_stay_on_a_page(zones: int, leaves: int, nodes: int) -> None:
    tree = tree_of(grid(zones, leaves, nodes))
    drawn = boxes_of(tree)
    check(tree, drawn)
    assert drawn.width <= WIDTH
    assert drawn.height <= HEIGHT


def test_twenty_thousand_nodes_get_the_smallest_bars_and_a_higher_page() -> None:
    tree = tree_of(grid(10, 250, 8))
    drawn = boxes_of(tree)
    assert drawn.width <= WIDTH
    assert drawn.height <= 4 * HEIGHT
    assert {round(one, 3) for one in (drawn.bars[:, 2] - drawn.bars[:, 0]).tolist()} == {LEAST_BAR[0]}


def test_nodes_without_levels_lie_side_by_side() -> None:
    tree = tree_of(DRAWING.replace("l1", "").replace("l2", "").replace("a ", "").replace("b ", ""), ())
    drawn = boxes_of(tree)
    check(tree, drawn)
    assert drawn.boxes == ()


def test_nodes_without_a_label_share_a_box_that_is_no_leaf() -> None:
    """n4 and n5 lack the leaf's label, n6 and n7 the zone's."""
    tree = tree_of("a l1 : n1=4 n2=4\na - : n4=4 n5=4\n- - : n6=4\n- l1 : n7=4\n")
    drawn = boxes_of(tree)
    assert [box.label for box in drawn.boxes] == [
        "a, 4 nodes",
        "l1",
        "no leaf label, 2 nodes",
        "no zone label, 2 nodes",
    ]
    _apart(drawn.bars)
    for box in drawn.boxes[2:]:
        inside = [bar for bar in drawn.bars.tolist() if within(tuple(bar), rectangle(box))]
        assert len(inside) == 2


def test_names_that_do_not_fit_lose_what_they_begin_with() -> None:
    """Of 60 racks in each of two blocks the numbers are left, and it is said what stood before them."""
    drawing = "\n".join(
        f"b{block} block-{block}-rack-{rack:03} : " + " ".join(f"n{block}-{rack}-{one}=8" for one in range(8))
        for block in range(2)
        for rack in range(60)
    )
    drawn = boxes_of(tree_of(drawing))
    assert {box.label for box in drawn.boxes if box.is_leaf} == {f"…{rack:03}" for rack in range(60)}
    assert drawn.ellipsis in ("block-0-rack-", "block-1-rack-")
    assert told_apart(["rack-1", "rack-2"], 100, 5) == ("rack-1", "rack-2")
    assert told_apart(["one", "two"], 10, 5) == ("", "")
    # The network of hosts goes first, and what they begin with where that is not enough.
    hosts = ["gpu-1.pod-7.example.com", "gpu-2.pod-7.example.com"]
    assert told_apart(hosts, 40, 5) == ("gpu-1…", "gpu-2…")
    assert told_apart([f"rack-b-{one}" for one in hosts], 40, 5) == ("…1…", "…2…")
    assert shared_beginning(["a-1"]) == shared_beginning(["a", "b"]) == ""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=6), min_size=1, max_size=5))
@example([[1, 1, 11], [1, 1], [1], [1, 1]])
def test_any_tree_is_packed_without_overlaps(zones: list[list[int]]) -> None:
    lines = [
        f"z{zone} l{leaf} : " + " ".join(f"z{zone}l{leaf}n{node}=1" for node in range(nodes))
        for zone, leaves in enumerate(zones)
        for leaf, nodes in enumerate(leaves)
    ]
    tree = tree_of("\n".join(lines), LEVELS)
    check(tree, boxes_of(tree))


def test_names_are_shortened_to_their_room() -> None:
    assert shortened("leaf-21", 40, 5) == "leaf-21"
    assert shortened("leaf-21", 25, 5) == "leaf…"
    assert shortened("leaf-21", 10, 5) == ""
