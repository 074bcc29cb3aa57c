"""Nodes whose labels stand in a document of their own, as `closeby discover … -o labels` prints them."""

from itertools import permutations
from typing import Any

import pytest

from tests.golden.fixture import Golden
from tests.reading.manifest_text import read_objects

ROOM: dict[str, Any] = {"status": {"allocatable": {"cpu": "4"}}}


def node(name: str = "a", labels: dict[str, str] | None = None, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}, **parts}


def test_labels_join_the_node_of_their_name_in_any_order() -> None:
    documents = [
        node(labels={"zone": "z1"}, **ROOM),
        node(labels={"rack": "r1"}),
        node(labels={"row": "w1", "rack": "r1"}),
    ]
    for ordered in permutations(documents):
        manifests = read_objects(*ordered)
        assert (manifests.errors, manifests.notices) == ((), ())
        (found,) = manifests.nodes
        assert found.labels == {"zone": "z1", "rack": "r1", "row": "w1"}
        assert found.allocatable == {"cpu": 4000}


def test_annotations_join_too() -> None:
    part = node()
    part["metadata"]["annotations"] = {"network.qos.kubernetes.io/switches": "{}"}
    (found,) = read_objects(part, node(**ROOM)).nodes
    assert found.annotations == {"network.qos.kubernetes.io/switches": "{}"}


@pytest.mark.parametrize("full_first", [True, False])
def test_values_that_contradict_each_other_are_an_error_that_names_both_places(
    full_first: bool, golden: Golden
) -> None:
    documents = [node(labels={"rack": "r1"}, **ROOM), node(labels={"rack": "r2"})]
    manifests = read_objects(*(documents if full_first else reversed(documents)))
    assert [one.labels["rack"] for one in manifests.nodes] == ["r1"]
    (error,) = manifests.errors
    assert (error.object, error.field) == ("Node/a", "metadata.labels.rack")
    golden("manifest-problems", str(error))


def test_two_parts_that_contradict_each_other_are_an_error() -> None:
    manifests = read_objects(node(labels={"rack": "r1"}), node(labels={"rack": "r2"}), node(**ROOM))
    (error,) = manifests.errors
    assert (error.object, error.field) == ("Node/a", "metadata.labels.rack")


def test_a_full_node_is_still_given_once() -> None:
    manifests = read_objects(node(**ROOM), node(labels={"rack": "r1"}), node(**ROOM, spec={"taints": []}))
    assert manifests.errors == ()
    (notice,) = manifests.notices
    assert notice.object == "Node/a"
    different = read_objects(node(**ROOM), node(status={"allocatable": {"cpu": "8"}}))
    assert len(different.errors) == 1


def test_labels_of_hosts_that_are_no_nodes_are_left_out_with_the_name_that_was_meant(golden: Golden) -> None:
    manifests = read_objects(
        node("host-1.example.com", **ROOM), node("host-1", {"rack": "r1"}), node("host-2", {"rack": "r1"})
    )
    assert [one.name for one in manifests.nodes] == ["host-1.example.com"]
    (notice,) = manifests.notices
    assert (notice.reason, notice.object) == ("InvalidSpec", "Node/host-1")
    golden("manifest-problems", notice.sentence())


def test_nodes_with_nothing_but_labels_are_fine_among_themselves() -> None:
    manifests = read_objects(node(), node("b", {"rack": "r1"}))
    assert (len(manifests.nodes), manifests.errors, manifests.notices) == (2, (), ())
