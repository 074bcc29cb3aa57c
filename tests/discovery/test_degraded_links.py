"""Uplinks and adapters that are worse than their siblings."""

from closeby.discovery.findings import LinkQuality
from tests.discovery.drawing_fabrics import Drawing, findings, warned
from tests.golden.fixture import Golden

HOSTS = {"L1": "n1 a", "L2": "n2 a", "L3": "n3 a"}


def test_uplinks_that_are_missing(golden: Golden) -> None:
    found = findings(Drawing(HOSTS, "L1-S, L1-S, L2-S, L2-S, L3-S"))
    golden("discover", warned(found))
    # What is worse is visible per switch; nothing is above the spine.
    assert found.nodes["n1"].qos == {"L1": LinkQuality(bandwidth=400_000_000_000, uplinks=2)}
    assert found.nodes["n3"].qos == {"L3": LinkQuality(bandwidth=200_000_000_000, uplinks=1)}


def test_uplinks_that_are_slower() -> None:
    found = findings(Drawing(HOSTS, "L1-S 4xEDR, L2-S, L3-S"))
    assert list(warned(found)) == ["Switch/L1"]
    assert found.nodes["n1"].qos["L1"].bandwidth == 100_000_000_000


def test_fewer_but_faster_uplinks_are_none_the_worse() -> None:
    assert warned(findings(Drawing(HOSTS, "L1-S 4xNDR, L2-S, L2-S, L3-S, L3-S"))) == {}


def test_one_with_more_makes_the_others_none_the_worse() -> None:
    found = findings(Drawing(HOSTS, "L1-S, L1-S, L2-S, L3-S"))
    assert warned(found) == {}
    assert found.nodes["n1"].qos["L1"].bandwidth == 400_000_000_000


def test_without_speeds_cables_are_counted(golden: Golden) -> None:
    found = findings(Drawing(HOSTS, "L1-S, L1-S, L2-S, L2-S, L3-S", rate=""))
    golden("discover", warned(found)["Switch/L3"])
    assert found.nodes["n3"].qos == {"L3": LinkQuality(uplinks=1)}


def test_leaves_of_different_pods_are_no_siblings() -> None:
    cables = "L1-S, L2-S, L3-T, L3-T, S-C, T-C"
    assert warned(findings(Drawing(HOSTS, cables))) == {}


def test_a_spine_with_fewer_cables_to_the_cores() -> None:
    found = findings(Drawing(HOSTS, "L1-S, L2-T, L3-U, S-C, S-C, T-C, T-C, U-C"))
    assert list(warned(found)) == ["Switch/U"]
    assert found.nodes["n3"].qos == {
        "L3": LinkQuality(bandwidth=200_000_000_000, uplinks=1),
        "U": LinkQuality(bandwidth=200_000_000_000, uplinks=1),
    }


def test_one_of_two_adapters_is_not_most_of_them() -> None:
    for first, second in (("4xHDR", "1xHDR"), ("1xHDR", "4xHDR")):
        assert warned(findings(Drawing({"L1": f"n1 a @{first}, n2 a @{second}"}))) == {}


def test_an_adapter_that_is_slower_than_the_others_on_its_switch(golden: Golden) -> None:
    text = Drawing({"L1": "n1 a, n2 a, n3 a"}).text()
    found = findings(text.replace('"n2 a" lid 4 4xHDR', '"n2 a" lid 4 1xHDR'))
    golden("discover", warned(found))
