"""Members that are being deleted hold their nodes, but the gang does not count on them."""

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodDeleted, PodUpserted
from tests.worlds import gang, pods, world


def going(count: int, on: str) -> list[Pod]:
    """Members of an earlier run on their way out."""
    return [replace(pod, terminating=True) for pod in pods("train", count, prefix="old", on=on)]


def test_a_restarted_gang_starts_as_a_whole() -> None:
    """Four leave, four come, and there is room for two until the others are gone."""
    drawn = world("zone-a rack-1 : a1=6")
    drawn.run(gang(min_member=4), members=[*going(4, "a1"), *pods("train", 4)])
    assert drawn.where == {}
    assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
    drawn.tell(PodDeleted("default/old-0"), PodDeleted("default/old-1")).run()
    assert len(drawn.where) == 4


def test_it_is_not_bound_to_the_domain_that_they_leave() -> None:
    """A pod on a dead node may be on its way out for ever."""
    drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4")
    drawn.run(gang(min_member=4, required="rack"), members=[*going(1, "a1"), *pods("train", 4)])
    assert drawn.used() == {"b1": 4}


def test_their_ranks_are_assigned_again() -> None:
    drawn = world("zone-a rack-1 : a1=8")
    old = [replace(pod, rank=number) for number, pod in enumerate(going(2, "a1"))]
    drawn.run(gang(min_member=2), members=[*old, *pods("train", 2)])
    assert sorted(drawn.rank.values(), key=str) == [0, 1]


def test_when_a_member_begins_to_leave_those_that_wait_are_looked_at() -> None:
    drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4")
    [old] = pods("train", 1, prefix="old", on="a1")
    drawn.run(gang(min_member=4, required="rack"), members=[old, *pods("train", 4)])
    assert drawn.where == {}
    drawn.tell(PodUpserted(replace(old, terminating=True))).run()
    assert drawn.used() == {"b1": 4}


def test_what_came_and_went_leaves_nothing_to_look_at() -> None:
    drawn = world("zone-a rack-1 : a1=1")
    for number in range(100):
        [pod] = pods(None, 1, prefix=f"short-{number}")
        drawn.tell(PodUpserted(pod), PodDeleted(pod.uid))  # Which validates the state.
