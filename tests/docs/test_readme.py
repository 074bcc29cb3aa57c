"""What the README and the pages about applications and plugins show is what the commands print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
APPLICATIONS = (ROOT / "docs" / "applications.md").read_text()
PLUGINS = (ROOT / "docs" / "writing-a-plugin.md").read_text()
#: Console blocks that show output: (arguments, output).
COMMAND = re.compile(r"```console\n\$ \.venv/bin/closeby ([^\n|]+)\n(.+?)```", re.DOTALL)
SHOWN = [*COMMAND.findall(README), *COMMAND.findall(APPLICATIONS), *COMMAND.findall(PLUGINS)]


def closeby(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "closeby", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


@pytest.mark.parametrize(("arguments", "output"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_commands_print_what_the_readme_shows(arguments: str, output: str) -> None:
    shown, cut, _ = output.strip().partition("\n…")
    printed = closeby(*arguments.split())
    assert printed.startswith(shown.rstrip()) if cut else printed == shown


def test_the_readme_shows_output() -> None:
    assert len(COMMAND.findall(README)) == 3
    assert len(COMMAND.findall(APPLICATIONS)) == 2
    assert len(COMMAND.findall(PLUGINS)) == 1


def test_the_demo_prints_what_the_readme_shows() -> None:
    (excerpt,) = re.findall(r"```text\n(.+?)```", README, re.DOTALL)
    printed = closeby("demo")
    for line in excerpt.strip().splitlines():
        assert line == "…" or line.rstrip() in printed


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
