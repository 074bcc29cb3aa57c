"""Gives the tests of the live parts one real control plane, and each test a namespace of its own.

Its programs are found, or built, once all tests are known: a build takes minutes, which no test's time limit
may count.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_plane.api import Api, create_namespace, delete_namespace
from tests.control_plane.binaries import PROGRAMS, BuildError, Programs, UnavailableError, find_programs
from tests.control_plane.cluster import ControlPlane, existing, started
from tests.control_plane.commands import Settings
from tests.control_plane.go_tools import Tell

_EXISTING = "CLOSEBY_TEST_KUBECONFIG"
_PROGRAMS = pytest.StashKey[Programs | Exception]()
"""The programs, or why there are none."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs the control plane, so that `-m 'not live'` leaves it out."""
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.live)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds the programs, if a test of this run needs them."""
    needed = any(item.get_closest_marker("live") for item in session.items)
    if not needed or session.config.option.collectonly or os.environ.get(_EXISTING):
        return
    tell = teller(session.config, "control plane")
    try:
        programs = find_programs(tell)
    except (UnavailableError, BuildError, OSError, subprocess.SubprocessError) as error:
        # All other tests run none the less.
        session.config.stash[_PROGRAMS] = error
    else:
        tell(programs.origin)
        session.config.stash[_PROGRAMS] = programs


def teller(config: pytest.Config, about: str) -> Tell:
    """Writes lines of progress for the person who waits."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")

    def tell(line: str) -> None:
        if reporter is not None:
            reporter.write_line(f"{about}: {line}")
        else:
            # A worker of pytest-xdist has no terminal of its own. Nothing is captured between tests.
            sys.stderr.write(f"{about}: {line}\n")

    return tell


@pytest.fixture(scope="session")
def control_plane(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A real API server with its controller manager, for all tests of the run.

    Under pytest-xdist each worker has one of its own, so that nodes and priority classes are not shared.
    """
    named = os.environ.get(_EXISTING)
    if named:
        yield existing(Path(named))
        return
    programs = pytestconfig.stash[_PROGRAMS]
    if isinstance(programs, UnavailableError):
        pytest.skip(str(programs))
    if isinstance(programs, Exception):
        raise programs
    with started(programs, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture
def own_control_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane of the run, for a test that stops programs of it and starts them again.

    Controllers come back the later the longer the server was away; no other test waits for that.
    """
    if not control_plane.ours:
        pytest.skip(f"stops programs of the control plane: run it without {_EXISTING}")
    yield control_plane

    async def recovered() -> None:
        async with Api(control_plane.access()) as api:
            await delete_namespace(api, await create_namespace(api))

    if control_plane.controllers:
        asyncio.run(recovered())


@pytest.fixture
def bare_control_plane(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own, without controllers: no other is to suffer from what it does."""
    if not control_plane.ours:
        pytest.skip(f"makes thousands of objects, and restarts the server: run it without {_EXISTING}")
    settings = Settings(controllers=False)
    with started(find_programs(lambda line: None), tmp_path / "control-plane", settings) as running:
        yield running


@pytest.fixture
def whole_control_plane(own_control_plane: ControlPlane) -> ControlPlane:
    """The control plane of the run with all programs, for a test that needs controllers or kube-scheduler."""
    missing = [name for name in PROGRAMS if name not in own_control_plane.processes]
    if missing:
        pytest.skip(
            f"{own_control_plane.origin} has no {' and no '.join(missing)}; without it, Go builds them"
        )
    return own_control_plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """An empty namespace; it is deleted after the test."""

    async def create() -> str:
        async with Api(control_plane.access()) as api:
            return await create_namespace(api, service_accounts=control_plane.controllers)

    async def delete(name: str) -> None:
        async with Api(control_plane.access()) as api:
            await delete_namespace(api, name)

    name = asyncio.run(create())
    yield name
    asyncio.run(delete(name))
