"""Required and preferred levels on the example tree of the KAI topology-aware scheduling design.

::

    datacenter 32 ── zone-a 16 ── rack-a1 6 = 2 + 2 + 2
                  │            ├─ rack-a2 4 = 4
                  │            └─ rack-a3 6 = 2 + 2 + 2
                  ├─ zone-b 10 ── rack-b1 8 = 4 + 4
                  │            └─ rack-b2 2 = 2
                  └─ zone-c 6 ─── rack-c1 6 = 2 + 4
"""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Strategy, TopologyConstraint
from closeby.objects.labels import HOSTNAME
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import TopologyChanged, TopologyDeleted
from tests.golden.fixture import Golden
from tests.worlds import GPU, THREE_ZONES, World, draw, fabric, gang, node, pods, world


def place(
    count: int,
    drawing: str = THREE_ZONES,
    *,
    required: str | None = None,
    preferred: str | None = None,
    strategy: Strategy = Strategy.BINPACK,
) -> World:
    """A gang of so many pods of one GPU each, in a world of its own."""
    asked = gang(min_member=count, required=required, preferred=preferred, strategy=strategy)
    return world(drawing).run(asked, members=pods("train", count))


class TestRequired:
    @pytest.mark.parametrize(
        ("count", "nodes"),
        [
            (2, {"nb3": 2}),
            (4, {"na4": 4}),
            (5, {"na1": 2, "na2": 2, "na3": 1}),
            (7, {"nb1": 4, "nb2": 3}),
            (8, {"nb1": 4, "nb2": 4}),
        ],
    )
    def test_the_tightest_rack_that_holds_the_gang(self, count: int, nodes: dict[str, int]) -> None:
        assert place(count, required="rack").used() == nodes

    @pytest.mark.parametrize(
        ("count", "racks"),
        [
            (6, {"rack-c1": 6}),
            (9, {"rack-b1": 8, "rack-b2": 1}),
            # Two racks are enough: the one that holds the most, then the tightest for the rest.
            (11, {"rack-a1": 6, "rack-a3": 5}),
            (10, {"rack-b1": 8, "rack-b2": 2}),
            (16, {"rack-a1": 6, "rack-a2": 4, "rack-a3": 6}),
        ],
    )
    def test_the_tightest_zone_and_there_the_fewest_racks(self, count: int, racks: dict[str, int]) -> None:
        assert place(count, required="zone").used(by="rack") == racks

    def test_a_single_node_may_be_required(self) -> None:
        assert place(3, required="hostname").used() == {"na4": 3}
        assert place(5, required="hostname").reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_more_than_a_rack_holds_waits_and_names_the_roomiest(self, golden: Golden) -> None:
        drawn = place(9, required="rack")
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        golden("refusals", drawn.outcome("train").message or "")
        short = drawn.shortfall("train")
        assert (short.domain, short.holds, short.wanted) == (("zone-b", "rack-b1"), 8, 9)
        assert [(one.free, one.asked) for one in short.lacks] == [(8, 9)]

    def test_more_than_the_cluster_holds_does_not_fit_whatever_the_topology(self, golden: Golden) -> None:
        drawn = place(33, required="rack")
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
        golden("refusals", drawn.outcome("train").message or "")

    def test_equal_rack_names_in_two_zones_are_two_racks(self) -> None:
        drawing = "zone-a rack-1 : a1=2\nzone-b rack-1 : b1=2"
        assert place(3, drawing, required="rack").reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert len(place(2, drawing, required="rack").used()) == 1


