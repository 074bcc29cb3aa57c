"""What each baseline does with a small tree, and where closeby does something else."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from closeby.lab.baselines.kueue_best_fit import KueueArguments, KueueBestFit
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.plugins.configurations import DEFAULT, NAMED
from closeby.reading.configuration import PluginEntry
from tests.plugins.asking import handle_of
from tests.worlds import World, draw, fabric, gang, node, pods, spec, subgroup, world

#: One pod a node.
WHOLE = spec(cpu=4)

#: Two racks of zone-a hold 5 pods, the one of zone-b 4.
FIVE_AND_FOUR = """
zone-a rack-1 : a1=4 a2=4 a3=4
zone-a rack-2 : a4=4 a5=4
zone-b rack-3 : b1=4 b2=4 b3=4 b4=4
"""


def drawn(drawing: str, name: str, arguments: dict[str, object] | None = None) -> World:
    """A cluster of CPUs with a named configuration; ``arguments`` are the baseline's."""
    plugins = [
        entry if entry.name != name or arguments is None else PluginEntry(name=name, arguments=arguments)
        for entry in NAMED[name].plugins
    ]
    topology = fabric("zone", "rack", HOSTNAME)
    return world(draw(drawing, resource="cpu"), topology, plugins=plugins)


def racks(drawing: str, name: str, size: int, running: Iterable[Pod] = ()) -> dict[str, int]:
    """Pods of a gang by rack; none if it waits."""
    placed = drawn(drawing, name).run(gang(min_member=size), members=[*running, *pods("train", size, WHOLE)])
    return placed.used("train", by="rack")


def busy(*nodes: str, cpu: int = 4) -> list[Pod]:
    """A pod that runs on each of the nodes."""
    return [pod for name in nodes for pod in pods(None, 1, spec(cpu=cpu), prefix=f"old-{name}", on=name)]


@pytest.mark.parametrize("name", NAMED)
def test_a_gang_is_placed_as_a_whole_or_not_at_all(name: str) -> None:
    placed = drawn(FIVE_AND_FOUR, name).run(gang(min_member=9), members=pods("train", 9, WHOLE))
    assert len(placed.used("train")) == 9
    waits = drawn(FIVE_AND_FOUR, name).run(gang(min_member=10), members=pods("train", 10, WHOLE))
    assert waits.used() == {}
    assert waits.reason("train") is Reason.GANG_DOES_NOT_FIT


@pytest.mark.parametrize("name", NAMED)
def test_a_required_level_is_kept_by_all(name: str) -> None:
    """Four pods fit rack-3 alone; five fit no rack."""
    placed = drawn(FIVE_AND_FOUR, name).run(
        gang(min_member=4, required="rack"), members=pods("train", 4, WHOLE)
    )
    assert placed.used("train", by="rack") == {"rack-3": 4}
    waits = drawn(FIVE_AND_FOUR, name).run(
        gang(min_member=5, required="rack"), members=pods("train", 5, WHOLE)
    )
    assert waits.used() == {}
    assert waits.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED


@pytest.mark.parametrize("name", NAMED)
def test_members_that_run_hold_the_required_domain(name: str) -> None:
    """One member runs in rack-1, so the others join it there, though rack-3 is emptier."""
    old = pods("train", 1, WHOLE, prefix="old", on="a2")
    placed = drawn(FIVE_AND_FOUR, name).run(
        gang(min_member=3, required="rack"), members=[*old, *pods("train", 2, WHOLE)]
    )
    assert placed.used("train", by="rack") == {"rack-1": 2}


@pytest.mark.parametrize("name", NAMED)
def test_subgroups_are_placed_too(name: str) -> None:
    group = gang(min_member=4, subgroups=[subgroup("left", 2), subgroup("right", 2)])
    members = [*pods("train", 2, WHOLE, subgroup="left"), *pods("train", 2, WHOLE, subgroup="right")]
    assert len(drawn(FIVE_AND_FOUR, name).run(group, members=members).used()) == 4


@pytest.mark.parametrize("name", NAMED)
def test_a_cluster_without_topology_is_fine(name: str) -> None:
    nodes = [node(f"n{index}", allocatable={"cpu": 4}) for index in range(3)]
    placed = world(nodes, fabric("zone", "rack"), plugins=NAMED[name].plugins)
    placed.engine.topologies.withdraw("fabric")
    placed.run(gang(min_member=3), members=pods("train", 3, WHOLE))
    assert placed.used() == {"n0": 1, "n1": 1, "n2": 1}


