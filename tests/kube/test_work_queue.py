"""What a reconciler still has to do, when, and how much of it at a time."""

import random
from collections.abc import Callable

import pytest

from closeby.kube.client.waiting import RequestPace
from closeby.kube.writing.work_queue import AFTER_CRASHES, Places, WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(all: int = 8, sharing: int = 8) -> tuple[WorkQueue[str], Clock]:
    """Keys such as ``slow/a`` share what stands before the stroke; each is of a namespace of its own."""
    return made_for(lambda key: key, all, sharing)


def made_for(namespace: Callable[[str], str], all: int = 8, sharing: int = 8) -> tuple[WorkQueue[str], Clock]:
    clock = Clock()
    return WorkQueue(
        clock,
        namespace,
        RequestPace(first=1.0, longest=4.0),
        random.Random(1),
        places=Places(all=all, sharing=sharing),
        shares=lambda key: key.rpartition("/")[0] or None,
    ), clock


def taken(work: WorkQueue[str]) -> list[str]:
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


def test_a_key_has_one_worker_until_the_attempt_ends() -> None:
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


def test_success_resets_the_backoff() -> None:
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


# Namespaces


def tenant(key: str) -> str:
    return key.partition(":")[0]


def test_namespaces_take_turns_however_many_keys_one_has() -> None:
    work, clock = made_for(tenant, all=2)
    for number in range(100):
        work.add(f"noisy:{number}")
    clock.now += 1
    work.add("quiet:a")
    work.add("other:a")
    order = []
    for _ in range(6):
        for key in taken(work):
            order.append(key)
            work.ended(key)
    assert {"quiet:a", "other:a"} <= set(order[:4])
    assert order.index("noisy:0") < order.index("noisy:1")


def test_a_namespace_alone_has_half_of_the_places_and_another_finds_one_at_once() -> None:
    """Its keys hang, all of them."""
    work, _ = made_for(tenant, all=8)
    for namespace, places in (("a", 4), ("b", 2), ("c", 1), ("d", 1)):
        for number in range(20):
            work.add(f"{namespace}:{number}")
        assert [tenant(key) for key in taken(work)] == [namespace] * places
    # Full: each has its turn when a place is free, but for those that have as many as are free.
    work.add("e:0")
    work.ended("a:0")
    assert taken(work) == ["e:0"]


def test_retries_that_hang_leave_half_of_the_places_to_new_keys() -> None:
    """They are spread over namespaces."""
    work, clock = made_for(tenant, all=8)
    waits = [work.failed(f"n{number}:x") for number in range(8)]
    clock.now += max(waits)
    assert len(taken(work)) == 4
    assert (work.depth, work.wait()) == (4, None)
    for number in range(3):
        work.add(f"new{number}:y")
    assert taken(work) == ["new0:y", "new1:y", "new2:y"]


def test_what_a_key_shares_may_change_while_it_waits() -> None:
    """Its server is another one now, for which there is a place."""
    shares = {"a": "slow", "b": "slow"}
    clock = Clock()
    work: WorkQueue[str] = WorkQueue(clock, str, places=Places(all=8, sharing=1), shares=shares.get)
    for key in "ab":
        work.add(key)
    assert taken(work) == ["a"]
    shares["b"] = "fast"
    work.add("b")
    assert taken(work) == ["b"]


def test_what_is_forgotten_while_it_is_due_is_not_taken() -> None:
    work, _ = made()
    for key in "ab":
        work.add(key)
    assert work.wait() == 0.0
    work.forget("a")
    assert (taken(work), work.wait()) == (["b"], None)


def test_attempts_that_take_too_long_are_stuck() -> None:
    work, clock = made()
    for key in "ab":
        work.add(key)
        taken(work)
        clock.now += 5
    assert work.stuck(7.0) == {"a": 10.0}
    work.ended("a")
    assert work.stuck(7.0) == {}


def test_no_more_keys_are_taken_in_a_second_than_the_rate_allows() -> None:
    clock = Clock()
    work: WorkQueue[str] = WorkQueue(clock, tenant, places=Places(all=8, rate=4.0))
    for key in ("a:1", "a:2", "a:3", "b:1"):
        work.add(key)
    assert taken(work) == ["a:1"]
    assert work.wait() == 0.25
    clock.now += 0.25
    # Namespaces take turns.
    assert taken(work) == ["b:1"]
    work.spared()
    assert (work.wait(), taken(work)) == (0.0, ["a:2"])
    assert work.wait() == 0.25
    clock.now += 9.0
    assert taken(work) == ["a:3"]
    assert work.wait() is None


def test_what_is_forgotten_takes_no_memory_however_late_it_was_due() -> None:
    work, _ = made()
    work.add("a", after=3.0)
    for number in range(10_000):
        work.add(f"{number}", after=600.0)
        work.forget(f"{number}")
    assert len(work._later) < 200
    assert work.wait() == 3.0


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_done_twice_at_once_and_no_namespace_has_more_than_its_share(seed: int) -> None:
    chance = random.Random(seed)
    work, clock = made_for(tenant, all=6, sharing=3)
    keys = [f"{namespace}:{server}/{number}" for namespace in "abc" for server in "xy" for number in range(4)]
    held: list[str] = []
    wanted: set[str] = set()
    for _ in range(2000):
        match chance.randrange(5):
            case 0:
                key = chance.choice(keys)
                work.add(key, after=chance.choice([0.0, 1.0]))
                wanted.add(key)
            case 1 | 2:
                free = 6 - len(held)
                key_or_none = work.take()
                if key_or_none is not None:
                    assert key_or_none not in held and key_or_none in wanted
                    assert sum(tenant(one) == tenant(key_or_none) for one in held) < free
                    wanted.discard(key_or_none)
                    held.append(key_or_none)
            case 3 if held:
                key = held.pop(chance.randrange(len(held)))
                if chance.random() < 0.3:
                    work.failed(key)
                    wanted.add(key)
                else:
                    work.done(key)
                work.ended(key)
            case _:
                clock.now += chance.random()
    for _ in range(200):
        for key in held:
            work.ended(key)
        held = taken(work)
        wanted -= set(held)
        clock.now += 5
    assert not wanted, f"seed {seed}"


def test_a_queue_whose_next_key_comes_while_it_is_asked_waits_no_longer() -> None:
    """The time goes on with every look at the clock, so that each moment falls between two looks once."""

    class Steps(Clock):
        def __call__(self) -> float:
            self.now += 0.01
            return self.now

    for start in range(40):
        clock = Steps()
        work: WorkQueue[str] = WorkQueue(clock, tenant, places=Places(all=8, rate=2.0))
        work.add("a/1")
        work.add("a/2")
        assert work.take() is not None
        clock.now += 0.25 + start * 0.005
        while (pause := work.wait()) != 0.0:
            assert pause is not None, start
            clock.now += 0.001
