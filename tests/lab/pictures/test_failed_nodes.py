"""Nodes that are out of order: on the maps of a moment, in what is said of it, and as no room for gangs.

z0: leaves of 20 nodes, the first of which has a gang on all nodes but two, which have failed.
"""

import csv
import io
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from closeby.lab.pictures.album import Heading, maps_of, pictures_of_history, to_svg, write_pictures
from closeby.lab.pictures.gang_marks import UNUSABLE
from closeby.lab.pictures.paper import Spec, with_datasets
from closeby.lab.pictures.scene import scene_of
from closeby.lab.pictures.timeline import scrubbed_timeline
from closeby.lab.replay.history import History
from closeby.quality.moments import Outages
from tests.lab.pictures.histories import STORY, UNTIL, Job, history, story
from tests.lab.pictures.test_boxes import grid
from tests.lab.pictures.test_files import texts

HEADING = Heading(title="", details="")


def failing(past: History, *rows: tuple[str, float, float]) -> History:
    """The same with nodes out of order: each from when to when, in seconds."""
    return replace(
        past,
        outages=Outages(
            slots=np.asarray([past.nodes.index(node) for node, _, _ in rows], dtype=np.intp),
            begin=np.asarray([begin for _, begin, _ in rows]),
            end=np.asarray([end for _, _, end in rows]),
        ),
    )


def rows_with(document: Spec, *columns: str) -> list[dict[str, str]]:
    """Rows of the tables that have these columns."""
    tables = [list(csv.DictReader(io.StringIO(one))) for one in with_datasets(document)["datasets"].values()]
    return [row for table in tables for row in table if set(columns) <= row.keys()]


def test_outages_are_seen_while_they_last() -> None:
    """Times are minutes; what is out when the run stops is so at the last stop too."""
    scene = scene_of(failing(story(), ("n7", 60.0, 120.0), ("n6", 1800.0, UNTIL)))
    out = scene.outages
    assert [scene.nodes[slot] for slot in out.slots.tolist()] == ["n7", "n6"]
    assert (out.begin.tolist(), out.end.tolist()) == ([1.0, 30.0], [2.0, scene.moments.last + 1.0])
    assert {1.0, 2.0, 30.0} <= set(scene.moments.stops.tolist())
    assert not len(scene_of(story()).outages.slots)


def test_failed_nodes_are_dark_and_crossed_at_that_moment(tmp_path: Path) -> None:
    past = failing(story(), ("n7", 60.0, 120.0))

    def drawn(seconds: float) -> str:
        maps = [one for one in pictures_of_history(past, HEADING, seconds) if one.name == "rack-map"]
        return write_pictures(tmp_path, maps)[0].read_text(encoding="utf-8")

    svg = drawn(60.0)
    assert texts(svg).count("×") == 1
    # The node, and what the key shows.
    assert svg.count(f'fill="{UNUSABLE}"') == 2
    assert "failed" in texts(svg)
    assert "×" not in texts(drawn(120.0))


def test_the_pointer_says_since_when_a_node_is_out() -> None:
    scene = scene_of(failing(story(), ("n7", 60.0, 120.0)))
    (row,) = [one for one in rows_with(maps_of(scene)["rack-map"], "state", "since") if one["node"] == "n7"]
    assert row["state"] == "failed at 1 min"


def test_what_has_failed_is_no_room_of_its_domain() -> None:
    """Leaf a/l2 has n3 and n4 with 4 GPUs each; while n4 is out, its 4 are all there are."""
    fabric = maps_of(scene_of(failing(story(), ("n4", 60.0, 120.0))))["fabric"]
    lost = [(row["lost"], row["since"]) for row in rows_with(fabric, "lost") if row["lost"] != "0"]
    # The leaf, its zone, and the whole cluster.
    assert lost == [("4", "1")] * 3


def large() -> History:
    """1,600 nodes: the whole first leaf is out, and one of 20 nodes of the second, beside a gang."""
    jobs = {"wide": Job(nodes=[f"z0l1n{node}" for node in range(19)], gpus=8, start=0.0)}
    past = history(jobs, until=60.0, drawing=grid(2, 40, 20))
    return failing(past, *((f"z0l0n{node}", 0.0, 60.0) for node in range(20)), ("z0l1n19", 0.0, 60.0))


def test_a_tile_is_dark_as_far_as_its_nodes_have_failed() -> None:
    (rack_map, *_) = pictures_of_history(large(), HEADING, 0.0)
    svg = to_svg(rack_map.document())
    assert svg.count(f'fill="{UNUSABLE}"') == 2
    assert any("that have failed" in text for text in texts(svg))
    (quiet, *_) = pictures_of_history(replace(large(), outages=scene_of(story()).outages), HEADING, 0.0)
    assert UNUSABLE not in to_svg(quiet.document())


def test_what_is_said_of_a_moment_counts_failed_nodes() -> None:
    """n6 is out from minute 30 to the end of the run, which no job outlives."""
    past = failing(history(STORY, UNTIL), ("n7", 60.0, 120.0), ("n6", 1800.0, UNTIL))
    said = rows_with(scrubbed_timeline(past, scene_of(past).moments), "text", "number")
    failed = {row["text"].split(":")[0]: row["text"].endswith("1 node failed") for row in said}
    assert failed["At 1 min"]
    assert not failed["At 2 min"]
    assert failed["At 30 min"]
    assert list(failed.values())[-1]
