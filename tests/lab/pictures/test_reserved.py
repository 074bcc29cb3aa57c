"""Reservations on the rack map: which nodes at which moments, and for whom."""

from pathlib import Path

from closeby.lab.pictures.album import Heading, notes_on, pictures_of_history, write_pictures
from closeby.lab.pictures.gang_marks import EDGE
from closeby.lab.pictures.scene import scene_of
from tests.lab.pictures.histories import KEPT, STORY, UNTIL, Job, Keeps, history, reserving_story, story
from tests.lab.pictures.test_files import texts

HEADING = Heading(title="", details="")


def map_at(folder: Path, seconds: float) -> str:
    """The rack map as SVG."""
    maps = [one for one in pictures_of_history(reserving_story(), HEADING, seconds) if one.name == "rack-map"]
    return write_pictures(folder, maps)[0].read_text(encoding="utf-8")


def test_reservations_that_hold_at_some_stop() -> None:
    """Times are minutes; the one that holds when the run stops holds at the last stop too."""
    scene = scene_of(reserving_story())
    found = [
        (one.name, [scene.nodes[slot] for slot in one.slots], one.since, one.until) for one in scene.keepings
    ]
    assert found == [("later", ["n1", "n5"], 12.0, 20.0), ("never", ["n6"], 25.0, 41.0)]
    assert scene_of(story()).keepings == ()


def test_the_map_of_a_moment_says_for_whom_nodes_are_kept_free(tmp_path: Path) -> None:
    svg = map_at(tmp_path, 900.0)
    assert "2 nodes kept free for later: 2 pods × 4 GPUs" in texts(svg)
    # Two nodes, and the swatch beside the words.
    assert svg.count(f'stroke="{EDGE}"') == 3
    svg = map_at(tmp_path, 600.0)
    assert not [text for text in texts(svg) if "kept free" in text]
    assert EDGE not in svg


def test_reservations_between_two_stops_are_counted() -> None:
    """Each has a stop of its own unless there are more moments than stops."""
    short = [Keeps(job="later", nodes=("n5",), begin=time, end=time + 1) for time in (601.0, 604.0)]
    past = history(
        {"brief": Job(nodes=("n6",), start=602.0, end=603.0), **STORY}, UNTIL, kept=(*short, *KEPT)
    )
    assert [note for note in notes_on(scene_of(past)) if "The maps show" in note] == []
    (sentence,) = [note for note in notes_on(scene_of(past, most_pods=10)) if "The maps show" in note]
    assert sentence.startswith(
        "The maps show the state at 3 of 14 moments at which something happened; 1 of 5 jobs that started "
        "ran and 2 of 4 reservations held only between two of them and are not seen on them."
    )


def test_many_reservations_make_for_fewer_stops() -> None:
    """Each keeps a node and lasts as long as a stop; 20 marks are too many for all of them."""
    kept = [Keeps(job="later", nodes=("n5",), begin=at * 60.0, end=at * 60.0 + 3) for at in range(40)]
    past = history(STORY, UNTIL, kept=kept)
    assert len(scene_of(past).keepings) == 40
    few = scene_of(past, most_pods=20)
    assert len(few.keepings) + len(few.slots) <= 20
    assert 2 < few.moments.count < scene_of(past).moments.count
