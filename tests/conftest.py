"""Makes every run of the tests repeatable: one seed for all random choices, printed at the top.

Random input comes from hypothesis alone. `pytest --seed N`, or CLOSEBY_TEST_SEED=N in the environment,
repeats the run of seed N.
"""

import os
import secrets
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

# A real API server, helm and golden files, for the tests of several rooms.
pytest_plugins = [
    "tests.control_plane.fixtures",
    "tests.deploy.fixtures",
    "tests.golden.fixture",
    "tests.kueue.fixtures",
]

#: Until a slow test is given up, unless it says otherwise.
_SLOW_SECONDS = 900
#: A test that takes one of them has an API server.
_LIVE_FIXTURES = {"control_plane", "bare_control_plane"}

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
    # A shell without job control ignores SIGINT in the background, which programs of the tests would inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tables are as wide as for a pipe, whatever the terminal; workers of pytest-xdist are given 80 columns.
    os.environ.pop("COLUMNS", None)
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
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives slow tests the time that they take on a busy machine; a limit is there for what never ends.

    A live test whose wait ran out beside other workers is run once more; the summary counts it as a rerun.
    """
    shared = hasattr(config, "workerinput")
    for item in items:
        if shared and _LIVE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["^TimeoutError"]))
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        items[:] = _shared_out(items, worker["workercount"])


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Shows a failure by itself, without the task groups that it left: only then it is known what it is.

    Several failures stay in their group, unless all waits ran out.
    """
    failures: list[BaseException] = []
    try:
        return (yield)
    except BaseExceptionGroup as group:
        failures += _leaves(group)
        if len(failures) > 1 and not all(isinstance(one, TimeoutError) for one in failures):
            raise
    raise failures[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _shared_out(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in an order whose equal parts begin with equally many long ones, file by file.

    Each worker of pytest-xdist begins with one of them, and then takes from the end of another's: short
    tests, which even out what the long ones took.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    long = {path: sum(map(_is_long, its)) for path, its in files.items()}
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    taken = [0] * workers
    for path in sorted(files, key=lambda path: (-long[path], path)):
        if long[path]:
            least = taken.index(min(taken))
            parts[least] += files[path]
            taken[least] += long[path]
    rest = [item for path in sorted(files) if not long[path] for item in files[path]]
    ordered: list[pytest.Item] = []
    for number, part in enumerate(parts, 1):
        missing = max(0, len(items) * number // workers - len(ordered) - len(part))
        ordered += [*part, *rest[:missing]]
        rest = rest[missing:]
    return ordered + rest


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("live", "slow"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many workers `-n auto` starts: one where all would share a given cluster, else more than cores.

    Live tests wait more than they work. Without them (`-n logical`) there are as many workers as cores.
    """
    if os.environ.get("CLOSEBY_TEST_KUBECONFIG"):
        return 1
    cores = len(os.sched_getaffinity(0))
    return cores if config.option.numprocesses == "logical" else cores + cores // 2


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
