"""What waits for the same room is tried one after another, and only when the room is there."""

from random import Random
from typing import ClassVar

import pytest
from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import (
    BindFailed,
    Event,
    FlushUnschedulable,
    GroupChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.extension import Filter, PostFilter
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.golden.fixture import Golden
from tests.worlds import GPU, World, gang, node, pods, spec, world

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=2 b2=2
"""


def decided(drawn: World, *events: Event) -> list[str]:
    """The items decided at the next tick, in order."""
    found = drawn.engine.handle(*events, Tick())
    drawn.engine.validate_state()
    return [one.key.removeprefix("default/") for one in outcomes_of(found)]


def full(drawing: str = TWO_RACKS) -> World:
    """Every node is taken by pods called old-0, old-1, … of 2 GPUs."""
    drawn = world(drawing)
    return drawn.run(members=pods(None, len(drawn.engine.cluster.nodes), spec(gpu=2), prefix="old"))


class TestTries:
    def test_each_new_item_gets_an_answer_of_its_own(self, golden: Golden) -> None:
        drawn = full()
        assert decided(drawn, *map(PodUpserted, pods(None, 3, spec(gpu=2)))) == ["pod-0", "pod-1", "pod-2"]
        for index in range(3):
            outcome = drawn.outcome(f"pod-{index}")
            assert [pod.name for pod in outcome.refused] == [f"pod-{index}"]
            assert outcome.reason is Reason.INSUFFICIENT_RESOURCES
            golden("refusals", outcome.message or "")

    def test_as_many_are_tried_as_there_is_room_for(self) -> None:
        drawn = full()
        decided(drawn, *map(PodUpserted, pods(None, 9, spec(gpu=2))))
        assert decided(drawn, PodDeleted("default/old-0")) == ["pod-0"]
        assert decided(drawn, PodDeleted("default/old-1"), PodDeleted("default/old-2")) == ["pod-1", "pod-2"]
        assert drawn.engine.unschedulable == tuple(f"pod:default/pod-{index}" for index in range(3, 9))

    def test_the_order_is_that_of_the_queue(self) -> None:
        """Small and large ones take turns by age, not by kind."""
        drawn = full()
        mixed = [
            pods(None, 1, spec(gpu=1 + index % 2), prefix=f"p{index}", created=float(index))[0]
            for index in range(6)
        ]
        decided(drawn, *map(PodUpserted, reversed(mixed)))
        freed = [PodDeleted(f"default/old-{index}") for index in range(2)]
        assert decided(drawn, *freed) == ["p0-0", "p1-0", "p2-0"]

    def test_a_gang_is_not_tried_before_its_level_has_the_room(self) -> None:
        drawn = full()
        group = gang("g", min_member=2, required="rack")
        decided(drawn, GroupChanged(group), *map(PodUpserted, pods("g", 2, spec(gpu=2))))
        assert decided(drawn, PodDeleted("default/old-0")) == []
        assert decided(drawn, PodDeleted("default/old-2")) == []
        assert decided(drawn, PodDeleted("default/old-1")) == ["g"]
        assert drawn.reason("g") is None

    def test_one_whose_pods_are_deleted_while_it_is_tried_lets_the_next_one_in(self) -> None:
        drawn = full()
        decided(drawn, *map(PodUpserted, pods(None, 3, spec(gpu=2))))
        first = drawn.engine.handle(PodDeleted("default/old-0"), PodDeleted("default/old-1"), Tick(limit=1))
        assert [one.pod.name for one in bindings_of(first)] == ["pod-0"]
        assert decided(drawn, PodDeleted("default/pod-1")) == ["pod-2"]

    def test_one_that_asks_for_less_now_is_tried_at_once(self) -> None:
        drawn = full()
        decided(
            drawn, *map(PodUpserted, pods(None, 3, spec(gpu=2))), PodUpserted(pods(None, 1, spec(gpu=1))[0])
        )
        drawn.tell(PodDeleted("default/old-3"))
        assert decided(drawn, *map(PodUpserted, pods(None, 1, spec(gpu=1)))) == ["pod-0"]

    def test_what_it_lacked_before_counts_no_more(self) -> None:
        """The gang's minimum had no place though each of its pods had; then only its last pod has none."""
        drawn = world("zone-a rack-1 : a1=3 a2=1")
        members = [pods("odd", 1, spec(gpu=size), prefix=f"m{size}")[0] for size in (3, 2)]
        members += pods("odd", 1, spec(gpu=2), prefix="z")
        decided(drawn, GroupChanged(gang("odd", min_member=2)), *map(PodUpserted, members))
        assert drawn.reason("odd") is Reason.GANG_DOES_NOT_FIT
        assert decided(drawn, NodeUpserted(node("b", {}, {GPU: 2}))) == ["odd"]
        assert set(drawn.left("odd")) == {"z-0"}
        assert decided(drawn, NodeUpserted(node("c", {}, {GPU: 2}))) == ["odd"]
        assert drawn.left("odd") == {}

    def test_a_gang_whose_member_will_never_be_bound_is_looked_at(self) -> None:
        drawn = world("zone-a rack-1 : a1=2 a2=2")
        decided(drawn, GroupChanged(gang("g", min_member=1)), *map(PodUpserted, pods("g", 3, spec(gpu=2))))
        assert set(drawn.left("g")) == {"g-2"}
        assert decided(drawn, BindFailed("default/g-0", "gone", final=True)) == ["g"]

    def test_priorities_go_before_ages_among_equals(self) -> None:
        drawn = full()
        low, high = (
            pods(None, 1, replace(spec(gpu=2), priority=level), prefix=name)[0]
            for name, level in (("a", 0), ("z", 9))
        )
        decided(drawn, PodUpserted(low), PodUpserted(high))
        assert decided(drawn, PodDeleted("default/old-0")) == ["z-0"]

    def test_an_event_for_all_invalidates_all_classes(self) -> None:
        drawn = full()
        decided(drawn, *map(PodUpserted, pods(None, 3, spec(gpu=2))))
        drawn.tell(NodeUpserted(node("small", {}, {GPU: 1})))
        assert decided(drawn) == []
        assert decided(drawn, FlushUnschedulable()) == ["pod-0", "pod-1", "pod-2"]
        assert drawn.shortfall("pod-2").blocked_by == {Reason.INSUFFICIENT_RESOURCES: 5}


class OneByOne(PostFilter):
    """Hears of each pod that found no place, so that each is decided for itself."""

    name: ClassVar[str] = "OneByOne"

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        """Takes it as it is."""


class Closed(Filter):
    """Refuses all nodes, and counts how often it is asked why."""

    name: ClassVar[str] = "Closed"
    asked: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        return nodes.all(False)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        self.asked.append(pod.name)
        return Rejection(Reason.NODE_UNSCHEDULABLE, "closed")


class TestRefusedAlike:
    """Equal pods that fit nowhere get the refusal that was worked out for the first of them."""

    def test_each_waits_with_the_reason_of_the_first(self) -> None:
        drawn = full()
        decided(drawn, *map(PodUpserted, pods(None, 5, spec(gpu=2))))
        first, *others = (drawn.outcome(f"pod-{index}") for index in range(5))
        for other in others:
            assert (other.reason, other.message, other.shortfall) == (
                first.reason,
                first.message,
                first.shortfall,
            )

    def test_the_plugins_that_take_part_by_default_are_asked_once(self) -> None:
        drawn = world(TWO_RACKS, plugins=[PluginEntry(name=f"{__name__}:Closed")])
        decided(drawn, *map(PodUpserted, pods(None, 1, prefix="first")))
        Closed.asked.clear()
        assert len(decided(drawn, *map(PodUpserted, pods(None, 20)))) == 20
        assert set(Closed.asked) == {"pod-0"}

    def test_pods_of_another_priority_and_gated_pods_get_their_own(self) -> None:
        drawn = full()
        high = pods(None, 2, replace(spec(gpu=2), priority=9), prefix="high")
        low = pods(None, 2, replace(spec(gpu=2), priority=1), prefix="low")
        gated = pods(None, 1, replace(spec(gpu=2), scheduling_gates=("quota",)), prefix="gated")
        decided(drawn, *map(PodUpserted, (*low, *gated, *high)))
        assert drawn.reason("gated-0") is Reason.SCHEDULING_GATED
        assert decided(drawn, PodDeleted("default/old-0")) == ["high-0"]
        assert decided(drawn, PodDeleted("default/old-1"), PodDeleted("default/old-2")) == ["high-1", "low-0"]

    def test_a_turn_takes_no_more_of_them_than_its_limit(self) -> None:
        drawn = full()
        drawn.tell(*map(PodUpserted, pods(None, 6, spec(gpu=2))))
        turns = [outcomes_of(drawn.engine.handle(Tick(limit=limit))) for limit in (3, 1, None)]
        assert [[one.key[-1] for one in turn] for turn in turns] == [["0", "1", "2"], ["3"], ["4", "5"]]
        drawn.engine.validate_state()

    def test_one_for_which_room_came_is_asked_for_itself(self) -> None:
        """The oldest take the room that came for the one which waited before them."""
        drawn = full("zone-a rack-1 : a1=2")
        decided(drawn, PodUpserted(pods(None, 1, spec(gpu=2), prefix="waited", created=9.0)[0]))
        old = pods(None, 3, spec(gpu=2), prefix="old", created=1.0)
        older = [replace(pod, name=f"x{pod.name}", uid=f"x{pod.uid}") for pod in old]
        assert decided(drawn, PodDeleted("default/old-0"), *map(PodUpserted, older)) == [
            "xold-0",
            "xold-1",
            "xold-2",
        ]

    def test_what_is_placed_in_between_counts(self) -> None:
        drawn = world("zone-a rack-1 : a1=3")
        ages = [
            pods(None, 1, spec(gpu=size), prefix=f"p{at}", created=float(at))[0]
            for at, size in enumerate((4, 1, 4, 2, 4))
        ]
        decided(drawn, *map(PodUpserted, ages))
        lacks = [drawn.shortfall(f"p{at}-0").lacks[0].free for at in (0, 2, 4)]
        assert lacks == [3, 2, 0]

    @pytest.mark.parametrize("seed", range(30))
    def test_outcomes_are_those_of_pods_decided_one_by_one(self, seed: int) -> None:
        draw = Random(seed)
        racks = "\n".join(
            f"zone-a rack-{rack} : " + " ".join(f"n{rack}{at}={draw.randint(0, 4)}" for at in range(3))
            for rack in range(2)
        )
        alike, one_by_one = world(racks), world(racks, plugins=[PluginEntry(name=f"{__name__}:OneByOne")])
        alive: list[str] = []
        for step in range(6):
            events: list[Event] = []
            for at in range(draw.randint(1, 12)):
                needs = replace(spec(gpu=draw.randint(1, 4)), priority=draw.choice([0, 0, 0, 5]))
                made = pods(None, 1, needs, prefix=f"p{step}-{at}", created=draw.choice([None, 1.0, 2.0]))
                events += map(PodUpserted, made)
                alive += [one.uid for one in made]
            for uid in draw.sample(alive, min(len(alive), draw.randint(0, 4))):
                alive.remove(uid)
                events.append(PodDeleted(uid))
            if draw.random() < 0.2:
                events.append(FlushUnschedulable())
            found = [one.engine.handle(*events, Tick(now=10.0 * step)) for one in (alike, one_by_one)]
            assert outcomes_of(found[0]) == outcomes_of(found[1]), f"seed {seed}, step {step}"
            assert alike.engine.unschedulable == one_by_one.engine.unschedulable
            alike.engine.validate_state()