@pytest.mark.parametrize("name", NAMED)
def test_the_same_input_gives_the_same_places(name: str) -> None:
    """Draws depend on the pod and the node, not on what was asked before."""
    one = drawn(FIVE_AND_FOUR, name).run(gang(min_member=3), members=pods("train", 3, WHOLE))
    two = drawn(FIVE_AND_FOUR, name).run(gang(min_member=3), members=pods("train", 3, WHOLE))
    assert one.where == two.where


def test_closeby_takes_the_tightest_rack() -> None:
    assert racks(FIVE_AND_FOUR, DEFAULT, 2) == {"rack-2": 2}
    assert racks(FIVE_AND_FOUR, DEFAULT, 4) == {"rack-3": 4}


def test_random_takes_any_node_and_another_seed_takes_others() -> None:
    def chosen(seed: int) -> tuple[str, ...]:
        placed = drawn(FIVE_AND_FOUR, "random", {"seed": seed})
        return tuple(placed.run(gang(min_member=2), members=pods("train", 2, WHOLE)).used("train"))

    found = {chosen(seed) for seed in range(40)}
    assert len(found) > 20, "of 36 pairs of nodes"
    assert any({one[0][0], one[1][0]} == {"a", "b"} for one in found), "it does not care for racks"


def test_least_allocated_takes_the_emptiest_nodes_whatever_their_rack() -> None:
    """One CPU is used on all nodes of rack-3: closeby's tightest rack, not the baseline's."""
    drawing = """
    zone-a rack-1 : a1=6
    zone-a rack-2 : a2=6
    zone-b rack-3 : b1=6 b2=6
    """
    running = busy("b1", "b2", cpu=1)
    assert racks(drawing, "least-allocated", 2, running) == {"rack-1": 1, "rack-2": 1}
    assert racks(drawing, DEFAULT, 2, running) == {"rack-3": 2}


def test_most_allocated_takes_the_fullest_nodes_whatever_their_rack() -> None:
    drawing = """
    zone-a rack-1 : a1=6 a2=6
    zone-b rack-2 : b1=6
    zone-c rack-3 : c1=6
    """
    running = busy("b1", "c1", cpu=1)
    assert racks(drawing, "most-allocated", 2, running) == {"rack-2": 1, "rack-3": 1}
    assert racks(drawing, DEFAULT, 2, running) == {"rack-1": 2}


@pytest.mark.parametrize(("name", "expected"), [("least-allocated", 74), ("most-allocated", 24)])
def test_scores_are_upstreams_in_whole_numbers(name: str, expected: int) -> None:
    """A pod of 1 CPU and 1 of memory on a node of 3 and 6 leaves 66 and 83 %, mean 74; cut off each time."""
    nodes = [node("n", allocatable={"cpu": 3, "memory": 6})]
    explained = world(
        nodes, fabric("zone"), plugins=[PluginEntry(name=name), *NAMED[name].plugins[2:]], explain=True
    )
    explained.run(members=pods(None, 1, spec(cpu=1, memory=1)))
    [pod] = explained.outcome("pod-0").explanations
    assert int(pod.scores["n"][name]) == expected


def test_first_task_labels_does_not_look_ahead() -> None:
    """The first task goes to the fullest node, whose rack has no room for the second."""
    drawing = """
    zone-a rack-1 : a1=6
    zone-a rack-2 : a2=6
    zone-b rack-3 : b1=6 b2=6
    """
    running = busy("a1", cpu=2)
    assert racks(drawing, "first-task-labels", 2, running) == {"rack-1": 1, "rack-2": 1}
    assert racks(drawing, DEFAULT, 2, running) == {"rack-3": 2}


def test_first_task_labels_stays_in_the_rack_while_it_can() -> None:
    """Where the first task goes is drawn, but the others follow it."""
    drawing = """
    zone-a rack-1 : a1=4 a2=4 a3=4
    zone-b rack-2 : b1=4 b2=4 b3=4
    """
    assert list(racks(drawing, "first-task-labels", 3).values()) == [3]
    assert racks(drawing, "first-task-labels", 4) in ({"rack-1": 3, "rack-2": 1}, {"rack-1": 1, "rack-2": 3})


def test_first_task_labels_takes_the_keys_it_is_given() -> None:
    keys: dict[str, object] = {"keys": ["zone"]}
    placed = drawn(FIVE_AND_FOUR, "first-task-labels", keys)
    placed.run(gang(min_member=4), members=pods("train", 4, WHOLE))
    assert len(placed.used("train", by="zone")) == 1


