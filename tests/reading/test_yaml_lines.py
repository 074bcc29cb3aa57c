"""YAML that is read line by line comes out as the parser of all YAML would have it, or is left to that."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from closeby.errors import YamlError
from closeby.lab.benchmarks.dumps import as_yaml, dumped
from closeby.objects.reasons import Problem
from closeby.reading.decoding.yaml_lines import BlockReader, DeclinedError, list_text
from closeby.reading.decoding.yaml_values import yaml_documents
from closeby.reading.manifests import read_manifests
from tests.real_input import shared_data

ROOT = Path(__file__).parents[2]

VALUES = [
    '', 'a', 'a b', 'a: b', 'a:', 'a #b', 'a# b', '# a', 'yes', 'No', '~', 'null', '1', '-1', '+1',
    '- 1', '-', '--- a', '0755', '0x1f', '1_000', '1e3', '.5', '1.5', '1:30', '2026-11-23', '...',
    '---', '|', '|-', '|+', '>', '> a', '|2', '{}', '[]', '{a: b}', '[a, b]', '[', '{', '""', "''",
    '"a"', "'a'", '"a b: c"', "'it''s'", "'a", '"a', '"a" b', '"\\n"', '&x a', '*x', '!!str 1', '<<',
    'a,b', 'a]', '@a', '%a', '`a', 'a  b', ' a', 'a ', '\xe9', '\u2028', 'a\x85b', '\ufeffa',
    '\U0001f600', 'a\tb', '\ta', '100m', '1Gi', '*', 'a*b', '?', '? a', ':', ':a', '=', '<<: a',
    'key: |',
    "x" * 1100,
]  # fmt: skip
KEYS = [
    "a",
    "b",
    "nvidia.com/gpu",
    "f:x",
    "1",
    "yes",
    "<<",
    "a b",
    '"q"',
    "'q'",
    "x" * 1100,
    "-a",
    ".",
    "items",
]
LINE = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "  ", "  ", "    ", " ", "      ", "\t"]),
        st.sampled_from(["", "", "", "- ", "-   ", "- - "]),
        st.one_of(
            st.sampled_from(VALUES),
            st.builds(
                lambda key, value: f"{key}: {value}", st.sampled_from(KEYS[:4]), st.sampled_from(VALUES)
            ),
            st.builds(lambda key: f"{key}:", st.sampled_from(KEYS)),
        ),
    ),
)
TEXT = st.lists(LINE, min_size=1, max_size=7).map(lambda lines: "\n".join(lines) + "\n")
#: What Kubernetes objects hold.
PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=12),
        st.sampled_from(["yes", "1", "a: b", "line\nline\n", " x", "\nx\n\n", "#", "- a"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text("abf:./", min_size=1, max_size=4), inner, max_size=3),
    ),
    max_leaves=12,
)


def quickly(text: str) -> Any:
    """What is read line by line; ``DeclinedError`` where nothing is."""
    try:
        return BlockReader().value(text)
    except DeclinedError:
        return DeclinedError


def slowly(text: str) -> Any:
    try:
        (document,) = [one for one in yaml_documents(text) if one.value is not None]
    except (YamlError, ValueError):
        return DeclinedError
    return document.value


def same(text: str) -> bool:
    found = quickly(text)
    return found is DeclinedError or repr(found) == repr(slowly(text))


@given(TEXT)
@example("a: |\n   x\n  y\nb: 1\n")
@example("a:\n- b\n- c: 1\n  d: 2\ne:\n  - f\n")
@example("- a: 1\n- - b\n")
@example("a: |\n  x\n\n \n  \n   \n")
@example("a: |\n\n  x\n")
@example("a: b\n  c: d\n")
@example("a:\n  b: 1\n c: 2\n")
def test_any_lines_are_read_as_the_parser_reads_them(text: str) -> None:
    assert same(text)


@given(PLAIN)
def test_what_is_written_of_any_value_is_read_as_it_was(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=True)
    assert same(text)
    found = quickly(text)
    assert found is DeclinedError or found == yaml.safe_load(text)


def same_item(reader: BlockReader, text: str) -> bool:
    try:
        found = reader.item(text)
    except DeclinedError:
        return True
    return repr(found) == repr(slowly(text))


def indented(text: str) -> str:
    """The text as an item of a list."""
    return f"- {text[:-1].replace(chr(10), f'{chr(10)}  ')}\n"


@pytest.mark.parametrize("split", [0, 300])
def test_items_are_read_as_the_parser_reads_them_whatever_was_read_before(split: int) -> None:
    reader = BlockReader(split=split, remembered=20)

    @given(TEXT.map(indented))
    @example(indented("a:\n  b: |\n    x\n  c: 1\n"))
    @example(indented("a:\n  b: 1\n c: 2\n"))
    @example(indented("a:\n  b: 1\n  b: 2\n"))
    @example(indented("a: |\n  x\n\n# no\nb: 1\n"))
    @example(indented("a:\n- b: 1\n  c: 2\nd:\n"))
    @example(indented("a:\n  # no\n  b: {}\n# no\n  c: []\n"))
    @example(indented("a: 'x\nb: 1'\n"))
    @example("  - a: 1\n    b:\n      c: 1\n")
    @example("-   a: 1\n    b: 2\n  c: 3\n")
    @example("- a: 1\nb: 2\n")
    @example("- a: 1\n- b: 2\n")
    @example("- |\n  \t\n")
    @example("- |\n  \ta\n")
    def check(text: str) -> None:
        assert same_item(reader, text)

    @given(st.dictionaries(st.text("abf:./", min_size=1, max_size=4), PLAIN, min_size=1, max_size=4))
    def check_written(value: dict[str, object]) -> None:
        text = yaml.safe_dump([value], allow_unicode=True, sort_keys=True)
        assert same_item(reader, text)

    check()
    check_written()


def slipped(lines: list[str], chance: random.Random) -> str:
    """The lines of an item with a slip or two."""
    lines = list(lines)
    for _ in range(chance.choice([1, 1, 2, 4])):
        at, indent = chance.randrange(len(lines)), " " * chance.randrange(9)
        match chance.randrange(7):
            case 0:
                del lines[at : at + chance.choice([1, 3])]
            case 1:
                lines[at] = " " * chance.choice([1, 2, 4]) + lines[at]
            case 2:
                lines[at] = lines[at].replace("  ", "", 1)
            case 3:
                lines.insert(at, chance.choice([*lines, ""]))
            case 4:
                lines[at] = f"{lines[at].split(':')[0]}: {chance.choice(VALUES)}"
            case 5:
                lines.insert(at, indent + chance.choice(VALUES + KEYS))
            case _:
                dash = chance.choice(["- ", ""])
                lines.insert(at, f"{indent}{dash}{chance.choice(KEYS)}: {chance.choice(VALUES)}")
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("seed", range(3))
def test_items_of_a_cluster_with_slips_are_read_as_the_parser_reads_them(seed: int) -> None:
    text = as_yaml(dumped(6, 30))
    whole = list_text(text, BlockReader())
    assert whole is not None
    items = [text[start:end].split("\n")[:-1] for start, end in whole.items if end - start < 4000]
    chance, readers = random.Random(seed), (BlockReader(split=0, remembered=200), BlockReader())
    for _ in range(100):
        odd = slipped(chance.choice(items), chance)
        assert all(same_item(reader, odd) for reader in readers), odd


def manifests() -> Iterator[Path]:
    for folder in (ROOT / "docs", ROOT / "deploy", ROOT / "tests"):
        yield from folder.rglob("*.yaml")


@pytest.mark.parametrize("path", [*manifests()], ids=lambda path: str(path.relative_to(ROOT)))
def test_manifests_of_this_project(path: Path) -> None:
    assert all(same(piece) for piece in path.read_text().split("---\n"))


def test_manifests_of_others() -> None:
    for path in [*shared_data("kueue").rglob("*.yaml"), *shared_data("kai").rglob("*.yaml")]:
        assert all(same(piece) for piece in path.read_text().split("---\n")), path


def test_what_kubectl_prints_is_read_line_by_line() -> None:
    text = as_yaml(dumped(20, 300))
    listed = list_text(text, BlockReader())
    assert listed is not None
    assert listed.head == {"apiVersion": "v1", "kind": "List"}
    reader = BlockReader()
    expected = [[item] for item in yaml.load(text, yaml.CSafeLoader)["items"]]
    assert [reader.value(text[start:end]) for start, end in listed.items] == expected
    assert [reader.item(text[start:end]) for start, end in listed.items] == expected


ITEM = """\
- apiVersion: v1
  kind: Pod
  metadata: {{name: {name}}}
  spec:
    nodeName: {node}
