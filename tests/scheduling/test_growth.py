"""Members beyond a gang's minimum, and subgroups that may be left out: who follows, where to, who waits."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import NodeUpserted
from closeby.scheduling.extension import (
    Candidate,
    Filter,
    PartView,
    Placement,
    PlacementGenerate,
    PlacementScore,
    PostFilter,
    Scope,
)
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.golden.fixture import Golden
from tests.scheduling.test_candidate_domains import TOO_MANY
from tests.worlds import GPU, gang, node, pods, spec, subgroup, world


def plugin(kind: type) -> PluginEntry:
    return PluginEntry(name=f"{__name__}:{kind.__name__}")


def some(count: int, *subgroups: SubGroup) -> PodGroup:
    """A gang of which so many subgroups must find a place."""
    return replace(gang(subgroups=subgroups), min_subgroups=count)


def of(name: str, *gpus: int, **fields: object) -> list[Pod]:
    """Pods of a subgroup, by the GPUs of each."""
    return [
        replace(
            pods("train", 1, replace(spec(gpu=each), **fields), subgroup=name)[0],
            name=f"{name}-{index}",
            uid=f"default/{name}-{index}",
        )
        for index, each in enumerate(gpus)
    ]


class TestMembersBeyondTheMinimum:
    def test_each_is_placed_once_however_many_domains_have_room(self) -> None:
        #   The minimum fills rack-1; of four more, one finds room in its zone and two beyond it.
        drawn = world("zone-a rack-1 : a1=3\nzone-b rack-2 : b1=2\nzone-a rack-3 : a3=1")
        drawn.run(gang(min_member=3, preferred="rack"), members=pods("train", 7))
        assert drawn.used() == {"a1": 3, "a3": 1, "b1": 2}
        assert list(drawn.left("train")) == ["train-6"]
        assert drawn.engine.cluster.requested.sum() == 12, "six GPUs and six pods"

    def test_a_subgroup_without_a_minimum_goes_where_most_pods_fit(self) -> None:
        #   The parent must stay in one rack: three of four fit into rack-2, and none may go beyond.
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=3\nzone-a rack-3 : c1=1")
        groups = [subgroup("p", required="rack"), subgroup("x", 0, parent="p"), subgroup("y", 1)]
        everybody = [*of("x", 1, 1, 1, 1), *of("y", 1, node_selector=(("rack", "rack-3"),))]
        drawn.run(gang(subgroups=groups), members=everybody)
        assert (drawn.used("x"), drawn.used("y")) == ({"b1": 3}, {"c1": 1})
        assert drawn.left("train") == {"x-3": Reason.TOPOLOGY_PLACEMENT_FAILED}

    def test_the_rack_that_holds_everybody_though_the_minimum_is_smaller_than_the_rest(self) -> None:
        #   By the pods of the minimum alone rack-1 would have room for two, and be the tighter one.
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4")
        unequal = [*pods("train", 1, prefix="a"), *pods("train", 1, spec(gpu=3), prefix="b")]
        drawn.run(gang(min_member=1, required="rack"), members=unequal)
        assert drawn.used() == {"b1": 2}

    def test_a_subgroup_goes_to_the_tightest_rack_for_all_of_it_though_others_find_no_such_rack(self) -> None:
        #   x wants three and needs one; y wants nine, which no rack holds, and takes the roomiest.
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=3\nzone-a rack-3 : c1=4")
        groups = [subgroup("x", 1, required="rack"), subgroup("y", 1, required="rack")]
        drawn.run(gang(subgroups=groups), members=[*of("x", 1, 1, 1), *of("y", *[1] * 9)])
        assert (drawn.used("x"), drawn.used("y")) == ({"b1": 3}, {"c1": 4})

    def test_they_follow_to_the_cheapest_placement_and_not_to_the_last_one_compared(self) -> None:
        drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=4", plugins=[plugin(DearRackOne)])
        drawn.run(
            gang(min_member=2, required="rack", subgroups=[subgroup("x", 2)]), members=of("x", 1, 1, 1, 1, 1)
        )
        assert drawn.used() == {"b1": 4}

    def test_of_placements_that_cost_the_same_the_first_is_taken(self) -> None:
        drawn = world("zone-a rack-2 : a1=3\nzone-a rack-3 : b1=2", plugins=[plugin(DearRackOne)])
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2))
        assert drawn.used() == {"b1": 2}, "the tightest"

    def test_members_find_room_beside_one_that_runs_as_far_as_its_parent_allows(self) -> None:
        #   The rack of the first member is preferred, and full; zone-a is required.
        drawn = world("zone-a rack-1 : a1=1\nzone-a rack-2 : b1=1\nzone-b rack-3 : c1=4")
        groups = [subgroup("p", required="zone", preferred="rack"), subgroup("x", parent="p")]
        running = pods("train", 1, prefix="old", on="a1", subgroup="x")
        drawn.run(gang(subgroups=groups), members=[*running, *of("x", 1, 1)])
        assert drawn.used() == {"b1": 1}
        assert drawn.left("train") == {"x-1": Reason.TOPOLOGY_PLACEMENT_FAILED}

    def test_a_gang_that_needs_more_than_its_subgroups_reports_how_many_found_a_place(
        self, golden: Golden
    ) -> None:
        #   One runs, which is enough for x; the gang needs three, and rack-1 is full.
        drawn = world("zone-a rack-1 : a1=1\nzone-a rack-2 : b1=4")
        running = pods("train", 1, prefix="old", on="a1", subgroup="x")
        group = gang(min_member=3, subgroups=[subgroup("x", 1, required="rack")])
        drawn.run(group, members=[*running, *of("x", 1, 1)])
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        golden("refusals", drawn.outcome("train").message or "")


class TestSubgroupsThatAreLeftOut:
    def test_none_is_left_out_where_another_choice_of_its_siblings_holds_all(self) -> None:
        #   x takes rack-1 first, as the tighter one, where y has to go.
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=3")
        groups = [subgroup(name, 2, required="rack") for name in ("x", "y")]
        drawn.run(
            some(1, *groups), members=[*of("x", 1, 1), *of("y", 1, 1, node_selector=(("rack", "rack-1"),))]
        )
        assert (drawn.used("x"), drawn.used("y")) == ({"b1": 2}, {"a1": 2})

    def test_no_member_of_one_is_placed_alone(self) -> None:
        #   y's pods fit into rack-1 one by one, but not beside each other.
        drawn = world("zone-a rack-1 : a1=3 a2=1\nzone-a rack-2 : b1=2")
        groups = [subgroup("x", 2, required="rack"), subgroup("y", 2, required="rack")]
        needs = of("x", 1, 1, node_selector=(("rack", "rack-2"),))
        drawn.run(some(1, *groups), members=[*needs, *of("y", 3, 2)])
        assert drawn.used() == {"b1": 2}
        assert drawn.left("train") == dict.fromkeys(("y-0", "y-1"), Reason.GANG_DOES_NOT_FIT)

    def test_one_is_left_out_again_after_another_choice_of_its_siblings(self) -> None:
        #   x takes rack-1 first, as the tighter one; y fits nowhere, and z on rack-1 alone. With x on rack-2
        #   z fits, and y is still the one that is left out.
        drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=4")
        groups = [subgroup(name, size, required="rack") for name, size in (("x", 3), ("y", 2), ("z", 1))]
        only = of("z", 3, node_selector=(("rack", "rack-1"),))
        drawn.run(some(2, *groups), members=[*of("x", 1, 1, 1), *of("y", 8, 8), *only])
        assert (drawn.used("x"), drawn.used("z")) == ({"b1": 3}, {"a1": 1})
        assert drawn.left("train") == dict.fromkeys(("y-0", "y-1"), Reason.GANG_DOES_NOT_FIT)

    def test_room_for_one_of_two_is_worth_an_attempt(self) -> None:
        drawn = world("zone-a rack-1 : a1=0")
        groups = [subgroup(name, 4, required="rack") for name in ("x", "y")]
        drawn.run(some(1, *groups), members=[*of("x", 1, 1, 1, 1), *of("y", 1, 1, 1, 1)])
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
        drawn.tell(NodeUpserted(node("c1", {"zone": "zone-a", "rack": "rack-3"}, {GPU: 4}))).run()
        assert drawn.used() == {"c1": 4}

    def test_one_that_fits_nowhere_is_not_blamed_where_the_others_were_too_many_to_try(self) -> None:
        #   Not all ways to place x can be tried; y fits nowhere, and may be left out.
        drawn = world("zone-a rack-1 : " + " ".join(f"a{index}=1000" for index in range(8)))
        groups = [subgroup("x", len(TOO_MANY), required="rack"), subgroup("y", 2, required="rack")]
        drawn.run(some(1, *groups), members=[*of("x", *TOO_MANY), *of("y", 1001, 1001)])
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.SEARCH_BUDGET_EXHAUSTED


class NoCandidates(PlacementGenerate):
    """Has nothing to offer, which is not the same as nothing to say."""

    name: ClassVar[str] = "NoCandidates"

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        return []


class DearRackOne(PlacementScore):
    """Nodes of rack-1 cost 10 a pod, others 1."""

    name: ClassVar[str] = "DearRackOne"

    def placement_cost(self, state: CycleState, placement: Placement) -> float:
        labels = [self.handle.cluster.node_at(slot).labels["rack"] for slot in placement.slots.tolist()]
        return float(sum(10 if rack == "rack-1" else 1 for rack in labels))


class TwoAtMost(Filter):
    """Lets no third pod of a cycle go anywhere, which no count of room can tell."""

    name: ClassVar[str] = "TwoAtMost"
    filter_scope: ClassVar[Scope] = Scope.PER_PLACEMENT

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        return np.full(len(nodes), len(state.placed) < 2)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(Reason.UNSUPPORTED, "two were placed")


class Told(PostFilter):
    """Remembers for whom no place was found."""

    name: ClassVar[str] = "Told"
    pods: ClassVar[list[str]] = []

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        self.pods.extend(pod.name for pod in pods)


class TestWhatPluginsSay:
    def test_a_generator_without_candidates_refuses(self) -> None:
        only = [PluginEntry(name="topology", enabled=False), plugin(NoCandidates)]
        drawn = world("zone-a rack-1 : a1=2", plugins=only).run(gang(min_member=2), members=pods("train", 2))
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT

    def test_as_many_follow_as_a_filter_lets_though_there_is_room_for_all(self) -> None:
        drawn = world("zone-a rack-1 : a1=4", plugins=[plugin(TwoAtMost)])
        drawn.run(gang(min_member=1), members=pods("train", 4))
        assert drawn.used() == {"a1": 2}
        assert list(drawn.left("train")) == ["train-2", "train-3"]

    def test_post_filter_hears_of_a_gang_that_found_no_place(self) -> None:
        Told.pods.clear()
        drawn = world("zone-a rack-1 : a1=1", plugins=[plugin(Told)])
        drawn.run(gang(min_member=2), members=pods("train", 2))
        assert drawn.where == {}
        assert Told.pods == ["train-0", "train-1"]
