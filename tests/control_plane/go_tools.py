"""Programs that Go builds once for the tests, into a cache outside the repository."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_PROGRESS_SECONDS = 30

Tell = Callable[[str], None]
"""Takes one line of progress for the person who waits."""


class UnavailableError(Exception):
    """What is needed can't be had on this machine; the message gives the reason and the remedy."""


def cache(name: str) -> Path:
    """The folder of what was built for one purpose."""
    # As the XDG base directory specification has it: a relative path is ignored.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "closeby" / name


def find_go(needed: str, why: str, otherwise: str) -> str:
    """The Go command, if it is as new as `needed`.

    Raises UnavailableError: `why` begins its message, as in "no control plane", and `otherwise` says what
    else helps.
    """
    remedy = f"install Go {needed} or newer, or {otherwise}"
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(f"{why}: no Go here; {remedy}")
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        cwd="/",
        env=os.environ | {"GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    version = answer.stdout.strip().removeprefix("go")
    if answer.returncode or _numbers(version) < _numbers(needed):
        raise UnavailableError(f"{why}: {go} is {version or answer.stderr.strip()}; {remedy}")
    return go


def build_once(folder: Path, product: str, build: Callable[[Path], None], tell: Tell) -> None:
    """Lets `build` fill `folder`, unless another process that holds the lock does it first.

    It is done when `product` is in the folder, which is never seen half full.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise UnavailableError(
            f"{folder.parent} can't be written ({error.strerror}); set XDG_CACHE_HOME"
        ) from error
    with lock, _exclusive(lock.fileno(), tell):
        if not (folder / product).exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as unfinished:
                made = Path(unfinished) / "programs"
                made.mkdir()
                build(made)
                made.rename(folder)


def run_go(
    command: list[str], folder: Path, log: Path, tell: Tell, environment: Mapping[str, str] | None = None
) -> str | None:
    """Runs Go at the lowest priority, with a line now and then; returns the end of its output if it fails."""
    started = time.monotonic()
    variables = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", **(environment or {})}
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["nice", "-n", "19", *command],
            cwd=folder,
            env=os.environ | variables,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PROGRESS_SECONDS)
                    break
                tell(f"  … {(time.monotonic() - started) / 60:.1f} minutes")
        finally:
            # Does nothing to a process that has ended; an interrupted build is not left running.
            process.terminate()
    return None if process.returncode == 0 else log.read_text()[-2000:]


@contextlib.contextmanager
def _exclusive(descriptor: int, tell: Tell) -> Iterator[None]:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell("another process builds it; waiting")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
