"""What the page about bandwidth shows is what the command prints, and its configuration is understood."""

import re
from pathlib import Path

import pytest
import yaml

from closeby.measurements.promql import Queries
from closeby.plugins.check_risk_node_bandwidth import BandwidthArguments
from tests.cli.calling import closeby

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bandwidth.md").read_text()


def test_the_command_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    ((arguments, output),) = re.findall(
        r"```console\n\$ \.venv/bin/closeby ([^\n]+)\n(.+?)```", PAGE, re.DOTALL
    )
    monkeypatch.chdir(ROOT)
    printed = closeby(*arguments.split(), environment={"COLUMNS": "100"}).stdout
    assert "\n".join(line.rstrip() for line in printed.strip().splitlines()) == output.strip()


def test_the_page_names_every_argument() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert named == set(BandwidthArguments.__struct_encode_fields__)


def test_the_queries_of_the_page_are_known() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)]
    (queries,) = [block["prometheusQueries"] for block in blocks if "prometheusQueries" in block]
    assert set(queries) < set(Queries.__struct_encode_fields__)
