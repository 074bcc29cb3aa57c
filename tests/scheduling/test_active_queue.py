"""Which item is next: the queue's order, and turns between throttled namespaces and all others."""

from closeby.scheduling.intake.active_queue import ALLOWANCE, ActiveQueue


def queue(*keys: str) -> ActiveQueue:
    """Items ``namespace/number``; the number is the place in the order."""
    made = ActiveQueue()
    for key in keys:
        push(made, key)
    return made


def push(made: ActiveQueue, key: str) -> None:
    number = float(key.partition("/")[2])
    made.push((0, number, number, key), key)


def pops(made: ActiveQueue, count: int = 99) -> list[str]:
    found: list[str] = []
    while len(found) < count and (entry := made.pop()) is not None:
        found.append(entry[1])
    return found


def refused(made: ActiveQueue, key: str, percent: int) -> None:
    """A decision took so much of the allowance."""
    made.charge(key, percent * ALLOWANCE // 100, placed=False)


def placed(made: ActiveQueue, key: str, percent: int) -> None:
    made.charge(key, percent * ALLOWANCE // 100, placed=True)


def test_without_charges_all_come_in_the_queues_order() -> None:
    assert pops(queue("b/2", "a/1", "a/3", "b/0")) == ["b/0", "a/1", "b/2", "a/3"]


def test_a_namespace_that_used_up_its_allowance_goes_after_the_others() -> None:
    made = queue("a/1", "b/2", "a/3", "c/4")
    refused(made, "a/0", 60)
    assert pops(made, 1) == ["a/1"]
    refused(made, "a/1", 40)
    assert pops(made) == ["b/2", "c/4", "a/3"]


def test_short_decisions_that_place_something_are_not_charged() -> None:
    made = queue("a/1", "b/2")
    for _ in range(10):
        placed(made, "a/0", 99)
    refused(made, "a/0", 99)
    assert pops(made) == ["a/1", "b/2"]


def test_they_take_turns_by_steps() -> None:
    made = queue("a/1", "a/2", "b/3", "b/4", "b/5")
    refused(made, "a/0", 100)
    assert pops(made, 1) == ["b/3"]
    placed(made, "b/3", 60)
    assert pops(made, 1) == ["b/4"]
    placed(made, "b/4", 40)  # As many as the throttled one used: its turn.
    assert pops(made, 1) == ["a/1"]
    placed(made, "a/1", 10)
    assert pops(made, 1) == ["b/5"]


def test_steps_while_alone_need_not_be_made_up_for() -> None:
    made = queue("a/1", "b/2", "b/3", "a/4")
    refused(made, "a/0", 1000)
    refused(made, "a/0", 100)  # Nobody else had anything to do.
    assert pops(made, 1) == ["b/2"]
    placed(made, "b/2", 100)
    assert pops(made, 1) == ["a/1"]


def test_for_one_long_decision_the_others_get_as_much() -> None:
    made = queue("a/1", "b/2", "b/3", "a/4")
    refused(made, "a/0", 1000)
    assert pops(made, 1) == ["b/2"]
    for _ in range(18):
        placed(made, "b/2", 50)
    assert pops(made, 1) == ["b/3"]
    placed(made, "b/3", 50)
    placed(made, "b/3", 50)
    assert pops(made, 1) == ["a/1"]


def test_nor_do_the_others_gain_a_credit_while_they_are_alone() -> None:
    made = queue("b/1", "a/2", "a/3", "b/4")
    refused(made, "a/0", 100)
    for _ in range(20):
        placed(made, "b/0", 50)
    assert pops(made, 1) == ["a/2"]
    placed(made, "a/2", 1)
    assert pops(made, 1) == ["b/1"]


def test_throttled_namespaces_are_served_when_no_other_has_items() -> None:
    made = queue("a/1", "a/2")
    refused(made, "a/0", 500)
    assert pops(made) == ["a/1", "a/2"]


def test_of_throttled_namespaces_that_used_less_comes_first_and_a_new_one_is_behind() -> None:
    made = queue("a/5", "a/6", "b/7", "b/8")
    refused(made, "a/0", 100)
    refused(made, "a/0", 200)
    refused(made, "b/0", 100)  # It counts as the one that used least of those before it.
    assert pops(made, 1) == ["a/5"]
    refused(made, "a/5", 10)
    assert pops(made, 1) == ["b/7"]
    placed(made, "b/7", 50)  # Throttled ones pay for all that they do.
    assert pops(made) == ["a/6", "b/8"]


def test_a_namespace_without_items_is_throttled_no_more_and_starts_over() -> None:
    made = queue("a/1", "b/2")
    refused(made, "a/0", 100)
    assert pops(made) == ["b/2", "a/1"]
    assert pops(made) == []
    push(made, "a/3")
    push(made, "b/4")
    refused(made, "a/3", 99)
    assert pops(made) == ["a/3", "b/4"]


def test_items_of_a_throttled_namespace_that_come_later_wait_in_its_turn() -> None:
    made = queue("a/5", "b/6")
    refused(made, "a/0", 100)
    push(made, "a/1")
    assert sorted(entry[1] for entry in made) == ["a/1", "a/5", "b/6"]
    assert pops(made) == ["b/6", "a/1", "a/5"]


def test_once_nothing_is_left_all_start_over() -> None:
    made = queue("a/1", "b/2")
    refused(made, "a/0", 99)
    refused(made, "b/0", 100)
    assert pops(made, 2) == ["a/1", "b/2"]
    assert pops(made) == []
    push(made, "a/1")
    push(made, "b/2")
    refused(made, "a/0", 99)
    assert pops(made) == ["a/1", "b/2"]


def test_a_namespace_that_is_throttled_later_owes_nothing_for_another_time() -> None:
    made = queue("a/1", "b/2")
    refused(made, "a/0", 100)
    assert pops(made) == ["b/2", "a/1"]
    placed(made, "b/2", 1)
    for key in ("a/3", "a/4", "b/5", "b/6"):
        push(made, key)
    refused(made, "a/0", 99)
    refused(made, "a/0", 1)
    assert pops(made, 1) == ["b/5"]
    placed(made, "b/5", 1)
    assert pops(made, 1) == ["a/3"]


def test_the_order_inside_a_namespace_is_kept_when_one_is_throttled() -> None:
    made = queue("a/0", "b/5", "a/1", "b/6", "b/7", "b/2", "b/3")
    refused(made, "a/0", 100)
    assert pops(made) == ["b/2", "b/3", "b/5", "b/6", "b/7", "a/0", "a/1"]
    made = queue("b/0", "a/5", "b/1", "a/6", "a/7", "a/2", "a/3")
    refused(made, "a/2", 100)
    assert pops(made) == ["b/0", "b/1", "a/2", "a/3", "a/5", "a/6", "a/7"]
