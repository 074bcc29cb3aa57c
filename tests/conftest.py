"""Makes every run of the tests repeatable: one seed for all random choices, printed at the top.

Random input comes from hypothesis alone. `pytest --seed N`, or CLOSEBY_TEST_SEED=N in the environment,
repeats the run of seed N.
"""

import os
import secrets
from collections.abc import Callable

import hypothesis
import pytest

# A real API server and helm, for the tests of several rooms.
pytest_plugins = ["tests.control_plane.fixtures", "tests.deploy.fixtures"]

#: Until a slow test is given up, unless it says otherwise.
_SLOW_SECONDS = 900

hypothesis.settings.register_profile(
    "closeby",
    deadline=None,
    derandomize=False,
    print_blob=True,
    # How long it takes to draw says more of the machine than of a test.
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("closeby")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--seed`."""
    parser.addoption(
        "--seed", type=int, help="seed of all random choices (else CLOSEBY_TEST_SEED, else a new one)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hands the seed to hypothesis, before its plugin reads it."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(_chosen_seed(config))


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Writes a line for who runs the tests, whatever comes of the test: figures, say."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def write(line: str) -> None:
        if reporter is not None and capture is not None:
            with capture.global_and_fixture_disabled():
                reporter.write_line(line)

    return write


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives slow tests the time that they take on a busy machine; a limit is there for what never ends."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


def pytest_report_header(config: pytest.Config) -> str:
    """Says how to repeat this run."""
    seed = config.option.hypothesis_seed
    return f"random seed: {seed} (repeat with --seed {seed})"


def _chosen_seed(config: pytest.Config) -> int:
    given = config.getoption("--seed")
    if isinstance(given, int):
        return given
    named = os.environ.get("CLOSEBY_TEST_SEED", "")
    if not named:
        return secrets.randbelow(2**32)
    if not named.isdecimal():
        raise pytest.UsageError(f"CLOSEBY_TEST_SEED is {named!r}; give a whole number")
    return int(named)
