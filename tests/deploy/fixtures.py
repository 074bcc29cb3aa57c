"""Gives the tests of the chart a helm, found or built before the first test: no time limit counts that."""

from pathlib import Path

import pytest

from tests.control_plane.fixtures import teller
from tests.control_plane.go_tools import UnavailableError
from tests.deploy.helm import find_helm

_HELM = pytest.StashKey[Path | UnavailableError]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs helm, which takes Go minutes to build: `-m 'not slow'` leaves it out."""
    for item in items:
        if "helm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds helm, if a test of this run needs it."""
    if session.config.option.collectonly:
        return
    if not any("helm" in getattr(item, "fixturenames", ()) for item in session.items):
        return
    try:
        session.config.stash[_HELM] = find_helm(teller(session.config, "helm"))
    except UnavailableError as error:
        # All other tests run none the less.
        session.config.stash[_HELM] = error


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config) -> Path:
    """The program."""
    found = pytestconfig.stash[_HELM]
    if isinstance(found, UnavailableError):
        pytest.skip(str(found))
    return found
