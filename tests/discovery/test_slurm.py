"""Slurm's topology.conf and topology.yaml as findings."""

import json
from pathlib import Path
from typing import Any

import pytest

from closeby.discovery.findings import ScanFindings
from closeby.discovery.slurm import read_slurm
from closeby.errors import UnreadableError
from tests.cli.calling import closeby, report
from tests.golden.fixture import Golden

#       S1
#     /    \
#    L1    L2
#   n1 n2  n3
TREE = """
# The fabric of hall 1
SwitchName=L1 Nodes=n[1-2]
SwitchName=L2 Nodes=n3      # a small one
SwitchName=S1 Switches=L[1-2]
"""


def paths(findings: ScanFindings) -> dict[str, tuple[str | None, ...]]:
    return {name: node.path for name, node in findings.nodes.items()}


def conf(text: str) -> ScanFindings:
    return read_slurm("topology.conf", text)


def refusal(text: str, file: str = "topology.conf") -> str:
    with pytest.raises(UnreadableError) as error:
        read_slurm(file, text)
    return str(error.value)


def said(findings: ScanFindings) -> list[str]:
    return [one.sentence() for one in findings.warnings]


def test_a_tree_gives_each_node_its_switches_closest_first() -> None:
    findings = conf(TREE)
    assert findings.levels == ("block", "datacenter")
    assert paths(findings) == {"n1": ("L1", "S1"), "n2": ("L1", "S1"), "n3": ("L2", "S1")}
    assert findings.nodes["n3"].labels == {
        "network.topology.kubernetes.io/block": "L2",
        "network.topology.kubernetes.io/datacenter": "S1",
    }
    assert [(link.a, link.b) for link in findings.links] == [("L1", "S1"), ("L2", "S1")]
    assert findings.warnings == ()


def test_keywords_quotes_and_continued_lines_are_read_as_slurm_does() -> None:
    findings = conf('switchname=L1   NODES="n1, n2" \\\n  linkspeed=100\r\nSwitchName=S1 switches=L1\n')
    assert paths(findings) == {"n1": ("L1", "S1"), "n2": ("L1", "S1")}


def test_a_list_goes_on_in_the_next_line() -> None:
    findings = conf(
        "SwitchName=L1 Nodes=tux[4-5],\\\ntux6,tu\\\nx7 \\\nLinkSpeed=1\nSwitchName=S1 Switches=L1\n"
    )
    assert paths(findings) == {f"tux{number}": ("L1", "S1") for number in (4, 5, 6, 7)}


def test_a_leaf_nearer_to_the_root_misses_the_closest_level() -> None:
    findings = conf(
        "SwitchName=core Switches=S1,L9\nSwitchName=S1 Switches=L1\n"
        "SwitchName=L1 Nodes=n1\nSwitchName=L9 Nodes=n9"
    )
    assert paths(findings) == {"n1": ("L1", "S1", "core"), "n9": (None, "L9", "core")}


def test_nodes_of_a_switch_that_also_has_switches_miss_the_nearer_level() -> None:
    findings = conf("SwitchName=S1 Switches=L1 Nodes=n9\nSwitchName=L1 Nodes=n1")
    assert paths(findings) == {"n1": ("L1", "S1"), "n9": (None, "S1")}
    assert "both nodes and switches" in said(findings)[0]


def test_spines_over_the_same_leaves_are_one() -> None:
    findings = conf(
        "SwitchName=L1 Nodes=n1\nSwitchName=L2 Nodes=n2\nSwitchName=S2 Switches=L[1-2]\n"
        "SwitchName=S1 Switches=L[1-2]"
    )
    assert paths(findings) == {"n1": ("L1", "S1"), "n2": ("L2", "S1")}
    assert findings.warnings == ()


def test_a_switch_under_two_that_differ_counts_once_and_is_reported(golden: Golden) -> None:
    findings = conf(
        "SwitchName=L1 Nodes=n1\nSwitchName=L2 Nodes=n2\nSwitchName=L3 Nodes=n3\n"
        "SwitchName=S1 Switches=L1,L2\nSwitchName=S2 Switches=L2,L3\nSwitchName=C Switches=S[1-2]"
    )
    assert paths(findings)["n2"] == ("L2", "S1", "C")
    golden("discover", said(findings))


