"""Finds the programs of a control plane: in KUBEBUILDER_ASSETS, or built once from the Go module here.

What is built is in a cache outside the repository, in a folder named by a hash of the module's files, so
that a build is shared by all checkouts of one state and an old one is never taken for a new one.
"""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.control_plane.go_tools import Tell, UnavailableError, build_once, cache, find_go, run_go

__all__ = ["PROGRAMS", "BuildError", "Programs", "UnavailableError", "find_programs", "kubernetes_version"]

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

_MODULE = Path(__file__).resolve().parent
_MODULE_FILES = ("go.mod", "go.sum", "main.go")
_BINARY = "control-plane"
_CACHE = "control-plane"
_OTHERWISE = (
    "name a folder with etcd and kube-apiserver in KUBEBUILDER_ASSETS, or a running cluster in "
    "CLOSEBY_TEST_KUBECONFIG"
)


class BuildError(Exception):
    """The Go module doesn't build here although everything it needs is there."""


@dataclass(frozen=True)
class Programs:
    """A folder with the programs, and in words where they came from."""

    folder: Path
    origin: str

    def path(self, program: str) -> Path | None:
        """Where `program` is; `None` if the folder has it not (envtest's has no controller manager)."""
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
    folder = cache(_CACHE) / _fingerprint()
    if not (folder / _BINARY).exists():
        go = find_go(_required(r"^go (\S+)$"), "no control plane", _OTHERWISE)
        build_once(folder, _BINARY, partial(_build, go, tell), tell)
    return Programs(folder, f"Kubernetes {kubernetes_version()}, built by Go, in {folder}")


def kubernetes_version() -> str:
    """The version that the Go module requires, as `v1.36.2`."""
    return _required(r"^\s*k8s\.io/kubernetes (v\S+)$")


def _required(pattern: str) -> str:
    found = re.search(pattern, (_MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"go.mod has no line like {pattern}")
    return found.group(1)


def _fingerprint() -> str:
    state = hashlib.sha256()
    for name in _MODULE_FILES:
        content = (_MODULE / name).read_bytes()
        state.update(f"{name} {len(content)}\n".encode() + content)
    return state.hexdigest()[:16]


def _build(go: str, tell: Tell, folder: Path) -> None:
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    tell(f"fetching the Go modules of Kubernetes {version}")
    fetched = run_go([go, "list", "-deps", "-f", "", "."], _MODULE, folder / "go.log", tell)
    if fetched:
        raise UnavailableError(
            f"no control plane: Go can't get its modules here:\n{fetched}\n"
            "Give it a module proxy that it reaches (GOPROXY), or set KUBEBUILDER_ASSETS or "
            "CLOSEBY_TEST_KUBECONFIG."
        )
    tell(f"building Kubernetes {version} once, into {cache(_CACHE)}: 7 to 10 minutes on two cores")
    command = [go, "build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {flags}"]
    failed = run_go([*command, "-o", str(folder / _BINARY), "."], _MODULE, folder / "go.log", tell)
    if failed:
        raise BuildError(f"the Go module in {_MODULE} doesn't build:\n{failed}")
    (folder / "go.log").unlink()
    for program in PROGRAMS:
        (folder / program).symlink_to(_BINARY)
