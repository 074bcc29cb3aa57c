import re
from pathlib import Path

import pytest

from tests.golden import files
from tests.golden.fixture import Golden, _is_stale, name_of

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("view", files.views())
def test_every_case_has_its_test(view: str) -> None:
    for case in files.read(view):
        module, _, test = files.test_of(case).partition("::")
        path = TESTS / f"{module}.py"
        assert path.exists(), f"{case}: run `make golden`"
        function = test.partition("[")[0].rpartition("::")[2] or test.partition("[")[0]
        assert re.search(rf"def {function}\(", path.read_text(encoding="utf-8")), f"{case}: run `make golden`"


@pytest.mark.parametrize("view", files.views())
def test_a_file_that_is_written_reads_the_same(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = files.read(view)
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    files.write(view, cases)
    assert files.read(view) == cases


def test_other_text_and_a_missing_case_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    files.write("view", {"room/test_a::test_b": "one\n\ntwo", "room/test_a::test_b #2": "a: 1\nb: 2"})
    name = name_of("tests/room/test_a.py::test_b")
    golden = Golden(name, None)
    golden("view", ["one", "", "two  "])
    golden("view", {"a": "1", "b": "2"})
    with pytest.raises(pytest.fail.Exception, match="no case"):
        golden("view", "three")
    with pytest.raises(pytest.fail.Exception, match="make golden"):
        Golden(name, None)("view", "one")


def test_a_text_that_looks_like_a_heading_is_refused() -> None:
    with pytest.raises(AssertionError):
        files.as_text("one\n=== two")


def test_only_cases_of_tests_that_are_gone_or_compare_no_more_are_dropped() -> None:
    module = "golden/test_files"
    collected = {f"{module}::test_a", f"{module}::test_b[1]", f"{module}::test_b[*]"}

    def stale(case: str, ran: set[str], whole: set[str]) -> bool:
        return _is_stale(f"{module}::{case}", {f"{module}::{test}" for test in ran}, collected, whole)

    assert not stale("test_a", set(), {module})
    assert not stale("test_b[*]", set(), {module})
    assert stale("test_a #2", {"test_a"}, {module})
    assert stale("test_gone", set(), {module})
    assert not stale("test_gone", set(), set())
    assert _is_stale("no/test_module::test_a", set(), collected, set())
