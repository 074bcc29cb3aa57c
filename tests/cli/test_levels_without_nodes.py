"""A level of a Topology of which no node carries the label: a notice everywhere, and no level of a span."""

from typing import Any

import pytest

from tests.cli.calling import Manifest, closeby, gang, node, pod, report, text

TOPOLOGY = "Topology/fabric"


def topology(*labels: str) -> Manifest:
    levels = [{"nodeLabel": label} for label in (*labels, "kubernetes.io/hostname")]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": {"levels": levels},
    }


def manifests(*labels: str) -> str:
    """Four nodes in two rows with a rack each, and a gang of two pods that each need a node."""
    nodes = [
        node(f"node-{number}", {"example.com/row": f"row-{number // 2}", "example.com/rack": f"r-{number}"})
        for number in range(4)
    ]
    pods = [pod(f"train-{number}", 8, gang="train") for number in range(2)]
    return text(*nodes, topology(*labels), gang("train", 2, preferred="example.com/row"), *pods)


def notice(conditions: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (one for one in conditions if one["object"] == TOPOLOGY)
    return found


def arguments(command: str) -> tuple[str, ...]:
    return ("explain", "podgroup/train") if command == "explain" else (command,)


@pytest.mark.parametrize("command", ["simulate", "explain", "topology"])
def test_each_command_says_it_with_the_field_and_the_label_that_was_meant(command: str) -> None:
    misspelt = manifests("example.com/row", "example.com/rak")
    found = notice(report(*arguments(command), "-f", "-", stdin=misspelt)["conditions"])
    assert (found["reason"], found["field"]) == ("TopologyLevelNotFound", "spec.levels[1].nodeLabel")
    assert "example.com/rack?" in found["remedy"]
    assert not found["blocking"]
    shown = closeby(*arguments(command), "-f", "-", stdin=misspelt).stdout
    assert shown.count(TOPOLOGY) == 1
    assert "without example.com/rak" not in shown


def test_explain_says_it_of_a_topology_that_only_a_subgroup_names() -> None:
    """The first subgroup names a topology with a level that nodes carry, the second one without any."""
    rows = {**topology("example.com/row"), "metadata": {"name": "rows"}}
    halls = {**topology("dc/hall"), "metadata": {"name": "halls"}}
    group = gang("train", 2)
    group["spec"]["subGroups"] = [
        {
            "name": name,
            "minMember": 1,
            "topologyConstraint": {"topology": name, "requiredTopologyLevel": level},
        }
        for name, level in (("rows", "example.com/row"), ("halls", "dc/hall"))
    ]
    members = [pod(f"train-{name}", 8, gang="train") for name in ("rows", "halls")]
    for one, name in zip(members, ("rows", "halls"), strict=True):
        one["metadata"]["labels"]["closeby.dev/subgroup"] = name
    nodes = [node(f"node-{number}", {"example.com/row": "row-0"}) for number in range(2)]
    found = report("explain", "train", "-f", "-", stdin=text(*nodes, rows, halls, group, *members))
    assert [(one["object"], one["reason"]) for one in found["conditions"]] == [
        ("Topology/halls", "TopologyLevelNotFound")
    ]


def test_a_label_unlike_those_of_nodes_is_to_be_put_on_them() -> None:
    found = notice(report("simulate", "-f", "-", stdin=manifests("example.com/row", "dc/hall"))["conditions"])
    assert found["remedy"].startswith("label the nodes: kubectl label nodes NODE dc/hall=")


def test_levels_that_nodes_carry_are_no_matter() -> None:
    good = report("simulate", "-f", "-", stdin=manifests("example.com/row", "example.com/rack"))
    assert [one for one in good["conditions"] if one["object"] == TOPOLOGY] == []


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        (("example.com/row", "example.com/rak"), ["row", "hostname"]),
        (("example.com/hall", "example.com/rack"), ["rack", "hostname"]),
    ],
)
def test_no_span_counts_it(labels: tuple[str, ...], levels: list[str]) -> None:
    stdin = manifests(*labels)
    (train,) = report("simulate", "-f", "-", stdin=stdin)["groups"]
    assert list(train["span"]) == levels
    assert list(train["quality"]["excessSpan"]) == list(train["quality"]["crossPairs"]) == levels
    counterfactuals = report("explain", "train", "-f", "-", stdin=stdin)["counterfactuals"]
    assert all(list(one["where"]["span"]) == levels for one in counterfactuals if "where" in one)
