"""What docs/simulation.md shows runs, and its tables name the options and fields that there are."""

import contextlib
import io
import re
from pathlib import Path

import msgspec
import pytest

from closeby.cli.simulate import command
from closeby.lab.documents.simulation import (
    ApplicationsEntry,
    ClusterEntry,
    EvictionEntry,
    FailuresEntry,
    PolicyEntry,
    RefusalEntry,
    ReservationEntry,
    RunJobEntry,
    SamplesEntry,
    SimulationReport,
    SummaryEntry,
    WorkloadEntry,
)
from closeby.lab.replay.clusters import SHAPES
from closeby.quality.segments import SegmentMeasures
from tests.cli.calling import closeby

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulation.md").read_text()
COMMANDS = re.findall(r"^\$ \.venv/bin/closeby ([^|\n]+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_run(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert closeby(*line.split()).exit_code == 0


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 2


def test_the_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "simulation.md", "exec"), {})
    assert float(printed.getvalue()) >= 0


def test_the_options_exist() -> None:
    named = set(re.findall(r"`(--[a-z-]+|-[a-z])[ `]", PAGE))
    there = {option for parameter in command.params for option in parameter.opts}
    assert named
    assert named <= there


def test_the_clusters_are_all_there() -> None:
    table = PAGE.split("| cluster | shape |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([a-z0-9]+)`", table, re.MULTILINE) == list(SHAPES)


@pytest.mark.parametrize(
    ("row", "entry"),
    [
        ("workload", WorkloadEntry),
        ("cluster", ClusterEntry),
        ("policy", PolicyEntry),
        ("summary", SummaryEntry),
        ("applications", ApplicationsEntry),
        ("failures", FailuresEntry),
        ("measures.segments[]", SegmentMeasures),
        ("refusals[]", RefusalEntry),
        ("reservations[]", ReservationEntry),
        ("samples", SamplesEntry),
        ("jobs[]", RunJobEntry),
        ("evictions[]", EvictionEntry),
    ],
)
def test_all_fields_are_documented(row: str, entry: type[msgspec.Struct]) -> None:
    (told,) = re.findall(rf"^\| `{re.escape(row)}` \| (.+) \|$", PAGE, re.MULTILINE)
    missing = {field.encode_name for field in msgspec.structs.fields(entry)} - set(
        re.findall(r"`(\w+)`", told)
    )
    assert not missing


def test_rows_are_fields_of_the_report() -> None:
    rows = set(re.findall(r"^\| `(\w+)(?:\[\])?`", PAGE.split("## The report")[1], re.MULTILINE))
    fields = {field.encode_name for field in msgspec.structs.fields(SimulationReport)}
    assert rows == fields - {"apiVersion"}
