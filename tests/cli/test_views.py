"""What each command shows, whole: one golden file for each view."""

from pathlib import Path

import pytest

from tests.cli.calling import closeby, gang, pod, racks, text
from tests.cli.test_help import COMMANDS
from tests.golden.fixture import Golden

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TOUR = ("-f", EXAMPLES / "tour")
SHOP = ("-f", EXAMPLES / "shop")


@pytest.mark.parametrize(
    ("view", "arguments"),
    [
        pytest.param("demo", ("demo",), id="the demo"),
        pytest.param("simulate", ("simulate", *TOUR), id="gangs"),
        pytest.param("simulate", ("simulate", *TOUR, "--explain"), id="gangs explained"),
        pytest.param("simulate", ("simulate", *SHOP), id="an application"),
        pytest.param("simulate", ("simulate", *SHOP, "--explain"), id="an application explained"),
        pytest.param("topology", ("topology", *TOUR), id="a fabric"),
        pytest.param("topology", ("topology", *TOUR, "--after"), id="after scheduling"),
    ],
)
def test_a_table(view: str, arguments: tuple[object, ...], golden: Golden) -> None:
    done = closeby(*arguments, environment={"COLUMNS": "100"})
    assert (done.exit_code, done.stderr) == (0, "")
    # How long the demo took is another number each time, and what follows it is wrapped.
    golden(view, done.stdout.partition("Taking 847 nodes")[0])


def test_many_pods_and_gangs_take_few_lines(golden: Golden) -> None:
    """a-wide has a node for each of 12 pods; most of the five late gangs wait for the same reason."""
    cluster = racks({"a/r1": 10, "a/r2": 6})
    cluster[3]["spec"] = {"unschedulable": True}
    gangs = [("a-wide", 12, 8), ("b-small", 6, 4), *((f"late-{number}", 2, 8) for number in range(5))]
    pods = [
        one
        for name, size, gpus in gangs
        for one in (gang(name, size), *(pod(f"{name}-{n}", gpus, gang=name) for n in range(size)))
    ]
    done = closeby("simulate", "-f", "-", stdin=text(*cluster, *pods), environment={"COLUMNS": "100"})
    golden("simulate", done.stdout)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_page_of_help(command: tuple[str, ...], golden: Golden) -> None:
    golden("help", closeby(*command, "--help", environment={"COLUMNS": "100"}).stdout)
