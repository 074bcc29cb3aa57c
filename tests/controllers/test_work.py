"""What a reconciler still has to do, and when."""

import random

from closeby.controllers.work import Work
from closeby.kube.client.backoff import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Work[str], Clock]:
    clock = Clock()
    return Work(clock, Pace(first=1.0, longest=4.0), random.Random(1)), clock


def test_the_longest_waiting_comes_first_and_only_once() -> None:
    work, clock = made()
    work.add("b")
    clock.now += 1
    work.add("a")
    work.add("b")
    work.add("later", after=5.0)
    assert work.take() == ["b", "a"]
    assert (work.take(), work.wait()) == ([], 5.0)
    clock.now += 5
    assert (work.wait(), work.take(), work.wait()) == (0.0, ["later"], None)


def test_an_earlier_time_counts() -> None:
    work, _ = made()
    work.add("a", after=5.0)
    work.add("a", after=2.0)
    work.add("a", after=9.0)
    assert work.wait() == 2.0


def test_what_fails_waits_longer_each_time_whatever_happens() -> None:
    work, clock = made()
    waits = []
    for _ in range(6):
        waits.append(work.failed("a"))
        work.add("a")
        assert work.take() == []
        clock.now += waits[-1]
        assert work.take() == ["a"]
    assert all(0.5 <= wait <= 4.0 for wait in waits)
    assert min(waits[3:]) >= 2.0
    assert work.failed("a", at_least=30.0) >= 30.0
    work.forget("a")
    assert work.wait() is None


def test_success_forgives() -> None:
    work, clock = made()
    for _ in range(4):
        clock.now += work.failed("a")
    work.take()
    work.done("a")
    work.add("a")
    assert work.take() == ["a"]
    assert work.failed("a") <= 1.0
