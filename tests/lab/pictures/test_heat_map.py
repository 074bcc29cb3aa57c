"""Clusters of more than 1,500 nodes: a tile for each domain, with its use and how many gangs it has."""

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.lab.pictures.album import Heading, bars_note, maps_of, pictures_of_history
from closeby.lab.pictures.boxes import WIDTH
from closeby.lab.pictures.heat_map import HEIGHT, MOST_BARS, MOST_TILES, segments_on, tiles_of
from closeby.lab.pictures.scene import scene_of
from closeby.lab.replay.history import History
from tests.lab.pictures.histories import Job, history, tree_of
from tests.lab.pictures.test_boxes import _apart, grid


def large() -> History:
    """1,600 nodes in 80 leaves: two gangs in the first leaf, one of them in the second too, and a pod."""
    jobs = {
        "wide": Job(nodes=[f"z0l{leaf}n{node}" for leaf in (0, 1) for node in range(10)], gpus=8, start=0.0),
        "small": Job(nodes=("z0l0n10", "z0l0n11"), gpus=8, start=0.0),
        "solo": Job(nodes=("z1l0n0",), gpus=8, start=0.0),
    }
    return history(jobs, until=60.0, drawing=grid(2, 40, 20))


@pytest.mark.parametrize(
    ("zones", "leaves", "nodes"), [(1, 80, 20), (10, 25, 8), (4, 100, 8), (3, 700, 1), (30, 10, 6)]
)
def test_tiles_of_any_cluster_stay_apart_and_on_the_page(zones: int, leaves: int, nodes: int) -> None:
    tree = tree_of(grid(zones, leaves, nodes))
    tiles = tiles_of(tree)
    assert tiles is not None
    _apart(tiles.corners)
    assert tiles.corners[:, 2].max() <= tiles.width <= WIDTH
    assert tiles.corners[:, 3].max() <= tiles.height <= HEIGHT
    assert len(tiles.names) == zones * leaves <= MOST_TILES
    assert np.bincount(tiles.tile_at).tolist() == [nodes] * (zones * leaves)


def test_segments_are_counted_by_tile_and_those_on_several_tiles_are_split() -> None:
    """Four segments of five pods: two in the first leaf, the others across the second and the third."""
    spots = [(0, 10), (1, 2), (2, 8)]
    nodes = [f"z0l{leaf}n{node}" for leaf, count in spots for node in range(count)]
    jobs = {"train": Job(nodes=nodes, gpus=8, start=0.0), "solo": Job(nodes=("z1l0n0",), gpus=8, start=0.0)}
    run = replace(history(jobs, until=60.0, drawing=grid(2, 40, 20)), segments=((1, 5),))
    scene, tiles = scene_of(run), tiles_of(tree_of(grid(2, 40, 20)))
    assert tiles is not None
    tenants, at, split = segments_on(scene, tiles)
    assert [scene.tenants[one].name for one in tenants.tolist()] == ["train"] * 5
    by_tile = {
        tiles.names[tile]: (int((at == tile).sum()), int(split[at == tile].sum()))
        for tile in set(at.tolist())
    }
    assert by_tile == {
        "z0/l0, 20 nodes": (2, 0),
        "z0/l1, 20 nodes": (1, 1),
        "z0/l2, 20 nodes": (2, 1),
    }
    assert segments_on(scene_of(large()), tiles)[0].tolist() == []


def test_smaller_clusters_and_those_without_levels_are_drawn_node_by_node() -> None:
    assert tiles_of(tree_of(grid(1, MOST_BARS // 10, 10))) is None
    assert tiles_of(tree_of(grid(1, 1, MOST_BARS + 1).replace("z0 l0", ""), ())) is None


def test_nodes_without_labels_have_tiles_that_say_so() -> None:
    names = [f"x{node}=8" for node in range(20)]
    drawing = f"{grid(2, 40, 20)}\nz0 - : {' '.join(names[:10])}\n- - : {' '.join(names[10:])}"
    tiles = tiles_of(tree_of(drawing))
    assert tiles is not None
    lost = [name for name, known in zip(tiles.names, tiles.labelled, strict=True) if not known]
    assert lost == ["no leaf label, 10 nodes", "no zone label, 10 nodes"]
    _apart(tiles.corners)


def test_a_large_cluster_has_a_map_of_its_domains_and_says_so() -> None:
    scene = scene_of(large())
    assert "More than 1,500 nodes are drawn by domains" in bars_note(scene)
    assert set(maps_of(scene)) == {"rack-map", "fabric"}
    pictures = pictures_of_history(large(), Heading(title="", details=""))
    assert pictures[0].name == "rack-map"
