"""Topograph's graph JSON and model YAML as findings."""

import json

import pytest

from closeby.discovery.topograph import SUB_DOMAIN_KEY, read_topograph
from closeby.errors import UnreadableError
from closeby.topology.families import TOPOGRAPH_DOMAIN
from tests.golden.fixture import Golden

GRAPH = {
    "instances": [
        {
            "id": "I21",
            "network_layers": ["leaf-a", "spine-a"],
            "labels": {"example.com/gpu": "H100", TOPOGRAPH_DOMAIN: "nvl-1", SUB_DOMAIN_KEY: "nvl-1.rack-1"},
        },
        {"id": "I22", "network_layers": ["leaf-b", "spine-a"]},
    ]
}

#      S1
#     /  \
#    S2  S3        S3 has no entry of its own
#   n1-2  n3-4     n5 hangs nowhere
MODEL = """
switches:
  S1:
    annotations: {accelerator.topology.test/domain: nvl-s1}
    switches: [S2, S3]
  S2:
    annotations:
      accelerator.topology.test/domain: nvl-s2
blocks:
- switch: S2
  nodes: ["n[1-2]"]
- switch: S3
  nodes: [n3, n4]
  annotations: {accelerator.topology.test/sub-domain: nvl-s1.a}
- nodes: [n5]
"""


def refusal(text: str) -> str:
    with pytest.raises(UnreadableError) as error:
        read_topograph("file", text)
    return str(error.value)


def test_a_graph_gives_layers_and_accelerator_domains() -> None:
    findings = read_topograph("graph.json", json.dumps(GRAPH))
    assert findings.levels == ("accelerator", "block", "datacenter")
    assert findings.nodes["I21"].path == ("nvl-1", "leaf-a", "spine-a")
    assert findings.nodes["I22"].path == (None, "leaf-b", "spine-a")
    assert findings.nodes["I21"].labels == {
        "network.topology.kubernetes.io/accelerator": "nvl-1",
        "network.topology.kubernetes.io/block": "leaf-a",
        "network.topology.kubernetes.io/datacenter": "spine-a",
        SUB_DOMAIN_KEY: "nvl-1.rack-1",
    }


def test_instances_get_the_names_of_their_nodes(golden: Golden) -> None:
    findings = read_topograph("g", json.dumps(GRAPH), names={"I21": "node-21"})
    assert list(findings.nodes) == ["I22", "node-21"]
    golden("discover", [one.message for one in findings.warnings])


def test_keys_name_the_accelerator_first_where_there_is_one() -> None:
    findings = read_topograph("g", json.dumps(GRAPH), ("x.io/nvl", "x.io/leaf"))
    assert findings.levels == ("nvl", "leaf")
    assert findings.nodes["I22"].labels == {"x.io/leaf": "leaf-b"}


def test_levels_beyond_the_default_labels_are_reported_with_accelerators_too() -> None:
    instance = {"id": "i", "network_layers": list("abcd"), "labels": {TOPOGRAPH_DOMAIN: "nvl"}}
    findings = read_topograph("g", json.dumps({"instances": [instance]}))
    assert findings.nodes["i"].path == ("nvl", "a", "b", "c")
    assert "has 5 levels" in findings.warnings[0].message


def test_shorter_paths_meet_the_others_where_a_switch_is_known_or_else_at_the_root() -> None:
    layers = {
        "i1": ["leaf", "spine", "core"],
        "i2": ["other", "core"],
        "i3": ["leaf", "spine"],
        "i4": ["new"],
    }
    instances = [{"id": one, "network_layers": path} for one, path in layers.items()]
    findings = read_topograph("g", json.dumps({"instances": instances}))
    assert {name: node.path for name, node in findings.nodes.items()} == {
        "i1": ("leaf", "spine", "core"),
        "i2": (None, "other", "core"),
        "i3": ("leaf", "spine"),
        "i4": (None, None, "new"),
    }


def test_a_switch_under_two_is_reported(golden: Golden) -> None:
    instances = [{"id": f"i{one}", "network_layers": ["leaf", f"spine-{one}"]} for one in (1, 2)]
    findings = read_topograph("g", json.dumps({"instances": instances}))
    assert findings.warnings[0].object == "Switch/leaf"
    golden("discover", findings.warnings[0].message)


def test_an_instance_that_is_described_twice_counts_as_first_said() -> None:
    instances = [{"id": "i", "network_layers": ["a"]}, {"id": "i", "network_layers": ["b"]}]
    findings = read_topograph("g", json.dumps({"instances": instances}))
    assert findings.nodes["i"].path == ("a",)
    assert "described twice" in findings.warnings[0].message


def test_a_model_gives_its_nodes_the_switches_above_and_inherited_domains() -> None:
    findings = read_topograph("model.yaml", MODEL)
    assert {name: node.path for name, node in findings.nodes.items()} == {
        "n1": ("nvl-s2", "S2", "S1"),
        "n2": ("nvl-s2", "S2", "S1"),
        "n3": ("nvl-s1", "S3", "S1"),
        "n4": ("nvl-s1", "S3", "S1"),
        "n5": (),
    }
    assert findings.nodes["n3"].labels[SUB_DOMAIN_KEY] == "nvl-s1.a"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "has no instances"),
        ("[1]", "has no instances"),
        ('{"instances": []}', "describes no node"),
        ('{"instances": {}}', "must be a list, but is a mapping"),
        ('{"instances": [1]}', "instances[0]: must be a mapping, but is a whole number"),
        ('{"instances": [{}]}', "instances[0].id: is missing"),
        ('{"instances": [{"id": 1}]}', "instances[0].id: must be text, but is a whole number"),
        (
            '{"instances": [{"id": "a", "network_layers": [1]}]}',
            "instances[0].network_layers[0]: must be text",
        ),
        ('{"instances": [{"id": "a",\n "labels": 3}]}', "instances[0].labels: must be a mapping"),
        ('{"instances":\n [}', ":2: is not JSON"),
        ("a: 1", "is not a model"),
        ("switches: [1]", "must be a mapping, but is a list"),
        ("switches: {a: {switches: [c]}, b: {switches: [c]}}", "switch c has two parents, a and b"),
        ("switches: {a: {switches: [b]}, b: {switches: [a]}}", "cycle"),
        ("blocks:\n- switch: a\n  nodes: [n]", ":2: blocks[0].switch: 'a' is not a switch of the model"),
        ("blocks:\n- nodes: []", "has no nodes"),
        ("blocks:\n- nodes: [n]\n- nodes: [n]", ":3: blocks[1].nodes: node n is in two blocks"),
        ("blocks:\n- nodes: ['n[1-9999999]']", "more than 500,000 names"),
        ("switches: {}", "has not one node"),
        ("switches: {a: {switches: [b]}}", "has not one node"),
        ("just text", "is not a model"),
        ("", "holds no YAML document"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    assert complaint in refusal(text)
