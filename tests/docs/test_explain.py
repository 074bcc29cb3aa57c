"""What the page about explanations shows is what comes out, and it names every kind of answer."""

import json
import re
from pathlib import Path

import pytest

from closeby.reading.decoding.keys import EXPECTED_END
from closeby.whatif import ends
from closeby.whatif.gathering import DECISIONS_OF_ALL, ITEMS
from closeby.whatif.records import Kind
from closeby.whatif.trials import DECISIONS, MOVES_A_DECISION
from tests.cli.calling import closeby, report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain.md").read_text()
#: Without line breaks, so that a number and its unit stand together.
PROSE = " ".join(PAGE.split())


def test_the_command_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (arguments,) = re.findall(r"```console\n\$ \.venv/bin/closeby (.+?) -o json\n```", PAGE)
    (shown,) = re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)
    assert json.loads(shown) in report(*arguments.split())["counterfactuals"]


def test_it_prints_the_table_that_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = re.findall(r"```console\n\$ \.venv/bin/closeby ([^\n]+)\n(.+?)```", PAGE, re.DOTALL)
    ((arguments, table),) = [one for one in shown if "-o json" not in one[0]]
    assert closeby(*arguments.split(), environment={"COLUMNS": "100"}).stdout == table


def test_it_names_every_kind_and_every_bound() -> None:
    assert [kind for kind in Kind if f"`{kind}`" not in PROSE] == []
    assert f"{DECISIONS:,} decisions" in PROSE
    assert f"{MOVES_A_DECISION:,} moves" in PROSE
    assert f"all together {DECISIONS_OF_ALL:,}," in PROSE
    assert f"ends of {ends.JOBS} jobs" in PROSE
    assert PROSE.count(f"{ITEMS} ") == 1
    assert EXPECTED_END in PROSE