class TestPreferred:
    @pytest.mark.parametrize(
        ("count", "racks"),
        [
            (4, {"rack-a2": 4}),
            (6, {"rack-a1": 6}),
            # No rack: the tightest zone, and there the fewest racks.
            (9, {"rack-b1": 8, "rack-b2": 1}),
            (12, {"rack-a1": 6, "rack-a3": 6}),
            # No zone: the fewest racks of the whole cluster, the last as tight as possible.
            (17, {"rack-a1": 6, "rack-a2": 3, "rack-b1": 8}),
            (32, {"rack-a1": 6, "rack-a2": 4, "rack-a3": 6, "rack-b1": 8, "rack-b2": 2, "rack-c1": 6}),
        ],
    )
    def test_one_rack_else_the_fewest_of_the_finest_domain_that_holds_all(
        self, count: int, racks: dict[str, int]
    ) -> None:
        assert place(count, preferred="rack").used(by="rack") == racks

    def test_20_into_19_10_and_10_gives_19_and_1(self) -> None:
        drawing = "zone-a rack-1 : a1=10\nzone-a rack-2 : b1=19\nzone-a rack-3 : c1=10"
        assert sorted(place(20, drawing, preferred="rack").used().values()) == [1, 19]

    def test_the_last_rack_is_the_tightest_that_holds_the_rest(self) -> None:
        drawing = "zone-a rack-1 : a1=9\nzone-a rack-2 : b1=2\nzone-a rack-3 : c1=5"
        assert place(11, drawing, preferred="rack").used() == {"a1": 9, "b1": 2}

    def test_of_equal_racks_the_rest_goes_to_the_nearest(self) -> None:
        drawing = "zone-a rack-1 : a1=2\nzone-b rack-2 : b1=4\nzone-b rack-3 : b2=2\nzone-c rack-4 : c1=3"
        assert place(6, drawing, preferred="rack").used() == {"b1": 4, "b2": 2}

    def test_a_whole_zone_may_be_preferred(self) -> None:
        assert place(7, preferred="zone").used(by="zone") == {"zone-b": 7}
        assert place(17, preferred="zone").used(by="zone") == {"zone-a": 16, "zone-c": 1}

    def test_a_single_node_may_be_preferred(self) -> None:
        assert place(4, preferred="hostname").used() == {"na4": 4}
        assert place(8, preferred="hostname").used() == {"nb1": 4, "nb2": 4}
        # The tightest zone, and there the fewest nodes.
        assert place(10, preferred="hostname").used() == {"nb1": 4, "nb2": 4, "nb3": 2}


class TestBoth:
    @pytest.mark.parametrize(
        ("count", "racks"),
        [(4, {"rack-a2": 4}), (7, {"rack-b1": 7}), (9, {"rack-b1": 8, "rack-b2": 1}), (17, {})],
    )
    def test_the_preferred_level_first_and_the_required_one_as_the_limit(
        self, count: int, racks: dict[str, int]
    ) -> None:
        assert place(count, required="zone", preferred="rack").used(by="rack") == racks

    def test_the_same_level_twice_is_required(self) -> None:
        assert place(8, required="rack", preferred="rack").used(by="rack") == {"rack-b1": 8}
        assert place(9, required="rack", preferred="rack").where == {}

    def test_a_preferred_level_coarser_than_the_required_one_is_invalid(self, golden: Golden) -> None:
        drawn = place(2, required="rack", preferred="zone")
        assert drawn.reason("train") is Reason.INVALID_SPEC
        golden("refusals", drawn.outcome("train").message or "")


class TestSpread:
    def test_the_emptiest_rack(self) -> None:
        assert place(2, required="rack", strategy=Strategy.SPREAD).used() == {"nb1": 2}

    def test_the_emptiest_zone_then_the_emptiest_rack_then_the_emptiest_node(self) -> None:
        assert place(4, required="zone", strategy=Strategy.SPREAD).used(by="zone") == {"zone-a": 4}
        drawing = "zone-a rack-1 : a1=2 a2=3\nzone-a rack-2 : b1=4\nzone-b rack-3 : c1=6"
        assert place(2, drawing, required="zone", strategy=Strategy.SPREAD).used() == {"a2": 2}

    def test_each_gang_has_a_strategy_of_its_own(self) -> None:
        drawn = world(THREE_ZONES)
        drawn.run(gang("tight", min_member=2, required="rack"), members=pods("tight", 2))
        drawn.run(
            gang("wide", min_member=2, required="rack", strategy=Strategy.SPREAD), members=pods("wide", 2)
        )
        assert drawn.used("tight", by="rack") == {"rack-b2": 2}
        assert drawn.used("wide", by="rack") == {"rack-b1": 2}


class TestMissingLabels:
    #: a3 lacks the rack, c1 lacks the zone.
    DRAWING = """
    zone-a rack-1 : a1=2
    zone-a rack-2 : a2=2
    zone-a -      : a3=8
    -      rack-9 : c1=16
    """

    def test_a_node_without_the_label_never_satisfies_that_level(self) -> None:
        assert place(3, self.DRAWING, required="rack").used() == {"c1": 3}
        drawn = place(17, self.DRAWING, required="rack")
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert place(13, self.DRAWING, required="zone").reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_it_is_usable_at_the_coarser_level(self) -> None:
        assert place(12, self.DRAWING, required="zone").used() == {"a1": 2, "a2": 2, "a3": 8}

    def test_preferring_the_level_does_not_shut_it_out(self) -> None:
        assert place(28, self.DRAWING, preferred="rack").used() == {"a1": 2, "a2": 2, "a3": 8, "c1": 16}

    def test_no_node_with_the_label_at_all(self, golden: Golden) -> None:
        drawn = place(1, "zone-a - : a1=4", required="rack")
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        golden("refusals", drawn.outcome("train").message or "")

    def test_an_empty_label_is_a_missing_one(self) -> None:
        nodes = [node(name, {"zone": "zone-a", "rack": ""}, {GPU: 2}) for name in ("a1", "a2")]
        drawn = world(nodes, fabric("zone", "rack"))
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2))
        assert drawn.where == {}


