"""The page about the architecture: its modules exist, and all pages have the enforced order of rooms."""

import re
import sys
import tomllib
from pathlib import Path
from types import FrameType

import pytest

from closeby.lab.benchmarks import clusters
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "closeby"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
#: Steps of a gang on its way from the watch event to the binding.
STEPS = 25
#: The steps inside the engine, each with the function in which it begins.
ENGINE_STEPS = {
    "scheduling/engine.py": "handle",
    "scheduling/intake/scheduling_state.py": "add",
    "scheduling/intake/queue.py": "add",
    "scheduling/rounds/loop.py": "_decide_item",
    "scheduling/placing/deciding.py": "decide",
    "scheduling/gangs/rosters.py": "roster",
    "scheduling/placing/gang_cycle.py": "place_gang",
    "scheduling/judging/classes.py": "shares",
    "scheduling/placing/search.py": "alternatives",
    "plugins/topology.py": "placement_generate",
    "scheduling/placing/fill.py": "fill",
    "scheduling/placing/descent.py": "descend",
    "scheduling/placing/statement.py": "assume",
    "cluster/columns.py": "assume",
    "scheduling/gangs/places.py": "place_at",
}
#: Modules that a gang enters inside the engine.
ENTERED = 64
#: And of these in `scheduling`.
ENTERED_OF_SCHEDULING = 32


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


@pytest.fixture
def calls() -> list[tuple[str, str]]:
    """Module and function of each call, in order, while the engine takes in a gang of eight and places it."""
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    nodes = clusters.nodes(64, racks_a_block=4, nodes_a_rack=8)
    clusters.fill(engine, nodes, clusters.topology("block", "rack"), iter(()))
    group, pods = clusters.gang("train", 8, 1, required="rack")
    made: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{SOURCE}/"):
            made.setdefault((code.co_filename.removeprefix(f"{SOURCE}/"), code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        outputs = engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods), Tick())
    finally:
        sys.setprofile(before)
    assert len(bindings_of(outputs)) == 8
    return list(made)


def test_the_steps_inside_the_engine_are_in_the_order_in_which_they_are_taken(
    calls: list[tuple[str, str]],
) -> None:
    steps = modules(section("A gang, from the watch event to the binding"))
    first = steps.index("scheduling/engine.py")
    assert steps[first : first + len(ENGINE_STEPS)] == list(ENGINE_STEPS)
    taken = [calls.index(step) for step in ENGINE_STEPS.items()]
    assert taken == sorted(taken)


def test_a_gang_enters_few_modules_inside_the_engine(calls: list[tuple[str, str]]) -> None:
    entered = {module for module, _ in calls}
    assert len(entered) <= ENTERED
    assert sum(one.startswith("scheduling/") for one in entered) <= ENTERED_OF_SCHEDULING


def test_a_change_has_its_place() -> None:
    lines = section("Where a change belongs").splitlines()
    rows = [row for row in lines if row.startswith("| ") and row != "| what | where |"]
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
