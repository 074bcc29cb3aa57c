"""What the page about explanations shows is what comes out, and it names every kind of answer."""

import json
import re
from pathlib import Path

import pytest

from closeby.objects.dialects.keys import EXPECTED_END
from closeby.report.counterfactuals.gathering import ITEMS
from closeby.report.counterfactuals.records import Kind
from closeby.simulator.trials import DECISIONS
from tests.cli.calling import report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain.md").read_text()


def test_the_command_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (arguments,) = re.findall(r"```console\n\$ \.venv/bin/closeby (.+?) -o json\n```", PAGE)
    (shown,) = re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)
    assert json.loads(shown) in report(*arguments.split())["counterfactuals"]


def test_it_names_every_kind_and_every_bound() -> None:
    assert [kind for kind in Kind if f"`{kind}`" not in PAGE] == []
    assert f"{DECISIONS:,} decisions" in PAGE
    assert PAGE.count(f"{ITEMS} ") == 2
    assert EXPECTED_END in PAGE
