"""One golden file: the cases of a view by name, and the text of each."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
#: The line above the text of a case.
_HEADING = re.compile(r"^=== (.+)$", re.MULTILINE)


def path_of(view: str) -> Path:
    """The golden file of a view."""
    return FOLDER / f"{view}.txt"


def read(view: str) -> dict[str, str]:
    """The texts of a view by case; none where the view has no file yet."""
    path = path_of(view)
    if not path.exists():
        return {}
    _, *parts = _HEADING.split(path.read_text(encoding="utf-8"))
    return {case: text[1:-2] for case, text in zip(parts[::2], parts[1::2], strict=True)}


def write(view: str, cases: Mapping[str, str]) -> None:
    """Write the golden file of a view, its cases in order; without cases there is no file."""
    if not cases:
        path_of(view).unlink(missing_ok=True)
        return
    cases = _shared(cases)
    text = "".join(f"=== {case}\n{cases[case]}\n\n" for case in sorted(cases))
    path_of(view).write_text(text, encoding="utf-8")


def expected(view: str, case: str) -> str | None:
    """The text of a case, or the one that all parameters of its test share."""
    cases = read(view)
    return cases.get(case, cases.get(for_all_parameters(case)))


def for_all_parameters(case: str) -> str:
    """The name under which a text stands that all parameters of a test share."""
    test = test_of(case)
    return f"{test.partition('[')[0]}[*]{case[len(test) :]}"


def _shared(cases: Mapping[str, str]) -> Mapping[str, str]:
    """The cases, but one instead of many where all parameters of a test give the same text."""
    texts: dict[str, set[str]] = {}
    for case, text in cases.items():
        if "[" in case:
            texts.setdefault(for_all_parameters(case), set()).add(text)
    return {
        for_all_parameters(case) if len(texts.get(for_all_parameters(case), ())) == 1 else case: text
        for case, text in cases.items()
    }


def views() -> list[str]:
    """The names of all views that have a golden file."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def test_of(case: str) -> str:
    """The test of a case, without the number of the comparison."""
    return re.sub(r" #\d+$", "", case)


def as_text(given: str | Iterable[str] | Mapping[str, str]) -> str:
    """A text, lines, or texts by name as a golden file holds them: no line ends in blanks."""
    if isinstance(given, Mapping):
        given = [f"{name}: {text}" for name, text in given.items()]
    text = given if isinstance(given, str) else "\n".join(given)
    plain = "\n".join(line.rstrip() for line in text.splitlines())
    assert not _HEADING.search(plain), "a line of the text begins like the heading of a case"
    return plain
