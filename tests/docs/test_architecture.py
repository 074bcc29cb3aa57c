"""The page about the architecture: its modules exist, and all pages have the enforced order of rooms."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "closeby"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
#: Steps of a gang on its way from the watch event to the binding.
STEPS = 25


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def modules(text: str) -> list[str]:
    return re.findall(r"`([a-z_]+/(?:[a-z_]+/)*(?:[a-z_]+\.py)?)`", text)


def enforced() -> list[str]:
    """The rooms from the top to the bottom, as the lint step checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract["layers"] for contract in contracts if contract.get("id") == "rooms"]
    named = [room.strip() for layer in rooms for room in re.split(r"[|:]", layer)]
    return [room for room in named if (SOURCE / room).is_dir()]


def test_every_module_exists() -> None:
    named = modules(PAGE)
    assert len(named) > 60
    assert [one for one in named if not (SOURCE / one).exists()] == []


@pytest.mark.parametrize("title", ["A gang, from the watch event to the binding", "A `closeby simulate` run"])
def test_every_step_of_a_walk_names_a_module(title: str) -> None:
    steps = re.findall(r"^(\d+)\. (.+)$", section(title), re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert len(steps) <= STEPS
    assert [text for _, text in steps if not modules(text)] == []


def test_a_change_has_its_place() -> None:
    rows = [row for row in section("Where a change belongs").splitlines() if row.startswith("| ")][1:]
    assert [row for row in rows if not modules(row.split("|")[2])] == []
    for subject in ("taint", "plan is written", "Kueue's annotations", "rack map", "wakes again"):
        assert any(subject in row.split("|")[1] for row in rows), subject


def test_every_page_has_the_order_that_is_enforced() -> None:
    rooms = enforced()
    drawing = section("Four floors").split("```")[1]
    drawn = re.findall(r"^ │?   ?([a-z]+(?: \| [a-z]+)?)  |^ {20,}(cli)$|  (lab)  ", drawing, re.MULTILINE)
    assert [room for row in drawn for room in "".join(row).split(" | ")] == rooms
    table = README.split("## Where things are")[1].split("\n\n[")[0]
    assert re.findall(r"^\|[^|]*\| `([a-z]+)/` \|", table, re.MULTILINE) == rooms
    (listed,) = re.findall(r"From the top to the bottom: (.+?)\.\n", CONTRIBUTING, re.DOTALL)
    assert re.findall(r"`([a-z]+)`", listed) == rooms
    assert "room imports only rooms below it" in " ".join(README.split())
    assert "room imports only rooms below it" in " ".join(CONTRIBUTING.split())
