"""The scores of the baselines that score nodes, asked one by one as upstream and Volcano give them."""

from collections.abc import Mapping

import pytest

from closeby.lab.baselines.allocated import AllocatedArguments, LeastAllocated, MostAllocated
from closeby.lab.baselines.first_task_labels import FirstTaskArguments, FirstTaskLabels
from closeby.lab.baselines.single_level_required import SingleLevelArguments, SingleLevelRequired
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Score
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.plugins.asking import handle_of, place
from tests.worlds import fabric, node, pods, spec

#: n1 has room, n2 more of cpu, n3 offers no memory, and n4 offers less than is in use there.
NODES = {
    "n1": {"cpu": 1000, "memory": 1000},
    "n2": {"cpu": 3000, "memory": 1000},
    "n3": {"cpu": 1000},
    "n4": {"cpu": 100, "memory": 1000},
}


def given(plugin: Score, pod: Pod, state: CycleState | None = None) -> dict[str, float]:
    """The score of each node."""
    cluster = plugin.handle.cluster
    values = plugin.score(state or CycleState(), pod, Nodes(cluster))
    return {name or "": float(value) for name, value in zip(cluster.names, values.tolist(), strict=True)}


class TestAllocated:
    @staticmethod
    def plugin(kind: type[LeastAllocated | MostAllocated]) -> Score:
        handle = handle_of([node(name, {}, offers) for name, offers in NODES.items()])
        for name in ("n1", "n4"):
            place(handle.cluster, pods(None, 1, spec(cpu=200), prefix=name)[0], name)
        return kind(AllocatedArguments(), handle)

    @pytest.mark.parametrize(
        ("kind", "scores"),
        [
            # cpu of n1: (1000 - 200 - 100) / 1000; memory: (1000 - 255) / 1000 is 74 %, whole numbers.
            (LeastAllocated, {"n1": (70 + 74) // 2, "n2": (96 + 74) // 2, "n3": 90, "n4": (0 + 74) // 2}),
            (MostAllocated, {"n1": (30 + 25) // 2, "n2": (3 + 25) // 2, "n3": 10, "n4": (100 + 25) // 2}),
        ],
    )
    def test_the_mean_of_what_each_node_offers(
        self, kind: type[LeastAllocated | MostAllocated], scores: Mapping[str, int]
    ) -> None:
        [pod] = pods(None, 1, spec(cpu=100, memory=255))
        found = given(self.plugin(kind), pod)
        assert {name: int(score) for name, score in found.items()} == scores

    def test_of_nodes_that_are_alike_one_is_drawn(self) -> None:
        handle = handle_of([node(f"n{index}", {}, {"cpu": 1000}) for index in range(4)])
        first = [
            max(scores, key=lambda name: scores[name])
            for pod in pods(None, 20, spec(cpu=500))
            for scores in [given(LeastAllocated(AllocatedArguments(), handle), pod)]
        ]
        assert set(first) == {"n0", "n1", "n2", "n3"}

    def test_pods_that_ask_for_other_amounts_are_judged_apart(self) -> None:
        plugin = self.plugin(LeastAllocated)
        [one], [other] = pods(None, 1, spec(cpu=1)), pods(None, 1, spec(cpu=2))
        assert plugin.class_key(one) != plugin.class_key(other)

    def test_some_resource_must_count(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            AllocatedArguments(resources=())


class TestFirstTaskLabels:
    PLACES = (
        ("a1", "r1", "z1"),
        ("a2", "r1", "z1"),
        ("b1", "r2", "z1"),
        ("c1", "r3", "z2"),
        ("e1", "", "z1"),
        ("e2", "", "z2"),
    )

    def plugin(self, *keys: str) -> FirstTaskLabels:
        handle = handle_of([node(name, {"rack": rack, "zone": zone}) for name, rack, zone in self.PLACES])
        handle.topologies.declare(fabric("zone", "rack"))
        return FirstTaskLabels(FirstTaskArguments(keys=keys), handle)

    def scores(self, plugin: FirstTaskLabels, placed: str = "", running: str = "") -> dict[str, int]:
        slot_of = plugin.handle.cluster.slot_of
        state = CycleState(anchors=(slot_of(running),) if running else ())
        members = pods("train", 4)
        state.placed.extend((pod, slot_of(name)) for pod, name in zip(members, placed.split(), strict=False))
        return {name: round(score) for name, score in given(plugin, members[-1], state).items()}

    def test_the_nearest_label_that_agrees_counts(self) -> None:
        found = self.scores(self.plugin("rack", "zone"), placed="a1")
        assert found == {"a1": 100, "a2": 100, "b1": 50, "c1": 0, "e1": 50, "e2": 0}

    def test_it_is_the_first_task_that_counts_and_those_that_run_before_it(self) -> None:
        plugin = self.plugin("rack", "zone")
        assert self.scores(plugin, placed="c1 a1")["c1"] == 100
        assert self.scores(plugin, placed="a1", running="c1")["c1"] == 100

    def test_empty_labels_never_match(self) -> None:
        assert self.scores(self.plugin("rack", "zone"), placed="e1")["e2"] == 0

    def test_without_keys_the_levels_count_the_finest_first(self) -> None:
        assert self.scores(self.plugin(), placed="a1") == self.scores(
            self.plugin("rack", "zone"), placed="a1"
        )
        other = self.scores(self.plugin("zone"), placed="a1")
        assert (other["b1"], other["c1"]) == (100, 0)

    def test_before_the_first_task_nodes_are_drawn(self) -> None:
        assert set(self.scores(self.plugin("rack")).values()) == {0}

    def test_only_members_of_a_gang_are_scored(self) -> None:
        plugin = self.plugin("rack")
        assert plugin.scores(pods("train", 1)[0])
        assert not plugin.scores(pods(None, 1)[0])


def test_the_draw_of_single_level_required_is_for_members_of_a_gang() -> None:
    plugin = SingleLevelRequired(SingleLevelArguments(), handle_of([]))
    assert plugin.scores(pods("train", 1)[0])
    assert not plugin.scores(pods(None, 1)[0])
