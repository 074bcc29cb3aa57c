"""The sets of nodes that baselines propose for a gang, one after another."""

from collections.abc import Sequence

import numpy as np

from closeby.lab.baselines.single_level_required import SingleLevelArguments, SingleLevelRequired
from closeby.lab.baselines.slurm_tree import SlurmTree
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.events import NodeUpserted
from closeby.scheduling.extension import Handle, NoArguments, PlacementGenerate
from closeby.scheduling.gangs.parts import NodeSet, Part, SearchedPart
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.constraints import Levels
from closeby.topology.tree import Tree
from tests.worlds import GPU, World, gang, node, pods, spec, world


def tree_of(drawn: World) -> Tree:
    tree = drawn.engine.topologies.tree("fabric")
    assert tree is not None
    return tree


def handle(drawn: World) -> Handle:
    return Handle(drawn.engine.cluster, drawn.engine.topologies, lambda pod: None)


def taken(drawn: World, *names: str) -> World:
    """A GPU of each of these nodes is in use."""
    return drawn.run(members=[pod for name in names for pod in pods(None, 1, prefix=f"on-{name}", on=name)])


def proposed(
    plugin: PlacementGenerate, drawn: World, members: Sequence[Pod], required: int | None = None
) -> list[list[str]]:
    """The nodes of each candidate for a gang that needs all its members; ``required`` is a level."""
    cluster, tree = drawn.engine.cluster, tree_of(drawn)
    table = ClassTable(cluster, drawn.engine.profile.filters, ())
    part = Part(name="", levels=Levels(tree=tree, required=required, preferred=None), core=tuple(members))
    group = gang(min_member=len(members))
    view = SearchedPart(group, part, NodeSet(), table.shares(members), table, CycleState())
    state = CycleState(group, tree)
    if isinstance(plugin, SingleLevelRequired):
        plugin.pre_filter(state, tuple(members))
    found = plugin.placement_generate(state, view)
    assert found is not None
    slots = [one.slots for one in found]
    return [[cluster.names[slot] or "" for slot in np.asarray(one, dtype=np.intp).tolist()] for one in slots]


class TestSlurmTree:
    def slurm(self, drawing: str, size: int) -> list[list[str]]:
        drawn = world(drawing)
        return proposed(SlurmTree(NoArguments(), handle(drawn)), drawn, pods("train", size))

    def test_of_a_leaf_as_many_nodes_as_hold_the_gang(self) -> None:
        assert self.slurm("z r1 : a1=2 a2=2 a3=2\nz r2 : b1=9", 4) == [["a1", "a2"]]
        assert self.slurm("z r1 : a1=2 a2=2 a3=2\nz r2 : b1=9", 5) == [["a1", "a2", "a3"]]

    def test_nodes_come_in_the_order_of_the_tree_though_the_larger_leaf_is_taken_first(self) -> None:
        assert self.slurm("z r1 : a1=1 a2=1\nz r2 : b1=1 b2=1 b3=1", 5) == [["a1", "a2", "b1", "b2", "b3"]]

    def test_what_is_taken_of_a_switch_is_room_no_more(self) -> None:
        #   No leaf holds 7, zone-a holds 7 and zone-b more: both leaves of zone-a, none of zone-b.
        drawing = "za r1 : a1=4\nza r2 : a2=3\nzb r3 : b1=5\nzb r4 : b2=3"
        assert self.slurm(drawing, 7) == [["a1", "a2"]]


class TestSingleLevelRequired:
    def plugin(self, drawn: World) -> SingleLevelRequired:
        return SingleLevelRequired(SingleLevelArguments(resources=(GPU,)), handle(drawn))

    def test_the_domain_that_is_fullest_afterwards_comes_first(self) -> None:
        #   With three more rack r2 is full, and r1 at 8 of 10; now r1 is the fuller one.
        large = ["a1", "a2", "a3", "a4", "a5"]
        nodes = f"z r1 : {' '.join(f'{name}=2' for name in large)}\nz r2 : b1=2 b2=2"
        drawn = taken(world(nodes), *large, "b1")
        assert proposed(self.plugin(drawn), drawn, pods("train", 3)) == [["b1", "b2"], large]

    def test_a_level_that_is_required_is_taken_as_it_is(self) -> None:
        #   Four would fit into one rack.
        drawn = world("za r1 : a1=2 a2=2\nza r2 : a3=2\nzb r3 : b1=1")
        assert proposed(self.plugin(drawn), drawn, pods("train", 4)) == [["a1", "a2"]]
        assert proposed(self.plugin(drawn), drawn, pods("train", 4), required=0) == [["a1", "a2", "a3"]]

    def test_the_finest_level_is_that_of_each_gang(self) -> None:
        drawn = world("za r1 : a1=2 a2=2\nza r2 : a3=2\nzb r3 : b1=1")
        plugin = self.plugin(drawn)
        assert proposed(plugin, drawn, pods("train", 2)) == [["a1"], ["a2"], ["a3"]]
        assert proposed(plugin, drawn, pods("train", 4)) == [["a1", "a2"]]
        assert proposed(plugin, drawn, pods("train", 2, spec(gpu=2))) == [["a1", "a2"]]
        assert proposed(plugin, drawn, pods("train", 6)) == [["a1", "a2", "a3"]]

    def test_the_finest_level_follows_the_nodes(self) -> None:
        drawn = world("za r1 : a1=2 a2=2\nza r2 : a3=2")
        plugin = self.plugin(drawn)
        assert proposed(plugin, drawn, pods("train", 4)) == [["a1", "a2"]]
        drawn.tell(NodeUpserted(node("a3", {"zone": "za", "rack": "r2"}, {GPU: 4})))
        assert proposed(plugin, drawn, pods("train", 4)) == [["a3"]]
        drawn.tell(NodeUpserted(node("a3", {"zone": "za", "rack": "r9"}, {GPU: 2})))
        assert proposed(plugin, drawn, pods("train", 4)) == [["a1", "a2"]]

    def refusal(self, drawn: World, members: Sequence[Pod], minimum: int) -> Condition | None:
        return self.plugin(drawn).pre_filter(
            CycleState(gang(min_member=minimum), tree_of(drawn)), tuple(members)
        )

    def test_a_gang_waits_while_no_domain_of_its_level_has_room(self) -> None:
        drawn = taken(world("z r1 : a1=1 a2=1 a3=1\nz r2 : b1=1 b2=1"), "a1")
        found = self.refusal(drawn, pods("train", 3), 3)
        assert found is not None
        assert (found.reason, found.blocking) == (Reason.TOPOLOGY_PLACEMENT_FAILED, True)

    def test_only_its_minimum_must_find_room_and_who_is_done_needs_none(self) -> None:
        #   All five would need the zone, of which a node is taken; three find room in r1.
        drawn = taken(world("z r1 : a1=1 a2=1 a3=1\nz r2 : b1=1 b2=1"), "b1")
        assert self.refusal(drawn, pods("train", 5), 3) is None
        assert self.refusal(drawn, pods("train", 3), 5) is None
        assert self.refusal(drawn, pods("train", 5), 5) is not None

    def test_unequal_pods_are_tried(self) -> None:
        #   Three like the first would not fit now.
        drawn = taken(world("z r1 : a1=3 a2=3 a3=3"), "a2", "a3")
        unequal = [*pods("train", 1, spec(gpu=3), prefix="big"), *pods("train", 2, prefix="small")]
        assert self.refusal(drawn, unequal, 3) is None
        assert self.refusal(drawn, pods("train", 3, spec(gpu=3)), 3) is not None
