"""Which tree comes out of which fabric."""

import pytest

from closeby.errors import UnreadableError
from tests.discovery.drawing_fabrics import FAT_TREE, UPLINKS, Drawing, findings, paths, warned
from tests.golden.fixture import Golden

ALL_UNDER_S1 = {"n1": "L1/S1", "n2": "L1/S1", "n3": "L2/S1", "n4": "L2/S1", "n5": "L3/S1", "n6": "L3/S1"}


def test_spines_over_the_same_leaves_are_one_named_by_the_lowest_guid() -> None:
    found = findings(Drawing(FAT_TREE, UPLINKS))
    assert paths(found) == ALL_UNDER_S1
    assert found.levels == ("block", "datacenter")
    assert found.nodes["n3"].labels == {
        "network.topology.kubernetes.io/block": "L2",
        "network.topology.kubernetes.io/datacenter": "S1",
    }
    assert found.warnings == ()


def test_the_lowest_guid_is_not_the_first_name() -> None:
    assert set(paths(findings(Drawing(FAT_TREE, UPLINKS, order="S2 S1"))).values()) == {
        "L1/S2",
        "L2/S2",
        "L3/S2",
    }


@pytest.mark.parametrize("dead", ["L1-S1, ", "L2-S1, ", ", L3-S2"])
def test_a_dead_cable_does_not_part_the_spines(dead: str) -> None:
    found = findings(Drawing(FAT_TREE, UPLINKS.replace(dead, "")))
    assert paths(found) == ALL_UNDER_S1
    leaf = dead.strip(", ").partition("-")[0]
    assert (
        "are degraded: 1 cable of 200Gbps together, where its siblings have 2 cables"
        in (warned(found)[f"Switch/{leaf}"])
    )


def test_two_pods_under_cores() -> None:
    #        C1
    #   S1        S2
    # L1  L2    L3  L4
    hosts = {"L1": "n1 a", "L2": "n2 a", "L3": "n3 a", "L4": "n4 a"}
    found = findings(Drawing(hosts, "L1-S1, L2-S1, L3-S2, L4-S2, S1-C1, S2-C1, S1-C2, S2-C2"))
    assert found.levels == ("block", "datacenter", "zone")
    assert paths(found) == {"n1": "L1/S1/C1", "n2": "L2/S1/C1", "n3": "L3/S2/C1", "n4": "L4/S2/C1"}


def test_a_leaf_without_hosts_is_no_core() -> None:
    # All hosts of L3 are off, so it stands over the spines as a core would.
    found = findings(Drawing({"L1": "n1 a", "L2": "n2 a", "L3": ""}, UPLINKS))
    assert paths(found) == {"n1": "L1/S1", "n2": "L2/S1"}
    assert found.levels == ("block", "datacenter")


def test_a_leaf_with_unnamed_hosts_alone_is_a_leaf(golden: Golden) -> None:
    hosts = {**FAT_TREE, "L3": "MT4129 ConnectX7   Mellanox Technologies"}
    found = findings(Drawing(hosts, UPLINKS))
    assert paths(found) == {name: path for name, path in ALL_UNDER_S1.items() if name not in ("n5", "n6")}
    golden("discover", warned(found)["Switch/L3"])


def test_aggregation_nodes_are_no_hosts() -> None:
    hosts = {**FAT_TREE, "S1": "Mellanox Technologies Aggregation Node", "S2": "Quantum Aggregation Node"}
    found = findings(Drawing(hosts, UPLINKS))
    assert paths(found) == ALL_UNDER_S1
    assert found.warnings == ()


def test_a_host_on_a_spine_has_no_leaf(golden: Golden) -> None:
    hosts = {**FAT_TREE, "S1": "manager mlx5_0"}
    found = findings(Drawing(hosts, UPLINKS))
    assert paths(found) == {"manager": "-/S1", **ALL_UNDER_S1}
    assert found.nodes["manager"].path == (None, "S1")
    assert found.nodes["manager"].labels == {"network.topology.kubernetes.io/datacenter": "S1"}
    golden("discover", warned(found)["Switch/S1"])


