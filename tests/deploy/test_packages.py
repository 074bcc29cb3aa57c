"""The source distribution and the wheel: complete, and what is installed from them runs."""

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import closeby

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "docs" / "examples" / "tour"


def run(command: Sequence[str | Path], folder: Path, **more: str) -> str:
    """The standard output of a program that must succeed; it sees no settings of this Python."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **more}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from this checkout as that of a commit."""
    folder = tmp_path_factory.mktemp("source")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory")
    run([*build, folder], ROOT, CLOSEBY_COMMIT="c0ffee")
    (built,) = folder.glob("closeby-*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution alone."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "built"],
        unpacked,
    )
    (built,) = (folder / "built").glob("closeby-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and the libraries that the tests have anyway."""
    folder = tmp_path_factory.mktemp("clean")
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    # A line of such a file adds a folder, but not what is installed there for development.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    uv = Path(sys.executable).with_name("uv")
    run(
        [uv, "pip", "install", "--offline", "--no-deps", "--python", folder / "bin" / "python", wheel], folder
    )
    return folder / "bin"


def test_the_source_distribution_has_what_a_developer_needs(source: Path) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "LICENSE", "Makefile", "Dockerfile", "requirements.lock", "pyproject.toml"}
    assert wanted <= names
    modules = {str(one.relative_to(ROOT)) for one in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {str(one.relative_to(ROOT / "src")) for one in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    assert "closeby/py.typed" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"closeby"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["demo"],
        ["simulate", "-f", str(TOUR), "-o", "json"],
        ["completion", "bash"],
        ["schema", "SchedulingReport"],
    ],
    ids=lambda one: one[0],
)
def test_what_is_installed_from_the_wheel_runs(installed: Path, arguments: list[str], tmp_path: Path) -> None:
    assert run([installed / "closeby", *arguments], tmp_path)


def test_it_is_the_installed_package_that_runs(installed: Path, tmp_path: Path) -> None:
    program = "import closeby, closeby.lab; print(closeby.__file__)"
    assert run([installed / "python", "-c", program], tmp_path).startswith(str(installed.parent))


def test_what_is_built_says_of_which_commit_it_is(installed: Path, tmp_path: Path) -> None:
    """The wheel was built from the source distribution, without git."""
    assert run([installed / "closeby", "--version"], tmp_path) == f"closeby {closeby.__version__}+c0ffee\n"


def test_kubectl_finds_its_plugin(installed: Path, tmp_path: Path) -> None:
    assert "kubectl closeby topology" in run([installed / "kubectl-closeby", "topology", "--help"], tmp_path)
    assert run([installed / "kubectl_complete-closeby", "top"], tmp_path).startswith("topology\t")
