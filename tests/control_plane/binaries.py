"""Finds the programs of a control plane: in KUBEBUILDER_ASSETS, or built once from the Go module here.

What is built lies in a cache outside the repository, in a folder named by a hash of the module's files, so
that a build is shared by all checkouts of one state and an old one is never taken for a new one.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

_MODULE = Path(__file__).resolve().parent
_MODULE_FILES = ("go.mod", "go.sum", "main.go")
_BINARY = "control-plane"
_PROGRESS_SECONDS = 30

Tell = Callable[[str], None]
"""Takes one line of progress for the person who waits."""


class UnavailableError(Exception):
    """No control plane can be had on this machine; the message gives the reason and the remedy."""


class BuildError(Exception):
    """The Go module doesn't build here although everything it needs is there."""


@dataclass(frozen=True)
class Programs:
    """A folder with the programs, and in words where they came from."""

    folder: Path
    origin: str

    def path(self, program: str) -> Path | None:
        """Where `program` lies; `None` if the folder has it not (envtest's has no controller manager)."""
        path = self.folder / program
        return path if os.access(path, os.X_OK) else None

    def version(self) -> str:
        """The version of Kubernetes, as `v1.36.2`."""
        answer = subprocess.run(
            [self.folder / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
        )
        return answer.stdout.split()[-1]


def find_programs(tell: Tell) -> Programs:
    """The programs, built if they must be (7 to 10 minutes on two cores when Go's caches are empty).

    Raises UnavailableError where they can't be had, and BuildError if the module is broken.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        programs = Programs(Path(named), f"KUBEBUILDER_ASSETS={named}")
        missing = [name for name in ("etcd", "kube-apiserver") if programs.path(name) is None]
        if missing:
            raise FileNotFoundError(f"KUBEBUILDER_ASSETS={named} has no {' and no '.join(missing)}")
        return programs
    folder = _cache() / _fingerprint()
    if not (folder / _BINARY).exists():
        _build_once(folder, tell)
    return Programs(folder, f"Kubernetes {kubernetes_version()}, built by Go, in {folder}")


def kubernetes_version() -> str:
    """The version that the Go module requires, as `v1.36.2`."""
    return _required(r"^\s*k8s\.io/kubernetes (v\S+)$")


def _required(pattern: str) -> str:
    found = re.search(pattern, (_MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"go.mod has no line like {pattern}")
    return found.group(1)


def _cache() -> Path:
    # As the XDG base directory specification has it: a relative path is ignored.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "closeby" / "control-plane"


def _fingerprint() -> str:
    state = hashlib.sha256()
    for name in _MODULE_FILES:
        content = (_MODULE / name).read_bytes()
        state.update(f"{name} {len(content)}\n".encode() + content)
    return state.hexdigest()[:16]


def _build_once(folder: Path, tell: Tell) -> None:
    """Builds into `folder`, unless another process that holds the lock does it first."""
    go = _go()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise UnavailableError(
            f"{folder.parent} can't be written ({error.strerror}); set XDG_CACHE_HOME"
        ) from error
    with lock, _exclusive(lock.fileno(), tell):
        if not (folder / _BINARY).exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as unfinished:
                # Renamed when it is whole, so that nobody ever sees half a folder.
                made = Path(unfinished) / "programs"
                made.mkdir()
                _build(go, made, tell)
                for program in PROGRAMS:
                    (made / program).symlink_to(_BINARY)
                made.rename(folder)


@contextlib.contextmanager
def _exclusive(descriptor: int, tell: Tell) -> Iterator[None]:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell("another process builds the control plane; waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield


def _go() -> str:
    """The Go command, if it is new enough."""
    needed = _required(r"^go (\S+)$")
    remedy = (
        f"install Go {needed} or newer, or name a folder with etcd and kube-apiserver in KUBEBUILDER_ASSETS, "
        "or a running cluster in CLOSEBY_TEST_KUBECONFIG"
    )
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(f"no control plane: no Go here; {remedy}")
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
        raise UnavailableError(f"no control plane: {go} is {version or answer.stderr.strip()}; {remedy}")
    return go


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _build(go: str, folder: Path, tell: Tell) -> None:
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    tell(f"fetching the Go modules of Kubernetes {version}")
    fetched = _run([go, "list", "-deps", "-f", "", "."], folder / "go.log", tell)
    if fetched:
        raise UnavailableError(
            f"no control plane: Go can't get its modules here:\n{fetched}\n"
            "Give it a module proxy that it reaches (GOPROXY), or set KUBEBUILDER_ASSETS or "
            "CLOSEBY_TEST_KUBECONFIG."
        )
    tell(f"building Kubernetes {version} once, into {_cache()}: 7 to 10 minutes on two cores")
    command = [go, "build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {flags}"]
    failed = _run([*command, "-o", str(folder / _BINARY), "."], folder / "go.log", tell)
    if failed:
        raise BuildError(f"the Go module in {_MODULE} doesn't build:\n{failed}")
    (folder / "go.log").unlink()


def _run(command: list[str], log: Path, tell: Tell) -> str | None:
    """Runs Go at the lowest priority, with a line now and then; returns the end of its output if it fails."""
    started = time.monotonic()
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["nice", "-n", "19", *command], cwd=_MODULE, env=environment, stdout=output, stderr=output
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