def test_single_level_required_waits_for_the_level_that_could_hold_the_gang() -> None:
    """An empty rack-3 would hold four pods, so a rack is required; now three are free there."""
    assert racks(FIVE_AND_FOUR, "single-level-required", 4) == {"rack-3": 4}
    assert racks(FIVE_AND_FOUR, "single-level-required", 4, busy("b1")) == {}
    assert racks(FIVE_AND_FOUR, DEFAULT, 4, busy("b1")) == {"rack-1": 3, "rack-2": 1}


def test_single_level_required_takes_a_coarser_level_for_larger_gangs_and_any_for_the_largest() -> None:
    assert racks(FIVE_AND_FOUR, "single-level-required", 5) == {"rack-1": 3, "rack-2": 2}
    assert racks(FIVE_AND_FOUR, "single-level-required", 5, busy("a1")) == {}
    assert sum(racks(FIVE_AND_FOUR, "single-level-required", 7).values()) == 7


def test_single_level_required_takes_the_domain_that_is_fullest_afterwards() -> None:
    """Two pods fill two thirds of rack-1, the tighter one, but three quarters of rack-2, which wins."""
    drawing = """
    zone-a rack-1 : a1=4 a2=4 a3=4
    zone-a rack-2 : b1=4 b2=4 b3=4 b4=4 b5=4 b6=4 b7=4 b8=4
    """
    running = busy("b1", "b3", "b5", "b7")
    assert racks(drawing, "single-level-required", 2, running) == {"rack-2": 2}
    assert racks(drawing, DEFAULT, 2, running) == {"rack-1": 2}


def test_slurm_takes_the_leaf_that_fits_best() -> None:
    assert racks(FIVE_AND_FOUR, "slurm-tree", 2) == {"rack-2": 2}
    assert racks(FIVE_AND_FOUR, "slurm-tree", 3) == {"rack-1": 3}
    assert racks(FIVE_AND_FOUR, "slurm-tree", 4) == {"rack-3": 4}


def test_slurm_takes_the_switch_that_fits_best_then_its_largest_leaf() -> None:
    """No leaf holds 5. Zone-a holds 6, zone-b 5: zone-b's larger leaf first, then the other one."""
    drawing = """
    zone-a rack-1 : a1=4 a2=4 a3=4 a4=4
    zone-a rack-2 : a5=4 a6=4
    zone-b rack-3 : b1=4 b2=4 b3=4
    zone-b rack-4 : b4=4 b5=4
    """
    assert racks(drawing, "slurm-tree", 5) == {"rack-3": 3, "rack-4": 2}


def test_slurm_takes_a_leaf_farther_away_that_holds_the_rest() -> None:
    """Zone-b comes first as it has more free nodes, with its larger leaf. What is left fits rack-1.

    Rack-3 is nearer, but holds less than what is left. closeby fills zone-b first, and uses three racks.
    """
    drawing = """
    zone-a rack-1 : a1=4 a2=4 a3=4 a4=4
    zone-b rack-2 : b1=4 b2=4 b3=4
    zone-b rack-3 : b4=4 b5=4
    """
    assert racks(drawing, "slurm-tree", 7) == {"rack-1": 4, "rack-2": 3}


def test_slurm_may_use_more_switches_than_it_must() -> None:
    """As drawn before, but zone-b comes first in the file: its smaller leaf is met first and is nearer."""
    assert racks(FIVE_AND_FOUR, "slurm-tree", 7) == {"rack-1": 3, "rack-2": 2, "rack-3": 2}


def test_kueue_takes_the_domain_that_fits_best() -> None:
    assert racks(FIVE_AND_FOUR, "kueue-best-fit", 2) == {"rack-2": 2}
    assert racks(FIVE_AND_FOUR, "kueue-best-fit", 5) == {"rack-1": 3, "rack-2": 2}


def test_kueue_pools_the_racks_of_all_zones_that_it_chose() -> None:
    """No zone holds 7, so both are taken; of their racks the largest, then the tightest for the rest."""
    assert racks(FIVE_AND_FOUR, "kueue-best-fit", 7) == {"rack-1": 3, "rack-3": 4}


def test_kueue_chooses_greedily() -> None:
    """Largest first, the last as tight as can be: 19 + 1 rather than 10 + 10 (Kueue's own example)."""
    drawing = "\n".join(
        f"zone-a rack-{number} : " + " ".join(f"n{number}-{index}=4" for index in range(size))
        for number, size in ((1, 19), (2, 10), (3, 10))
    )
    assert racks(drawing, "kueue-best-fit", 20) == {"rack-1": 19, "rack-2": 1}


