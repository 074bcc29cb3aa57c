"""Utilisation and queue over time: the samples of the history, up to its end."""

import csv
import io

import numpy as np
import pytest

from closeby.lab.pictures.album import Heading, pictures_of_history, to_svg
from closeby.lab.pictures.paper import with_datasets
from closeby.lab.pictures.scene import scene_of
from closeby.lab.pictures.timeline import _marks, axis_of, scrubbed_timeline, timeline
from tests.lab.pictures.histories import Job, applications, history, story
from tests.lab.pictures.test_files import texts

HEADING = Heading(title="", details="")


def test_the_lines_are_the_samples() -> None:
    """In minutes: 14 GPUs at 0, 15 at 10 with two jobs waiting (8 GPUs), 11 from 20 and 8 from 30 on."""
    document = with_datasets(timeline(story(), scene_of(story()).moments))
    lines = []
    for values in document["datasets"].values():
        table = list(csv.DictReader(io.StringIO(values)))
        if "time" in table[0]:
            lines.append([(float(row["time"]), int(row["value"])) for row in table])
    busy, queued_gpus, queued = lines
    assert busy == [(0, 14), (5, 14), (10, 15), (15, 15), (20, 11), (30, 8), (40, 8), (40, 8)]
    assert queued == [(0, 0), (5, 1), (10, 1), (15, 2), (20, 1), (30, 1), (40, 1), (40, 1)]
    assert queued_gpus == [(0, 0), (5, 3), (10, 8), (15, 44), (20, 36), (30, 36), (40, 36), (40, 36)]


@pytest.mark.parametrize(("gpus", "nodes_have_some", "panels"), [(0, False, 1), (0, True, 1), (4, True, 3)])
def test_where_no_job_asks_for_gpus_only_the_queue_is_drawn(
    gpus: int, nodes_have_some: bool, panels: int
) -> None:
    jobs = {"a": Job(nodes=("n1",), gpus=gpus, start=0.0, end=9.0)}
    past = history(jobs, until=9.0, with_gpus=nodes_have_some)
    assert len(timeline(past, scene_of(past).moments)["vconcat"]) == panels


def test_the_capacity_is_a_line_with_its_number() -> None:
    """28 GPUs, and in a run of applications the 28 cores of seven nodes."""
    for past, said in ((story(), "28 GPUs"), (applications(), "28 cores")):
        busy = with_datasets(timeline(past, scene_of(past).moments))
        rows = [list(csv.DictReader(io.StringIO(one))) for one in busy["datasets"].values()]
        (capacity,) = [one for table in rows for one in table if "most" in one]
        assert (capacity["most"], capacity["text"]) == ("28", said)
        (scale, *_) = [layer["encoding"]["y"]["scale"] for layer in busy["vconcat"][0]["layer"][:1]]
        assert scale["domain"][1] > 28
    held = [(float(row["time"]), int(row["value"])) for row in rows[0]]
    assert held == [(0, 7), (1.6667, 3), (5, 1), (15, 0), (15, 0)]


def test_the_chosen_moment_is_a_line_in_each_panel() -> None:
    words, *panels = scrubbed_timeline(story(), scene_of(story()).moments)["vconcat"]
    assert words["mark"]["type"] == "text"
    assert [panel["layer"][-1]["mark"]["type"] for panel in panels] == ["rule"] * 3


def test_the_axis_bends_where_jobs_come_and_wait_no_more() -> None:
    """From minute 0 to 1 jobs come, and the last of them ends after 100 minutes."""
    jobs = {
        "a": Job(nodes=("n1",), start=0.0, end=30.0),
        "b": Job(nodes=("n2",), submitted=60.0, start=60.0, end=6000.0),
    }
    past = history(jobs, until=6000.0)
    axis = axis_of(past, scene_of(past).moments)
    assert (axis.bent, axis.focus, axis.last) == (True, 1.0, 100.0)
    assert axis.places(np.asarray([0.0, 0.5, 1.0, 100.0])).tolist() == [0.0, 408.0, 816.0, 960.0]
    assert axis.marks == (*np.round(np.arange(0.0, 1.01, 0.1), 9).tolist(), 50.0, 100.0)
    document = with_datasets(timeline(past, scene_of(past).moments))
    for panel in document["vconcat"]:
        area, *_, end = panel["layer"]
        assert area["encoding"]["x"]["scale"]["domain"] == [0, 1.0, 100.0]
        assert end["mark"]["type"] == "rule"


def test_the_axis_is_even_where_the_rest_is_short() -> None:
    """The last job of the story waits to the end."""
    axis = axis_of(story(), scene_of(story()).moments)
    assert (axis.bent, axis.last, axis.notes) == (False, 40.0, ())
    assert axis.marks == (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0)


@pytest.mark.parametrize(
    ("begin", "end"), [(0.0, 0.003), (0.0, 1.0), (3.7, 11.2), (0.0, 110.0), (4.6, 9999.0)]
)
def test_marks_are_round_and_not_too_many(begin: float, end: float) -> None:
    marks = _marks(begin, end, 12)
    assert 4 <= len(marks) <= 13
    assert begin <= marks[0] and marks[-1] <= end


def test_hours_beyond_100_are_written_in_full() -> None:
    """A run of 400 hours, with a mark every 50 of them."""
    past = history({"a": Job(nodes=("n1",), start=0.0, end=400 * 3600.0)}, until=400 * 3600.0)
    axis = axis_of(past, scene_of(past).moments)
    (picture,) = (one for one in pictures_of_history(past, HEADING) if one.name == "timeline")
    said = texts(to_svg(picture.document()))
    assert axis.marks[-1] == 400
    assert {str(int(mark)) for mark in axis.marks} <= set(said)
