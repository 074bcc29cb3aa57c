"""Domains that are called otherwise, since the switch they are named by is off, over several rounds."""

from collections.abc import Mapping

import pytest

from closeby.discovery.findings import FoundNode, LinkQuality
from closeby.discovery.labelling import find
from closeby.discovery.relabelling import NodeNow, Rules, relabel
from closeby.discovery.renaming import keep_names

LEAF, SPINE = "example.com/leaf", "example.com/spine"
QOS = "network.qos.kubernetes.io/switches"


def found(text: str, qos: Mapping[str, LinkQuality] = {}) -> dict[str, FoundNode]:
    """Of ``L1/S1: n1 n2; …`` where each node is."""
    places = {}
    for one in text.split(";"):
        path, _, names = one.partition(":")
        places.update(dict.fromkeys(names.split(), tuple(path.strip().split("/"))))
    return dict(find(places, (LEAF, SPINE), quality=qos).nodes)


class Cluster:
    """Five nodes, with every change carried out."""

    def __init__(self, first: str) -> None:
        self.nodes = {name: NodeNow(name, name) for name in ("n1", "n2", "n3", "n4", "n5")}
        self.round(first)

    def round(self, seen: str, misses: int = 3, qos: Mapping[str, LinkQuality] = {}) -> dict[str, str]:
        """One more; what nodes carry then, as leaf/spine."""
        kept = keep_names("s", self.nodes.values(), found(seen, qos), misses)
        for name, node in self.nodes.items():
            one = kept.get(name)
            change = relabel(
                "s",
                node,
                None if one is None else one.found,
                Rules(misses=misses, with_quality=bool(qos)),
                missed={} if one is None else one.missed,
            )
            labels, annotations = {**node.labels, **change.labels}, {**node.annotations, **change.annotations}
            self.nodes[name] = NodeNow(
                name,
                node.uid,
                {key: value for key, value in labels.items() if value is not None},
                {key: value for key, value in annotations.items() if value is not None},
            )
        return {
            name: "/".join(node.labels.get(key, "-") for key in (LEAF, SPINE))
            for name, node in self.nodes.items()
            if node.labels
        }


TWO = "L1/S1: n1 n2; L3/S1: n3 n4"
CARRIED = {"n1": "L1/S1", "n2": "L1/S1", "n3": "L3/S1", "n4": "L3/S1"}


def test_a_domain_keeps_its_name_while_the_switch_it_has_it_of_is_off() -> None:
    # L1 and L2 are the rails of a rack, S1 and S2 spines over the same leaves.
    cluster = Cluster(TWO)
    for seen in ("L2/S1: n1 n2; L3/S1: n3 n4", "L1/S2: n1 n2; L3/S2: n3 n4", "L2/S2: n1 n2; L3/S2: n3 n4"):
        assert cluster.round(seen) == CARRIED
        assert cluster.round(TWO) == CARRIED


def test_after_so_many_rounds_it_has_the_new_name() -> None:
    cluster = Cluster(TWO)
    gone = "L2/S1: n1 n2; L3/S1: n3 n4"
    assert cluster.round(gone) == cluster.round(gone) == CARRIED
    assert cluster.round(gone) == {**CARRIED, "n1": "L2/S1", "n2": "L2/S1"}
    assert cluster.round(gone) == {**CARRIED, "n1": "L2/S1", "n2": "L2/S1"}


def test_at_once_where_one_miss_will_do() -> None:
    cluster = Cluster(TWO)
    assert cluster.round("L2/S1: n1 n2; L3/S1: n3 n4", misses=1) == {**CARRIED, "n1": "L2/S1", "n2": "L2/S1"}


def test_who_comes_meanwhile_is_with_the_others() -> None:
    cluster = Cluster(TWO)
    gone = "L2/S1: n1 n2 n5; L3/S1: n3 n4"
    assert cluster.round(gone) == cluster.round(gone) == {**CARRIED, "n5": "L1/S1"}
    assert cluster.round(gone) == {"n1": "L2/S1", "n2": "L2/S1", "n3": "L3/S1", "n4": "L3/S1", "n5": "L2/S1"}


def test_who_is_off_meanwhile_hastens_nothing() -> None:
    cluster = Cluster(TWO)
    one_off = "L1/S1: n1; L3/S1: n3 n4"
    cluster.round(one_off)
    cluster.round(one_off)
    assert cluster.round("L2/S1: n1 n2; L3/S1: n3 n4") == CARRIED


@pytest.mark.parametrize(
    ("seen", "carried"),
    [
        ("L2/S1: n1; L3/S1: n2 n3 n4", "L2/S1 L3/S1 L3/S1 L3/S1"),  # n2 moved to another rack.
        ("L7/S1: n1; L8/S1: n2; L3/S1: n3 n4", "L7/S1 L8/S1 L3/S1 L3/S1"),  # One rack is two.
        ("L7/S1: n1 n2 n3 n4", "L7/S1 L7/S1 L7/S1 L7/S1"),  # Two are one.
        ("L1/S1: n1 n2; L3/S7: n3 n4", "L1/S1 L1/S1 L3/S7 L3/S7"),  # One rack hangs on other spines.
        ("L3/S1: n1 n2; L1/S1: n3 n4", "L3/S1 L3/S1 L1/S1 L1/S1"),  # Two have changed places.
    ],
)
def test_moved_nodes_are_reported_at_once(seen: str, carried: str) -> None:
    assert list(Cluster(TWO).round(seen).values()) == carried.split()


def test_what_is_known_of_its_uplinks_goes_by_the_name_it_keeps() -> None:
    cluster = Cluster(TWO)
    quality = {"L2": LinkQuality(bandwidth=200 * 10**9, uplinks=1)}
    cluster.round("L2/S1: n1 n2; L3/S1: n3 n4", qos=quality)
    assert cluster.nodes["n1"].annotations[QOS] == '{"L1":{"bandwidth":"200Gbps","uplinks":1}}'
