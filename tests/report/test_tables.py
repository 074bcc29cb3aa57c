"""Summaries as CSV."""

import csv
import io
from typing import Any

import pytest

from closeby.report.documents.tables import CsvTable, to_csv
from tests.cli.calling import closeby, gang, pod, racks, report, text, train


def rows(printed: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(printed, newline=""), strict=True))


def test_every_gang_has_a_line_with_what_the_json_says() -> None:
    world = text(*racks({"a/r1": 2, "b/r2": 1}), *train(2, 8), *train(3, 8, "large"), pod("lone"))
    printed = closeby("simulate", "-f", "-", "-o", "csv", stdin=world).stdout
    found = rows(printed)
    groups = report("simulate", "-f", "-", stdin=world)["groups"]
    assert [(one["namespace"], one["name"]) for one in found] == [
        (one["namespace"], one["name"]) for one in groups
    ]
    large, placed = found
    assert large == {
        "namespace": "default",
        "name": "large",
        "minMember": "3",
        "pods": "3",
        "scheduled": "0",
        "topology": "fabric",
        "level": "",
        "domain": "",
        "nodes": "",
        "span": "",
        "meanDistance": "",
        "slowdown": "",
        "reason": groups[0]["reason"],
        "message": groups[0]["message"],
    }
    assert (placed["domain"], placed["level"], placed["nodes"]) == ("a/r1", "rack", "2")
    assert placed["span"] == "zone=1 rack=1 hostname=2"
    assert float(placed["meanDistance"]) == groups[1]["quality"]["meanDistance"]


def test_without_gangs_there_are_columns_alone() -> None:
    world = text(*racks({"a/r1": 1}), pod("lone"))
    printed = closeby("simulate", "-f", "-", "-o", "csv", stdin=world).stdout_bytes
    assert printed.startswith(b"namespace,name,")
    assert (printed.count(b"\n"), printed[-2:]) == (1, b"\r\n")


def test_jobs_of_a_run_over_time() -> None:
    jobs = ("--workload", "seren", "--jobs", "30", "--cluster", "small", "--seed", "3")
    found = rows(closeby("simulate", *jobs, "-o", "csv").stdout)
    known = report("simulate", *jobs, "--full")["jobs"]
    assert [(one["name"], float(one["submitted"])) for one in found] == [
        (one["name"], one["submitted"]) for one in known
    ]
    assert [int(one["nodes"]) for one in found] == [one["nodes"] for one in known]


def test_separators_quotes_and_lines_are_kept() -> None:
    cells = ["a,b", 'a "b"', "a\nb", "é"]
    assert list(csv.reader(io.StringIO(to_csv(CsvTable(cells, [cells])), newline=""))) == [cells, cells]


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(begin: str) -> None:
    """A plugin of another writes messages too, and names in files may begin with a dash."""
    printed = to_csv(CsvTable(["message", "n"], [[f"{begin}1+1", -1]]))
    assert rows(printed) == [{"message": f"'{begin}1+1", "n": "-1"}]


def test_a_gang_that_a_spreadsheet_would_compute() -> None:
    world = text(*racks({"a/r1": 1}), gang("-1", 1), pod("p", gang="-1"))
    (found,) = rows(closeby("simulate", "-f", "-", "-o", "csv", stdin=world).stdout)
    assert found["name"] == "'-1"
