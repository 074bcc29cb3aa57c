"""Several topologies side by side, each rebuilt only when it must be."""

import pytest

from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import Found, Topology, TopologyLevel
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT, Tree
from tests.topology.drawing import Slots, domain, members


def topology(name: str, *labels: str, conditions: tuple[Condition, ...] = ()) -> Topology:
    return Topology(name=name, levels=tuple(TopologyLevel(label) for label in labels), conditions=conditions)


def problem(*, blocking: bool) -> Condition:
    return Condition(
        reason=Reason.INVALID_SPEC, object="Topology/bad", message="two levels are equal", blocking=blocking
    )


def tree_of(topologies: Topologies, name: str) -> Tree:
    tree = topologies.tree(name)
    assert tree is not None, f"no tree {name}"
    return tree


# network: rack r1 (n1 n2)  rack r2 (n3 n4)
# power:   feed f1 (n1 n3)  feed f2 (n2 n4)
@pytest.fixture
def slots() -> Slots:
    return Slots(
        {
            "n1": {"rack": "r1", "feed": "f1", "disk": "ssd"},
            "n2": {"rack": "r1", "feed": "f2", "disk": "ssd"},
            "n3": {"rack": "r2", "feed": "f1", "disk": "ssd"},
            "n4": {"rack": "r2", "feed": "f2", "disk": "ssd"},
        }
    )


@pytest.fixture
def topologies(slots: Slots) -> Topologies:
    both = Topologies(slots.labels, slots.names)
    both.declare(topology("network", "rack"))
    both.declare(topology("power", "feed"))
    return both


def test_topologies_lie_side_by_side(slots: Slots, topologies: Topologies) -> None:
    network, power = tree_of(topologies, "network"), tree_of(topologies, "power")

    assert members(network, slots, domain(network, "r1")) == ["n1", "n2"]
    assert members(power, slots, domain(power, "f1")) == ["n1", "n3"]
    assert [one.name for one in topologies] == ["network", "power"]
    assert topologies.usable() == ("network", "power")


def test_a_tree_stays_while_no_label_of_a_topology_changes(slots: Slots, topologies: Topologies) -> None:
    network, power = tree_of(topologies, "network"), tree_of(topologies, "power")

    slots.labels.set(0, {"rack": "r1", "feed": "f1", "disk": "hdd", "new": "label"})

    assert tree_of(topologies, "network") is network
    assert tree_of(topologies, "power") is power


def test_a_changed_label_moves_the_node(slots: Slots, topologies: Topologies) -> None:
    before = tree_of(topologies, "network")

    slots.labels.set(slots.names.index("n2"), {"rack": "r2", "feed": "f2"})

    after = tree_of(topologies, "network")
    assert after is not before
    assert members(after, slots, domain(after, "r2")) == ["n2", "n3", "n4"]
    assert tree_of(topologies, "network") is after


def test_a_removed_label_makes_the_domain_private(slots: Slots, topologies: Topologies) -> None:
    slots.labels.set(slots.names.index("n2"), {"feed": "f2"})

    network = tree_of(topologies, "network")
    assert members(network, slots, domain(network, "r1")) == ["n1"]
    assert members(network, slots, ROOT) == ["n1", "n3", "n4", "n2"]


def test_a_slot_is_reused_by_another_node(slots: Slots, topologies: Topologies) -> None:
    tree_of(topologies, "network")
    freed = slots.remove("n2")

    assert slots.add("n9", {"rack": "r2", "feed": "f1"}) == freed

    network = tree_of(topologies, "network")
    assert members(network, slots, domain(network, "r1")) == ["n1"]
    assert members(network, slots, domain(network, "r2")) == ["n3", "n4", "n9"]


def test_a_reused_slot_inherits_no_label(slots: Slots, topologies: Topologies) -> None:
    tree_of(topologies, "network")
    slots.remove("n2")
    slots.add("n9", {})

    network = tree_of(topologies, "network")
    assert members(network, slots, domain(network, "r1")) == ["n1"]
    assert members(network, slots, ROOT) == ["n1", "n3", "n4", "n9"]


def test_a_node_without_labels_that_did_not_change_rebuilds_nothing(
    slots: Slots, topologies: Topologies
) -> None:
    slot = slots.add("n5", {})
    before = tree_of(topologies, "network")

    slots.labels.set(slot, {})

    assert tree_of(topologies, "network") is before


def test_many_new_nodes_find_their_place(slots: Slots, topologies: Topologies) -> None:
    tree_of(topologies, "network")
    for number in range(10, 60):
        slots.add(f"n{number}", {"rack": f"r{number % 7}"})

    network = tree_of(topologies, "network")
    assert network.size == 54
    assert members(network, slots, domain(network, "r6")) == [f"n{number}" for number in range(13, 60, 7)]


