"""The page about security: its links lead somewhere, and it speaks of what the chart has."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
VALUES = ROOT / "deploy" / "helm" / "closeby" / "values.yaml"


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)", PAGE)
    assert len(links) > 20
    inside = [link for link in links if link != "https"]
    assert [link for link in inside if not (ROOT / "docs" / link).exists()] == []


def test_its_table_has_a_row_for_every_actor() -> None:
    table = PAGE[PAGE.index("| who |") : PAGE.index("## What it takes")]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    for who in ("any client in the network", "tenant", "operator", "scheduler's token", "controllers' token"):
        assert any(who in row.split("|")[1] for row in rows), who
    assert {row.count(" | ") for row in rows} == {3}


def test_its_values_are_values_of_the_chart() -> None:
    given: Any = yaml.safe_load(VALUES.read_text())
    named = set(re.findall(r"`((?:metrics|controllers|scheduler|agent)\.[A-Za-z.]+)`", PAGE))
    assert len(named) >= 3
    for path in named | {"excludedNamespaces", "modules"}:
        found = given
        for step in path.split("."):
            assert step in found, path
            found = found[step]
