"""How counts, paths and lists of names are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.words import Names, begun, counts_text, names_text, path_text, plural, runs_of, span_text


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (1, "node", "1 node"),
        (0, "pod", "0 pods"),
        (2, "switch", "2 switches"),
        (3, "leaf", "3 leaves"),
        (12345, "box", "12,345 boxes"),
    ],
)
def test_plural(count: int, noun: str, said: str) -> None:
    assert plural(count, noun) == said


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["worker-2", "worker-0", "worker-1", "worker-10"], "worker-0..2, worker-10"),
        (["w-1"], "w-1"),
        (["a", "b"], "a, b"),
        (["js-1-0", "js-0-0", "js-0-1", "js-1-1"], "js-0-0..1, js-1-0..1"),
        (["p-x7", "p-a", "p-q", "p-c", "p-d"], "p-a, p-c, p-d and 2 more"),
        (["n-8", "n-9", "n-10", "n-11"], "n-8..11"),
        ([], ""),
    ],
)
def test_names_become_ranges_where_one_number_differs(names: list[str], said: str) -> None:
    assert names_text(names) == said


@given(st.integers(0, 50), st.integers(1, 60))
def test_a_run_of_numbers_is_one_range(first: int, count: int) -> None:
    names = [f"pod-{number}" for number in range(first, first + count)]
    last = first + count - 1
    assert names_text(names) == (f"pod-{first}" if count == 1 else f"pod-{first}..{last}")


def test_paths_and_spans() -> None:
    assert path_text(("zone-a", None, "n-1")) == "zone-a/–/n-1"
    assert path_text(()) == "the cluster"
    span = {"zone": 1, "rack": 2, "hostname": 10}
    assert span_text(span, "zone") == "2 racks, 10 nodes"
    assert span_text({"rack": 0, "hostname": 2}, None, 2) == "2 nodes outside of the topology"
    assert span_text({"rack": 1, "hostname": 3}, None, 2) == "1 rack, 3 nodes (2 outside of the topology)"
    assert plural(2, "network-node-layer-3") == "2 blocks"
    assert plural(1, "gce-topology-subblock") == "1 subblock"
    assert plural(2, "tier-1") == "2 domains of tier-1"
    assert counts_text({"InsufficientResources": 3, "TaintNotTolerated": 1}) == (
        "3 InsufficientResources, 1 TaintNotTolerated"
    )


def test_namespaces_are_shown_where_there_are_several() -> None:
    assert Names({"default"}).of("default", "a") == "a"
    assert Names({"default", "other"}).of("default", "a") == "default/a"


def test_neighbours_with_equal_first_parts() -> None:
    pairs = [("x", "1"), ("x", "2"), ("y", "3"), ("x", "4")]
    assert runs_of(pairs) == [("x", ["1", "2"]), ("y", ["3"]), ("x", ["4"])]


def test_a_sentence_begins_in_upper_case_and_keeps_all_other_letters() -> None:
    assert begun("zone Zone-A holds it") == "Zone Zone-A holds it"
    assert begun("") == ""
