"""Gives the tests Kueue, found or built before the first test: no time limit counts that."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.control_plane.binaries import BuildError, find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.fixtures import teller
from tests.control_plane.go_tools import UnavailableError
from tests.kueue.building import Kueue, find_kueue
from tests.kueue.running import kueue_runs

_KUEUE = pytest.StashKey[Kueue | Exception]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds Kueue, if a test of this run needs it."""
    if session.config.option.collectonly:
        return
    if not any("kueue" in getattr(item, "fixturenames", ()) for item in session.items):
        return
    try:
        session.config.stash[_KUEUE] = find_kueue(teller(session.config, "Kueue"))
    except (UnavailableError, BuildError, OSError, subprocess.SubprocessError) as error:
        # All other tests run none the less.
        session.config.stash[_KUEUE] = error


@pytest.fixture(scope="session")
def kueue(pytestconfig: pytest.Config) -> Kueue:
    """The program and its manifests."""
    found = pytestconfig.stash[_KUEUE]
    if isinstance(found, UnavailableError):
        pytest.skip(str(found))
    if isinstance(found, Exception):
        raise found
    return found


@pytest.fixture(scope="module")
def kueue_cluster(
    kueue: Kueue, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane of the module's own in which Kueue works: its webhooks concern nobody else's Jobs."""
    if not control_plane.ours:
        pytest.skip("Kueue is set up in a control plane of its own")
    folder = tmp_path_factory.mktemp("kueue")
    with (
        started(find_programs(lambda line: None), folder / "control-plane") as running,
        kueue_runs(kueue, running, folder / "kueue"),
    ):
        yield running