#       C1  C2          two pods of two leaves under two cores each, two hosts a leaf
#    S1 S2   T1 T2
#   A  B       D  E
PODS = {leaf: ", ".join(f"{leaf.lower()}{number} m" for number in (1, 2, 3, 4)) for leaf in "ABDE"}
POD_CABLES = (
    "A-S1, A-S1, A-S2, A-S2, B-S1, B-S1, B-S2, B-S2, D-T1, D-T1, D-T2, D-T2, E-T1, E-T1, E-T2, E-T2, "
    "S1-C1, S1-C2, S2-C1, S2-C2, T1-C1, T1-C2, T2-C1, T2-C2"
)
IN_PODS = {
    f"{leaf.lower()}{number}": f"{leaf}/{'S1' if leaf in 'AB' else 'T1'}/C1"
    for leaf in PODS
    for number in (1, 2, 3, 4)
}


@pytest.mark.parametrize("order", ["", "C1 S1 T1", "C1 C2 S1 S2 T1 T2 E D B A"])
@pytest.mark.parametrize("more", [{"C1": "u1 m"}, {"C1": "u1 m", "C2": "u2 m"}, {"C1": "x a", "C2": "x b"}])
def test_hosts_on_the_cores_change_no_level(more: dict[str, str], order: str, golden: Golden) -> None:
    found = findings(Drawing({**PODS, **more}, POD_CABLES, order=order))
    told = {one.split()[0] for several in more.values() for one in several.split(", ")}
    assert paths(found) == {**IN_PODS, **dict.fromkeys(told, "-/-/C1")}
    golden("discover", warned(found)["Switch/C1"])


@pytest.mark.parametrize("order", ["", "STORE C1 S1 T1"])
def test_a_leaf_cabled_straight_to_the_cores_lies_beside_the_pods(order: str, golden: Golden) -> None:
    hosts = {**PODS, "STORE": "s1 m, s2 m, s3 m"}
    found = findings(Drawing(hosts, POD_CABLES + ", STORE-C1, STORE-C2", order=order))
    assert paths(found) == {**IN_PODS, **dict.fromkeys(("s1", "s2", "s3"), "STORE/-/C1")}
    assert found.levels == ("block", "datacenter", "zone")
    golden("discover", warned(found))
    assert found.nodes["s1"].qos["STORE"].uplinks == 2


def test_one_cable_of_a_leaf_to_a_core_changes_nothing() -> None:
    found = findings(Drawing(PODS, POD_CABLES + ", A-C1"))
    assert paths(found) == IN_PODS
    assert found.warnings == ()


def test_cables_between_leaves_do_not_make_a_leaf_of_a_spine_with_a_host(golden: Golden) -> None:
    # S1 has a manager, and L1 a cable to L2.
    cables = ", ".join(f"L{leaf}-S{spine}" for leaf in (1, 2, 3, 4) for spine in (1, 2) for _ in (1, 2))
    hosts = {f"L{leaf}": f"n{leaf} a, m{leaf} a, o{leaf} a, p{leaf} a" for leaf in (1, 2, 3, 4)}
    found = findings(Drawing({**hosts, "S1": "manager a"}, cables + ", L1-L2"))
    leaves = {f"{name}{leaf}": f"L{leaf}/S1" for name in "nmop" for leaf in (1, 2, 3, 4)}
    assert paths(found) == {**leaves, "manager": "-/S1"}
    golden("discover", warned(found)["Switch/L1"])