def test_a_blocked_topology_is_kept_and_disables_itself_alone(slots: Slots, topologies: Topologies) -> None:
    topologies.declare(topology("bad", "rack", "rack", conditions=(problem(blocking=True),)))

    assert topologies.tree("bad") is None
    declared = topologies.declared("bad")
    assert declared is not None
    assert declared.conditions[0].message == "two levels are equal"
    assert topologies.usable() == ("network", "power")
    assert topologies.having_level("rack") == ("network",)
    assert tree_of(topologies, "network").count(0) == 2


def test_a_condition_that_does_not_block_leaves_the_topology_usable(topologies: Topologies) -> None:
    topologies.declare(topology("noted", "rack", conditions=(problem(blocking=False),)))

    assert "noted" in topologies.usable()
    assert tree_of(topologies, "noted").count(0) == 2


def test_a_topology_can_be_replaced_and_withdrawn(topologies: Topologies) -> None:
    assert tree_of(topologies, "power").count(0) == 2

    topologies.declare(topology("power", "disk"))
    assert tree_of(topologies, "power").count(0) == 1

    topologies.withdraw("power")
    topologies.withdraw("never there")
    assert topologies.tree("power") is None
    assert topologies.declared("power") is None
    assert topologies.usable() == ("network",)


def test_ignored_values_concern_one_label_of_one_topology(slots: Slots, topologies: Topologies) -> None:
    topologies.declare(topology("partly", "rack"), {"rack": frozenset({"n2", "gone"})})

    partly, network = tree_of(topologies, "partly"), tree_of(topologies, "network")
    assert members(partly, slots, domain(partly, "r1")) == ["n1"]
    assert members(network, slots, domain(network, "r1")) == ["n1", "n2"]


def test_levels_are_found_in_every_topology_that_has_them(topologies: Topologies) -> None:
    topologies.declare(
        Topology(name="aliased", levels=(TopologyLevel("x.io/rack"), TopologyLevel("feed", alias="power")))
    )

    assert topologies.having_level("rack") == ("aliased", "network")
    assert topologies.having_level("x.io/rack") == ("aliased",)
    assert topologies.having_level("power") == ("aliased",)
    assert topologies.having_level("feed") == ("aliased", "power")
    assert topologies.having_level("zone") == ()


def test_configured_label_keys_are_a_topology(slots: Slots, topologies: Topologies) -> None:
    topologies.declare_levels("configured", ["feed", "rack"])

    tree = tree_of(topologies, "configured")
    assert tree.level_names == ("feed", "rack", "hostname")
    assert members(tree, slots, domain(tree, "f1", "r2")) == ["n3"]


def test_a_label_changes_after_its_column_was_dropped(slots: Slots, topologies: Topologies) -> None:
    """A cluster that saw thousands of racks come and go still notices that a node moves."""

    def r1() -> list[str | None]:
        tree = tree_of(topologies, "network")
        return members(tree, slots, domain(tree, "r1"))

    assert r1() == ["n1", "n2"]
    labels = slots.labels
    for generation in range(5000):
        labels.set(3, {"rack": f"former-{generation}"})
    labels.set(3, {"rack": "r2"})
    tree_of(topologies, "network")
    labels.clear(3)
    labels.set(0, {"rack": "r2"})
    assert r1() == ["n2"]


def test_topologies_with_the_same_levels_are_one(topologies: Topologies) -> None:
    topologies.declare(topology("a-copy", "rack"))

    assert tree_of(topologies, "network") is tree_of(topologies, "a-copy")
    assert topologies.distinct() == ("a-copy", "power")
    assert topologies.also_called("a-copy") == ("network",)
    assert topologies.having_level("rack") == ("a-copy",)
    topologies.withdraw("power")
    assert topologies.only_tree() is tree_of(topologies, "network")


def test_equal_topologies_lend_each_other_their_aliases(topologies: Topologies) -> None:
    named = Topology(name="a-copy", levels=(TopologyLevel("rack", "leaf"),))
    other = Topology(name="b-copy", levels=(TopologyLevel("rack", "shelf"),))
    topologies.declare(named)
    topologies.declare(other)

    assert tree_of(topologies, "network").level_named("leaf") == 0
    assert topologies.also_called("a-copy") == ("network",), "two aliases are two topologies"
    topologies.withdraw("a-copy")
    assert tree_of(topologies, "network").level_named("leaf") is None
    assert tree_of(topologies, "network").level_named("shelf") == 0


def test_what_is_declared_goes_before_what_labels_make(slots: Slots) -> None:
    own = Topologies(slots.labels, slots.names)
    found = Found("zones", main=True)
    own.declare(Topology(name="zones", levels=(TopologyLevel("rack"), TopologyLevel("disk")), found=found))
    only = own.only_tree()
    assert only is not None and only.name == "zones"

    own.declare(topology("network", "rack"))

    only = own.only_tree()
    assert only is not None and only.name == "network"
    assert own.having_level("rack") == ("network",)
    assert own.having_level("disk") == ("zones",)


def test_two_declared_topologies_leave_open_which_counts(topologies: Topologies) -> None:
    topologies.declare(
        Topology(name="zones", levels=(TopologyLevel("disk"),), found=Found("zones", main=True))
    )

    assert topologies.only_tree() is None
