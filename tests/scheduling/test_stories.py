"""Stories: those of waiting items and of gangs with members stay; of the others the newest."""

from closeby.scheduling.outcomes import ENTRIES, Stories, StoryEntry


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
