"""The fixture `golden`: compares what a view shows with the golden file of that view.

`make golden` (`pytest --update-golden`) writes the files; read their difference before you commit it.
"""

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.golden import files

_COMPARED = pytest.StashKey[dict[str, dict[str, str]]]()
_COLLECTED = pytest.StashKey[set[str]]()


class Golden:
    """Compares texts of one test with golden files, or keeps them to be written."""

    def __init__(self, test: str, kept: dict[str, dict[str, str]] | None, folder: Path | None = None) -> None:
        self._test = test
        self._kept = kept
        self._folder = folder
        self._calls: Counter[str] = Counter()

    def __call__(self, view: str, text: str | Iterable[str] | Mapping[str, str]) -> None:
        """Fail unless the view's golden file has this text for this test; lines and mappings are texts too.

        Of several texts that a test compares with one view, the second is the case ``test #2``. The folder
        ``tmp_path`` of the test reads ``FOLDER``.
        """
        shown = files.as_text(text)
        if self._folder is not None:
            shown = shown.replace(str(self._folder), "FOLDER")
        self._calls[view] += 1
        case = self._test if self._calls[view] == 1 else f"{self._test} #{self._calls[view]}"
        if self._kept is not None:
            self._kept[view][case] = shown
            return
        expected = files.expected(view, case)
        if expected == shown:
            return
        remedy = (
            f"If this is what the view should show, run `make golden` and commit tests/golden/{view}.txt."
        )
        if expected is None:
            pytest.fail(f"tests/golden/{view}.txt has no case '{case}'. {remedy}\n\n{shown}", pytrace=False)
        lines = difflib.ndiff(expected.splitlines(), shown.splitlines())
        difference = "\n".join(line for line in lines if not line.startswith("? "))
        pytest.fail(f"tests/golden/{view}.txt, {case}: {remedy}\n\n{difference}", pytrace=False)


def name_of(nodeid: str) -> str:
    """The name of a test in golden files: ``cli/test_main::test_version``."""
    path, _, test = nodeid.partition("::")
    return f"{path.removeprefix('tests/').removesuffix('.py')}::{test}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """Compares the whole output of a view with its golden file: ``golden("topology", output)``."""
    name = name_of(request.node.nodeid)
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    if not request.config.getoption("--update-golden"):
        yield Golden(name, None, folder)
        return
    kept: dict[str, dict[str, str]] = defaultdict(dict)
    yield Golden(name, kept, folder)
    compared = request.config.stash[_COMPARED]
    for view, cases in kept.items():
        compared.setdefault(view, {}).update(cases)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden files with what the views show; runs only the tests that compare with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuses workers, which would overwrite each other's files."""
    if config.getoption("--update-golden") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--update-golden writes files, so it runs without workers (-n)")
    config.stash[_COMPARED] = {}
    config.stash[_COLLECTED] = set()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Notes each test, also those that `-k` and `-m` leave out afterwards."""
    item.config.stash[_COLLECTED].add(name_of(item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """When golden files are written, runs only the tests that compare with them."""
    if not config.getoption("--update-golden"):
        return
    chosen = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the golden files: new texts of tests that ran, and nothing of tests that are gone."""
    config = session.config
    if not config.getoption("--update-golden"):
        return
    compared, collected = config.stash[_COMPARED], config.stash[_COLLECTED]
    ran = {files.test_of(case) for cases in compared.values() for case in cases}
    ran |= {files.test_of(files.for_all_parameters(case)) for case in ran}
    collected |= {files.for_all_parameters(test) for test in collected}
    # What was asked for by name (`tests/a.py::test_b`) is all that was collected of its module.
    whole = {test.partition("::")[0] for test in collected} if "::" not in "".join(config.args) else set()
    for view in {*files.views(), *compared}:
        old = files.read(view)
        kept = {case: text for case, text in old.items() if not _is_stale(case, ran, collected, whole)}
        new = kept | compared.get(view, {})
        if new != old:
            files.write(view, new)


def _is_stale(case: str, ran: set[str], collected: set[str], whole: set[str]) -> bool:
    """Whether a case is not compared any more: its test ran without it, or is gone."""
    test = files.test_of(case)
    module = test.partition("::")[0]
    if not (files.FOLDER.parent / f"{module}.py").exists():
        return True
    return test in ran or (module in whole and test not in collected)
