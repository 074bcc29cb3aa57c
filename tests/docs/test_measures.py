"""docs/measures.md names every measure that there is, its constants are the model's, its example is right."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeby.quality.delays import SIZE_BUCKETS, Delay
from closeby.quality.model import DEFAULT_MODEL
from closeby.quality.moments import COMPARED, MOMENTS, MOST_PODS
from closeby.quality.summary import LevelMeasures, Measures
from closeby.report.documents.quality import QualityEntry
from tests.cli.calling import report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "measures.md").read_text()
EXAMPLE = re.findall(r"^\| `([a-zA-Z.]+)` \| ([0-9.]+) \|", PAGE, re.MULTILINE)
#: What needs no definition, and what is one of another under a longer name.
PLAIN = {
    *("jobs", "started", "ended", "size", "level", "levels", "delays", "unstarted"),
    *("greatestExcessSpan", "ringHops", "allReduce", "contendedAllReduce"),
}


@pytest.mark.parametrize("record", [Measures, LevelMeasures, Delay, QualityEntry])
def test_every_measure_is_defined(record: type[msgspec.Struct]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(record)}
    assert {
        field for field in fields - PLAIN if f"`{field}`" not in PAGE and f".{field}`" not in PAGE
    } == set()


def test_the_example_is_what_the_report_says() -> None:
    found = report("simulate", "-f", ROOT / "docs" / "examples" / "measures")
    quality: Any = found["groups"][0]["quality"]
    assert len(EXAMPLE) > 12
    for path, value in EXAMPLE:
        told = quality
        for key in path.split("."):
            told = told[key]
        assert told == float(value), path


def test_the_constants_are_those_of_the_model() -> None:
    rows = re.findall(r"^\| [a-z ]+ \| ([0-9.]+) µs \| (\d+) GB/s \| ([0-9.]+) \|$", PAGE, re.MULTILINE)
    assert [tuple(map(float, row)) for row in rows] == [
        (round(tier.latency_seconds * 1e6, 6), tier.bytes_per_second / 1e9, tier.oversubscription)
        for tier in DEFAULT_MODEL.tiers
    ]
    assert DEFAULT_MODEL.message_bytes == 2**30
    assert f"communication is {DEFAULT_MODEL.communication_share:.0%}".replace("%", " %") in PAGE


def test_the_limits_are_those_of_the_code() -> None:
    assert f"Up to {COMPARED} jobs of several nodes and at most {MOST_PODS} pods" in PAGE
    assert f"mean over {MOMENTS} moments" in PAGE
    assert [most for _, most in SIZE_BUCKETS] == [1, 8, 64, float("inf")]


def test_a_measure_of_ones_own_is_as_short_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(block, "measures.md", "exec"), {})
    assert re.fullmatch(r"\d\d% of the gangs lay in one leaf\n", capsys.readouterr().out)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