"""


def listed(*items: str, head: str = "apiVersion: v1\nitems:\n", tail: str = "kind: List\n") -> str:
    return head + "".join(items) + tail


def item(name: str, node: str = "n") -> str:
    return ITEM.format(name=name, node=node)


def read(folder: Path, text: str) -> tuple[list[str], list[Problem]]:
    (folder / "list.yaml").write_text(text)
    found = read_manifests([str(folder / "list.yaml")])
    return [pod.name for pod in found.pods], list(found.errors)


def test_the_line_of_a_wrong_field_in_an_item(tmp_path: Path) -> None:
    """The third line of the second item is the eighth of the list, after two of its head."""
    names, (problem,) = read(tmp_path, listed(item("a"), item("b", "[]"), item("c")))
    assert names == ["a", "c"]
    assert (problem.line, problem.field) == (12, "spec.nodeName")


#: Two lines before a list; with the second pair it is not cut into items.
CUT, UNCUT = "one: {}\ntwo: {}\n", "one: &n {}\ntwo: *n\n"
ODD = [
    "'unclosed",
    "{a",
    "|\n      text",
    "&x y",
    "*x",
    "a: b",
    '"two\nlines"',
    "y\n- z",
    "y\nz: 1",
    "y\n--- z",
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_items_are_read_as_the_whole_list_would_be(tmp_path: Path, odd: str) -> None:
    """What is not YAML is found where it would be found in the whole; the items before it are there then."""
    text = listed(item("a"), item("b", odd), item("c"))
    names, problems = read(tmp_path, CUT + text)
    whole, problems_of_the_whole = read(tmp_path, UNCUT + text)
    assert problems == problems_of_the_whole
    assert names == whole or (not whole and names == ["a"])


def test_a_key_given_twice_is_refused_beside_the_items_too(tmp_path: Path) -> None:
    for text in (
        listed(item("a"), tail="kind: List\nkind: List\n"),
        listed(item("a"), tail="items: []\nkind: List\n"),
        listed(item("a"), "- kind: Pod\n  kind: Pod\n"),
    ):
        _, (problem,) = read(tmp_path, text)
        assert "twice" in problem.message
