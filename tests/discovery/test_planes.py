"""Planes: parts of a fabric that no cables between switches join, and which of them nodes are by."""

import json
from pathlib import Path

import pytest

from closeby.discovery.findings import Plane
from closeby.errors import UnreadableError
from tests.cli.calling import closeby
from tests.discovery.drawing_fabrics import Drawing, findings, paths, warned
from tests.golden.fixture import Golden

#     S             T
#   A   B         X   Y       A: n1 n2 n3 n4   X: n1 n3 n5 n7
#                             B: n5 n6 n7 n8   Y: n2 n4 n6 n8
HALVES = {"A": "1234", "B": "5678", "X": "1357", "Y": "2468"}
HALVES_CABLES = "A-S, B-S, X-T, Y-T"
BY_S = {f"n{n}": f"{'A' if n < 5 else 'B'}/S" for n in range(1, 9)}
BY_T = {f"n{n}": f"{'X' if n % 2 else 'Y'}/T" for n in range(1, 9)}


def hosts(leaves: dict[str, str]) -> dict[str, str]:
    """Adapters of hosts that are called by a digit each; each leaf is another rail."""
    return {leaf: ", ".join(f"n{one} {leaf}" for one in digits) for leaf, digits in leaves.items()}


@pytest.mark.parametrize(
    ("order", "expected"), [("A B X Y", BY_S), ("X A B Y", BY_T), ("Y X B A", BY_T), ("B Y X A", BY_S)]
)
def test_planes_that_contradict_each_other_are_not_mixed(order: str, expected: dict[str, str]) -> None:
    found = findings(Drawing(hosts(HALVES), HALVES_CABLES, order=order))
    assert paths(found) == expected
    one, other = ("S", "T") if expected is BY_S else ("T", "S")
    assert warned(found) == {
        f"Switch/{other}": f"the plane of {other} and the plane of {one} hold 8 common nodes and group them "
        f"differently; nodes are where that of {one} says; choose with --plane {other} or --plane {one}"
    }


@pytest.mark.parametrize(("plane", "expected"), [("S", BY_S), ("B", BY_S), ("T", BY_T), ("X", BY_T)])
def test_the_plane_of_a_switch_can_be_chosen(plane: str, expected: dict[str, str]) -> None:
    drawing = Drawing(hosts(HALVES), HALVES_CABLES)
    assert paths(findings(drawing, plane=plane)) == expected
    assert paths(findings(drawing, plane=f"0x{int(drawing.guids[plane], 16):X}")) == expected
    with pytest.raises(UnreadableError, match="scans: has no switch Z; give --plane a switch of the plane"):
        findings(drawing, plane="Z")


def test_what_the_other_plane_says_is_not_lost() -> None:
    assert findings(Drawing(hosts({**HALVES, "Y": "24689"}), HALVES_CABLES), plane="S").planes == (
        Plane(name="S", switches=3, nodes=8, labels=True),
        Plane(
            name="T",
            switches=3,
            nodes=9,
            labels=False,
            paths={f"n{n}": ("X", "T") if n in (1, 3, 5, 7) else ("Y", "T") for n in range(1, 10)},
        ),
    )


def test_nodes_that_only_the_other_plane_knows_lie_where_it_says(golden: Golden) -> None:
    found = findings(Drawing(hosts({**HALVES, "Y": "24689"}), HALVES_CABLES), plane="S")
    assert paths(found) == {**BY_S, "n9": "Y/T"}
    assert "hold 8 common nodes" in warned(found)["Switch/T"]
    golden("discover", warned(found)["Switch/T"])


def test_the_plane_with_more_racks_counts_where_hosts_are_as_many() -> None:
    #      S           T
    #    A B C        X Y       four hosts a rack, or six; the GUIDs of X and Y are lower
    leaves = {"X": "123456", "Y": "789abc", "A": "1234", "B": "5678", "C": "9abc"}
    found = findings(Drawing(hosts(leaves), "X-T, Y-T, A-S, B-S, C-S"))
    assert paths(found) == {f"n{one}": f"{leaf}/S" for leaf in "ABC" for one in leaves[leaf]}


def test_one_adapter_that_is_out_does_not_change_the_plane() -> None:
    numbers = [f"{n:02}" for n in range(20)]
    leaves = {
        "A": numbers[:10],
        "B": numbers[10:],
        "X": numbers[::2],
        "Y": numbers[1::2],
    }
    for out in ("A", "X"):
        drawn = {
            leaf: ", ".join(f"n{one} {leaf}" for one in several[leaf == out :])
            for leaf, several in leaves.items()
        }
        found = paths(findings(Drawing(drawn, HALVES_CABLES)))
        assert found["n02"] == found["n03"] == "A/S", out
        assert found["n00"] == ("X/T" if out == "A" else "A/S")


