"""What the page about layers shows is what comes out, and it names every field."""

import re
from pathlib import Path

import pytest

from closeby.reading.common.layers import LayerWire
from tests.cli.calling import closeby, report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "layers.md").read_text()


def test_commands_print_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = re.findall(r"```console\n\$ closeby (.+?)\n(.+?)```", PAGE, re.DOTALL)
    assert len(shown) == 3
    for arguments, lines in shown:
        printed = closeby(*arguments.split()).stdout
        assert [line for line in lines.splitlines() if line not in printed] == [], arguments


def test_the_report_says_where_each_segment_is() -> None:
    found = report("simulate", "-f", str(ROOT / "docs" / "examples" / "layers"))
    train, tune = found["groups"]
    assert [(one["level"], one["segment"], one["domain"]) for one in train["segments"]] == [
        ("block", 0, ["block-a"]),
        ("block", 1, ["block-b"]),
        ("rack", 0, ["block-a", "rack-a1"]),
        ("rack", 1, ["block-a", "rack-a3"]),
        ("rack", 2, ["block-b", "rack-b1"]),
        ("rack", 3, ["block-b", "rack-b2"]),
    ]
    assert all(one["together"] for one in train["segments"])
    assert train["segments"][3]["pods"] == ["train-2", "train-3"]
    assert "segments" not in tune
    assert tune["reason"] == "TopologyPlacementFailed"


def test_every_field_is_on_the_page() -> None:
    for name in LayerWire.__struct_encode_fields__:
        assert f"| `{name}` |" in PAGE, name