def test_a_node_on_two_leaves_is_a_warning() -> None:
    findings = conf("SwitchName=L10 Nodes=n1\nSwitchName=L2 Nodes=n[1-2]\nSwitchName=S Switches=L2,L10")
    assert paths(findings)["n1"] == ("L2", "S")
    assert [one.object for one in findings.warnings] == ["Node/n1"]


def test_trees_without_a_common_root_are_reported(golden: Golden) -> None:
    findings = conf("SwitchName=S Switches=L1\nSwitchName=L1 Nodes=n1\nSwitchName=L2 Nodes=n2")
    assert paths(findings) == {"n1": ("L1", "S"), "n2": (None, "L2")}
    golden("discover", said(findings)[0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "SwitchName=A Switches=B\nSwitchName=B Switches=A",
            ":1: switches form a cycle: A has B has A",
        ),
        ("SwitchName=A Switches=A", "switches form a cycle: A has A"),
        (
            "SwitchName=A Nodes=n1\nSwitchName=A Nodes=n2",
            ":2: switch A is declared twice, first on line 1",
        ),
        ("SwitchName=S Switches=L[1-2]\nSwitchName=L1 Nodes=n1", ":1: switch S has a child L2"),
        ("BlockName=A Nodes=n1\nBlockName=A Nodes=n2", ":2: block A is declared twice, first on line 1"),
        ("SwitchName=A Nodes=n1\nBlockName=B Nodes=n2", ":2: declares both switches and blocks"),
        ("", "neither a switch nor a block"),
        ("SwitchName=S Switches=L\nSwitchName=L\n", "has not one node"),
        ("BlockName=B\nBlockSizes=4\n", "has not one node"),
        ("# nothing\n\n", "neither a switch nor a block"),
        (
            "SwitchName=A Nodes=n[1-999999999]",
            ":1: Nodes='n[1-999999999]' stands for more than 500,000 names",
        ),
        ("SwitchName=A Nodes=n[1-2", ":1: Nodes='n[1-2' has a bracket without its partner"),
        ("SwitchName=A Nodes=n[3-1]", "which ends before it begins"),
        ("SwitchName=A Weight=3", ":1: 'weight' is not known here"),
        ("SwitchName=A[1-2] Nodes=n1", "is not a single name"),
        ("hello world", ":1: 'hello world' is not keyword=value"),
        ("Include other.conf", ":1: includes another file; put its lines here"),
        ("BlockSizes=a", "BlockSizes='a' is not a list of whole numbers"),
        ("SwitchName=A Nodes=n1 Nodes=n2", ":1: Nodes is given twice"),
    ],
)
def test_what_slurm_refuses_is_refused_with_its_line(text: str, complaint: str) -> None:
    assert complaint in refusal(text)


def test_many_lists_together_are_bounded_too() -> None:
    text = "".join(f"SwitchName=L{one} Nodes=n{one}x[1-400000]\n" for one in range(3))
    assert ":2" in refusal(text)


def test_a_tree_deeper_than_slurm_takes_is_refused() -> None:
    text = "SwitchName=s0 Nodes=n1\n" + "".join(
        f"SwitchName=s{i} Switches=s{i - 1}\n" for i in range(1, 2000)
    )
    assert "more than 20 levels" in refusal(text)


def test_blocks_and_the_larger_ones_that_block_sizes_make_of_them() -> None:
    findings = conf(
        "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockName=b3 Nodes=n[5-6]\nBlockSizes=2,4\n"
    )
    assert findings.levels == ("block", "datacenter")
    assert paths(findings)["n1"] == ("b1", "b1..b2")
    assert paths(findings)["n4"] == ("b2", "b1..b2")
    assert paths(findings)["n6"] == ("b3", "b3")


def test_block_sizes_that_slurm_refuses_do_not_count(golden: Golden) -> None:
    findings = conf("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,6\n")
    assert findings.levels == ("block",)
    golden("discover", said(findings)[0])


YAML = """
- topology: flat
  flat: true
- topology: racks
  block:
    block_sizes: [2]
    blocks:
    - {block: b1, nodes: "n[1-2]"}
    - {block: b2}
- topology: fabric
  cluster_default: true
  tree:
    switches:
    - switch: S1
      children: L[1-2]
    - {switch: L1, nodes: "n[1-2]"}
    - {switch: L2, nodes: n3}
"""


