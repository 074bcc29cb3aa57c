"""closeby without its laboratory, as in the image: what needs the laboratory says so, all else runs."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from closeby import __file__ as package

TOUR = Path(__file__).parents[2] / "docs" / "examples" / "tour"
#: Of the extra ``lab``.
LIBRARIES = ("vl_convert",)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package alone, and in place of the libraries of the extra what can't be imported."""
    folder = tmp_path_factory.mktemp("installed")
    ignored = shutil.ignore_patterns("lab", "__pycache__")
    shutil.copytree(Path(package).parent, folder / "closeby", ignore=ignored)
    for name in LIBRARIES:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n")
    return folder


def closeby(installed: Path, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "closeby", *arguments],
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo"],
        ["simulate", "-f", str(TOUR)],
        ["simulate", "-f", str(TOUR), "-o", "json", "--explain", "--quality"],
        ["topology", "-f", str(TOUR)],
        ["explain", "-f", str(TOUR), "train-7"],
        *([name, "--help"] for name in ("discover", "scheduler", "controllers", "agent", "compare", "bench")),
    ],
    ids=lambda one: " ".join(part for part in one if not part.startswith("/")),
)
def test_what_schedules_runs_without_it(installed: Path, arguments: list[str]) -> None:
    ran = closeby(installed, arguments)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--only", "throughput"],
        ["simulate", "--workload", "seren", "--jobs", "10"],
        ["simulate", "-f", str(TOUR), "--plot", "pictures"],
        ["simulate", "-f", str(TOUR), "--config", "slurm-tree"],
        ["compare", "--config", "closeby", "--config", "slurm-tree"],
    ],
    ids=lambda one: " ".join(part for part in one if not part.startswith("/")),
)
def test_what_needs_it_says_how_to_install_it(installed: Path, arguments: list[str]) -> None:
    ran = closeby(installed, arguments)
    assert ran.returncode == 2
    assert "pip install '.[lab]'" in ran.stderr
    assert "Traceback" not in ran.stderr
