"""YAML as Kubernetes reads it, and what a manifest may not hold though YAML allows it."""

from collections.abc import Mapping

import pytest

from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read, read_good


def labels_of(text: str) -> Mapping[str, str]:
    """The labels of a node whose ``metadata.labels`` are ``text``."""
    return read_good(f"apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels: {text}").nodes[0].labels


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("22:30", "22:30"),
        ("1e3", "1e3"),
        ("1.2.3", "1.2.3"),
        (">-\n      a\n      b", "a b"),
        ("|\n      a\n      b\n", "a\nb\n"),
        ("0_", "0_"),
        ("-0_", "-0_"),
        ("0x_", "0x_"),
        ("0b", "0b"),
    ],
)
def test_text_stays_text(text: str, value: str) -> None:
    assert labels_of(f"\n    x: {text}")["x"] == value


@pytest.mark.parametrize(
    "text", ["5", "0x1F", "010", "1_000", "1.5", "true", "no", "On", "!!int 5", "[a]", "{a: b}"]
)
def test_other_values_do_not_pass_for_text(text: str) -> None:
    assert "metadata.labels.x: must be text" in error_of(
        f"apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels: {{x: {text}}}"
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16", 16),
        ("0x10", 16),
        ("0xb0", 176),
        ("0xbeef", 48879),
        ("0x0b", 11),
        ("0b101", 5),
        ("0o17", 15),
        ("0b10000", 16),
        ("0o20", 16),
        ("020", 16),
        ("1_6", 16),
        ("+16", 16),
        ("!!int 16", 16),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    manifests = read_good(
        f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d}}, spec: {{replicas: {text}}}}}"
    )
    assert manifests.workloads[0].pod_sets[0].replicas == number


def test_null_is_the_same_as_absent() -> None:
    (node,) = read_good(
        "{apiVersion: v1, kind: Node, metadata: {name: n, labels: ~, annotations: }, spec: null}"
    ).nodes
    assert (node.labels, node.annotations, node.taints) == ({}, {}, ())


def test_keys_are_text_whatever_they_look_like() -> None:
    assert labels_of("{5: a, true: b, null: c, 1.0: d}") == {"5": "a", "true": "b", "null": "c", "1.0": "d"}


def test_anchors_and_merge_keys() -> None:
    text = """
    apiVersion: v1
    kind: List
    common: &common {rack: r1, zone: z1}
    more: &more {zone: z2, room: x}
    items:
    - {apiVersion: v1, kind: Node, metadata: {name: a, labels: *common}}
    - {apiVersion: v1, kind: Node, metadata: {name: b, labels: {<<: *common, rack: r2}}}
    - {apiVersion: v1, kind: Node, metadata: {name: c, labels: {rack: r3, <<: [*more, *common]}}}
    """
    assert [dict(node.labels) for node in read_good(text).nodes] == [
        {"rack": "r1", "zone": "z1"},
        {"rack": "r2", "zone": "z1"},
        {"rack": "r3", "zone": "z2", "room": "x"},
    ]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("{a: x, a: y}", "line 5: key 'a' is given twice; keep one of the two"),
        ("{}\napiVersion: v1", "line 6: key 'apiVersion' is given twice; keep one of the two, or write ---"),
        ("{? [a] : x}", "line 5: a key must be text"),
        ("{? {a: b} : x}", "line 5: a key must be text"),
        ("{a: &x b, *x : c}", "line 5: a key must be text"),
        ("{a: *nowhere}", "line 5: alias *nowhere refers to nothing before it"),
        ("&me {a: *me}", "line 5: alias *me refers to nothing before it"),
        ("{<<: plain}", "line 5: << needs a mapping or a list of mappings"),
        ("{a: !secret x}", "line 5: tag !secret can't be used here; take the tag out"),
        ("{a: !!int x}", "line 5: tag !!int can't be used here"),
        ("a: b: c", "is not YAML: mapping values are not allowed in this context; put the value in quotes"),
        ("{a: b", "is not YAML: did not find expected ',' or '}'"),
        ("{a: \x01}", "is not YAML"),
        ("[" * 300, "line 5: is nested more than 200 levels deep"),
        ("[" * 200_000, "line 5: is nested more than 200 levels deep"),
    ],
)
def test_what_a_manifest_may_not_hold(labels: str, said: str) -> None:
    assert said in error_of(f"apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels: {labels}")


def test_aliases_can_not_blow_up(golden: Golden) -> None:
    lines = ["apiVersion: v1", "kind: Node", "metadata: {name: n}", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    golden("manifest-problems", error_of("\n".join(lines)))


def test_deep_json_is_refused_too() -> None:
    deep = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": ' + "[" * 100_000
    assert "nested" in error_of(deep)


def test_documents_are_counted_without_the_empty_ones() -> None:
    text = "# a comment\n---\n---\n# another\n\n--- # third\n{apiVersion: v1, kind: Node}\n---\n...\n"
    (error,) = read(text).errors
    assert (error.document, error.line) == (1, 7)


def test_directives_document_ends_and_line_ends_of_windows() -> None:
    text = (
        "%YAML 1.1\r\n---\r\napiVersion: v1\r\nkind: Node\r\nmetadata: {name: a}\r\n...\r\n"
        "---\r\napiVersion: v1\r\nkind: Node\r\nmetadata: {name: b}\r\n"
    )
    assert [node.name for node in read_good(text).nodes] == ["a", "b"]


def test_a_byte_order_mark_does_no_harm() -> None:
    assert len(read_good("\ufeff{apiVersion: v1, kind: Node, metadata: {name: a}}").nodes) == 1


def test_only_comments_are_nothing() -> None:
    manifests = read_good("# nothing\n---\n# at all\n")
    assert (manifests.nodes, manifests.notices) == ((), ())
