"""The tables of all measures of a run."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from closeby.lab.pictures.page import markup
from closeby.lab.replay.history import measure
from closeby.lab.views.measures import BY_LEVEL, MODELLED, PLACES, USE, by_level, of_run
from closeby.quality.model import DEFAULT_MODEL
from closeby.quality.summary import LevelMeasures, Measures
from closeby.report.views.quality import constants
from tests.lab.pictures.histories import story

#: Shown elsewhere: numbers of jobs, delays, preemption, the window and the model's constants.
ELSEWHERE = {
    *(
        "jobs",
        "started",
        "ended",
        "size_unit",
        "delays",
        "levels",
        "segments",
        "window",
        "model",
        "preemption",
    ),
}


def printed(view: object, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(view)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_every_measure_has_a_row_and_a_definition() -> None:
    of_levels = {field.name for field in msgspec.structs.fields(LevelMeasures)} - {"level"}
    assert {one.field for one in BY_LEVEL} == of_levels
    of_runs = {field.name for field in msgspec.structs.fields(Measures)} - ELSEWHERE
    assert {one.field for one in (*PLACES, *USE, *MODELLED)} == of_runs
    assert all(one.definition for one in (*BY_LEVEL, *PLACES, *USE, *MODELLED))


def test_values_stand_by_level_and_unknown_ones_are_dashes() -> None:
    """wide is on three nodes in two leaves of one zone, later on two in one leaf, half and other on one."""
    lines = printed(by_level(measure(story()).levels), 200).splitlines()
    heading, _, *rows = [re.split(" {2,}", line.strip()) for line in lines]
    assert heading[:3] == ["zone", "leaf", "hostname"]
    found = {row[0]: row[1:4] for row in rows}
    assert found["span"] == ["1.00", "1.25", "1.75"]
    assert found["excess span"] == ["1.00", "1.00", "1.00"]
    assert found["stranded"][2] == "–"


def test_a_measure_that_nothing_tells_has_no_row() -> None:
    """No job has been compared with the best place that there was."""
    measures = msgspec.structs.replace(measure(story()), distance_gap=None)
    text = printed(of_run(measures, PLACES))
    assert "distance gap" not in text
    assert "diameter" in text


@pytest.mark.parametrize("width", [80, 100])
def test_tables_are_no_wider_than_the_terminal(width: int) -> None:
    measures = measure(story())
    for view in (by_level(measures.levels), of_run(measures, PLACES), of_run(measures, MODELLED)):
        lines = printed(view, width).splitlines()
        assert max(len(line.rstrip()) for line in lines) <= width
        # Side by side, and not told in lines.
        assert "what it is" in lines[0]


def test_all_constants_have_their_sources() -> None:
    page = markup([constants(DEFAULT_MODEL)])
    for tier in DEFAULT_MODEL.tiers:
        assert f"{tier.latency_seconds * 1e6:.3g} µs" in page
        assert f"{tier.bytes_per_second / 1e9:g} GB/s" in page
        assert f">{tier.oversubscription:g}<" in page
        assert tier.source in page
    assert "1 GiB" in page
    assert f"30 % of a step on an ideal placement: {DEFAULT_MODEL.communication_source}" in page
