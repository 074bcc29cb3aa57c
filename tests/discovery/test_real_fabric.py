"""The scan of a real fabric: 40 switches, 582 adapters, four rails a rack, some of them without a name."""

import re

import pytest

from closeby.discovery.fabric_findings import fabric_findings, read_scans
from closeby.discovery.findings import ScanFindings
from closeby.errors import UnreadableError
from tests.discovery.drawing_fabrics import paths
from tests.real_input import shared_data

#: The racks with hosts per leaf; the scan has no switch A09-P1-IBLEAF-03-01.
RACKS = {
    "a05-p1-dgx-01": "A09-P1-IBLEAF-0{}-01",
    "a06-p1-dgx-02": "A09-P1-IBLEAF-0{}-02",
    "a07-p1-dgx-03": "A09-P1-IBLEAF-0{}-03",
    "a08-p1-dgx-04": "A09-P1-IBLEAF-0{}-04",
    "b05-p1-dgx-05": "B09-P1-IBLEAF-0{}-05",
    "b06-p1-dgx-06": "B09-P1-IBLEAF-0{}-06",
    "b07-p1-dgx-07": "B09-P1-IBLEAF-0{}-07",
    "b08-p1-dgx-08": "B09-P1-IBLEAF-0{}-08",
}
LEAF = re.compile(r"[AB]09-P1-IBLEAF-0[1-4]-0[1-8]")


@pytest.fixture(scope="module")
def found() -> ScanFindings:
    path = shared_data("infiniband/topograph-example.out")
    with path.open("rb") as stream:
        return fabric_findings(path.name, read_scans([(path.name, stream)]))


def test_every_host_is_on_the_leaves_of_its_rack(found: ScanFindings) -> None:
    assert len(found.nodes) == 122
    for name, node in found.nodes.items():
        rack = name.rpartition("-")[0]
        if rack in RACKS:
            # One of the rack's four leaves gives its name to all of them.
            assert node.path[0] in {RACKS[rack].format(rail) for rail in (1, 2, 3, 4)}, name
    assert {name for name in found.nodes if name.rpartition("-")[0] not in RACKS} == {
        "B11-P1-CUFM-02",
        "localhost",
        "ubuntu",
    }
    # All hosts of a rack are in one domain, and no two racks share one.
    domains: dict[str, set[str | None]] = {}
    for name, node in found.nodes.items():
        domains.setdefault(name.rpartition("-")[0], set()).add(node.path[0])
    assert all(len(domains[rack]) == 1 for rack in RACKS)
    assert len(set.union(*(domains[rack] for rack in RACKS))) == len(RACKS)


def test_every_host_has_cables_to_the_leaves_that_the_scan_tells(found: ScanFindings) -> None:
    text = shared_data("infiniband/topograph-example.out").read_text()
    # Straight from the records of adapters: who has a cable to which switch.
    told = re.findall(
        r'^Ca\s+\d+ "[^"]+"\s+# "(\S+) \S+"\n\[1\]\(\w+\)\s+"S-\w+"\[\d+\]\s+# lid \d+ lmc 0 "MF0;([^:]+):',
        text,
        re.M,
    )
    assert len(told) == 473
    assert {(link.a, link.b) for link in found.links if link.a in found.nodes} >= set(told)


def test_every_leaf_lies_under_the_spines(found: ScanFindings) -> None:
    (top,) = {path.rpartition("/")[2] for path in paths(found).values()}
    assert top == "B10-P1-IBSPINE-07"
    uplinks: dict[str, set[str]] = {}
    for link in found.links:
        if LEAF.fullmatch(link.a):
            uplinks.setdefault(link.a, set()).add(link.b)
    assert len(uplinks) == 31
    assert all(re.fullmatch(r"[AB]10-P1-IBSPINE-0[1-9]", one) for leaf in uplinks.values() for one in leaf)
    assert found.levels == ("block", "datacenter")


def test_leaves_with_fewer_uplinks_are_degraded(found: ScanFindings) -> None:
    degraded = {one.object for one in found.warnings if one.reason == "BandwidthRisk"}
    # Of 31 leaves 19 have all 18 uplinks.
    assert len(degraded) == 12
    assert "Switch/A09-P1-IBLEAF-01-02" in degraded
    assert "Switch/B09-P1-IBLEAF-04-05" not in degraded
    speeds = {(link.width, link.speed) for link in found.links}
    assert speeds == {("4x", "NDR")}


def test_adapters_without_a_name_are_reported(found: ScanFindings) -> None:
    said = " ".join(one.message for one in found.warnings if "no host is known" in one.message)
    assert len(re.findall(r"\b[0-9a-f]{16}\b", said)) == 69
    assert not any("Mellanox" in name for name in found.nodes)


@pytest.mark.parametrize("name", ["fattree.ibnetdiscover.txt", "twoplane_sm.default.txt"])
def test_what_the_simulator_printed(name: str) -> None:
    path = shared_data(f"infiniband/{name}")
    with path.open("rb") as stream:
        found = fabric_findings(path.name, read_scans([(path.name, stream)]))
    expected = {
        "fattree.ibnetdiscover.txt": {f"node0{number}": f"L{(number + 1) // 2}/S1" for number in range(1, 9)},
        "twoplane_sm.default.txt": dict.fromkeys(("gpu-a01", "gpu-a02"), "IB-Leaf-P0-01/IB-Spine-P0-01"),
    }
    assert paths(found) == expected[name]


def test_a_cache_is_refused_with_advice() -> None:
    with (
        shared_data("infiniband/twoplane_sm.cache").open("rb") as stream,
        pytest.raises(UnreadableError, match="--load-cache"),
    ):
        read_scans([("cache", stream)])
