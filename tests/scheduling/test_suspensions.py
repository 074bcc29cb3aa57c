"""Decisions that are suspended after some steps: what they cost, what they hold, when they start over."""

from collections.abc import Callable

import pytest

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.scheduling.intake.cluster_events import NO_EVENT, ClusterEvent
from closeby.scheduling.pace import Outdated, Pace
from closeby.scheduling.rounds.suspending import RESTARTS, Suspensions
from tests.worlds import node, pods


class Hold:
    """Something on the cluster; it can be had again as long as it is ``there``."""

    def __init__(self, name: str, log: list[str], *, there: bool = True) -> None:
        self.name = name
        self.log = log
        self.there = there

    def suspend(self) -> None:
        self.log.append(f"-{self.name}")

    def resume(self) -> None:
        if not self.there:
            raise Outdated
        self.log.append(f"+{self.name}")


class Scene:
    """Decisions of three times ten steps, unless another one is given."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.cluster = Cluster()
        self.suspensions: Suspensions[object] = Suspensions(self.pace, self.cluster)

    def decide(self) -> object:
        for _ in range(3):
            self.pace.take(10)
        return "done"

    def vain(self) -> object:
        """Holds what is gone once it was suspended."""
        self.pace.holds.append(Hold("gone", [], there=False))
        return self.decide()

    def run(
        self,
        allowance: int | None = None,
        key: str = "a/x",
        ground: int = 0,
        decide: Callable[[], object] | None = None,
    ) -> tuple[object, int, int, bool]:
        """Result, steps of this turn and of the decision so far, and whether it is suspended."""
        found = self.suspensions.run(key, decide or self.decide, allowance, ground)
        return found.result, found.steps, found.total, found.suspended

    def until_given_up(self) -> int:
        """Turns of a decision that starts over each time."""
        turns = 1
        while self.run(10, decide=self.vain)[3]:
            turns += 1
        return turns


def test_one_that_is_never_suspended() -> None:
    assert Scene().run() == ("done", 30, 30, False)


def test_it_goes_on_where_it_was() -> None:
    it = Scene()
    assert it.run(10) == (None, 10, 10, True)
    assert list(it.suspensions.keys) == ["a/x"]
    assert it.run(20) == (None, 20, 30, True)
    assert it.run(10) == ("done", 0, 30, False)
    assert list(it.suspensions.keys) == []


def test_it_starts_over_where_what_it_goes_by_is_another() -> None:
    it = Scene()
    it.run(10)
    assert it.run(ground=1) == ("done", 30, 40, False)
    assert it.run(ground=1) == ("done", 30, 30, False)


def test_the_cost_of_those_that_were_cancelled_counts_with_the_next_one() -> None:
    it = Scene()
    for _ in range(2):
        it.run(10)
        it.suspensions.cancel("a/x")
    assert it.run() == ("done", 30, 50, False)
    assert it.run() == ("done", 30, 30, False)


def test_the_cost_for_an_item_that_is_gone_is_forgotten() -> None:
    it = Scene()
    it.run(10)
    it.suspensions.forget("a/x")
    assert list(it.suspensions.keys) == []
    assert it.run() == ("done", 30, 30, False)


def test_all_decisions_of_a_namespace_are_cancelled_or_all() -> None:
    it = Scene()
    for key in ("a/x", "b/y", "a/z"):
        it.run(10, key)
    it.suspensions.cancel_all("a")
    assert list(it.suspensions.keys) == ["b/y"]
    it.suspensions.cancel_all()
    assert list(it.suspensions.keys) == []


def test_decisions_made_meanwhile_come_with_the_result() -> None:
    it = Scene()
    it.run(10)
    one, other = list(ClusterEvent)[:2]
    it.suspensions.note_event(one)
    it.suspensions.note_event(other)
    assert it.suspensions.run("a/x", it.decide, None, 0).missed == one | other
    assert it.suspensions.run("a/x", it.decide, None, 0).missed == NO_EVENT


def test_what_it_holds_is_given_back_in_reverse_and_taken_again_in_order() -> None:
    it, log = Scene(), list[str]()

    def decide() -> object:
        it.pace.holds += [Hold("p", log), Hold("q", log)]
        return it.decide()

    it.run(10, decide=decide)
    assert log == ["-q", "-p"]
    it.run(decide=decide)
    assert log == ["-q", "-p", "+p", "+q"]


def test_one_that_starts_over_too_often_is_given_up() -> None:
    it = Scene()
    it.run(10, decide=it.vain)
    event = next(iter(ClusterEvent))
    for _ in range(RESTARTS):
        assert it.run(10, decide=it.vain) == (None, 10, 10, True)
    it.suspensions.note_event(event)
    found = it.suspensions.run("a/x", it.vain, 10, 0)
    assert (found.result, found.suspended, found.missed) == (None, False, event)
    assert (found.steps, found.total) == (0, 10 * (RESTARTS + 1))


@pytest.mark.parametrize("ends", ["given up", "done", "failed", "cancelled"])
def test_after_its_end_it_may_start_over_as_often_again(ends: str) -> None:
    it = Scene()
    first = it.until_given_up()
    if ends != "given up":
        it.run(10, decide=it.vain)
        it.run(10, decide=it.vain)
    if ends == "cancelled":
        it.suspensions.cancel("a/x")
    elif ends == "done":
        assert it.run(ground=1)[0] == "done"
    elif ends == "failed":
        with pytest.raises(ZeroDivisionError):
            it.run(10, ground=1, decide=lambda: 1 / 0)
    assert it.until_given_up() == first


def test_steps_before_it_started_over_count_in_the_turn() -> None:
    it, attempts = Scene(), iter((True, False))

    def decide() -> object:
        if next(attempts):
            it.pace.take(10)
            raise Outdated
        return it.decide()

    assert it.run(15, decide=decide) == (None, 20, 10, True)
    assert it.run() == ("done", 20, 40, False)


@pytest.mark.parametrize("change", ["a node", "its use"])
def test_a_change_of_the_cluster_while_it_was_suspended_is_kept_in_mind(change: str) -> None:
    it = Scene()
    it.cluster.add_node(Node(name="n", allocatable={"pods": 9}))

    def decide() -> object:
        it.decide()
        return it.pace.disturbed

    it.run(10, decide=decide)
    it.run(10, decide=decide)
    assert not it.pace.disturbed
    if change == "a node":
        it.cluster.add_node(node("m"))
    else:
        it.cluster.place_pod(pods(None, 1)[0], it.cluster.slot_of("n"))
    it.run(10, decide=decide)
    assert it.run(decide=decide)[0] is True
    assert it.run(decide=decide)[0] is False
