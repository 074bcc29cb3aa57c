"""network-topology: nodes near a first task score higher (Volcano network-topology proposal, static)."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.plugins.network_topology import NetworkTopology, NetworkTopologyArguments
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import PluginEntry, read_configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodDeleted
from tests.plugins.asking import STATE, handle_of, scores
from tests.worlds import GPU, World, gang, node, pods, spec, subgroup, world

#: The proposal's own snippet.
SNIPPET = """
- plugins:
   - name: network-topology
     arguments:
       network-topology.type: static # static means it will use the node's labels to aware network topology
       network-topology.keys: rack,switch,idc # required when type is static
       network-topology.weight: 10
"""

#: Nodes that share more and more with a1.
NODES = [
    node("a1", {"rack": "rack1", "switch": "NvLink-A100", "idc": "bj"}),
    node("same-rack", {"rack": "rack1", "switch": "other", "idc": "other"}),
    node("same-switch", {"rack": "rack2", "switch": "NvLink-A100", "idc": "sh"}),
    node("same-idc", {"rack": "rack3", "switch": "other", "idc": "bj"}),
    node("all", {"rack": "rack1", "switch": "NvLink-A100", "idc": "bj"}),
    node("nothing", {"rack": "rack4", "switch": "yet-another", "idc": "sh"}),
    node("no-labels"),
    node("no-rack", {"switch": "NvLink-A100", "idc": "bj"}),
]


def plugin(
    nodes: Iterable[Node] = NODES, keys: str = "rack,switch,idc", weight: float = 10
) -> NetworkTopology:
    arguments = NetworkTopologyArguments(type="static", keys=keys, weight=weight)
    return NetworkTopology(arguments, handle_of(nodes))


def assume(one: NetworkTopology, pod: Pod, name: str) -> None:
    slot = one.handle.cluster.slot(name)
    assert slot is not None
    one.pod_assumed(pod, slot)


class TestScores:
    def test_the_table_of_the_proposal(self) -> None:
        asked = plugin()
        first, second = pods("train", 2)
        assume(asked, first, "a1")
        assert scores(asked, second) == {
            "a1": 30,
            "same-rack": 30,
            "same-switch": 20,
            "same-idc": 10,
            "all": 30,  # the first key that matches, not the sum
            "nothing": 0,
            "no-labels": 0,
            "no-rack": 20,
        }

    def test_a_missing_label_never_matches(self) -> None:
        asked = plugin()
        first, second = pods("train", 2)
        assume(asked, first, "no-labels")
        assert set(scores(asked, second).values()) == {0}
        assume(asked, first, "no-rack")
        assert scores(asked, second)["all"] == 20
        assert scores(asked, second)["no-labels"] == 0

    def test_an_empty_label_is_a_missing_one(self) -> None:
        asked = plugin([node("a1", {"rack": "", "idc": "bj"}), node("a2", {"rack": "", "idc": "sh"})])
        first, second = pods("train", 2)
        assume(asked, first, "a1")
        assert scores(asked, second) == {"a1": 10, "a2": 0}

    def test_weight_and_number_of_keys(self) -> None:
        asked = plugin(keys="switch", weight=2.5)
        first, second = pods("train", 2)
        assume(asked, first, "a1")
        assert {name: score for name, score in scores(asked, second).items() if score} == {
            "a1": 2.5,
            "same-switch": 2.5,
            "all": 2.5,
            "no-rack": 2.5,
        }

    def test_before_the_first_task_nothing_is_scored(self) -> None:
        asked = plugin()
        [first] = pods("train", 1)
        assert not asked.pre_score(STATE, first)
        assume(asked, first, "a1")
        assert asked.pre_score(STATE, first)

    def test_plain_pods_and_other_jobs_are_left_alone(self) -> None:
        asked = plugin()
        assume(asked, pods("train", 1)[0], "a1")
        assert not asked.scores(pods(None, 1)[0])
        assert not asked.pre_score(STATE, pods("other", 1)[0])
        elsewhere = replace(pods("train", 1)[0], namespace="elsewhere")
        assert not asked.pre_score(STATE, elsewhere)

    def test_without_keys_it_does_nothing(self) -> None:
        asked = plugin(keys=" , ")
        first, second = pods("train", 2)
        assume(asked, first, "a1")
        assert not asked.scores(second)


class TestTheRecord:
    @staticmethod
    def record(asked: NetworkTopology) -> str:
        """The node that scores highest by its rack: that of the record."""
        by_node = scores(asked, pods("train", 1, prefix="next")[0])
        return max(by_node, key=lambda name: (by_node[name], name))

    def test_the_first_placed_task_counts(self) -> None:
        asked = plugin()
        first, second = pods("train", 2)
        assume(asked, second, "same-idc")
        assume(asked, first, "same-switch")
        assert self.record(asked) == "same-idc"

    def test_of_running_members_the_oldest_then_the_name(self) -> None:
        asked = plugin()
        running = pods("train", 4, on="somewhere")
        assume(asked, replace(running[0], created=None), "a1")
        assume(asked, replace(running[1], created=5.0), "same-idc")
        assume(asked, replace(running[3], created=3.0), "same-switch")
        assume(asked, replace(running[2], created=3.0), "nothing")
        assert self.record(asked) == "nothing"

    def test_a_running_member_is_older_than_one_placed_now(self) -> None:
        asked = plugin()
        assume(asked, pods("train", 1)[0], "same-idc")
        assume(asked, pods("train", 1, prefix="old", on="nothing")[0], "nothing")
        assert self.record(asked) == "nothing"

    def test_when_the_first_task_goes_the_next_one_counts(self) -> None:
        asked = plugin()
        first, second = pods("train", 2)
        assume(asked, first, "same-idc")
        assume(asked, second, "nothing")
        slot = asked.handle.cluster.slot("same-idc")
        assert slot is not None
        asked.pod_forgotten(first, slot)
        assert self.record(asked) == "nothing"

    def test_it_is_undone_in_reverse(self) -> None:
        asked = plugin()
        first, second = pods("train", 2)
        undos = []
        for pod, name in ((first, "same-idc"), (second, "nothing")):
            slot = asked.handle.cluster.slot(name)
            assert slot is not None
            undos.append(asked.pod_assumed(pod, slot))
        for undo in reversed(undos):
            assert undo is not None
            undo()
        assert not asked.pre_score(STATE, first)
        assume(asked, second, "a1")
        assert scores(asked, first)["same-rack"] == 30

    def test_gangs_that_are_gone_leave_nothing_behind(self) -> None:
        asked = plugin()
        [first] = pods("train", 1)
        slot = asked.handle.cluster.slot_of("a1")
        placed = asked.pod_assumed(first, slot)
        gone = asked.pod_forgotten(first, slot)
        assert placed is not None and gone is not None
        assert asked._members == {}
        gone()
        assert asked.pre_score(STATE, first)
        placed()
        assert asked._members == {}

    def test_forgetting_can_be_undone(self) -> None:
        asked = plugin()
        [first] = pods("train", 1)
        assume(asked, first, "same-idc")
        slot = asked.handle.cluster.slot("same-idc")
        assert slot is not None
        undo = asked.pod_forgotten(first, slot)
        assert undo is not None
        assert not asked.pre_score(STATE, first)
        undo()
        assert self.record(asked) == "same-idc"
        assert asked.pod_forgotten(pods("other", 1)[0], slot) is None


KEYS = {"network-topology.type": "static", "network-topology.keys": "rack,idc", "network-topology.weight": 10}
NEAR = PluginEntry(name="network-topology", arguments=KEYS)

RACKS = """
bj rack1 : a1=1 a2=1
bj rack2 : b1=2 b2=2
sh rack3 : c1=2 c2=3
"""


def racks(drawing: str = RACKS) -> World:
    return world(drawing, levels=("idc", "rack"), plugins=[NEAR])


class TestInTheEngine:
    def test_the_proposals_snippet_is_taken_as_it_stands(self) -> None:
        configuration = read_configuration(SNIPPET)
        engine = Engine(lambda handle: profile_for(configuration, handle))
        labels = ("idc", "switch", "rack")
        nodes = [
            node(name, dict(zip(labels, path, strict=True)), {GPU: 1})
            for name, path in (
                ("a1", ("bj", "s1", "r1")),
                ("b1", ("sh", "s2", "r2")),
                ("c1", ("bj", "s3", "r3")),
            )
        ]
        drawn = World(engine, nodes)
        drawn.run(gang(min_member=2), members=[*pods("train", 2)])
        assert drawn.used() == {"a1": 1, "c1": 1}

    def test_the_first_task_goes_where_the_whole_gang_fits(self) -> None:
        # The proposal's drawback: a first task in rack1 would find no room for the other three.
        drawn = racks().run(gang(min_member=4, topology=None), members=pods("train", 4))
        assert drawn.used() == {"b1": 2, "b2": 2}

    def test_of_racks_that_hold_it_the_tightest(self) -> None:
        drawn = racks("bj rack1 : a1=4 a2=1\nbj rack2 : b1=3")
        assert drawn.run(gang(min_member=3), members=pods("train", 3)).used() == {"b1": 3}

    def test_a_gang_that_may_lie_anywhere_is_not_looked_ahead_for(self) -> None:
        anywhere = replace(gang(min_member=4), wants_closeness=False)
        drawn = racks().run(anywhere, members=pods("train", 4))
        assert len(drawn.used(by="rack")) > 1

    def test_nodes_without_the_label_are_no_rack(self) -> None:
        #   x1 would be the tightest.
        drawn = racks("bj - : x1=4\nbj rack2 : b1=3 b2=3").run(gang(min_member=4), members=pods("train", 4))
        assert drawn.used(by="rack") == {"rack2": 4}

    def test_a_level_that_is_required_is_not_left_for_a_coarser_one(self) -> None:
        drawn = racks().run(gang(min_member=6, required="rack"), members=pods("train", 6))
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_nor_is_the_level_of_a_subgroup(self) -> None:
        group = gang(min_member=6, subgroups=[subgroup("x", 6, required="rack")])
        drawn = racks().run(group, members=pods("train", 6, subgroup="x"))
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_else_in_the_same_idc(self) -> None:
        drawn = racks().run(gang(min_member=6), members=pods("train", 6))
        assert drawn.used(by="idc") == {"bj": 6}

    def test_else_in_the_fewest_racks(self) -> None:
        drawn = racks().run(gang(min_member=9), members=pods("train", 9))
        assert drawn.used(by="rack") == {"rack2": 4, "rack3": 5}

    def test_the_rest_of_a_running_job_goes_near_its_first_task(self) -> None:
        running = pods("train", 1, prefix="old", on="b1", created=1.0)
        drawn = racks().run(gang(min_member=2), members=[*running, *pods("train", 3)])
        assert drawn.used(by="rack") == {"rack2": 3}

    def test_a_plain_pod_with_the_same_needs_changes_nothing(self) -> None:
        """Equal pods share what is known of the nodes, but only members of a gang are drawn to anybody."""
        configuration = read_configuration(SNIPPET)
        engine = Engine(lambda handle: profile_for(configuration, handle))
        nodes = [node(f"n{index}", {"rack": f"r{index // 2}"}, {GPU: 2}) for index in range(6)]
        drawn = World(engine, nodes).run(members=pods(None, 1))
        running = pods("train", 1, prefix="old", on="n4")
        drawn.run(gang(min_member=1), members=[*running, *pods("train", 3)])
        assert drawn.used("train", by="rack") == {"r2": 3}

    def test_a_finished_first_task_draws_no_pod(self) -> None:
        drawn = racks()
        [old] = pods("train", 1, prefix="old", on="b1", created=1.0)
        [other] = pods("train", 1, prefix="other", on="c1", created=2.0)
        drawn.run(gang(min_member=2), members=[old, other])
        drawn.run(members=[replace(old, phase="Succeeded"), *pods("train", 2)])
        assert drawn.used("train", by="rack") == {"rack3": 2}

    def test_a_deleted_one_neither(self) -> None:
        drawn = racks()
        [old] = pods("train", 1, prefix="old", on="b1")
        drawn.run(gang(min_member=2), members=[old]).tell(PodDeleted(old.uid))
        drawn.run(members=pods("train", 2))
        assert drawn.used(by="rack") == {"rack1": 2}

    def test_a_gang_that_was_not_placed_leaves_no_record(self) -> None:
        drawn = racks("bj rack1 : a1=1 a2=1\nsh rack2 : b1=1")
        drawn.run(gang(min_member=4), members=pods("train", 4))
        assert drawn.where == {}
        drawn.tell(*(PodDeleted(pod.uid) for pod in pods("train", 4)[2:]))
        drawn.run(gang(min_member=2))
        assert drawn.used(by="rack") == {"rack1": 2}

    def test_unequal_pods_find_their_place_even_if_the_scores_would_put_them_wrongly(self) -> None:
        drawn = racks("bj rack1 : a1=5 a2=3")
        unequal = [*pods("train", 3, prefix="a"), *pods("train", 1, spec(gpu=5), prefix="b")]
        drawn.run(gang(min_member=4), members=unequal)
        assert drawn.used("a") == {"a2": 3}
        assert drawn.used("b") == {"a1": 1}

    def test_a_constraint_of_the_gangs_own_comes_first(self) -> None:
        drawn = racks().run(gang(min_member=5, required="rack"), members=pods("train", 5))
        assert drawn.used() == {"c1": 2, "c2": 3}

    def test_the_scores_are_explained_as_the_rule_gives_them(self) -> None:
        drawn = world(RACKS, levels=("idc", "rack"), plugins=[NEAR], explain=True)
        running = pods("train", 1, prefix="old", on="b1")
        drawn.run(gang(min_member=1), members=[*running, *pods("train", 1)])
        [explained] = drawn.outcome("train").explanations
        by_node = {name: entry["network-topology"] for name, entry in explained.scores.items()}
        assert by_node == {"a1": 10, "a2": 10, "b1": 20, "b2": 20, "c1": 0, "c2": 0}


def test_keys_that_are_configured_count_though_others_may_be_discovered() -> None:
    asked = NetworkTopology(NetworkTopologyArguments(type="dynamic", keys="rack"), handle_of(NODES))
    first, second = pods("train", 2)
    assume(asked, first, "a1")
    assert asked.keys == ("rack",)
    assert [name for name, score in scores(asked, second).items() if score] == ["a1", "same-rack", "all"]


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_the_types_that_there_are(kind: str) -> None:
    assert NetworkTopologyArguments(type=kind).type == kind


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="must be static or dynamic"):
        NetworkTopologyArguments(type="magic")
