"""What pages offer under "I want to …" are commands and options that exist; they print what is shown."""

import re
from pathlib import Path

import click
import pytest

from closeby.cli.main import cli
from tests.cli.calling import closeby

ROOT = Path(__file__).parents[2]
PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("discovery", "bandwidth", "deviations")
}


def offered(page: str) -> list[str]:
    """The commands of the page's tables of tasks, without what is piped into them."""
    (section,) = re.findall(r"^## I want to …\n(.+?)^## ", page, re.MULTILINE | re.DOTALL)
    return [
        found for code in re.findall(r"`([^`\n]+)`", section) for found in re.findall(r"closeby .+", code)
    ]


COMMANDS = [(name, command) for name, page in PAGES.items() for command in offered(page)]


def test_every_page_begins_with_tasks() -> None:
    assert {name for name, _ in COMMANDS} == set(PAGES)
    for page in PAGES.values():
        assert re.findall(r"^## (.+)$", page, re.MULTILINE)[0] == "I want to …"


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[command for _, command in COMMANDS])
def test_the_commands_exist_with_their_options(page: str, command: str) -> None:
    found: click.Command = cli
    _, *words = command.split()
    while isinstance(found, click.Group):
        known = found.get_command(click.Context(found), words.pop(0))
        assert known is not None, page
        found = known
    options = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    assert [word for word in words if word.startswith("-") and word not in options | {"-"}] == []


def test_the_example_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ((arguments, output),) = re.findall(
        r"```console\n\$ \.venv/bin/closeby ([^\n]+)\n(.+?)```", PAGES["discovery"], re.DOTALL
    )
    monkeypatch.chdir(ROOT)
    printed = closeby(*arguments.split(), environment={"COLUMNS": "100"}).stdout
    assert [line.rstrip() for line in printed.strip().splitlines()] == output.strip().splitlines()