def test_of_a_topology_yaml_the_default_tree_is_read(golden: Golden) -> None:
    findings = read_slurm("topology.yaml", YAML)
    assert paths(findings) == paths(conf(TREE))
    golden("discover", said(findings)[0])


def test_a_topology_yaml_without_its_ending_is_known_by_its_beginning() -> None:
    assert paths(read_slurm("standard input", "# ours\n---\n" + YAML)) == paths(conf(TREE))


def test_another_one_can_be_named() -> None:
    findings = read_slurm("t.yml", YAML, topology="racks")
    assert paths(findings) == {"n1": ("b1",), "n2": ("b1",)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- topology: a\n  flat: true\n", "has no tree and no blocks: a is flat"),
        ("- topology: a\n  ring: {}\n", "has no tree and no blocks: a is ring"),
        ("- topology: a\n", "must be one of tree, block"),
        ("tree: {}\n", "must be a list, but is a mapping"),
        ("[]", "declares no topology"),
        ("- topology: a\n  tree:\n    switches:\n    - {switch: s, knots: n1}\n", ":4"),
        (
            "- topology: a\n  tree:\n    switches:\n    - {switch: s, children: t}\n",
            ":4: switch s has a child t",
        ),
        (
            "- topology: a\n  tree: {switches: [{switch: s, nodes: 'n[1-9999999]'}]}",
            "more than 500,000 names",
        ),
        (
            "- topology: a\n  block: {block_sizes: [x], blocks: []}",
            ":2: [0].block.block_sizes[0]: must be a whole number",
        ),
        ("- topology: a\n  block: {block_sizes: [0], blocks: []}", "whole numbers above zero"),
        ("- a: &x [1]\n- topology: *y\n", "alias"),
        ("\t- a", "not YAML"),
        ("---\n[]\n---\n[]\n", "holds 2 YAML documents"),
    ],
)
def test_a_topology_yaml_that_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    assert complaint in refusal(text, "topology.yaml")


def test_switches_deeper_than_the_labels_are_reported_and_left_out() -> None:
    text = "SwitchName=s1 Nodes=n1\n" + "".join(f"SwitchName=s{i} Switches=s{i - 1}\n" for i in range(2, 6))
    findings = conf(text)
    assert paths(findings)["n1"] == ("s1", "s2", "s3")
    assert "5 levels" in said(findings)[0]
    keys = tuple(f"example.com/l{i}" for i in range(5))
    assert paths(read_slurm("t.conf", text, keys))["n1"] == ("s1", "s2", "s3", "s4", "s5")


def test_a_name_that_is_no_label_value_becomes_topographs_hash(golden: Golden) -> None:
    long = "S3very-very-long-id-to-check-label-value-limits-of-63-characters"
    findings = conf(f"SwitchName={long} Nodes=n[1-2]\n")
    assert paths(findings)["n1"] == (long,)
    assert findings.nodes["n1"].labels == {"network.topology.kubernetes.io/block": "xf946c4acef2d5939"}
    golden("discover", said(findings)[-1])


def test_the_command_prints_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(TREE)
    result = closeby("discover", "slurm", file, "-o", "json")
    found: Any = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(found) == ["levels", "nodes", "links", "planes", "warnings"]
    assert found["nodes"]["n1"]["path"] == ["L1", "S1"]


def test_the_command_exits_with_2_for_a_circle(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=A Switches=A")
    result = closeby("discover", "slurm", file)
    assert result.exit_code == 2
    assert "cycle" in result.stderr


def test_standard_input_is_read() -> None:
    result = closeby("discover", "slurm", "-", "-o", "labels", stdin=TREE)
    assert result.exit_code == 0
    assert "name: n3" in result.stdout


def test_nodes_of_a_shorter_branch_are_together_to_the_scheduler(tmp_path: Path) -> None:
    text = (
        "SwitchName=C Switches=S,L9\nSwitchName=S Switches=L1\n"
        "SwitchName=L1 Nodes=n1\nSwitchName=L9 Nodes=n[8-9]"
    )
    (tmp_path / "nodes.yaml").write_text(closeby("discover", "slurm", "-", "-o", "labels", stdin=text).stdout)
    (topology,) = report("topology", "-f", tmp_path / "nodes.yaml")["topologies"]
    nodes = {tuple(one["path"]): one["nodes"] for one in topology["domains"]}
    assert nodes["C", "L9"] == 2
    assert nodes["C", "S", "L1"] == 1
