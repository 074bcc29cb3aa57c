"""What differs between two findings."""

import json
from pathlib import Path

import pytest

from closeby.discovery.diff import Difference, diff
from closeby.discovery.findings import Link, ScanFindings
from closeby.discovery.labelling import Place, find
from tests.cli.calling import closeby

G = 10**9


def network(places: dict[str, Place], *links: Link) -> ScanFindings:
    return find(places, links=links)


def cable(a: str, b: str, cables: int = 1, bandwidth: int | None = None) -> Link:
    return Link(a=a, b=b, cables=cables, bandwidth=bandwidth)


BEFORE = network(
    {"n1": ("L1", "S1"), "n2": ("L1", "S1"), "n3": ("L2", "S1")},
    cable("L1", "S1", 2, 800 * G),
    cable("L2", "S1", 2, 800 * G),
)


def test_a_network_does_not_differ_from_itself() -> None:
    assert diff(BEFORE, BEFORE) == Difference()
    assert not diff(BEFORE, BEFORE).any


def test_nodes_move_appear_and_vanish() -> None:
    after = network({"n1": ("L1", "S1"), "n2": ("L2", "S1"), "n4": ("L2", "S1")})
    found = diff(BEFORE, after)
    assert [(one.node, one.before, one.after) for one in found.moved] == [("n2", ("L1", "S1"), ("L2", "S1"))]
    assert [one.node for one in found.appeared] == ["n4"]
    assert [one.node for one in found.vanished] == ["n3"]


def test_a_switch_with_the_nodes_of_another_one_was_renamed() -> None:
    after = network({"n1": ("X", "S1"), "n2": ("X", "S1"), "n3": ("L2", "S1")})
    found = diff(BEFORE, after)
    assert [(one.before, one.after) for one in found.renamed] == [("L1", "X")]
    assert len(found.moved) == 2


def test_links_are_compared_whatever_their_order_and_kinds() -> None:
    after = network(
        {"n1": ("L1", "S1"), "n2": ("L1", "S1"), "n3": ("L2", "S1")},
        cable("S1", "L1", 1, 400 * G),
        cable("L1", "S1", 1, 100 * G),
        cable("L1", "L2", 1, None),
    )
    found = diff(BEFORE, after)
    assert [(one.a, one.b) for one in found.slower] == [("L1", "S1")]
    assert found.slower[0].after is not None
    assert (found.slower[0].after.cables, found.slower[0].after.bandwidth) == (2, 500 * G)
    assert [(one.a, one.b) for one in found.lost] == [("L2", "S1")]
    assert [(one.a, one.b) for one in found.gained] == [("L1", "L2")]


def test_fewer_cables_are_slower_where_no_speed_is_known() -> None:
    one, two = (network({"n": ("L",)}, cable("L", "S", count)) for count in (1, 2))
    assert len(diff(two, one).slower) == 1
    assert len(diff(one, two).faster) == 1


TREE = "SwitchName=L1 Nodes=n[1-2]\nSwitchName=L2 Nodes=n3\nSwitchName=S1 Switches=L[1-2]\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.conf").write_text(TREE)
    (tmp_path / "b.conf").write_text(TREE.replace("n[1-2]", "n1").replace("n3", "n[2-3]"))
    (tmp_path / "a.json").write_text(closeby("discover", "slurm", tmp_path / "a.conf", "-o", "json").stdout)
    return tmp_path


def test_findings_and_sources_are_compared_by_what_they_hold(files: Path) -> None:
    same = closeby("discover", "diff", files / "a.json", files / "a.conf", "--exit-code")
    assert (same.exit_code, same.stdout) == (0, "no difference\n")
    result = closeby("discover", "diff", files / "a.json", files / "b.conf", "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["moved"] == [
        {"node": "n2", "before": ["L1", "S1"], "after": ["L2", "S1"]}
    ]


def test_labels_of_nodes_are_compared_with_what_a_source_says(files: Path) -> None:
    labels = closeby("discover", "slurm", files / "a.conf", "-o", "labels").stdout
    (files / "nodes.yaml").write_text(labels)
    assert closeby("discover", "diff", files / "nodes.yaml", files / "a.conf").stdout == "no difference\n"
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": {"nvidia.com/gpu.clique": one}},
        }
        for one in ("u.1", "u.2")
    ]
    for name, item in zip(("c", "d"), items, strict=True):
        (files / name).write_text(json.dumps(item))
    result = closeby(
        "discover", "diff", files / "c", files / "d", "--from", "labels:gpu-clique", "-o", "json"
    )
    assert json.loads(result.stdout)["moved"] == [{"node": "n", "before": ["u.1"], "after": ["u.2"]}]


def test_exit_code_3_says_that_there_is_a_difference(files: Path) -> None:
    result = closeby("discover", "diff", files / "a.conf", files / "b.conf", "--exit-code")
    assert result.exit_code == 3
    assert "Moved (1 node)" in result.stdout
    assert "S1/L1" in result.stdout


@pytest.mark.parametrize(
    ("content", "arguments", "complaint"),
    [
        ("hello", (), "is of no known kind; name it with --from"),
        (TREE, ("--from", "xml"), "'xml' is not a known kind"),
        ('{"levels": [], "nodes": {"n": {"path": 3}}}', (), "nodes.n.path: must be a list"),
        ('{"levels": [], "nodes": {"n": {}}}', (), "is missing"),
    ],
)
def test_what_can_not_be_compared(
    files: Path, content: str, arguments: tuple[str, ...], complaint: str
) -> None:
    (files / "c").write_text(content)
    result = closeby("discover", "diff", files / "a.conf", files / "c", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
