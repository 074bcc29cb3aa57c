"""What a reconciler still has to do, when, and how much of it at a time."""

import random

import pytest

from closeby.controllers.work import AFTER_CRASHES, Places, Work
from closeby.kube.client.backoff import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(all: int = 8, sharing: int = 8) -> tuple[Work[str], Clock]:
    """Keys such as ``slow/a`` share what stands before the stroke."""
    clock = Clock()
    return Work(
        clock,
        Pace(first=1.0, longest=4.0),
        random.Random(1),
        places=Places(all=all, sharing=sharing),
        shares=lambda key: key.rpartition("/")[0] or None,
    ), clock


def taken(work: Work[str]) -> list[str]:
    """All that can be taken now."""
    return list(iter(work.take, None))


def test_the_longest_waiting_comes_first_and_only_once() -> None:
    work, clock = made()
    work.add("b")
    clock.now += 1
    work.add("a")
    work.add("b")
    work.add("later", after=5.0)
    assert taken(work) == ["b", "a"]
    assert work.wait() == 5.0
    clock.now += 5
    assert (work.wait(), taken(work), work.wait()) == (0.0, ["later"], None)


def test_an_earlier_time_counts() -> None:
    work, _ = made()
    work.add("a", after=5.0)
    work.add("a", after=2.0)
    work.add("a", after=9.0)
    assert work.wait() == 2.0


def test_a_key_is_nobody_elses_until_the_attempt_ends() -> None:
    """What is added meanwhile is looked at then, once."""
    work, clock = made()
    work.add("a")
    assert taken(work) == ["a"]
    work.add("a")
    work.add("a", after=3.0)
    assert (taken(work), work.wait()) == ([], None)
    clock.now += 7
    assert work.longest == 7
    work.news.clear()
    work.ended("a")
    assert work.news.is_set() and work.longest == 0
    assert taken(work) == ["a"]
    work.ended("a")
    assert (taken(work), work.wait()) == ([], None)


def test_no_more_are_taken_than_there_are_places() -> None:
    work, _ = made(all=2)
    for key in "abc":
        work.add(key)
    assert taken(work) == ["a", "b"]
    assert (work.depth, work.wait()) == (1, None)
    work.ended("a")
    assert (work.wait(), taken(work), work.depth) == (0.0, ["c"], 0)


def test_those_who_share_something_leave_room_for_others() -> None:
    work, clock = made(all=4, sharing=2)
    for key in ("slow/a", "slow/b", "slow/c", "slow/d"):
        work.add(key)
    clock.now += 1
    for key in ("x", "fast/a", "y"):
        work.add(key)
    assert taken(work) == ["slow/a", "slow/b", "x", "fast/a"]
    work.ended("x")
    assert taken(work) == ["y"]
    work.ended("y")
    # Nobody can take what is due, so nothing is to be waited for but an end.
    assert (taken(work), work.depth, work.wait()) == ([], 2, None)
    work.ended("slow/a")
    assert taken(work) == ["slow/c"]
    work.ended("slow/b")
    work.ended("slow/c")
    assert (taken(work), work.depth) == (["slow/d"], 0)


def test_what_fails_waits_longer_each_time_whatever_happens() -> None:
    work, clock = made()
    waits = []
    for _ in range(6):
        waits.append(work.failed("a"))
        work.add("a")
        assert taken(work) == []
        clock.now += waits[-1]
        assert taken(work) == ["a"]
        work.ended("a")
    assert all(0.5 <= wait <= 4.0 for wait in waits)
    assert min(waits[3:]) >= 2.0
    assert work.failed("a", at_least=30.0) >= 30.0
    work.forget("a")
    assert work.wait() is None


def test_what_fails_is_not_put_off_until_it_is_due_otherwise() -> None:
    work, clock = made()
    work.add("a")
    assert taken(work) == ["a"]
    work.add("a", after=1800.0)
    wait = work.failed("a")
    work.ended("a")
    assert work.wait() == pytest.approx(wait)
    clock.now += wait
    assert taken(work) == ["a"]
    work.add("a", after=1800.0)
    assert work.crashed("a") == pytest.approx(work.wait())


def test_of_two_pauses_the_longer_counts() -> None:
    work, _ = made()
    work.add("a")
    assert taken(work) == ["a"]
    wait = work.failed("a", at_least=30.0)
    assert work.crashed("a") < wait
    assert work.wait() == pytest.approx(wait)


def test_success_forgives() -> None:
    work, clock = made()
    for _ in range(4):
        clock.now += work.failed("a")
    taken(work)
    work.done("a")
    work.add("a")
    work.ended("a")
    assert taken(work) == ["a"]
    assert work.failed("a") <= 1.0


def test_what_crashes_waits_longer_each_time_whatever_it_got_done_before() -> None:
    work, clock = made()
    waits = []
    work.add("a")
    for _ in range(9):
        assert taken(work) == ["a"]
        work.done("a")
        work.add("a")
        waits.append(work.crashed("a"))
        work.add("a")
        assert taken(work) == []
        clock.now += waits[-1]
    assert waits[0] <= 1.0 and min(waits[7:]) >= AFTER_CRASHES.longest / 2
    assert taken(work) == ["a"]
    work.ended("a")
    work.add("a")
    assert taken(work) == ["a"]
    assert work.crashed("a") <= 1.0
