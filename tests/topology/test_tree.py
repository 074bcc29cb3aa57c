"""The tree of the KAI topology-aware scheduling design, and what becomes of nodes that lack labels."""

import numpy as np
import pytest

from closeby.objects.labels import HOSTNAME
from closeby.objects.topologies import TopologyLevel
from closeby.topology.tree import ROOT, Domain, Tree, build_tree, short_names
from tests.topology.drawing import Slots, domain, host, members

# Datacenter
# ├─ Zone-A ─┬─ Rack-A1: Node-A1 Node-A2 Node-A3
# │          ├─ Rack-A2: Node-A4
# │          └─ Rack-A3: Node-A5 Node-A6 Node-A7
# ├─ Zone-B ─┬─ Rack-B1: Node-B1 Node-B2
# │          └─ Rack-B2: Node-B3
# └─ Zone-C ─── Rack-C1: Node-C1 Node-C2
RACKS = {
    ("Zone-A", "Rack-A1"): ["Node-A1", "Node-A2", "Node-A3"],
    ("Zone-A", "Rack-A2"): ["Node-A4"],
    ("Zone-A", "Rack-A3"): ["Node-A5", "Node-A6", "Node-A7"],
    ("Zone-B", "Rack-B1"): ["Node-B1", "Node-B2"],
    ("Zone-B", "Rack-B2"): ["Node-B3"],
    ("Zone-C", "Rack-C1"): ["Node-C1", "Node-C2"],
}


def _datacenter() -> Slots:
    nodes = {name: {"zone": zone, "rack": rack} for (zone, rack), names in RACKS.items() for name in names}
    return Slots(dict(reversed(nodes.items())))


