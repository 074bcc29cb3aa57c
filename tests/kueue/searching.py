"""Kueue's own search for places as a program: a test of ours, built inside a copy of its package."""

import hashlib
import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from tests.control_plane.binaries import BuildError
from tests.control_plane.go_tools import Tell, build_once, cache, find_go, run_go
from tests.kueue.building import GO, MODULE, copied

_FILES = ("go.mod", "go.sum", "building.py", "searching.py", "search/search_test.go")
_PACKAGE = Path("pkg") / "cache" / "scheduler"
_BINARY = "search"


def find_search(tell: Tell) -> Path:
    """The program, built if it must be (minutes on two cores if Kueue was not built before).

    Raises UnavailableError where it can't be had, and BuildError if it does not build.
    """
    state = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in _FILES))
    folder = cache("kueue-search") / state.hexdigest()[:16]
    if not (folder / _BINARY).exists():
        go = find_go(GO, "no search of Kueue's", "leave this comparison out")
        build_once(folder, _BINARY, partial(_build, go, tell), tell)
    return folder / _BINARY


def _build(go: str, tell: Tell, folder: Path) -> None:
    source, version = copied(go, tell, folder)
    for other in (source / _PACKAGE).glob("*_test.go"):
        other.unlink()
    shutil.copy(MODULE / "search" / "search_test.go", source / _PACKAGE)
    tell(f"building the search of Kueue {version} once, into {cache('kueue-search')}")
    log = folder / "go.log"
    command = [go, "test", "-c", "-p", "2", "-trimpath", "-buildvcs=false", "-o", str(folder / _BINARY)]
    failed = run_go([*command, f"./{_PACKAGE}"], source, log, tell)
    if failed:
        raise BuildError(f"the search of Kueue {version} doesn't build:\n{failed}")
    shutil.rmtree(source)
    log.unlink()


def searched(program: Path, question: dict[str, object], folder: Path) -> list[dict[str, Any]]:
    """What the program says to some questions (see ``search_test.go``).

    Raises CalledProcessError if it fails.
    """
    asked = folder / "search.json"
    asked.write_text(json.dumps(question))
    done = subprocess.run(
        [str(program), "-test.run", "TestSearch", "-test.timeout", "30m"],
        env={"SEARCH_INPUT": str(asked), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.removeprefix("SEARCH ") for line in done.stdout.splitlines() if line.startswith("SEARCH ")]
    return [json.loads(line) for line in lines]
