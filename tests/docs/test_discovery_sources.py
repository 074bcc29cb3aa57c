"""What the page about files of others shows is what the commands print, and its tables are whole."""

import re
from pathlib import Path

import pytest

from closeby.cli.discovering.options import EXCHANGED
from closeby.topology.families import PRESETS
from tests.cli.calling import closeby

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "discovery-sources.md").read_text()
SHOWN = re.findall(r"```console\n\$ \.venv/bin/closeby ([^\n]+)\n(.+?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("arguments", "output"), SHOWN)
def test_commands_print_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch, arguments: str, output: str
) -> None:
    monkeypatch.chdir(ROOT)
    printed = closeby(*arguments.split(), environment={"COLUMNS": "100"}).stdout
    assert "\n".join(line.rstrip() for line in printed.strip().splitlines()) == output.strip()


def test_the_page_shows_commands() -> None:
    assert len(SHOWN) == 4


def test_the_page_names_every_preset_and_form() -> None:
    assert [name for name in (*PRESETS, *EXCHANGED) if f"`{name}`" not in PAGE] == []
