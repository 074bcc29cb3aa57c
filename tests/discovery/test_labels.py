"""Findings out of labels that nodes already carry."""

import json
from pathlib import Path
from typing import Any

import pytest

from closeby.discovery.labels import family_of, read_labels
from closeby.objects.nodes import Node
from closeby.topology.families import PRESETS
from tests.cli.calling import closeby
from tests.golden.fixture import Golden

NET = "network.topology.kubernetes.io/"


def node(name: str, **labels: str) -> Node:
    return Node(name=name, labels={NET + key: value for key, value in labels.items()})


def manifest(name: str, labels: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": name, "labels": labels, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def test_network_labels_are_read_closest_first_under_their_own_keys() -> None:
    nodes = [
        node("n2", block="b1", datacenter="d1", accelerator="nvl-1"),
        node("n1", block="b1", datacenter="d1"),
    ]
    findings, keys = read_labels(nodes)
    assert findings.levels == ("accelerator", "block", "datacenter")
    assert keys == (NET + "accelerator", NET + "block", NET + "datacenter")
    assert {name: one.path for name, one in findings.nodes.items()} == {
        "n1": (None, "b1", "d1"),
        "n2": ("nvl-1", "b1", "d1"),
    }
    assert findings.nodes["n2"].labels == dict(nodes[0].labels)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "topograph"])
def test_every_preset_reads_its_own_labels(name: str) -> None:
    family = PRESETS[name]
    nodes = [
        Node(name=f"n{one}", labels={key: f"v{level}" for level, key in enumerate(family.labels)})
        for one in range(2)
    ]
    findings, keys = read_labels(nodes, family)
    assert keys == family.labels
    assert findings.nodes["n1"].path == tuple(f"v{level}" for level in range(len(family.labels)))


def test_a_key_needs_no_prefix() -> None:
    nodes = [Node(name=f"n{one}", labels={"rack": f"r{one}", "row": "w"}) for one in range(2)]
    findings, keys = read_labels(nodes, family_of(["rack", "row"]))
    assert (keys, findings.warnings) == (("rack", "row"), ())
    assert findings.nodes["n1"].path == ("r1", "w")


def test_topographs_tiers_are_of_any_depth() -> None:
    labels = {f"fabric.topograph.run/tier-{one}": f"t{one}" for one in range(12)}
    findings, _ = read_labels([Node(name="n", labels=labels)], PRESETS["topograph"])
    assert findings.nodes["n"].path == tuple(f"t{one}" for one in range(12))


def test_labels_of_another_family_are_reported_and_never_used(golden: Golden) -> None:
    nodes = [Node(name="n", labels={"topology.k8s.aws/network-node-layer-3": "nn-3"})]
    findings, _ = read_labels(nodes)
    assert findings.levels == ()
    assert findings.nodes["n"].path == ()
    golden("discover", findings.warnings[0].remedy)


def test_a_conflict_is_a_warning_and_its_layer_does_not_count() -> None:
    nodes = [node("n1", block="b1", datacenter="d1"), node("n2", block="b1", datacenter="d2")]
    findings, _ = read_labels(nodes)
    assert findings.nodes["n1"].path == (None, "d1")
    assert "b1" in findings.warnings[0].message


def test_quality_comes_from_the_annotation() -> None:
    quality = {"network.qos.kubernetes.io/switches": '{"b1": {"latency": "2us", "bandwidth": "100Gbps"}}'}
    findings, _ = read_labels([Node(name="n", labels={NET + "block": "b1"}, annotations=quality)])
    assert findings.nodes["n"].qos["b1"].latency == 2_000
    assert findings.nodes["n"].qos["b1"].bandwidth == 100_000_000_000


def test_own_labels_and_other_keys_to_write() -> None:
    labels = {"x.io/rack": "r1", "x.io/row": "w1"}
    findings, _ = read_labels(
        [Node(name="n", labels=labels)], family_of(("x.io/rack", "x.io/row")), ("a.io/leaf",)
    )
    assert findings.levels == ("leaf",)
    assert findings.nodes["n"].labels == {"a.io/leaf": "r1"}


def test_a_label_of_ones_own_that_no_node_carries_is_named_with_the_one_that_was_meant() -> None:
    findings, _ = read_labels([Node(name="n", labels={"x.io/rack": "r1"})], family_of(("x.io/rac",)))
    (warning,) = findings.warnings
    assert "x.io/rac," in warning.message
    assert "did you mean x.io/rack?" in warning.remedy


def test_the_command_reads_nodes_and_prints_the_topology_of_their_labels(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    items = [
        manifest(
            "n1", {"topology.k8s.aws/network-node-layer-3": "a", "topology.k8s.aws/network-node-layer-2": "b"}
        )
    ]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    result = closeby("discover", "labels", "-f", file, "--preset", "eks", "-o", "topology")
    assert result.exit_code == 0
    assert [line.split("/")[-1] for line in result.stdout.splitlines() if "nodeLabel" in line] == [
        "network-node-layer-2",
        "network-node-layer-3",
        "hostname",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--preset", "aks"), "'aks' is not a known preset; known presets: network-labels"),
        (("--preset", "eks", "--key", "a"), "give one of them"),
        (("--key", "a b"), "give different keys of labels"),
        ((), "holds no Node"),
    ],
)
def test_arguments_that_can_not_be_used(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    file = tmp_path / "pod.json"
    file.write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}')
    result = closeby("discover", "labels", "-f", file, *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_presets_are_listed() -> None:
    result = closeby("discover", "labels", "--preset", "list")
    assert result.exit_code == 0
    assert "fabric.topograph.run/tier-N" in result.stdout


def test_files_or_a_cluster(tmp_path: Path, golden: Golden) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(json.dumps(manifest("n", {NET + "block": "b1"})))
    both = closeby("discover", "labels", "-f", nodes, "--context", "other")
    assert both.exit_code == 2
    golden("discover", both.stderr)
    none = closeby("discover", "labels", "--kubeconfig", tmp_path / "missing")
    assert none.exit_code == 2
    assert "or read manifests: -f PATH" in none.stderr


def test_a_key_that_no_node_carries_is_reported_with_the_one_that_was_meant() -> None:
    nodes = [Node(name=f"n{i}", labels={"example.com/rack": f"r{i // 2}"}) for i in range(4)]
    found = read_labels(nodes, family_of(["example.com/rakc", "example.com/rack"]))
    (said,) = found.findings.warnings
    assert "example.com/rakc" in said.message
    assert "did you mean example.com/rack?" in said.remedy