def test_few_nodes_of_a_large_tree_are_in_the_domains_of_their_labels() -> None:
    slots, count = Slots(), (1 << 14) + 64
    slots.names += [f"n{at}" for at in range(count)]
    for at in range(count):
        slots.labels.set(at, {"rack": f"r{at // 64}"}, None)
    for asked in ([0], [63, 64, 127], [count - 1]):
        tree = slots.tree("rack")  # What was asked of one before tells it to work out more.
        assert tree.owners_of_slots(asked, 0).tolist() == [at // 64 for at in asked]
        assert tree.within(Domain(1, asked[-1]), 1) == (asked[-1], asked[-1] + 1)
        assert tree.ancestor(Domain(1, asked[-1]), 0) == Domain(0, asked[-1] // 64)


def test_distances_are_those_of_the_design() -> None:
    slots = _datacenter()
    tree = slots.tree("zone", "rack")
    na1, nc1, nc2 = (host(tree, slots, name) for name in ("Node-A1", "Node-C1", "Node-C2"))

    assert tree.distance(nc1, nc2) == 2
    assert tree.distance(domain(tree, "Zone-B", "Rack-B1"), na1) == 5


def test_further_distances_in_the_same_tree() -> None:
    slots = _datacenter()
    tree = slots.tree("zone", "rack")
    na1, na4, nb1 = (host(tree, slots, name) for name in ("Node-A1", "Node-A4", "Node-B1"))

    assert tree.distance(na1, na1) == 0
    assert tree.distance(na1, na4) == 4
    assert tree.distance(na1, nb1) == 6
    assert tree.distance(na1, domain(tree, "Zone-A", "Rack-A1")) == 1
    assert tree.distance(na1, domain(tree, "Zone-A")) == 2
    assert tree.distance(na1, ROOT) == 3
    assert tree.distance(domain(tree, "Zone-A"), domain(tree, "Zone-B")) == 2
    assert tree.distance(ROOT, ROOT) == 0


def test_the_tree_lists_nodes_rack_by_rack_whatever_their_slots() -> None:
    slots = _datacenter()
    tree = slots.tree("zone", "rack")

    assert members(tree, slots, ROOT) == [name for names in RACKS.values() for name in names]
    for (zone, rack), names in RACKS.items():
        assert members(tree, slots, domain(tree, zone, rack)) == names
    assert [tree.count(level) for level in (-1, 0, 1, 2)] == [1, 3, 6, 12]
    assert tree.within(domain(tree, "Zone-B"), 1) == (3, 5)
    assert tree.level_names == ("zone", "rack", "hostname")


def test_children_of_each_domain_are_a_run_at_the_next_level() -> None:
    tree = _datacenter().tree("zone", "rack")

    assert tree.children[0].tolist() == [0, 3, 5, 6]
    assert tree.children[1].tolist() == [0, 3, 4, 7, 9, 10, 12]


def test_equal_rack_names_in_two_zones_are_two_racks() -> None:
    slots = Slots(
        {
            "n1": {"zone": "a", "rack": "r1"},
            "n2": {"zone": "b", "rack": "r1"},
            "n3": {"zone": "a", "rack": "r1"},
        }
    )
    tree = slots.tree("zone", "rack")

    assert tree.count(1) == 2
    assert members(tree, slots, domain(tree, "a", "r1")) == ["n1", "n3"]
    assert members(tree, slots, domain(tree, "b", "r1")) == ["n2"]
    assert tree.distance(host(tree, slots, "n1"), host(tree, slots, "n2")) == 6


# zone a ─┬─ rack r1: n1
#         ├─ (none): n2
#         └─ (none): n3
# (none) ─── rack r1: n4
@pytest.fixture
def partly_labelled() -> tuple[Slots, Tree]:
    slots = Slots(
        {
            "n3": {"zone": "a", "rack": ""},
            "n1": {"zone": "a", "rack": "r1"},
            "n4": {"rack": "r1"},
            "n2": {"zone": "a"},
        }
    )
    return slots, slots.tree("zone", "rack")


def test_a_node_without_a_label_lies_in_a_private_domain(partly_labelled: tuple[Slots, Tree]) -> None:
    slots, tree = partly_labelled
    n1, n2, n3, n4 = (host(tree, slots, name) for name in ("n1", "n2", "n3", "n4"))

    assert tree.distance(n2, n3) == 4
    assert tree.distance(n1, n2) == 4
    assert tree.distance(n1, n4) == 6
    assert [tree.path(one) for one in (n2, n3, n4)] == [
        ("a", None, "n2"),
        ("a", None, "n3"),
        (None, "r1", "n4"),
    ]
    assert [tree.is_labelled(tree.ancestor(one, 1)) for one in (n1, n2, n3)] == [True, False, False]
    assert not tree.is_labelled(tree.ancestor(n4, 0))


def test_a_node_without_a_label_is_part_of_the_coarser_domain(partly_labelled: tuple[Slots, Tree]) -> None:
    slots, tree = partly_labelled

    assert members(tree, slots, domain(tree, "a")) == ["n1", "n2", "n3"]


def test_private_domains_come_last_and_in_the_order_of_names(partly_labelled: tuple[Slots, Tree]) -> None:
    slots, tree = partly_labelled

    assert members(tree, slots, ROOT) == ["n1", "n2", "n3", "n4"]


def test_the_tightest_domain_is_never_a_private_one(partly_labelled: tuple[Slots, Tree]) -> None:
    slots, tree = partly_labelled
    at = {name: host(tree, slots, name).index for name in ("n1", "n2", "n3", "n4")}

    assert tree.tightest(np.array([at["n1"]])) == domain(tree, "a", "r1")
    assert tree.tightest(np.array([at["n2"]])) == domain(tree, "a")
    assert tree.tightest(np.array([at["n2"], at["n3"]])) == domain(tree, "a")
    assert tree.tightest(np.array([at["n1"], at["n4"]])) == ROOT


def test_an_ignored_value_counts_as_a_missing_label() -> None:
    slots = Slots({name: {"rack": "r1"} for name in ("n1", "n2", "n3")})
    wrong = np.array([slots.names.index("n3")])

    tree = build_tree("t", [TopologyLevel("rack")], slots.labels, slots.names, {"rack": wrong})

    assert members(tree, slots, domain(tree, "r1")) == ["n1", "n2"]
    assert tree.path(host(tree, slots, "n3")) == (None, "n3")


def test_the_hostname_can_be_the_declared_level_of_single_nodes() -> None:
    slots = Slots({"n1": {"rack": "r1", HOSTNAME: "host-1"}, "n2": {"rack": "r1"}})
    tree = slots.tree("rack", HOSTNAME)
    n1, n2 = host(tree, slots, "n1"), host(tree, slots, "n2")

    assert [level.node_label for level in tree.levels] == ["rack"]
    assert tree.level_named(HOSTNAME) == tree.level_named("hostname") == tree.node_level == 1
    assert tree.path(n1) == ("r1", "host-1")
    assert not tree.is_labelled(n2)
    assert tree.tightest(np.array([n1.index])) == n1
    assert tree.tightest(np.array([n2.index])) == domain(tree, "r1")


def test_hostname_alone_is_a_tree_too() -> None:
    slots = Slots({"n2": {HOSTNAME: "n2"}, "n1": {HOSTNAME: "n1"}})
    tree = slots.tree(HOSTNAME)

    assert tree.node_level == 0
    assert members(tree, slots, ROOT) == ["n1", "n2"]
    assert tree.distance(host(tree, slots, "n1"), host(tree, slots, "n2")) == 2


def test_a_tree_of_no_nodes_has_a_root_only() -> None:
    tree = Slots().tree("zone", "rack")

    assert tree.size == 0
    assert tree.span(ROOT) == tree.within(ROOT, 1) == (0, 0)
    assert [tree.count(level) for level in (-1, 0, 1, 2)] == [1, 0, 0, 0]


def test_levels_are_found_by_label_alias_or_short_name() -> None:
    slots = Slots({"n1": {"x.io/block": "b", "x.io/rack": "r"}})
    levels = [TopologyLevel("x.io/block"), TopologyLevel("x.io/rack", alias="row")]
    tree = build_tree("t", levels, slots.labels, slots.names)

    assert [tree.level_named(name) for name in ("x.io/block", "block", "x.io/rack", "row")] == [0, 0, 1, 1]
    assert [tree.level_named(name) for name in ("rack", "hostname", HOSTNAME)] == [None, None, None]


def test_a_short_name_that_two_levels_share_is_no_name() -> None:
    levels = [TopologyLevel("x.io/rack"), TopologyLevel("y.io/rack"), TopologyLevel("z.io/row")]

    assert short_names(levels) == ("x.io/rack", "y.io/rack", "row")


def test_a_slot_that_is_not_in_the_tree_has_no_domain() -> None:
    slots = _datacenter()
    free = slots.remove("Node-A4")
    tree = slots.tree("zone", "rack")

    assert tree.node_domain(free) is None
    assert tree.node_domain(len(slots.names) + 5) is None
    assert ("Zone-A", "Rack-A2") not in [tree.path(Domain(1, rack)) for rack in range(tree.count(1))]
