"""What switches and hosts are called."""

import pytest

from closeby.discovery.device_names import read_names
from closeby.errors import UnreadableError
from tests.discovery.drawing_fabrics import FAT_TREE, UPLINKS, Drawing, findings, paths, warned
from tests.golden.fixture import Golden


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;IB-Leaf-01:MQM8700/U1", "IB-Leaf-01"),
        ("SwitchX; leaf 1:SX60", "0000000000200000"),
        ("MF0;leaf-1", "leaf-1"),
        ("L1", "L1"),
        ("Quantum Mellanox Technologies", "0000000000200000"),
        ("MF0;:MQM8700/U1", "0000000000200000"),
        ("", "0000000000200000"),
        ("x" * 64, "0000000000200000"),
    ],
)
def test_a_switch(description: str, name: str) -> None:
    assert paths(findings(Drawing({"L1": "n1 a"}, described={"L1": description}))) == {"n1": name}


def test_switches_that_share_a_name_are_called_by_their_guids(golden: Golden) -> None:
    twins = {"L1": "MF0;leaf:MQM", "L2": "leaf"}
    found = findings(Drawing({"L1": "n1 a", "L2": "n2 a"}, "L1-S1, L2-S1", described=twins))
    assert paths(found) == {"n1": "0000000000200000/S1", "n2": "0000000000200001/S1"}
    golden("discover", warned(found)["Switch/leaf"])


def test_switches_of_one_chassis_are_distinguished_by_their_boards() -> None:
    #    S1  S2     spines and leaves are boards of one director
    #   L1 L2 L3
    boards = {name: f"MF0;ib-core:CS7500/{name[0]}0{name[1]}/U1" for name in ("L1", "L2", "L3", "S1", "S2")}
    found = findings(Drawing(FAT_TREE, UPLINKS, described=boards))
    assert paths(found)["n1"] == "ib-core-L01-U1/ib-core-S01-U1"
    assert paths(found)["n6"] == "ib-core-L03-U1/ib-core-S01-U1"
    assert found.warnings == ()


def test_boards_do_not_take_the_name_of_another_switch(golden: Golden) -> None:
    described = {"L1": "MF0;core:CS/L1", "L2": "MF0;core:CS/L2", "S1": "core-L1"}
    found = findings(Drawing({"L1": "n1 a", "L2": "n2 a"}, "L1-S1, L2-S1", described=described))
    assert paths(found) == {"n1": "0000000000200000/core-L1", "n2": "0000000000200001/core-L1"}
    golden("discover", warned(found)["Switch/core"])


def test_a_name_in_the_map_is_read_as_a_description_is(golden: Golden) -> None:
    drawing = Drawing(FAT_TREE, UPLINKS)
    text = f"""
    0x{drawing.guids["L1"]} "MF0;leaf-one:MQM9700/U1"
    0x{drawing.guids["L2"]} "rack 1 leaf"
    """
    found = findings(drawing, names=read_names("names", text))
    assert paths(found)["n1"] == "leaf-one/S1"
    assert paths(found)["n3"] == "rack 1 leaf/S1"
    assert found.nodes["n3"].labels["network.topology.kubernetes.io/block"] == "xa0d5dcb30c54fa1b"
    golden("discover", warned(found))


@pytest.mark.parametrize(
    ("description", "host"),
    [
        ("gpu-a01 mlx5_0", "gpu-a01"),
        ("gpu-a01 HCA-1", "gpu-a01"),
        ("node07", "node07"),
        ('"gpu"a02 HCA-1', '"gpu"a02'),
        ("a  b", "a"),
        ("localhost HCA-1", "localhost"),
    ],
)
def test_a_host(description: str, host: str) -> None:
    assert list(findings(Drawing({"L1": f"{description}, other a"})).nodes) == sorted((host, "other"))


@pytest.mark.parametrize(
    "description",
    [
        "MT4129 ConnectX7   Mellanox Technologies",
        "MT25408 ConnectX",
        "mlx5_0",
        "HCA-1",
        "",
    ],
)
def test_a_description_without_a_name_names_no_node(description: str) -> None:
    drawing = Drawing({"L1": f"{description or ' '}, other a"})
    assert list(findings(drawing).nodes) == ["other"]


def test_a_default_name_is_reported(golden: Golden) -> None:
    found = findings(Drawing({"L1": "localhost mlx5_0, n2 mlx5_0"}))
    golden("discover", warned(found)["Node/localhost"])


def test_an_unnamed_adapter_is_of_the_host_whose_system_it_shares() -> None:
    # Both cards of n1 sit on one board; only one has a name.
    unnamed = "MT4129 ConnectX7   Mellanox Technologies"
    systems = {"n1 mlx5_0": "abc", unnamed: "abc"}
    hosts = {"L1": "n1 mlx5_0, n2 mlx5_0", "L2": unnamed}
    found = findings(Drawing(hosts, "L1-S1, L2-S1", systems=systems))
    # L2 has n1 alone, which is on L1 too: they are rails.
    assert paths(found) == {"n1": "L1/S1", "n2": "L1/S1"}
    assert found.warnings == ()


def test_a_map_names_adapters_systems_and_switches() -> None:
    drawing = Drawing({"L1": "ubuntu, localhost mlx5_0"}, "L1-S1", systems={"localhost mlx5_0": "c0ffee"})
    text = f"""
    # as for --node-name-map
    0x{drawing.guid("ubuntu")} "node-1 HCA-1"
    0xC0FFEE node-2  # the card's system
    {drawing.guids["S1"]} "spine"
    """
    found = findings(drawing, names=read_names("names", text))
    assert paths(found) == {"node-1": "L1/spine", "node-2": "L1/spine"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0x1 a\nnode-1", r"names:2: 'node-1' is not a GUID with a name; write lines such as"),
        ("0x1 a\n0x01 b", r"names:2: 0000000000000001 is named a and b; leave one of them out"),
        ("0x12345678901234567 a", "is not a GUID"),
    ],
)
def test_a_wrong_map(text: str, why: str) -> None:
    with pytest.raises(UnreadableError, match=why):
        read_names("names", text)
