"""Helm, found or built once by Go, and the chart as it renders it."""

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.go_tools import Tell, UnavailableError, build_once, cache, find_go, run_go

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "closeby"
PLAIN = ROOT / "deploy" / "closeby.yaml"
#: With which values the chart is the plain YAML.
PLAIN_ARGUMENTS = ("--namespace", "closeby-system", "--set", "namespace.create=true")

_VERSION = "v3.22.0"
_GO = "1.26.0"
RENDERED_FOR = "1.37.2"
_OTHERWISE = "put helm 3.17 or newer into PATH"


def find_helm(tell: Tell) -> Path:
    """The helm of PATH, else one that Go builds (2 minutes on two cores when its caches are empty).

    Raises UnavailableError where neither can be had.
    """
    found = shutil.which("helm")
    if found is not None:
        return Path(found)
    folder = cache("helm") / _VERSION
    if not (folder / "helm").exists():
        go = find_go(_GO, "no helm", _OTHERWISE)
        build_once(folder, "helm", partial(_build, go, tell), tell)
    return folder / "helm"


def rendered(helm: Path, *arguments: str, chart: Path = CHART) -> str:
    """What ``helm template`` makes of the chart.

    Raises CalledProcessError: with helm's words in its ``stderr``.
    """
    command = [str(helm), "template", "closeby", str(chart), "--kube-version", RENDERED_FOR, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=_environment()).stdout


def called(helm: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What any other command of helm says."""
    return subprocess.run(
        [str(helm), *arguments], capture_output=True, text=True, check=False, env=_environment()
    )


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a YAML stream."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def _environment() -> dict[str, str]:
    # What this machine's user has configured for helm, or for a cluster, is none of our business.
    return {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}


def _build(go: str, tell: Tell, folder: Path) -> None:
    tell(f"building helm {_VERSION} once, into {cache('helm')}: about 2 minutes on two cores")
    command = [go, "install", "-p", "2", "-trimpath", f"helm.sh/helm/v3/cmd/helm@{_VERSION}"]
    failed = run_go(command, folder, folder / "go.log", tell, {"GOBIN": str(folder)})
    if failed:
        raise UnavailableError(
            f"no helm: Go can't build it here:\n{failed}\n"
            f"Give it a module proxy that it reaches (GOPROXY), or {_OTHERWISE}."
        )
    (folder / "go.log").unlink()