def test_the_plane_with_most_hosts_counts() -> None:
    # T has four hosts more, though its GUIDs are higher and its racks as many.
    found = findings(Drawing(hosts({**HALVES, "X": "1357abcd"}), HALVES_CABLES))
    assert paths(found) == {**BY_T, **{f"n{one}": "X/T" for one in "abcd"}}


@pytest.mark.parametrize(
    "leaves",
    [
        {"A": "1234", "B": "5678", "X": "1234", "Y": "5678"},
        # One adapter is in the wrong rack of one plane.
        {"A": "1234", "B": "5678", "X": "123", "Y": "45678"},
        # Two adapters are out.
        {"A": "1234", "B": "5678", "X": "234", "Y": "567"},
    ],
)
def test_planes_that_group_alike_are_rails_of_one_tree(leaves: dict[str, str]) -> None:
    found = findings(Drawing(hosts(leaves), HALVES_CABLES))
    assert paths(found) == BY_S
    assert all(one.labels for one in found.planes)
    assert not [one for one in found.warnings if one.object.startswith("Switch/")]


@pytest.mark.parametrize(
    ("leaves", "alike"),
    [
        pytest.param({"A": "123", "B": "4", "X": "12", "Y": "34"}, True, id="one of three is apart"),
        pytest.param({"A": "12", "B": "3", "X": "1", "Y": "23"}, False, id="both of two are apart"),
        pytest.param({"A": "1234", "B": "56", "X": "12", "Y": "3456"}, False, id="two of four are apart"),
    ],
)
def test_a_single_host_apart_is_an_adapter_in_the_wrong_rack(leaves: dict[str, str], alike: bool) -> None:
    found = findings(Drawing(hosts({**leaves, "C": "789", "Z": "789"}), f"{HALVES_CABLES}, C-S, Z-T"))
    assert [one.labels for one in found.planes] == [True, alike]


def test_a_plane_of_wider_racks_contradicts_nothing() -> None:
    # Storage: one leaf for two racks each. It is finer than nothing, and as wide as the pods.
    #      S               T
    #  A  B  C  D        X   Y
    leaves = {"A": "12", "B": "34", "C": "56", "D": "78", "X": "1234", "Y": "5678"}
    found = findings(Drawing(hosts(leaves), "A-S, B-S, C-S, D-S, X-T, Y-T", order="X Y T"))
    racks = {f"n{n}": f"{'ABCD'[(n - 1) // 2]}/S" for n in range(1, 9)}
    assert paths(found) == racks


def test_planes_of_other_hosts_with_a_common_manager_contradict_nothing() -> None:
    leaves = {"A": "12345m", "B": "6789o", "X": "abcdem", "Y": "fghijo"}
    found = findings(Drawing(hosts(leaves), HALVES_CABLES))
    assert {name[1]: path[0] for name, path in paths(found).items() if name[1] not in "mo"} == {
        **dict.fromkeys("12345", "A"),
        **dict.fromkeys("6789", "B"),
        **dict.fromkeys("abcde", "X"),
        **dict.fromkeys("fghij", "Y"),
    }


def test_pods_that_contradict_each_other() -> None:
    #      U1             V1         the racks are alike, the pods above them are not
    #   S1    S2       T1    T2
    #  A  B  C  D     W  Y  X  Z     W is A, X is B, Y is C, Z is D
    leaves = {"A": "12", "B": "34", "C": "56", "D": "78", "W": "12", "X": "34", "Y": "56", "Z": "78"}
    cables = "A-S1, B-S1, C-S2, D-S2, S1-U1, S2-U1, W-T1, Y-T1, X-T2, Z-T2, T1-V1, T2-V1"
    pods = {f"n{n}": f"{'ABCD'[(n - 1) // 2]}/S{1 + (n > 4)}/U1" for n in range(1, 9)}
    assert paths(findings(Drawing(hosts(leaves), cables))) == pods


def test_planes_are_in_the_json_and_chosen_on_the_command_line(tmp_path: Path) -> None:
    scan = tmp_path / "scan.txt"
    scan.write_text(Drawing(hosts(HALVES), HALVES_CABLES).text())
    printed = closeby("discover", "ibnetdiscover", str(scan), "--plane", "T", "-o", "json")
    told = json.loads(printed.stdout)
    assert [(one["name"], one["labels"]) for one in told["planes"]] == [("T", True), ("S", False)]
    assert told["planes"][1]["paths"]["n1"] == ["A", "S"]
    assert told["nodes"]["n1"]["path"] == ["X", "T"]
    assert "has no switch Q" in closeby("discover", "ibnetdiscover", str(scan), "--plane", "Q").stderr