class TestNames:
    def test_a_level_is_named_by_label_alias_or_last_part(self) -> None:
        levels = (TopologyLevel("example.com/zone"), TopologyLevel("example.com/rack", alias="shelf"))
        nodes = draw(THREE_ZONES, ("example.com/zone", "example.com/rack"))
        for name in ("example.com/rack", "shelf"):
            drawn = world(nodes, Topology(name="fabric", levels=levels))
            drawn.run(gang(min_member=4, required=name), members=pods("train", 4))
            assert drawn.used() == {"na4": 4}
        drawn = world(nodes, Topology(name="fabric", levels=levels))
        assert drawn.run(gang(min_member=1, required="zone"), members=pods("train", 1)).where

    @pytest.mark.parametrize(
        ("topology", "level", "reason"),
        [
            ("nowhere", "rack", Reason.TOPOLOGY_NOT_FOUND),
            ("fabric", "row", Reason.TOPOLOGY_LEVEL_NOT_FOUND),
            (None, "row", Reason.TOPOLOGY_LEVEL_NOT_FOUND),
        ],
    )
    def test_what_is_unknown_blocks_where_it_is_required(
        self, topology: str | None, level: str, reason: Reason
    ) -> None:
        drawn = world(THREE_ZONES)
        drawn.run(gang(min_member=2, required=level, topology=topology), members=pods("train", 2))
        assert drawn.where == {}
        assert drawn.reason("train") is reason

    @pytest.mark.parametrize(
        ("topology", "level", "reason"),
        [
            ("nowhere", "rack", Reason.TOPOLOGY_NOT_FOUND),
            ("fabric", "row", Reason.TOPOLOGY_LEVEL_NOT_FOUND),
            (None, "row", Reason.TOPOLOGY_LEVEL_NOT_FOUND),
        ],
    )
    def test_what_is_unknown_is_only_reported_where_it_is_preferred(
        self, topology: str | None, level: str, reason: Reason
    ) -> None:
        drawn = world(THREE_ZONES)
        drawn.run(gang(min_member=2, preferred=level, topology=topology), members=pods("train", 2))
        assert len(drawn.where) == 2
        assert [condition.reason for condition in drawn.outcome("train").conditions] == [reason]

    def test_an_unknown_preferred_level_does_not_lift_the_required_one(self) -> None:
        drawn = place(9, required="rack", preferred="row")
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert place(8, required="rack", preferred="row").used(by="rack") == {"rack-b1": 8}

    def test_a_missing_topology_that_appears_lets_the_gang_in(self) -> None:
        drawn = world(THREE_ZONES)
        drawn.run(gang(min_member=4, required="rack", topology="late"), members=pods("train", 4))
        drawn.tell(TopologyChanged(fabric("zone", "rack", name="late"))).run()
        assert drawn.used() == {"na4": 4}

    def test_a_topology_that_is_withdrawn_keeps_the_gang_waiting(self) -> None:
        drawn = world(THREE_ZONES).tell(TopologyDeleted("fabric"))
        drawn.run(gang(min_member=4, required="rack"), members=pods("train", 4))
        assert drawn.reason("train") is Reason.TOPOLOGY_NOT_FOUND


