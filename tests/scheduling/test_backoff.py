"""What was refused is tried again after what may help it, and with a clock ever later."""

from itertools import permutations

import pytest

from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    FlushUnschedulable,
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.intake.cluster_events import ANY_EVENT, NO_EVENT, ClusterEvent, queueing_hints
from closeby.scheduling.outcomes import outcomes_of
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, world

SMALL = "zone-a rack-1 : a1=1"


def tries(drawn: World, now: float | None) -> int:
    """Decisions at this moment."""
    found = drawn.engine.handle(Tick(now=now))
    drawn.engine.validate_state()
    return len(outcomes_of(found))


def capacity_event(drawn: World, number: int = 0) -> World:
    """Something happens that might help, but does not."""
    return drawn.tell(NodeUpserted(node(f"small-{number}", {}, {GPU: 0})))


def unequal(first: int = 3, second: int = 2) -> list[Pod]:
    """A gang of two that fit one by one but not beside each other, which no count of room can tell."""
    return [*pods("odd", 1, spec(gpu=first), prefix="big"), *pods("odd", 1, spec(gpu=second), prefix="less")]


def waiting() -> World:
    """Such a gang, refused at second 0."""
    drawn = world("zone-a rack-1 : a1=3 a2=1").tell(GroupChanged(gang("odd", min_member=2)))
    drawn.tell(*(PodUpserted(pod) for pod in unequal()))
    assert tries(drawn, 0.0) == 1
    return drawn


def test_nothing_is_tried_again_without_an_event() -> None:
    assert tries(waiting(), 100.0) == 0


def test_without_a_clock_an_event_is_enough() -> None:
    drawn = waiting()
    assert [tries(capacity_event(drawn, number), None) for number in range(5)] == [1] * 5


def test_without_backoff_a_clock_changes_nothing() -> None:
    engine = Engine(lambda handle: profile_for(Configuration(), handle), backoff=False)
    drawn = World(engine, draw("zone-a rack-1 : a1=3 a2=1"), fabric("zone", "rack"))
    drawn.tell(GroupChanged(gang("odd", min_member=2)), *(PodUpserted(pod) for pod in unequal()))
    assert [tries(capacity_event(drawn, number), 0.1 * number) for number in range(5)] == [1] * 5
    assert drawn.engine.next_backoff_end is None


def test_with_a_clock_the_backoff_must_be_over_too() -> None:
    drawn = capacity_event(waiting())
    assert [tries(drawn, now) for now in (0.5, 0.9)] == [0, 0]
    assert drawn.engine.next_backoff_end == pytest.approx(1.0)
    assert drawn.engine.backing_off == ("default/odd",)
    assert tries(drawn, 1.0) == 1
    assert drawn.engine.next_backoff_end is None


def test_backoff_grows_to_ten_seconds() -> None:
    drawn, now, backoffs = waiting(), 0.0, []
    for number in range(6):
        tries(capacity_event(drawn, number), now)
        due = drawn.engine.next_backoff_end
        assert due is not None
        backoffs.append(due - now)
        now = due
        assert tries(drawn, now) == 1
    assert backoffs == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_items_moved_by_an_event_for_all_wait_for_the_backoff_too() -> None:
    drawn = world(SMALL).tell(*(PodUpserted(pod) for pod in pods(None, 3, spec(gpu=9))))
    assert tries(drawn, 0.0) == 3
    drawn.tell(FlushUnschedulable())
    assert [tries(drawn, now) for now in (0.5, 1.0)] == [0, 3]


def test_a_change_of_an_item_itself_ends_its_backoff() -> None:
    drawn = waiting()
    drawn.tell(PodUpserted(pods("odd", 1, prefix="late")[0]))
    assert tries(drawn, 0.1) == 1


def test_what_is_placed_and_comes_back_starts_over() -> None:
    drawn = waiting()
    tries(capacity_event(drawn), 1.0)
    drawn.tell(NodeUpserted(node("big", {}, {GPU: 9})))
    assert tries(drawn, 5.0) == 1
    assert drawn.reason("odd") is None
    drawn.tell(*(PodDeleted(pod.uid) for pod in unequal()), NodeDeleted("big"))
    drawn.tell(*(PodUpserted(pod) for pod in unequal()))
    assert tries(drawn, 6.0) == 1
    tries(capacity_event(drawn, 2), 6.0)
    assert drawn.engine.next_backoff_end == pytest.approx(7.0)


NOT_OF_VOLUMES = ANY_EVENT & ~(ClusterEvent.VOLUME | ClusterEvent.ATTACHMENT)


@pytest.mark.parametrize(
    ("reasons", "cure"),
    [
        ({Reason.INSUFFICIENT_RESOURCES}, NOT_OF_VOLUMES),
        ({Reason.GANG_INCOMPLETE}, ClusterEvent.TOPOLOGY),
        ({Reason.GANG_INCOMPLETE, Reason.INSUFFICIENT_RESOURCES}, NOT_OF_VOLUMES),
        ({Reason.TOPOLOGY_NOT_FOUND}, ClusterEvent.TOPOLOGY),
        ({Reason.TOPOLOGY_LEVEL_NOT_FOUND}, ClusterEvent.TOPOLOGY),
        ({Reason.SCHEDULING_GATED}, NO_EVENT),
        ({Reason.UNSUPPORTED}, NO_EVENT),
        (set(), NO_EVENT),
        (
            {Reason.SCHEDULING_GATED, Reason.GANG_INCOMPLETE, Reason.INVALID_SPEC},
            ClusterEvent.TOPOLOGY | ClusterEvent.NETWORK,
        ),
        ({Reason.NODE_RESERVED, Reason.UNSUPPORTED}, ANY_EVENT),
        ({Reason.UNSUPPORTED, Reason.INVALID_SPEC}, ClusterEvent.TOPOLOGY | ClusterEvent.NETWORK),
    ],
)
def test_what_may_help(reasons: set[Reason], cure: ClusterEvent) -> None:
    for order in permutations(reasons):
        assert queueing_hints(order) == cure


def test_an_incomplete_gang_is_not_tried_again_when_a_node_comes() -> None:
    drawn = world(SMALL).run(gang(min_member=3), members=pods("train", 2))
    assert drawn.reason("train") is Reason.GANG_INCOMPLETE
    assert tries(capacity_event(drawn), None) == 0


def test_a_gang_whose_topology_comes_is() -> None:
    drawn = world(SMALL).run(gang(min_member=1, required="rack", topology="late"), members=pods("train", 1))
    assert drawn.reason("train") is Reason.TOPOLOGY_NOT_FOUND
    assert tries(capacity_event(drawn), None) == 0
    drawn.tell(TopologyChanged(fabric("zone", "rack", name="late")))
    assert tries(drawn, None) == 1
    assert drawn.reason("train") is None
