from random import Random

from hypothesis import given
from hypothesis import strategies as st

from closeby.plugins.queue_sorts import PrioritySort
from closeby.scheduling.extension import NoArguments, QueuedItem
from tests.plugins.asking import handle_of

SORT = PrioritySort(NoArguments(), handle_of([]))


def item(key: str, priority: int = 0, anchor: float | None = None) -> QueuedItem:
    return QueuedItem(key=key, priority=priority, anchor=anchor, pods=(), group=None)


def test_priority_then_age_then_name_and_an_unknown_time_last() -> None:
    items = [
        item("d/late", 0, 20.0),
        item("d/b-unknown", 0),
        item("d/a-unknown", 0),
        item("d/early", 0, 10.0),
        item("d/below", -5, 1.0),
        item("d/urgent", 1000),
    ]
    order = [one.key for one in sorted(items, key=SORT.sort_key)]
    assert order == ["d/urgent", "d/early", "d/late", "d/a-unknown", "d/b-unknown", "d/below"]


ITEMS = st.builds(item, st.text(max_size=3), st.integers(-2, 2), st.none() | st.floats(0, 3))


@given(st.lists(ITEMS, unique_by=lambda one: one.key), st.randoms(use_true_random=False))
def test_the_order_is_total_whatever_the_input_order(items: list[QueuedItem], random: Random) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert sorted(items, key=SORT.sort_key) == sorted(shuffled, key=SORT.sort_key)