class TestSeveralTopologies:
    def test_each_gang_uses_the_one_it_names(self) -> None:
        nodes = [
            node("a1", {"rack": "r1", "power": "p1"}, {GPU: 2}),
            node("a2", {"rack": "r1", "power": "p2"}, {GPU: 2}),
            node("b1", {"rack": "r2", "power": "p2"}, {GPU: 2}),
        ]
        both = (fabric("rack"), fabric("power", name="supply"))
        by_rack = world(nodes, *both).run(gang(min_member=4, required="rack"), members=pods("train", 4))
        assert by_rack.used() == {"a1": 2, "a2": 2}
        by_power = world(nodes, *both).run(
            gang(min_member=4, required="power", topology="supply"), members=pods("train", 4)
        )
        assert by_power.used() == {"a2": 2, "b1": 2}

    def test_a_constraint_without_a_name_takes_the_only_one_that_has_the_level(self) -> None:
        nodes = draw(THREE_ZONES)
        drawn = world(nodes, fabric("zone"), fabric("rack", name="racks"))
        drawn.run(gang(min_member=8, required="rack", topology=None), members=pods("train", 8))
        assert drawn.used(by="rack") == {"rack-b1": 8}

    def test_a_level_that_two_have_must_be_distinguished(self) -> None:
        drawn = world(draw(THREE_ZONES), fabric("zone", "rack"), fabric("rack", name="racks"))
        drawn.run(gang(min_member=8, required="rack", topology=None), members=pods("train", 8))
        assert drawn.reason("train") is Reason.TOPOLOGY_NOT_FOUND
        assert "fabric, racks" in (drawn.outcome("train").message or "")

    def test_one_that_is_invalid_disables_itself_alone(self, golden: Golden) -> None:
        wrong = Condition(
            reason=Reason.INVALID_SPEC, object="Topology/broken", message="has no levels", blocking=True
        )
        broken = Topology(name="broken", levels=(TopologyLevel("rack"),), conditions=(wrong,))
        drawn = world(draw(THREE_ZONES), fabric("zone", "rack"), broken)
        drawn.run(
            gang("good", min_member=4, required="rack"),
            gang("bad", min_member=1, required="rack", topology="broken"),
            members=[*pods("good", 4), *pods("bad", 1)],
        )
        assert drawn.used("good") == {"na4": 4}
        assert drawn.reason("bad") is Reason.TOPOLOGY_NOT_FOUND
        golden("refusals", drawn.outcome("bad").message or "")


class TestWithoutConstraint:
    def test_a_gang_goes_to_the_tightest_domain_of_the_only_topology(self) -> None:
        assert place(2).used() == {"na1": 2}
        assert place(4).used() == {"na4": 4}
        assert place(7).used(by="rack") == {"rack-b1": 7}
        assert place(9).used(by="rack") == {"rack-b1": 8, "rack-b2": 1}
        assert len(place(32).where) == 32

    def test_the_plugin_may_be_configured_not_to(self) -> None:
        apart = PluginEntry(name="topology", arguments={"closeByDefault": False})
        drawing = "zone-a rack-1 : a1=1 a2=1\nzone-b rack-2 : b1=1 b2=1\nzone-c rack-3 : c1=2"
        drawn = world(drawing, plugins=[apart]).run(gang(min_member=4), members=pods("train", 4))
        assert len(drawn.where) == 4
        assert drawn.outcome("train").place is None

    def test_several_topologies_leave_it_open(self) -> None:
        drawn = world(draw(THREE_ZONES), fabric("zone"), fabric("rack", name="racks"))
        assert len(drawn.run(gang(min_member=20), members=pods("train", 20)).where) == 20

    def test_a_topology_that_is_named_without_a_level_is_reported(self) -> None:
        named = replace(gang(min_member=4), constraint=TopologyConstraint(topology="fabric"))
        drawn = world(THREE_ZONES).run(named, members=pods("train", 4))
        assert drawn.used() == {"na4": 4}
        assert [one.reason for one in drawn.outcome("train").conditions] == [Reason.INVALID_SPEC]


class TestPlace:
    def test_the_outcome_tells_the_tightest_domain_and_the_span(self) -> None:
        place_ = place(9, preferred="rack").outcome("train").place
        assert place_ is not None
        assert (place_.topology, place_.level, place_.path) == ("fabric", "zone", ("zone-b",))
        assert place_.span == {"zone": 1, "rack": 2, "hostname": 3}

    def test_the_whole_cluster_has_no_level(self) -> None:
        place_ = place(17, preferred="rack").outcome("train").place
        assert place_ is not None
        assert (place_.level, place_.path) == (None, ())

    def test_a_topology_of_single_nodes_only(self) -> None:
        drawn = world(draw(THREE_ZONES), fabric(HOSTNAME))
        drawn.run(gang(min_member=4, required="hostname"), members=pods("train", 4))
        assert drawn.used() == {"na4": 4}
        place_ = drawn.outcome("train").place
        assert place_ is not None
        assert (place_.level, place_.path, place_.span) == ("hostname", ("na4",), {"hostname": 1})
