"""All that closeby raises is one tree, and a problem has one shape."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import closeby
from closeby import errors
from closeby.errors import ClosebyError, ConfigurationError
from closeby.objects.bounds import MESSAGE
from closeby.objects.reasons import Problem

ROOT = Path(closeby.__file__).parent
#: Ends the process where arguments are wrong; `closeby --help` would wait for the module of the others.
BEFORE_ALL_ELSE = {"Misused"}


def exceptions() -> dict[str, type[BaseException]]:
    """By name, every class of an exception that the package defines."""
    found: dict[str, type[BaseException]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and _parents(node):
                module = ".".join(("closeby", *path.relative_to(ROOT).with_suffix("").parts))
                defined = getattr(import_module(module), node.name)
                if issubclass(defined, BaseException):
                    found[node.name] = defined
    return found


def _parents(node: ast.ClassDef) -> list[ast.expr]:
    return [base for base in node.bases if "Exception" in (text := ast.unparse(base)) or "Error" in text]


def test_every_exception_is_a_child_of_the_root() -> None:
    found = exceptions()
    assert {"ConfigurationError", "WireError", "Unusable"} <= found.keys()
    strangers = {name for name, kind in found.items() if not issubclass(kind, ClosebyError)}
    assert strangers - BEFORE_ALL_ELSE == set()


def test_what_is_written_wrongly_is_still_a_value_error() -> None:
    for kind in (ConfigurationError, errors.QuantityError, errors.PluginLookupError, errors.ScoreError):
        assert issubclass(kind, ValueError)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("it is full", "wait"), "it is full; wait"),
        (Problem("is wrong", file="a.yaml"), "a.yaml: is wrong"),
        (Problem("is wrong", "mend it", file="a.yaml", line=3), "a.yaml:3: is wrong; mend it"),
        (
            Problem("is wrong", file="a.yaml", document=2, line=7, object="Pod/d/p", field="spec.x"),
            "a.yaml, document 2, line 7: Pod/d/p: spec.x: is wrong",
        ),
        (Problem("is wrong", file="a.yaml", document=2), "a.yaml, document 2: is wrong"),
        (Problem("two\nlines", file="a.yaml"), "a.yaml: two lines"),
    ],
)
def test_a_problem_says_where_what_and_what_to_do(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_what_an_author_wrote_is_cut() -> None:
    assert len(Problem("x" * 5_000, field="y" * 5_000).message.encode()) <= MESSAGE