def test_kueue_leaves_nodes_without_labels_out() -> None:
    """Two nodes lack the rack label. Kueue does not see them; closeby uses them in the zone."""
    drawing = """
    zone-a rack-1 : a1=4
    zone-a - : a2=4 a3=4
    """
    assert racks(drawing, "kueue-best-fit", 2) == {}
    assert sum(racks(drawing, DEFAULT, 2).values()) == 2


def test_kueue_tells_of_a_level_that_is_not_there() -> None:
    placed = drawn(FIVE_AND_FOUR, "kueue-best-fit", {"level": "shelf"})
    placed.run(gang(min_member=2), members=pods("train", 2, WHOLE))
    assert placed.used("train", by="rack") == {"rack-2": 2}
    [told] = [found for plugin in placed.engine.profile.plugins for found in plugin.conditions()]
    assert told.located().startswith("arguments.level: no topology has a level 'shelf'; name a level by")


def test_kueue_prefers_the_given_level() -> None:
    """By zone, zone-b is the tightest that holds 2; by rack, rack-2 is."""
    placed = drawn(FIVE_AND_FOUR, "kueue-best-fit", {"level": "zone"})
    placed.run(gang(min_member=2), members=pods("train", 2, WHOLE))
    assert placed.used("train", by="rack") == {"rack-3": 2}


class TestKueueBestFit:
    NAME = "kueue-best-fit"

    def test_without_a_level_a_single_node_comes_before_a_rack(self) -> None:
        #   b1 alone holds both; rack-1 would be as tight, and comes first.
        drawing = "zone-a rack-1 : a1=4 a2=4\nzone-a rack-2 : b1=9 b2=9"
        assert racks(drawing, self.NAME, 2) == {"rack-2": 2}

    def test_a_domain_that_holds_exactly_the_gang_is_enough(self) -> None:
        #   Else the tightest zone would be zone-b, with two racks of three.
        drawing = """
        zone-a rack-1 : a1=4 a2=4 a3=4 a4=4
        zone-a rack-4 : d1=4 d2=4 d3=4
        zone-b rack-2 : b1=4 b2=4 b3=4
        zone-b rack-3 : c1=4 c2=4 c3=4
        """
        placed = drawn(drawing, self.NAME, {"level": "rack"})
        placed.run(gang(min_member=4), members=pods("train", 4, WHOLE))
        assert placed.used(by="rack") == {"rack-1": 4}

    def test_a_level_above_the_required_one_is_no_wider_choice(self) -> None:
        placed = drawn(FIVE_AND_FOUR, self.NAME, {"level": "zone"})
        placed.run(gang(min_member=4, required="rack"), members=pods("train", 4, WHOLE))
        assert placed.used(by="rack") == {"rack-3": 4}

    def test_nodes_without_the_label_of_a_level_are_left_out(self) -> None:
        nodes = draw("zone-a rack-1 : a1=4 a2=4", resource="cpu")
        bare = replace(nodes[0], labels={"zone": "zone-a", "rack": "rack-1"})
        entries = NAMED[self.NAME].plugins
        placed = world([bare, nodes[1]], fabric("zone", "rack", HOSTNAME), plugins=entries)
        placed.run(gang(min_member=1), members=pods("train", 1, WHOLE))
        assert placed.where == {"train-0": "a2"}

    def test_a_level_that_no_topology_has_is_reported(self) -> None:
        handle = handle_of([])
        assert KueueBestFit(KueueArguments(), handle).conditions() == ()
        [told] = KueueBestFit(KueueArguments(level="row"), handle).conditions()
        assert told.reason is Reason.TOPOLOGY_LEVEL_NOT_FOUND


def test_a_level_of_the_gangs_own_takes_the_place_of_the_one_that_is_worked_out() -> None:
    """Four pods fit into one rack, were rack-3 empty; who requires a zone need not wait for that."""
    waits = drawn(FIVE_AND_FOUR, "single-level-required")
    waits.run(gang(min_member=4), members=[*busy("b1"), *pods("train", 4, WHOLE)])
    assert waits.used("train") == {}
    placed = drawn(FIVE_AND_FOUR, "single-level-required")
    placed.run(gang(min_member=4, required="zone"), members=[*busy("b1"), *pods("train", 4, WHOLE)])
    assert placed.used("train", by="zone") == {"zone-a": 4}
