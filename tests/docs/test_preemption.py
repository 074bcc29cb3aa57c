"""What the page about preemption shows is what comes out."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.cli.calling import closeby, report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "preemption.md").read_text()
EXAMPLE = "docs/examples/preemption"


def test_explain_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (lines,) = re.findall(rf"```console\n\$ closeby explain train -f {EXAMPLE}\n(.+?)```", PAGE, re.DOTALL)
    printed = closeby("explain", "train", "-f", EXAMPLE).stdout
    assert [line for line in lines.splitlines() if line not in printed] == []


def test_the_report_has_the_preemption_that_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = re.findall(r"```json\n(\"preemptions\": .+?)```", PAGE, re.DOTALL)
    assert (
        report("simulate", "-f", EXAMPLE)["preemptions"] == msgspec.json.decode(f"{{{shown}}}")["preemptions"]
    )
