"""A user's own plugin beside the configuration file: it is found, and its faults are told as its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from closeby.cli.main import UNUSABLE
from tests.cli.calling import closeby, node, pod, text
from tests.golden.fixture import Golden

PLUGIN = """
from closeby.scheduling.scalar import ScalarCost, ScalarFilter

class Thrifty(ScalarFilter, ScalarCost):
    name = "thrifty"

    def filter_node(self, pod, node):
        return {verdict}

    def cost_node(self, pod, node):
        return float(node.labels["watts"])
"""
# The first node would be taken if nobody asked for its price.
CHEAP_LAST = text(node("a", {"watts": "300"}), node("b", {"watts": "100"}), pod("p"))


@pytest.fixture(autouse=True)
def _path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def configured(folder: Path, module: str, verdict: str = "True") -> Path:
    """A configuration in ``folder`` with a plugin beside it, in a module of the given name."""
    (folder / f"{module}.py").write_text(PLUGIN.format(verdict=verdict))
    config = folder / "config.yaml"
    config.write_text(f"plugins: [{{name: '{module}:Thrifty', weight: 5}}]\n")
    return config


def run(config: Path, manifests: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """In a process of its own, as faults that are not click's pass through ``main``."""
    command = [sys.executable, "-m", "closeby", *options, "simulate", "-f", "-", "--config", str(config)]
    return subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)


def test_a_plugin_beside_the_configuration(tmp_path: Path) -> None:
    config = configured(tmp_path, "thrifty_beside")
    done = closeby("simulate", "-f", "-", "--config", config, stdin=CHEAP_LAST)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split()[-2:] == ["p", "b"]


def test_a_file_beside_the_configuration_does_not_hide_an_installed_module(tmp_path: Path) -> None:
    """A folder of experiments may well hold a ``queue.py``."""
    config = configured(tmp_path, "thrifty_too")
    (tmp_path / "queue.py").write_text("raise RuntimeError('not the one of Python')\n")
    (tmp_path / "rich.py").write_text("raise RuntimeError('not the installed one')\n")
    done = run(config, CHEAP_LAST)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plugin_that_fails_is_named_with_its_line(tmp_path: Path, golden: Golden) -> None:
    config = configured(tmp_path, "thrifty_fails")
    manifests = text(node("a", {"watts": "lots"}), pod("p"))
    done = run(config, manifests)
    assert done.returncode == UNUSABLE
    golden("command-errors", done.stderr)
    with_traceback = run(config, manifests, "--debug")
    assert with_traceback.returncode == 1
    assert "Traceback" in with_traceback.stderr


def test_a_plugin_that_answers_nonsense_is_named(tmp_path: Path, golden: Golden) -> None:
    config = configured(tmp_path, "thrifty_nonsense", verdict="3")
    done = run(config, CHEAP_LAST)
    assert done.returncode == UNUSABLE
    golden("command-errors", done.stderr)


def test_a_score_out_of_range_is_the_fault_of_its_plugin(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "boasting.py").write_text(
        "from closeby.scheduling.scalar import ScalarScore\n"
        "class Boasting(ScalarScore):\n"
        "    name = 'boasting'\n"
        "    def score_node(self, pod, node):\n"
        "        return float(node.labels['watts'])\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text("plugins: [{name: 'boasting:Boasting'}]\n")
    done = run(config, CHEAP_LAST)
    assert done.returncode == UNUSABLE
    golden("command-errors", done.stderr)


def test_the_table_tells_the_sentence_of_a_refusal(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = "node.name == 'a' or 'too dear for a test'"
    config = configured(tmp_path, "thrifty_refuses", verdict=verdict)
    name = Path(config).name
    shown = closeby("simulate", "-f", "-", "--config", name, "--explain", stdin=CHEAP_LAST).stdout
    golden("simulate", shown)
