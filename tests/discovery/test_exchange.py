"""Findings as files of other tools, and back."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.discovery.assembling import ALL_LEVELS, assemble
from closeby.discovery.exchange import READERS, WRITERS, kind_of, slurm_text
from closeby.discovery.findings import ScanFindings
from closeby.discovery.labelling import Place
from closeby.discovery.slurm import read_slurm
from closeby.discovery.slurm_writing import block_lines, slurm_block_text, slurm_tree_text, slurm_yaml_text
from closeby.discovery.topograph import read_topograph, topograph_text
from closeby.report.documents.common import to_json
from tests.cli.calling import closeby

HOSTS = st.from_regex(r"[a-z]{1,3}[0-9]{1,4}(-[a-z]{1,2})?", fullmatch=True)
#: Also names that Slurm takes only under another name.
SWITCHES = st.one_of(
    st.from_regex(r"[A-Z][a-z]{0,2}[0-9]{1,3}", fullmatch=True),
    st.sampled_from(["a b", "a,b", "#1", "x[1]", 'q"', "é", "y" * 70, "back\\slash", "new\nline"]),
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Place]:
    """Places in a tree of three full levels; a switch has one parent, and names are unique per level."""
    spines = draw(st.lists(SWITCHES, min_size=1, max_size=3, unique=True))
    leaves = draw(st.lists(SWITCHES, min_size=1, max_size=6, unique=True))
    above = {leaf: draw(st.sampled_from(spines)) for leaf in leaves}
    hosts = draw(st.lists(HOSTS, min_size=1, max_size=30, unique=True))
    found: dict[str, Place] = {}
    for host in hosts:
        leaf = draw(st.sampled_from(leaves))
        found[host] = (leaf, above[leaf], "core")
    return found


def shape(findings: ScanFindings) -> list[frozenset[frozenset[str]]]:
    """Which nodes are together, per level: a network but for the names of its switches."""
    levels = []
    for level in range(max(len(node.path) for node in findings.nodes.values())):
        together: dict[str | None, set[str]] = {}
        for name, node in findings.nodes.items():
            if level < len(node.path):
                together.setdefault(node.path[level], set()).add(name)
        levels.append(frozenset(frozenset(names) for names in together.values()))
    return levels


@settings(deadline=None)
@given(trees())
def test_a_tree_survives_slurms_files(places: dict[str, Place]) -> None:
    findings = assemble(places, ALL_LEVELS)
    for file, text in (("t.conf", slurm_tree_text(findings)), ("t.yaml", slurm_yaml_text(findings))):
        back = read_slurm(file, text, ALL_LEVELS)
        assert shape(back) == shape(findings)
        assert list(back.nodes) == list(findings.nodes)


@settings(deadline=None)
@given(trees())
def test_blocks_survive_slurms_files_and_groups_stay_together(places: dict[str, Place]) -> None:
    findings = assemble(places, ALL_LEVELS)
    back = read_slurm("t.conf", slurm_block_text(findings), ALL_LEVELS)
    assert shape(back)[0] == shape(findings)[0]
    if len(block_lines(findings).sizes) == 2:
        assert shape(back)[1] == shape(findings)[1]


@settings(deadline=None)
@given(trees(), st.dictionaries(HOSTS, st.sampled_from(["nvl-1", "nvl-2"]), max_size=4))
def test_topographs_graph_gives_back_all_names(places: dict[str, Place], domains: dict[str, str]) -> None:
    findings = assemble(places, ALL_LEVELS, domains=domains)
    back = read_topograph("graph", topograph_text(findings), ALL_LEVELS)
    assert {name: node.path for name, node in back.nodes.items()} == {
        name: node.path for name, node in findings.nodes.items()
    }
    assert back.levels == findings.levels


@settings(deadline=None)
@given(trees())
def test_every_form_is_known_by_what_it_holds(places: dict[str, Place]) -> None:
    findings = assemble(places)
    for form, kind in {"slurm": "slurm", "slurm-block": "slurm", "topograph": "topograph"}.items():
        assert kind_of("file", WRITERS[form](findings)) == kind
    assert kind_of("file", slurm_yaml_text(findings)) == "slurm"
    text = to_json(findings)
    assert kind_of("file", text) == "findings"
    assert READERS["findings"]("file", text, None) == findings


def test_nodes_beside_switches_get_a_leaf_since_slurm_takes_only_one_of_the_two() -> None:
    findings = assemble({"n1": ("L1", "S1"), "n9": (None, "S1")})
    assert slurm_tree_text(findings).splitlines() == [
        "SwitchName=S1 Switches=L1,S1.leaf",
        "SwitchName=S1.leaf Nodes=n9",
        "SwitchName=L1 Nodes=n1",
    ]


def test_names_that_slurm_does_not_take_stand_in_comments() -> None:
    assert slurm_tree_text(assemble({"n1": ("a b",), "n2": ()})).splitlines() == [
        "# switch.1.1=a b",
        "SwitchName=switch.1.1 Nodes=n1",
        "# not known where: n2",
    ]


def test_groups_of_blocks_get_a_power_of_two_of_places() -> None:
    #  rack of three blocks, rack of one
    places: dict[str, Place] = {"n4": ("b4", "r2")}
    places.update({f"n{one}": (f"b{one}", "r1") for one in (1, 2, 3)})
    assert slurm_block_text(assemble(places)).splitlines() == [
        "BlockName=b1 Nodes=n1",
        "BlockName=b2 Nodes=n2",
        "BlockName=b3 Nodes=n3",
        "BlockName=empty0004",
        "BlockName=b4 Nodes=n4",
        "BlockSizes=1,4",
    ]


def test_blocks_of_slurm_keep_their_row_and_their_sizes(tmp_path: Path) -> None:
    """Sizes above the smallest block's, an order that no name says, and a place that is kept free."""
    text = "BlockName=b9 Nodes=n[1-3]\nBlockName=b1 Nodes=n[4-5]\nBlockName=free\nBlockName=b2 Nodes=n6\n"
    text += "BlockSizes=4,8\n"
    file = tmp_path / "topology.conf"
    file.write_text(text)
    assert closeby("discover", "slurm", file, "-o", "slurm-block").stdout == text
    again = tmp_path / "topology.yaml"
    again.write_text(closeby("discover", "slurm", file, "-o", "slurm-yaml").stdout)
    printed = closeby("discover", "slurm", again, "--topology", "block", "-o", "slurm-block")
    assert printed.stdout == text