def test_storage_on_all_spines_leaves_them_spines(golden: Golden) -> None:
    cables = ", ".join(f"L{leaf}-S{spine}" for leaf in (1, 2, 3, 4) for spine in (1, 2) for _ in "1234")
    hosts = {f"L{leaf}": ", ".join(f"n{leaf}{one} a" for one in "abcdefgh") for leaf in (1, 2, 3, 4)}
    storage = {f"S{spine}": ", ".join(f"s{one} m{spine}" for one in "abcdef") for spine in (1, 2)}
    found = findings(Drawing({**hosts, **storage}, cables))
    assert found.levels == ("block", "datacenter")
    assert {name: path for name, path in paths(found).items() if name[0] == "n"} == {
        f"n{leaf}{one}": f"L{leaf}/S1" for leaf in (1, 2, 3, 4) for one in "abcdefgh"
    }
    assert paths(found)["sa"] == "-/S1"
    golden("discover", warned(found)["Switch/S1"])


def test_a_leaf_with_few_hosts_and_stray_cables_is_a_leaf() -> None:
    # L1 has one host left, and a cable each to L2 and L3.
    hosts = {"L1": "n1 a", **{f"L{leaf}": f"n{leaf} a, m{leaf} a, o{leaf} a" for leaf in (2, 3, 4)}}
    cables = ", ".join(f"L{leaf}-S{spine}" for leaf in (1, 2, 3, 4) for spine in (1, 2, 3))
    found = findings(Drawing(hosts, cables + ", L1-L2, L1-L3"))
    assert {paths(found)[f"n{leaf}"] for leaf in (1, 2, 3, 4)} == {f"L{leaf}/S1" for leaf in (1, 2, 3, 4)}


def test_rails_of_a_rack_are_one_leaf() -> None:
    # Two rails a rack; n4's second adapter is out, and n9's too.
    hosts = {
        "A1": "n1 mlx5_0, n2 mlx5_0, n3 mlx5_0, n4 mlx5_0",
        "A2": "n1 mlx5_1, n2 mlx5_1, n3 mlx5_1",
        "B1": "n7 mlx5_0, n8 mlx5_0, n9 mlx5_0",
        "B2": "n7 mlx5_1, n8 mlx5_1",
    }
    found = findings(Drawing(hosts, "A1-S1, A2-S1, B1-S1, B2-S1"))
    assert paths(found) == {
        **{f"n{number}": "A1/S1" for number in (1, 2, 3, 4)},
        **{f"n{number}": "B1/S1" for number in (7, 8, 9)},
    }
    assert found.warnings == ()


def test_a_host_in_several_racks_joins_none_of_them(golden: Golden) -> None:
    # A manager with three adapters; or three machines that nobody has named yet, the last alone in its rack.
    hosts = {
        "A": "n1 mlx5_0, n2 mlx5_0, n3 mlx5_0, m mlx5_0",
        "B": "n4 mlx5_0, n5 mlx5_0, n6 mlx5_0, m mlx5_1",
        "C": "m mlx5_2",
    }
    found = findings(Drawing(hosts, "A-S, B-S, C-S"))
    racks = {f"n{number}": f"{'AB'[number > 3]}/S" for number in range(1, 7)}
    assert paths(found) == {"m": "A/S", **racks}
    # C has no hosts but m, so it is of the rack of A.
    golden("discover", warned(found)["Node/m"])


@pytest.mark.parametrize("order", ["A1 B1", "B1 A1", "A4 B4 A3 B3", "B4 A4 B3 A3"])
def test_a_host_with_one_miscabled_adapter_stays_in_its_rack(order: str) -> None:
    # Two racks of four rails; the fourth adapter of b2 is plugged into the other rack.
    #   A1 A2 A3 A4 | B1 B2 B3 B4
    #    a1 a2 a3   |  b1 b2 b3      b2: B1 B2 B3 A4
    hosts = {f"A{rail}": f"a1 m{rail}, a2 m{rail}, a3 m{rail}" for rail in (1, 2, 3, 4)}
    hosts |= {f"B{rail}": f"b1 m{rail}, b2 m{rail}, b3 m{rail}" for rail in (1, 2, 3)}
    hosts |= {"A4": hosts["A4"] + ", b2 m4", "B4": "b1 m4, b3 m4"}
    drawing = Drawing(hosts, ", ".join(f"{leaf}-S" for leaf in hosts), order=order)
    found = findings(drawing)
    a, b = (min((leaf for leaf in hosts if leaf[0] == rack), key=drawing.guids.__getitem__) for rack in "AB")
    assert paths(found) == {f"{rack}{n}": f"{of}/S" for rack, of in (("a", a), ("b", b)) for n in (1, 2, 3)}
    assert warned(found)["Node/b2"].startswith(
        f"b2 has 3 of 4 cables to {b} and counts for it; the other one, to {a}, may be miscabled"
    )


