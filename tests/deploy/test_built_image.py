"""The image, built from the Dockerfile without a daemon, and run as a cluster runs it.

Its base is not the one that the Dockerfile names, which is in a registry, but a small Debian of the same
release that is made here: the Python of this base is Debian's.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import closeby
from tests.deploy.helm import ROOT

PROGRAMS = ("buildah", "mmdebstrap", "unshare", "chroot")
RELEASE = "bookworm"
PYTHON = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
BASE = "localhost/base"
CERTIFICATES = "/etc/ssl/certs"
#: Runs a program in namespaces of its own.
ALONE = ("unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts")


def done(*command: str | Path, stdin: str = "") -> str:
    """The standard output of a program that must succeed."""
    ran = subprocess.run(
        ["nice", "-n", "5", *command], input=stdin, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is removed at once: images are large."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def base(folder: Path) -> Path:
    """The files of a small Debian with Python."""
    archive = folder / "base.tar"
    made = subprocess.run(
        [
            "nice",
            "-n",
            "5",
            "mmdebstrap",
            "--quiet",
            "--variant=apt",
            f"--include={PYTHON}",
            RELEASE,
            archive,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"mmdebstrap cannot make a Debian here: {made.stderr.strip()[-300:]}")
    return archive


class Builder:
    """buildah with a store of its own, in which each layer is a plain folder."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is where the store will be."""
        self._store = ("--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs")

    def __call__(self, command: str, *arguments: str | Path) -> str:
        """What buildah prints, in one line."""
        return done("buildah", *self._store, command, *arguments).strip()


def in_container(files: Path, settings: dict[str, Any], *arguments: str, stdin: str = "") -> str:
    """What the image prints for these arguments, as its own user and with nothing that it may write to."""
    enter = (
        'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && mount -t proc proc "$0/proc" '
        "&& user=$1 && shift "
        '&& exec chroot --userspec="$user" --groups="${user#*:}" "$0" /usr/bin/env -i "$@"'
    )
    words = (*settings["Env"], *settings["Entrypoint"], *arguments)
    return done(*ALONE, "sh", "-c", enter, files, settings["User"], *words, stdin=stdin)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_image_builds_and_runs(folder: Path) -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', no '.join(missing)}")
    if os.geteuid() != 0 or subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs root, and the right to make namespaces and mounts")
    buildah = Builder(folder)
    start = buildah("from", "scratch")
    buildah("add", "--quiet", start, base(folder), "/")
    buildah("commit", "--quiet", "--rm", start, BASE)
    # Those of this machine may be needed to reach a registry of packages.
    trusted = ("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro") if Path(CERTIFICATES).is_dir() else ()
    here = ("--isolation", "chroot", "--network", "host", "--pull-never", *trusted)
    given = ("--build-arg", f"PYTHON={BASE}", "--build-arg", "COMMIT=c0ffee")
    buildah("build", "--quiet", *here, *given, "--tag", "closeby", ".")

    settings = json.loads(buildah("inspect", "--type", "image", "closeby"))["OCIv1"]["config"]
    assert settings["User"] == "65532:65532"
    files = Path(buildah("mount", buildah("from", "--pull-never", "closeby")))
    assert in_container(files, settings, "--version").split() == ["closeby", f"{closeby.__version__}+c0ffee"]
    assert "After" in in_container(files, settings, "demo")
    tour = "\n---\n".join(path.read_text() for path in sorted((ROOT / "docs/examples/tour").glob("*.yaml")))
    report = json.loads(in_container(files, settings, "simulate", "-f", "-", "-o", "json", stdin=tour))
    assert {pod["phase"] for pod in report["pods"]} == {"Running", "Scheduled", "Pending"}
    packages = {path.name for path in files.glob("opt/closeby/lib/python*/site-packages/*")}
    assert not packages & {"pytest", "hatchling", "matplotlib"}