def test_accelerator_domains_alone_are_blocks() -> None:
    findings = assemble({}, domains={"n1": "nvl-1", "n2": "nvl-1", "n3": "nvl-2"})
    assert slurm_text(findings).splitlines() == [
        "BlockName=nvl-1 Nodes=n[1-2]",
        "BlockName=nvl-2 Nodes=n3",
        "BlockSizes=1",
    ]


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_is_printed_with_all_levels(tmp_path: Path, form: str) -> None:
    file = tmp_path / "deep.conf"
    switches = "".join(f"SwitchName=s{one} Switches=s{one - 1}\n" for one in range(2, 7))
    file.write_text("SwitchName=s1 Nodes=n1\n" + switches)
    result = closeby("discover", "slurm", file, "-o", form)
    assert result.exit_code == 0
    assert ("s6" in result.stdout) == (form != "slurm-block")


@settings(max_examples=100)
@given(
    st.dictionaries(
        HOSTS, st.tuples(*[st.none() | st.sampled_from(["a", "b", "c d"])] * 2, st.just("top")), min_size=1
    )
)
def test_what_contradicts_itself_is_read_again_too(places: dict[str, Place]) -> None:
    """A switch under several others, or with a gap above it: no line is left without nodes or switches."""
    findings = assemble(places, ALL_LEVELS)
    for form in ("slurm", "slurm-yaml"):
        text = WRITERS[form](findings)
        assert "Nodes=\n" not in text and "nodes: ''" not in text
        found = read_slurm("x.yaml" if form == "slurm-yaml" else "x.conf", text, ALL_LEVELS)
        assert found.nodes.keys() == places.keys()
