"""Stories: those of waiting items and of gangs with members stay; of the others the newest."""

from msgspec.structs import replace

from closeby.objects.reasons import Reason
from closeby.scheduling.events import BindFailed, CannotBind, GroupChanged, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import ENTRIES, Binding, Stories, StoryEntry, bindings_of
from tests.worlds import World, gang, pods, world


def test_the_oldest_stories_of_gone_items_are_forgotten() -> None:
    stories = Stories(lambda key: False)
    stories.limit = 3
    for i in range(10):
        stories.tell(f"default/{i}", StoryEntry(i, "decided"))
    assert len(stories) == 3
    assert not stories.of("default/6")
    assert stories.of("default/7") == (StoryEntry(7, "decided"),)


def test_what_waits_keeps_its_story_while_others_come_and_go() -> None:
    stories = Stories(lambda key: key.startswith("default/gang"))
    stories.limit = 3
    for i in range(5):
        stories.tell(f"default/gang{i}", StoryEntry(i, "decided"))
    for i in range(1_000):
        stories.tell(f"default/pod{i}", StoryEntry(i, "decided"))
        assert len(stories) <= 2 * 5 + 3
    assert all(stories.of(f"default/gang{i}") for i in range(5))


def test_the_excess_goes_once_it_is_needed_no_more() -> None:
    needed = {f"default/{i}" for i in range(100)}
    stories = Stories(needed.__contains__)
    stories.limit = 3
    for i in range(100):
        stories.tell(f"default/{i}", StoryEntry(i, "decided"))
    assert len(stories) == 100
    needed.clear()
    for i in range(100, 200):
        stories.tell(f"default/{i}", StoryEntry(i, "decided"))
    assert len(stories) <= 4


def test_a_story_that_goes_on_is_kept_longer_than_older_ones() -> None:
    stories = Stories(lambda key: False)
    stories.limit = 3
    for stimulus, name in enumerate("abcad"):
        stories.tell(f"default/{name}", StoryEntry(stimulus, "decided"))
    assert [name for name in "abcd" if stories.of(f"default/{name}")] == ["a", "c", "d"]


def test_of_a_long_story_the_end_is_kept() -> None:
    stories = Stories(lambda key: True)
    for stimulus in range(2 * ENTRIES):
        stories.tell("default/gang", StoryEntry(stimulus, "decided"))
    assert [entry.stimulus for entry in stories.of("default/gang")] == list(range(ENTRIES, 2 * ENTRIES))


class TestBindingsThatCanNotBe:
    """Two members of a gang that runs on a1 are refused; the newest decision says so until they are bound."""

    def begun(self) -> tuple[World, dict[str, Binding]]:
        drawn = world("zone-a rack-1 : a1=4")
        drawn.engine.handle(GroupChanged(gang(min_member=2)), *map(PodUpserted, pods("train", 2)))
        made = {one.pod.name: one for one in bindings_of(drawn.engine.handle(Tick()))}
        uids = tuple(one.pod.uid for one in made.values())
        drawn.engine.handle(CannotBind(uids, Reason.BINDING_REFUSED, "no"))
        return drawn, made

    def waiting(self, drawn: World) -> dict[str, tuple[str, str]]:
        outcome = drawn.engine.outcome("default/train")
        assert outcome is not None
        return {one.pod.name: (str(one.reason), one.message) for one in outcome.leftover}

    def test_another_decision_for_a_node_does_not_change_that(self) -> None:
        drawn, made = self.begun()
        refused = dict.fromkeys(made, ("BindingRefused", "no"))
        assert self.waiting(drawn) == refused
        first, *_ = made.values()
        (again,) = bindings_of(drawn.engine.handle(BindFailed(first.pod.uid, "no"), Tick()))
        assert again.pod.name == first.pod.name
        assert self.waiting(drawn) == refused

    def test_it_is_over_for_a_member_that_is_bound_or_gone(self) -> None:
        drawn, made = self.begun()
        first, second = made.values()
        drawn.engine.handle(BindFailed(second.pod.uid, "no"), Tick())
        drawn.engine.handle(PodUpserted(replace(first.pod, node_name=first.node)))
        assert self.waiting(drawn).keys() == {second.pod.name}
        drawn.engine.handle(PodDeleted(second.pod.uid))
        assert self.waiting(drawn) == {}

    def test_the_same_said_again_is_no_news(self) -> None:
        drawn, made = self.begun()
        before = len(drawn.engine.story("default/train"))
        uids = tuple(one.pod.uid for one in made.values())
        drawn.engine.handle(CannotBind(uids, Reason.BINDING_REFUSED, "no"))
        assert len(drawn.engine.story("default/train")) == before
