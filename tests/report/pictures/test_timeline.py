"""Utilisation and queue over time: the samples of the history, up to its end."""

import csv
import io

import pytest

from closeby.report.pictures.moments import moments_of
from closeby.report.pictures.timeline import scrubbed_timeline, timeline
from tests.report.pictures.histories import UNTIL, Job, history, story


def test_the_lines_are_the_samples() -> None:
    """In minutes: 14 GPUs at 0, 15 at 10 with two jobs waiting (8 GPUs), 11 from 20 and 8 from 30 on."""
    document = timeline(story(), moments_of(UNTIL)).to_dict()
    lines = []
    for values in document["datasets"].values():
        table = list(csv.DictReader(io.StringIO(values)))
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
    assert len(timeline(past, moments_of(9.0)).to_dict()["vconcat"]) == panels


def test_the_chosen_moment_is_a_line_in_each_panel() -> None:
    words, *panels = scrubbed_timeline(story(), moments_of(UNTIL)).to_dict()["vconcat"]
    assert words["mark"]["type"] == "text"
    assert [panel["layer"][-1]["mark"]["type"] for panel in panels] == ["rule"] * 3
