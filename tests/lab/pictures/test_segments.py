"""The segments of gangs on the rack map: which pod is in which, in what shade, with what number.

a: l1 (n1, n2), l2 (n3, n4)    b: l1 (n5, n6), l2 (n7)    4 GPUs a node
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.lab.pictures.album import Heading, maps_of, pictures_of_history, pictures_of_run, to_svg
from closeby.lab.pictures.gang_marks import GANGS, SINGLE, is_dark, pieces_of
from closeby.lab.pictures.scene import Scene, scene_of
from closeby.lab.pictures.segment_shades import in_second_shade, second_shade
from closeby.lab.pictures.snapshot import snapshot
from closeby.lab.replay.history import History
from closeby.objects.groups import Layer, LayerMode, SubGroup
from closeby.objects.labels import HOSTNAME
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests, read_manifests
from closeby.simulator.runs import Run, simulate
from tests.lab.pictures.histories import Job, history
from tests.lab.pictures.test_failed_nodes import rows_with
from tests.lab.pictures.test_files import texts
from tests.worlds import draw, fabric, gang, pods, spec

LAYERS = Path(__file__).parents[3] / "docs" / "examples" / "layers"
HEADING = Heading(title="", details="")
LEAF, ZONE = 1, 0


def segmented(layers: tuple[tuple[int, int], ...], **jobs: Job) -> Scene:
    """Jobs in segments: level of the tree, and pods of each."""
    return scene_of(replace(history(jobs, until=9.0), segments=layers))


def job(*nodes: str, gpus: int = 4) -> Job:
    return Job(nodes=nodes, gpus=gpus, start=0.0, end=9.0)


def names(scene: Scene) -> list[str]:
    assert scene.segments is not None
    return list(scene.segments.names)


def test_segments_over_time_follow_the_ranks() -> None:
    """Five pods in segments of two; the last has one pod, and the other job is no longer than a segment."""
    scene = segmented(((LEAF, 2),), five=job("n1", "n2", "n3", "n4", "n5"), two=job("n6", "n7"))
    assert names(scene) == ["leaf 0", "leaf 0", "leaf 1", "leaf 1", "leaf 2", "", ""]
    five, two = scene.tenants
    assert (five.segments, two.segments) == ("3 segments by leaf", "")
    assert five.in_short.endswith(", 3 segments by leaf")


def test_each_layer_is_named_and_the_finest_is_numbered() -> None:
    scene = segmented(((ZONE, 4), (LEAF, 2)), six=job("n1", "n2", "n3", "n4", "n5", "n6"))
    assert names(scene)[::2] == ["zone 0, leaf 0", "zone 0, leaf 1", "zone 1, leaf 2"]
    assert scene.segments is not None
    assert scene.segments.numbers.tolist() == [0, 0, 1, 1, 2, 2]
    assert scene.tenants[0].segments == "3 segments by leaf"


def test_segments_that_could_not_be_kept_together_are_counted() -> None:
    scene = segmented(((LEAF, 2),), wide=job("n1", "n3", "n5", "n6"))
    assert scene.tenants[0].segments == "2 segments by leaf, 1 split"


@pytest.mark.parametrize("layers", [(), ((LEAF, 1),), ((LEAF, 9),)])
def test_without_several_segments_of_several_pods_none_are_drawn(layers: tuple[tuple[int, int], ...]) -> None:
    scene = segmented(layers, wide=job("n1", "n2", "n3", "n4"))
    assert scene.segments is None or set(names(scene)) == {""}
    assert not in_second_shade(scene).any()
    said = texts(svg_of(scene_history(layers)))
    assert said.count("1") > 1
    assert not any("·" in text for text in said)


def scene_history(layers: tuple[tuple[int, int], ...]) -> History:
    return replace(history({"wide": job("n1", "n2", "n3", "n4")}, until=9.0), segments=layers)


def svg_of(past: History) -> str:
    (rack_map, *_) = pictures_of_history(past, HEADING, 0.0)
    return to_svg(rack_map.document())


def test_each_segment_has_its_number_and_the_second_its_shade() -> None:
    svg = svg_of(scene_history(((LEAF, 2),)))
    # Each number is drawn twice, first as the ground behind it.
    assert [texts(svg).count(number) for number in ("1·0", "1·1", "1·2")] == [2, 2, 0]
    rest = svg_of(scene_history(()))
    assert second_shade(GANGS[0]).lower() in svg.lower()
    assert second_shade(GANGS[0]).lower() not in rest.lower()


def test_pods_of_two_segments_on_a_node_are_two_pieces() -> None:
    """n1 has two pods of segment 0 and two of segment 1, of one GPU each; the rest is of segment 1."""
    scene = segmented(((LEAF, 2),), four=job("n1", "n1", "n1", "n1", gpus=1))
    pieces = pieces_of(scene)
    assert [(low, high) for low, high in zip(pieces.low, pieces.high, strict=True)] == [(0, 0.5), (0.5, 1)]
    assert in_second_shade(scene)[pieces.pods].tolist() == [False, True]
    rows = [row for row in rows_with(maps_of(scene)["rack-map"], "segment", "second") if "slot" in row]
    assert [(row["segment"], row["second"]) for row in rows] == [("leaf 0", "0"), ("leaf 1", "1")]


def test_segments_of_one_leaf_differ_whatever_their_numbers() -> None:
    """Segments 0 and 2 share leaf a/l1, where 1 is not."""
    scene = segmented(((LEAF, 2),), six=job("n1", "n1", "n5", "n6", "n2", "n2", gpus=1))
    first, _, third = in_second_shade(scene)[::2].tolist()
    assert first != third


def test_the_shades_of_a_colour_differ_and_neither_looks_free() -> None:
    for fill in GANGS:
        other = second_shade(fill)
        one, two = (np.asarray([int(shade[at : at + 2], 16) for at in (1, 3, 5)]) for shade in (fill, other))
        assert np.abs(one - two).max() >= 40
        assert not is_dark(other) or not is_dark(fill) or two.sum() > one.sum()
        assert two.sum() < 3 * 235
    assert len({*GANGS, *map(second_shade, GANGS), SINGLE}) == 2 * len(GANGS) + 1


def test_segments_of_files() -> None:
    """train has four workers in each block, two in each rack; tune waits."""
    run = simulate(read_manifests([str(LAYERS)]), Configuration())
    scene = snapshot(run)
    assert names(scene) == [f"block {at // 4}, rack {at // 2}" for at in range(8)]
    assert [one.segments for one in scene.tenants] == ["4 segments by rack"]
    said = texts(to_svg(pictures_of_run(run, HEADING)[0].document()))
    assert {"1·0", "1·1", "1·2", "1·3"} <= set(said)
    assert any(text.startswith("segments of one gang") for text in said)


def layered_subgroups() -> Run:
    """Two subgroups of four pods each, in segments of two, and a pod of its own."""
    layer = (Layer(level="leaf", size=2, mode=LayerMode.REQUIRED),)
    group = replace(
        gang(min_member=8),
        subgroups=tuple(SubGroup(name=name, min_member=4, layers=layer) for name in ("left", "right")),
    )
    members = [
        replace(pod, subgroup=name)
        for name in ("left", "right")
        for pod in pods("train", 4, spec(gpu=2), prefix=name)
    ]
    drawing = "a l1 : n1=4 n2=4\na l2 : n3=4 n4=4"
    return simulate(
        Manifests(
            nodes=tuple(draw(drawing, ["zone", "leaf"])),
            topologies=(fabric("zone", "leaf", HOSTNAME),),
            groups=(group,),
            pods=tuple(members),
        ),
        Configuration(),
    )


def test_subgroups_count_their_segments_themselves() -> None:
    run = layered_subgroups()
    scene = snapshot(run)
    assert sorted(set(names(scene))) == ["left: leaf 0", "left: leaf 1", "right: leaf 0", "right: leaf 1"]
    assert scene.segments is not None
    assert len(set(scene.segments.indices.tolist())) == 4
    assert scene.tenants[0].segments == "left: 2 segments by leaf; right: 2 segments by leaf"
    # Pods of different segments never are one piece.
    pieces = pieces_of(scene)
    for slot in set(pieces.slots.tolist()):
        here = [scene.segments.indices[pod] for pod in pieces.pods[pieces.slots == slot].tolist()]
        assert all(one != other for one, other in pairwise(here))
