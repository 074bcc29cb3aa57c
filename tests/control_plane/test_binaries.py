"""Where the programs come from, with a command called `go` that only looks like one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.control_plane.binaries import (
    PROGRAMS,
    BuildError,
    UnavailableError,
    find_programs,
    kubernetes_versions,
)

# Answers as Go does, and notes each build, by its module, in the file `builds` beside it.
GO = """#!/bin/sh
case "$1" in
    env) echo {version} ;;
    list) {fetch} ;;
    build)
        echo "${{2##*/}}" >> "$(dirname "$0")/builds"
        sleep 0.2
        {build}
        while [ "$1" != -o ]; do shift; done
        echo '#!/bin/sh' > "$2"
        chmod +x "$2" ;;
esac
"""


@pytest.fixture(autouse=True)
def nothing_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, no named folder, and of Go only what a test puts into `tools`."""
    (tmp_path / "tools").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("KUBEBUILDER_ASSETS", "CLOSEBY_TEST_KUBERNETES"):
        monkeypatch.delenv(name, raising=False)


def install_go(tmp_path: Path, version: str = "go1.99.0", fetch: str = "true", build: str = "true") -> None:
    """Puts a `go` first in PATH; `fetch` and `build` are commands that it runs for these two steps."""
    go = tmp_path / "tools" / "go"
    go.write_text(GO.format(version=version, fetch=fetch, build=build))
    go.chmod(0o755)


def find() -> list[str]:
    """The names of the programs found."""
    programs = find_programs(lambda _: None)
    return [name for name in PROGRAMS if programs.path(name)]


def test_a_named_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no etcd and no kube-apiserver"):
        find()
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)
    assert find() == ["etcd", "kube-apiserver"]


def test_an_old_go_is_not_asked_to_build(tmp_path: Path) -> None:
    install_go(tmp_path, version="go1.21.13")
    with pytest.raises(UnavailableError, match=r"is 1\.21\.13; install Go 1\.26\.0 or newer"):
        find()


def test_modules_that_cannot_be_fetched_are_no_fault_of_ours(tmp_path: Path) -> None:
    install_go(tmp_path, fetch="echo no route to host; exit 1")
    with pytest.raises(UnavailableError, match="no route to host"):
        find()


def test_a_module_that_does_not_compile_is_an_error(tmp_path: Path) -> None:
    install_go(tmp_path, build="echo undefined: apiserver; exit 1")
    with pytest.raises(BuildError, match="undefined: apiserver"):
        find()
    assert [path.suffix for path in (tmp_path / "cache/closeby/control-plane").iterdir()] == [".lock"]


def test_two_runs_at_once_build_once(tmp_path: Path) -> None:
    install_go(tmp_path)
    with ThreadPoolExecutor(2) as runs:
        found = [run.result() for run in [runs.submit(find), runs.submit(find)]]
    assert found == [list(PROGRAMS)] * 2
    assert (tmp_path / "tools" / "builds").read_text() == "go.mod\n"


def test_an_older_kubernetes_is_a_build_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path)
    newest, older = kubernetes_versions()
    folders = []
    for named, version in (("", newest), ("1.34", older)):
        monkeypatch.setenv("CLOSEBY_TEST_KUBERNETES", named)
        programs = find_programs(lambda _: None)
        assert f"Kubernetes {version}, built by Go" in programs.origin
        folders.append(programs.folder)
    assert len(set(folders)) == 2
    assert (tmp_path / "tools" / "builds").read_text() == "go.mod\nkubernetes-1.34.mod\n"


def test_a_version_that_nothing_builds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path)
    monkeypatch.setenv("CLOSEBY_TEST_KUBERNETES", "1.12")
    with pytest.raises(UnavailableError, match=r"KUBERNETES=1\.12; versions here are 1\.37, 1\.34"):
        find()
