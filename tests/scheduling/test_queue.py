"""Who is decided first: priority, then who waits longest, then the name; fixed until the priority changes."""

from msgspec.structs import replace

from closeby.objects.pods import Pod, PriorityClass
from closeby.scheduling.events import (
    GroupChanged,
    GroupDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    PriorityClassChanged,
    Tick,
)
from closeby.scheduling.outcomes import Binding, bindings_of
from tests.worlds import GPU, World, gang, node, pods, spec, world


def plain(name: str, priority: int | None = None, created: float | None = None, class_name: str = "") -> Pod:
    needs = replace(spec(gpu=1), priority=priority, priority_class_name=class_name)
    [pod] = pods(None, 1, needs, prefix=name, created=created)
    return replace(pod, name=name, uid=f"default/{name}")


def empty() -> World:
    """No room at all, so that everybody waits."""
    return world("zone-a rack-1 : a1=0")


def bound(drawn: World, limit: int | None = None) -> list[Binding]:
    """What the next tick binds, with at most so many decisions."""
    found = bindings_of(drawn.engine.handle(Tick(limit=limit)))
    drawn.engine.validate_state()
    return found


def order(drawn: World) -> list[str]:
    """Let everybody in and see who goes first."""
    drawn.tell(NodeUpserted(node("a2", {"zone": "zone-a", "rack": "rack-1"}, {GPU: 100}))).run()
    return list(drawn.where)


def test_the_greater_priority_first() -> None:
    drawn = empty().run(members=[plain("low", -1), plain("none"), plain("high", 5)])
    assert order(drawn) == ["high", "none", "low"]


def test_then_who_waits_longest_and_an_unknown_time_last() -> None:
    drawn = empty().run(members=[plain("unknown"), plain("young", created=20.0), plain("old", created=10.0)])
    assert order(drawn) == ["old", "young", "unknown"]


def test_then_the_name() -> None:
    drawn = empty().run(members=[plain("c"), plain("a"), plain("b")])
    assert order(drawn) == ["a", "b", "c"]


def test_a_priority_class_counts_where_the_pod_has_no_number() -> None:
    drawn = empty().tell(
        PriorityClassChanged(PriorityClass(name="urgent", value=100)),
        PriorityClassChanged(PriorityClass(name="usual", value=10, global_default=True)),
    )
    drawn.run(members=[plain("a"), plain("b", class_name="urgent"), plain("c", 50, class_name="urgent")])
    assert order(drawn) == ["b", "c", "a"]


def test_a_gang_has_its_own_priority_else_that_of_the_members_it_needs() -> None:
    groups = [
        replace(gang("own", min_member=2), priority=7),
        gang("members", min_member=2),
        replace(gang("class", min_member=2), priority_class_name="urgent"),
    ]
    members = [
        *pods("own", 2),
        *pods("members", 1, replace(spec(gpu=1), priority=1)),
        *pods("members", 1, replace(spec(gpu=1), priority=8), prefix="members-high"),
        *pods("class", 2, replace(spec(gpu=1), priority=1000)),
    ]
    drawn = empty().tell(PriorityClassChanged(PriorityClass(name="urgent", value=9)))
    drawn.run(*groups, members=members)
    assert [name.partition("-")[0] for name in order(drawn)] == [
        "class",
        "class",
        "own",
        "own",
        "members",
        "members",
    ]


def test_a_gang_waits_since_its_first_pending_pod() -> None:
    early, late = pods("train", 1, prefix="a", created=1.0), pods("train", 1, prefix="b", created=9.0)
    drawn = empty().run(
        gang(min_member=2), members=[*late, *early, plain("before", created=0.5), plain("after", created=2.0)]
    )
    assert order(drawn) == ["before", "a-0", "b-0", "after"]


def test_a_gang_that_gets_another_priority_gets_another_place() -> None:
    drawn = empty().run(
        replace(gang("one", min_member=1), priority=1),
        replace(gang("two", min_member=1), priority=2),
        members=[*pods("one", 1), *pods("two", 1)],
    )
    drawn.tell(GroupChanged(replace(gang("one", min_member=1), priority=3)))
    assert order(drawn) == ["one-0", "two-0"]


def test_all_news_of_a_tick_counts_before_the_order_is_fixed() -> None:
    drawn = world("zone-a rack-1 : a1=1")
    [member] = pods("late", 1)
    drawn.tell(PodUpserted(plain("plain", 3)), PodUpserted(member))
    drawn.run(replace(gang("late", min_member=1), priority=5))
    assert drawn.where == {"late-0": "a1"}


def test_an_item_that_is_gone_and_comes_again_gets_a_new_place() -> None:
    drawn = empty().run(members=[plain("a", 9), plain("b", 5)])
    # The wake-up puts both in the queue; then the first is deleted and comes again with less priority.
    drawn.tell(NodeUpserted(node("a2", allocatable={GPU: 100})))
    drawn.tell(PodDeleted("default/a"), PodUpserted(plain("a", 1)))
    drawn.run()
    assert list(drawn.where) == ["b", "a"]


def test_the_place_of_one_that_is_gone_counts_no_more_while_it_was_ready() -> None:
    #   Only a is decided, then b is deleted and comes again behind c.
    drawn = world("zone-a rack-1 : a1=9")
    drawn.tell(*map(PodUpserted, (plain("a", 9), plain("b", 5), plain("c", 3))))
    assert [one.pod.name for one in bound(drawn, limit=1)] == ["a"]
    drawn.tell(PodDeleted("default/b"), PodUpserted(plain("b", 1)))
    assert [one.pod.name for one in bound(drawn)] == ["c", "b"]


def test_a_gang_whose_pods_come_before_its_object_has_the_priority_that_stands_there() -> None:
    """It waits for the object, meanwhile with a place by its pods; the object may go and come again too."""
    high, higher = replace(gang("g", 2), priority=5), replace(gang("g", 2), priority=9)
    drawn = empty().run(members=[plain("between", 7), *pods("g", 2)])
    drawn.tell(GroupChanged(high)).run()
    drawn.tell(GroupDeleted(high.key)).run()
    drawn.tell(GroupChanged(higher)).run()
    assert order(drawn) == ["g-0", "g-1", "between"]


def test_what_does_not_fit_does_not_hold_up_the_rest() -> None:
    drawn = world("zone-a rack-1 : a1=2")
    drawn.run(replace(gang(min_member=3), priority=10), members=[*pods("train", 3), plain("small")])
    assert drawn.where == {"small": "a1"}
    assert drawn.engine.unschedulable == ("default/train",)


def test_nothing_is_decided_again_before_something_changes() -> None:
    drawn = empty().run(members=[plain("a")])
    before = len(drawn.engine.story("default/a"))
    drawn.run().run()
    assert len(drawn.engine.story("default/a")) == before
