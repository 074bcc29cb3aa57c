"""Finds the programs of a control plane: in KUBEBUILDER_ASSETS, or built once from the Go module here.

CLOSEBY_TEST_KUBERNETES=1.34 takes an older Kubernetes, of which there is a `kubernetes-1.34.mod` beside the
module's own. What is built is in a cache outside the repository, in a folder named by a hash of the module's
files, so that a build is shared by all checkouts of one state and an old one is never taken for a new one.
"""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.control_plane.go_tools import Tell, UnavailableError, build_once, cache, find_go, run_go

__all__ = [
    "PROGRAMS",
    "BuildError",
    "Programs",
    "UnavailableError",
    "find_programs",
    "kubernetes_versions",
    "minor_of",
]

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

_MODULE = Path(__file__).resolve().parent
_VERSION = "CLOSEBY_TEST_KUBERNETES"
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
        """The version of Kubernetes, as `v1.37.2`."""
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
    module = _module()
    folder = cache(_CACHE) / _fingerprint(module)
    if not (folder / _BINARY).exists():
        go = find_go(_required(module, r"^go (\S+)$"), "no control plane", _OTHERWISE)
        build_once(folder, _BINARY, partial(_build, module, go, tell), tell)
    return Programs(folder, f"Kubernetes {_kubernetes(module)}, built by Go, in {folder}")


def kubernetes_versions() -> list[str]:
    """The versions that can be built, as `v1.37.2`: that of the tests, then older ones."""
    older = sorted(_MODULE.glob("kubernetes-*.mod"), reverse=True)
    return [_kubernetes(module) for module in (_MODULE / "go.mod", *older)]


def minor_of(version: str) -> str:
    """Of `v1.37.2` its `1.37`."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def _module() -> Path:
    """The file that says what is built: that of the version which the environment names, or Go's own."""
    default = _MODULE / "go.mod"
    named = os.environ.get(_VERSION) or minor_of(_kubernetes(default))
    module = default if named == minor_of(_kubernetes(default)) else _MODULE / f"kubernetes-{named}.mod"
    if not module.exists():
        known = ", ".join(map(minor_of, kubernetes_versions()))
        raise UnavailableError(f"no control plane: {_VERSION}={named}; versions here are {known}")
    return module


def _kubernetes(module: Path) -> str:
    return _required(module, r"^\s*k8s\.io/kubernetes (v\S+)$")


def _required(module: Path, pattern: str) -> str:
    found = re.search(pattern, module.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{module.name} has no line like {pattern}")
    return found.group(1)


def _fingerprint(module: Path) -> str:
    state = hashlib.sha256()
    for path in (module, module.with_suffix(".sum"), _MODULE / "main.go"):
        content = path.read_bytes()
        state.update(f"{path.name} {len(content)}\n".encode() + content)
    return state.hexdigest()[:16]


def _build(module: Path, go: str, tell: Tell, folder: Path) -> None:
    version = _kubernetes(module)
    major, minor = minor_of(version).split(".")
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    tell(f"fetching the Go modules of Kubernetes {version}")
    of_module = f"-modfile={module}"
    fetched = run_go([go, "list", of_module, "-deps", "-f", "", "."], _MODULE, folder / "go.log", tell)
    if fetched:
        raise UnavailableError(
            f"no control plane: Go can't get its modules here:\n{fetched}\n"
            "Give it a module proxy that it reaches (GOPROXY), or set KUBEBUILDER_ASSETS or "
            "CLOSEBY_TEST_KUBECONFIG."
        )
    tell(f"building Kubernetes {version} once, into {cache(_CACHE)}: 7 to 10 minutes on two cores")
    command = [
        go,
        "build",
        of_module,
        "-p",
        "2",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        f"-s -w {flags}",
    ]
    failed = run_go([*command, "-o", str(folder / _BINARY), "."], _MODULE, folder / "go.log", tell)
    if failed:
        raise BuildError(f"the Go module in {_MODULE} doesn't build:\n{failed}")
    (folder / "go.log").unlink()
    for program in PROGRAMS:
        (folder / program).symlink_to(_BINARY)