@pytest.mark.parametrize("order", ["R0", "A1 A2 A3 B1 B2 B3 R0"])
def test_hosts_that_share_one_rail_with_a_larger_rack_stay_in_their_own(order: str, golden: Golden) -> None:
    #   A1 A2 A3 |        | B1 B2 B3
    #   a1 … a8  | all R0 | b1 b2
    hosts = {"R0": ", ".join(f"{name} m0" for name in ("b1", "b2", *(f"a{n}" for n in range(1, 9))))}
    hosts |= {f"A{rail}": ", ".join(f"a{n} m{rail}" for n in range(1, 9)) for rail in (1, 2, 3)}
    hosts |= {f"B{rail}": f"b1 m{rail}, b2 m{rail}" for rail in (1, 2, 3)}
    found = findings(Drawing(hosts, ", ".join(f"{leaf}-S" for leaf in hosts), order=order))
    a = "R0" if order == "R0" else "A1"
    assert paths(found) == {"b1": "B1/S", "b2": "B1/S", **{f"a{n}": f"{a}/S" for n in range(1, 9)}}
    golden("discover", warned(found)["Node/b1"])


def test_the_wider_way_counts_where_cables_are_as_many() -> None:
    # m is on two racks, the slower way on that of the lower GUID.
    hosts = {"A": "n1 a, n2 a, n3 a, m a @4xHDR", "B": "n4 a, n5 a, n6 a, m b @4xNDR"}
    assert paths(findings(Drawing(hosts, "A-S, B-S")))["m"] == "B/S"
    assert paths(findings(Drawing({**hosts, "B": "n4 a, n5 a, n6 a, m b @4xHDR"}, "A-S, B-S")))["m"] == "A/S"


def test_a_domain_under_two_others_lies_under_that_with_more_cables(golden: Golden) -> None:
    #   S1      S2        one cable of L3 goes to S1
    # L1  L2 + L3  L4
    hosts = {"L1": "n1 a", "L2": "n2 a", "L3": "n3 a", "L4": "n4 a"}
    found = findings(Drawing(hosts, "L1-S1, L2-S1, L3-S1, L3-S2, L3-S2, L4-S2, L4-S2, S1-C, S2-C"))
    assert paths(found) == {"n1": "L1/S1/C", "n2": "L2/S1/C", "n3": "L3/S2/C", "n4": "L4/S2/C"}
    golden("discover", warned(found)["Switch/L3"])


def test_half_of_the_hosts_is_not_enough_for_a_rail(golden: Golden) -> None:
    hosts = {"A": "n1 mlx5_0, n2 mlx5_0", "B": "n2 mlx5_1, n3 mlx5_0"}
    found = findings(Drawing(hosts, "A-S, B-S"))
    assert paths(found) == {"n1": "A/S", "n2": "A/S", "n3": "B/S"}
    golden("discover", warned(found)["Node/n2"])


def test_planes_are_trees_of_their_own() -> None:
    hosts = {"L1": "n1 a", "L2": "n2 a", "M1": "m1 a", "M2": "m2 a"}
    found = findings(Drawing(hosts, "L1-S1, L2-S1, M1-T1, M2-T1"))
    assert paths(found) == {"m1": "M1/T1", "m2": "M2/T1", "n1": "L1/S1", "n2": "L2/S1"}


