"""Builds Kueue once, from the version that the Go module in this folder requires.

It is a module of its own because Kueue pins other versions of Kubernetes' libraries than our control plane.
"""

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.control_plane.binaries import BuildError
from tests.control_plane.go_tools import Tell, UnavailableError, build_once, cache, find_go, run_go

MODULE = Path(__file__).resolve().parent
_FILES = ("go.mod", "go.sum", "building.py")
_BINARY = "kueue"
_NAME = "sigs.k8s.io/kueue"
GO = "1.26.0"
#: A path that Kueue does not let its configuration choose.
_FIXED = '"/etc/kueue/metrics/certs"'
_CHOSEN = 'os.Getenv("KUEUE_METRICS_CERTS")'
#: As the programs of our control plane: it ends when the process that holds the other end of its input does.
_STOP = """package main

import (
	"io"
	"os"
	"syscall"
)

func init() {
	if os.Getenv("CLOSEBY_STOP_WITH_STDIN") != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}()
	}
}
"""


@dataclass(frozen=True)
class Kueue:
    """The program, and Kueue's own manifests."""

    program: Path
    definitions: tuple[Path, ...]
    webhooks: Path


def find_kueue(tell: Tell) -> Kueue:
    """Kueue, built if it must be (5 minutes on two cores when the control plane was built before).

    Raises UnavailableError where it can't be had, and BuildError if it does not build.
    """
    state = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in _FILES))
    folder = cache("kueue") / state.hexdigest()[:16]
    if not (folder / _BINARY).exists():
        go = find_go(GO, "no Kueue", "leave these tests out")
        build_once(folder, _BINARY, partial(_build, go, tell), tell)
    return Kueue(
        folder / _BINARY, tuple(sorted((folder / "definitions").glob("*.yaml"))), folder / "webhooks.yaml"
    )


def copied(go: str, tell: Tell, folder: Path) -> tuple[Path, str]:
    """A copy of Kueue's source in ``folder``, to be changed and built; and its version.

    Raises UnavailableError where Go can't get it.
    """
    answer = folder / "module.json"
    tell("fetching Kueue")
    failed = run_go([go, "mod", "download", "-json", _NAME], MODULE, answer, tell)
    if failed:
        raise UnavailableError(f"no Kueue: Go can't get it here:\n{failed}")
    module = json.loads(answer.read_text())
    answer.unlink()
    source = folder / "source"
    # The module cache is read-only, and its copies are so too.
    subprocess.run(["cp", "-r", "--no-preserve=mode", module["Dir"], source], check=True)
    return source, module["Version"]


def _build(go: str, tell: Tell, folder: Path) -> None:
    log = folder / "go.log"
    source, version = copied(go, tell, folder)
    main = source / "cmd" / "kueue" / "main.go"
    text = main.read_text()
    if _FIXED not in text:
        raise BuildError(f"Kueue {version} has no path {_FIXED} in {main}")
    main.write_text(text.replace(_FIXED, _CHOSEN))
    (main.parent / "stop_with_stdin.go").write_text(_STOP)
    tell(f"building Kueue {version} once, into {cache('kueue')}: about 5 minutes on two cores")
    command = [go, "build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
    failed = run_go([*command, "-o", str(folder / _BINARY), "./cmd/kueue"], source, log, tell)
    if failed:
        raise BuildError(f"Kueue {version} doesn't build:\n{failed}")
    manifests = source / "config" / "components"
    shutil.copytree(manifests / "crd" / "bases", folder / "definitions")
    shutil.copy(manifests / "webhook" / "manifests.yaml", folder / "webhooks.yaml")
    shutil.rmtree(source)
    log.unlink()
