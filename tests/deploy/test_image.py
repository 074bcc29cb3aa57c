"""The Dockerfile, as far as any machine can try it: what it copies is there, and its commands work.

``test_built_image.py`` builds the image where there are the programs for it.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import closeby
from tests.deploy.helm import ROOT

TEXT = (ROOT / "Dockerfile").read_text()
BUILD, RUN = re.split(r"^FROM .*$", TEXT, flags=re.MULTILINE)[1:]
NAME = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)


def instructions(stage: str) -> list[tuple[str, str]]:
    """Name and rest of each instruction, with continued lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", stage, flags=re.MULTILINE))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def copied() -> list[tuple[list[str], str]]:
    """What is copied from the repository, and where to."""
    split = [rest.split() for name, rest in instructions(BUILD) if name == "COPY"]
    return [(sources, target) for *sources, target in split]


def locked(*names: str) -> str:
    """What the script prints that the Dockerfile runs."""
    command = [sys.executable, str(ROOT / "deploy" / "image" / "locked.py"), *names]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needs(*names: str) -> set[str]:
    """Installed packages, and what they need here, all the way down."""
    found = set(names)
    pending = list(names)
    while pending:
        wanted = [Requirement(one) for one in requires(pending.pop()) or ()]
        new = {
            canonicalize_name(one.name)
            for one in wanted
            if one.marker is None or one.marker.evaluate({"extra": ""})
        }
        pending += new - found
        found |= new
    return found


def dependencies() -> set[str]:
    """What closeby says that it needs, which is more up to date than what is noted where it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {canonicalize_name(Requirement(one).name) for one in project["dependencies"]}


@pytest.mark.parametrize(("name", "roots"), [("closeby", dependencies()), ("hatchling", {"hatchling"})])
def test_the_part_of_the_lock_is_what_it_needs(name: str, roots: set[str]) -> None:
    part = locked(name)
    assert {one for one in NAME.findall(part) if installed(one)} == needs(*roots)
    assert part.count("==") <= part.count("--hash=sha256:")


def installed(name: str) -> bool:
    """Not so for what other platforms need."""
    try:
        requires(name)
    except PackageNotFoundError:
        return False
    return True


def test_a_package_that_is_not_in_the_lock() -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        locked("no-such-package")
    assert "KeyError: 'no-such-package'" in refused.value.stderr


def test_what_is_copied_is_there_and_is_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = {source for found, _ in copied() for source in found}
    assert sources == allowed
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_it_runs_without_root_and_writes_nothing() -> None:
    said = dict(instructions(RUN))
    assert said["USER"] == "65532:65532"
    assert said["ENTRYPOINT"] == '["closeby"]'
    assert "PYTHONDONTWRITEBYTECODE=1" in said["ENV"]
    # Nothing is run in the last image, so it has the same files each time.
    assert "RUN" not in said


def test_its_base_is_a_tag() -> None:
    (base,) = re.findall(r"^ARG PYTHON=(.+)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", base)
    assert re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE) == ["${PYTHON}", "${PYTHON}"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_its_commands_make_a_closeby_that_runs(tmp_path: Path) -> None:
    """They are run here, with folders of this test in place of the image's."""
    build, opt = tmp_path / "build", tmp_path / "opt" / "closeby"
    build.mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(Path(sys.executable).resolve())
    here = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1", "COMMIT": "c0ffee"}
    # As in the image, nothing is known of this run's environment but how to reach packages.
    outer = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for name, rest in instructions(BUILD):
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, build / target, whole=source == target)
        elif name == "RUN":
            command = rest.replace("/opt/closeby", str(opt)).replace("/build", str(build))
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=build,
                env=outer | here,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    before = files(opt)
    done = subprocess.run(
        [opt / "bin" / "closeby", "demo"],
        cwd="/",
        env={"PATH": f"{opt / 'bin'}", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "After" in done.stdout
    version = (str(opt / "bin" / "python"), "-c", "import closeby; print(closeby.full_version())")
    assert subprocess.check_output(version, cwd="/", text=True) == f"{closeby.__version__}+c0ffee\n"
    assert files(opt) == before
    package = next(opt.glob("lib/python*/site-packages/closeby"))
    assert len(list(package.rglob("*.pyc"))) == len(list(package.rglob("*.py")))
    assert (package.parent / f"closeby-{closeby.__version__}.dist-info").is_dir()
    assert not (package.parent / "pytest").exists()


def copy(source: Path, target: Path, *, whole: bool) -> None:
    """As COPY does: a file into a folder, or the content of a folder."""
    if source.is_dir():
        assert whole
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def files(folder: Path) -> set[Path]:
    """All files below."""
    return {path for path in folder.rglob("*") if path.is_file()}