def test_planes_with_the_same_hosts_are_rails() -> None:
    hosts = {"L1": "n1 mlx5_0, n2 mlx5_0", "L2": "n3 mlx5_0, n4 mlx5_0"}
    others = {"M1": "n1 mlx5_1, n2 mlx5_1", "M2": "n3 mlx5_1, n4 mlx5_1"}
    found = findings(Drawing({**hosts, **others}, "L1-S1, L2-S1, M1-T1, M2-T1"))
    assert paths(found) == {"n1": "L1/S1", "n2": "L1/S1", "n3": "L2/S1", "n4": "L2/S1"}
    assert found.warnings == ()


@pytest.mark.parametrize("uplink", ["", ", STORE-S1"])
@pytest.mark.parametrize(
    "store", ["n1 n2 n3 n4 n5 n6 n7 n8 m", "n2 n3 n4 n6 n7 n8", "n1 n2 n3 n5 n6 n7 s1 s2"]
)
def test_a_network_for_storage_joins_no_racks_whatever_is_out(store: str, uplink: str) -> None:
    """With a manager that is in both; with a dead cable in each; with servers of its own."""
    hosts = {
        "STORE": ", ".join(f"{name} b" for name in store.split()),
        "L1": "n1 a, n2 a, n3 a, n4 a, m a",
        "L2": "n5 a, n6 a, n7 a, n8 a, m c",
    }
    found = paths(findings(Drawing(hosts, "L1-S1, L2-S1" + uplink)))
    racks = {f"n{number}": f"L{1 + (number > 4)}/S1" for number in range(1, 9)}
    assert {name: found[name] for name in racks} == racks


def test_a_rail_with_a_host_of_its_own_is_a_rail_nonetheless() -> None:
    # m has an adapter on one rail, and is alone on a leaf elsewhere.
    hosts = {"A1": "n1 a, n2 a, n3 a, n4 a, m a", "A2": "n1 b, n2 b, n3 b, n4 b", "C": "m b"}
    found = findings(Drawing(hosts, "A1-S, A2-S, C-S"))
    assert paths(found) == {"m": "A1/S", **{f"n{number}": "A1/S" for number in (1, 2, 3, 4)}}
    assert list(warned(found)) == ["Node/m"]


@pytest.mark.parametrize("uplink", ["", ", STORE-S1"])
def test_a_network_for_storage_does_not_join_the_racks(uplink: str, golden: Golden) -> None:
    # Every host has a second adapter on one large switch, of a plane of its own or under the same spine.
    hosts = {
        "STORE": "n1 mlx5_9, n2 mlx5_9, n3 mlx5_9, n4 mlx5_9",
        "L1": "n1 mlx5_0, n2 mlx5_0",
        "L2": "n3 mlx5_0, n4 mlx5_0",
    }
    cables = "L1-S1, L1-S1, L2-S1, L2-S1" + uplink
    found = findings(Drawing(hosts, cables, order="STORE"))
    expected = {"n1": "L1/S1", "n2": "L1/S1", "n3": "L2/S1", "n4": "L2/S1"}
    assert paths(found) == expected
    told = {name: text for name, text in warned(found).items() if name.startswith("Node/")}
    # A line for each rack, and not for each host.
    assert list(told) == ["Node/n1", "Node/n3"]
    golden("discover", told["Node/n1"])
    # Who says which adapters count hears nothing more of it.
    chosen = findings(Drawing(hosts, cables, order="STORE"), adapters="mlx5_[0-7]")
    assert paths(chosen) == expected
    assert not [one for one in chosen.warnings if one.object.startswith("Node/")]


def test_scans_of_two_planes_are_joined() -> None:
    #  The first scan does not see L2, and both see the spine.
    one = Drawing({"L1": "n1 a"}, "L1-S1", order="S1 L1 L2")
    other = Drawing({"L1": "n1 a", "L2": "n2 a"}, "L1-S1, L2-S1", order="S1 L1 L2")
    assert paths(findings(one, other)) == paths(findings(other, one)) == {"n1": "L1/S1", "n2": "L2/S1"}


def test_an_isolated_leaf_is_reported(golden: Golden) -> None:
    found = findings(Drawing(FAT_TREE, UPLINKS.replace("L3-S1, ", "").replace(", L3-S2", "")))
    assert paths(found) == {**ALL_UNDER_S1, "n5": "L3", "n6": "L3"}
    golden("discover", warned(found))


def test_leaves_in_a_ring_are_reported_and_lie_side_by_side(golden: Golden) -> None:
    found = findings(Drawing(FAT_TREE, "L1-L2, L2-L3, L3-L1"))
    assert set(paths(found).values()) == {"L1", "L2", "L3"}
    golden("discover", warned(found))
    assert {(one.a, one.b) for one in found.links if one.a.startswith("L")} == {
        ("L1", "L2"),
        ("L1", "L3"),
        ("L2", "L3"),
    }


def test_dragonfly_plus_is_one_warning(golden: Golden) -> None:
    #  groups G and H and K of two leaves under two spines; spines of a number are cabled to each other
    groups = "GHK"
    hosts = {f"{g}{leaf}": f"{g}{leaf}a m, {g}{leaf}b m" for g in groups for leaf in (1, 2)}
    up = [f"{g}{leaf}-{g}S{spine}" for g in groups for leaf in (1, 2) for spine in (1, 2)]
    across = [f"{one}S{spine}-{other}S{spine}" for one, other in ("GH", "GK", "HK") for spine in (1, 2)]
    found = findings(Drawing(hosts, ", ".join(up + across)))
    assert paths(found) == {
        f"{g}{leaf}{host}": f"{g}{leaf}/{g}S1" for g in groups for leaf in (1, 2) for host in "ab"
    }
    golden("discover", warned(found))


def test_a_few_cables_among_leaves_are_one_warning(golden: Golden) -> None:
    found = findings(Drawing(FAT_TREE, UPLINKS + ", L1-L2, L1-L2, L2-L3"))
    assert paths(found) == ALL_UNDER_S1
    golden("discover", warned(found))


def test_only_one_switch() -> None:
    found = findings(Drawing({"L1": "n1 a, n2 a"}))
    assert paths(found) == {"n1": "L1", "n2": "L1"}
    assert found.levels == ("block",)


def test_keys_of_ones_own() -> None:
    found = findings(Drawing(FAT_TREE, UPLINKS), keys=("example.com/leaf", "other.com/spine"))
    assert found.levels == ("leaf", "spine")
    assert found.nodes["n1"].labels == {"example.com/leaf": "L1", "other.com/spine": "S1"}
    only = findings(Drawing(FAT_TREE, UPLINKS), keys=("example.com/leaf",))
    assert (only.levels, only.nodes["n1"].path) == (("leaf",), ("L1",))


def test_more_levels_than_keys_are_reported() -> None:
    # Four ranks: D over C1 and C2, which are over two spines each.
    hosts = {f"L{number}": f"n{number} a, m{number} a" for number in range(1, 5)}
    found = findings(Drawing(hosts, "L1-S1, L2-S2, L3-S3, L4-S4, S1-C1, S2-C1, S3-C2, S4-C2, C1-D, C2-D"))
    assert found.nodes["n1"].path == ("L1", "S1", "C1")
    assert "has 4 levels" in warned(found)["Topology/network"]


def test_the_order_of_records_does_not_matter() -> None:
    text = Drawing(FAT_TREE, UPLINKS).text()
    header, *records = text.split("\n\n")
    assert findings("\n\n".join((header, *reversed(records)))) == findings(text)


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ({"L1": ""}, "holds no host"),
        (
            {"L1": "MT4129 ConnectX7   Mellanox Technologies"},
            "no host is known by its adapters' descriptions",
        ),
        ({"L1": "mlx5_0"}, "no host is known"),
    ],
)
def test_without_hosts_there_is_nothing_to_say(hosts: dict[str, str], why: str) -> None:
    with pytest.raises(UnreadableError, match=why):
        findings(Drawing(hosts, "L1-S1"))


def test_no_adapter_counts() -> None:
    with pytest.raises(UnreadableError, match=r"no adapter matches HCA-\*"):
        findings(Drawing(FAT_TREE, UPLINKS), adapters="HCA-*")
