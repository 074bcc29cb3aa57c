"""What was refused waits for what may help it, and is tried for all that lack the same: nobody waits in vain.

One random history is told to two engines, step by step::

    jobs, nodes, ... ──┬── the engine: wakes those that may be helped, and of equals tries the first
                       └── an eager one: tries each item that waits, at every tick

Both must decide the same at every tick. An engine whose items rest, or whose ticks are limited, cannot be
compared so; of it must hold that in the end nobody waits who would fit.

**The exception** is a gang whose search was cut short (SearchBudgetExhausted): there may be a place for it
that was not found. Such a search is not monotone: pods placed meanwhile leave fewer places to look at, where
the same budget may find one. Room that goes wakes nobody, so that the eager engine may place a gang that the
other lets wait until room comes. From such a refusal on the two may differ, and a history ends there.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import pytest

from closeby.objects.reasons import Reason, ReasonToken
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import FlushUnschedulable, GroupChanged, PodDeleted, PodUpserted, Tick
from closeby.scheduling.intake.cluster_events import ANY_EVENT
from closeby.scheduling.outcomes import Outcome, Output, name_of, outcomes_of
from tests.scheduling.histories import History, engine

#: Steps of the longest history, and of those in which queues grow.
LONGEST = 25
LONGEST_WHERE_BUSY = 40

few_and_many = pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 300), marks=pytest.mark.slow)], ids=["few", "many"]
)


@contextmanager
def history_of(seed: int, *, busy: bool = False) -> Iterator[tuple[History, Random]]:
    """A history, and dice for what is asked of the engine; a failure tells the seed."""
    history = History(seed, busy=busy)
    try:
        yield history, Random(f"engine {seed}")
    except Exception as error:
        error.add_note(f"in the history of seed {seed}, second {history.now:g}")
        raise


def eager(reserve_after: float) -> Engine:
    """One in which no item is told by another that there is no room."""
    one = engine(reserve_after=reserve_after)
    one._pending.queue._lacks = lambda need, key: False
    return one


def wake_all(one: Engine) -> None:
    """Unlike an event, this does not question what is reserved."""
    one._pending.queue.note(ANY_EVENT)


def cut_short_for(one: Engine, key: str) -> bool:
    """Whether the search for a place for an item was cut short."""
    outcome = one.outcome(key)
    return outcome is not None and outcome.reason is Reason.SEARCH_BUDGET_EXHAUSTED


def agree(history: History, ours: Engine, naive: Engine, steps: int, wake: Callable[[], object]) -> int:
    """Tells both the same, and calls ``wake`` before each tick; returns the most that waited."""
    events, longest = history.beginning(), 0
    for _ in range(steps):
        ours.handle(*events)
        naive.handle(*events)
        wake()
        decisions, others = ours.handle(Tick(history.now)), naive.handle(Tick(history.now))
        if any(cut_short_for(one, key) for one in (ours, naive) for key in one.unschedulable):
            break
        assert history.bound(decisions) == history.bound(others)
        assert ours.reservation == naive.reservation
        assert set(ours.unschedulable) == set(naive.unschedulable)
        ours.validate_state()
        naive.validate_state()
        longest = max(longest, len(ours.unschedulable))
        events = history.step()
    return longest


@few_and_many
def test_every_decision_is_that_of_an_engine_that_tries_all_at_every_tick(seeds: range) -> None:
    for seed in seeds:
        with history_of(seed) as (history, dice):
            after = dice.choice([0.0, 10.0, 40.0])
            ours, naive = engine(reserve_after=after), eager(after)
            agree(history, ours, naive, dice.randint(2, LONGEST), partial(wake_all, naive))


@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 40), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_long_queue_is_decided_as_by_an_engine_to_which_all_is_new_at_every_tick(seeds: range) -> None:
    waited = []
    for seed in seeds:
        with history_of(seed, busy=True) as (history, dice):
            after = dice.choice([0.0, 10.0, 40.0])
            ours, naive = engine(reserve_after=after), engine(reserve_after=after)
            steps = LONGEST_WHERE_BUSY
            waited.append(agree(history, ours, naive, steps, partial(naive.handle, FlushUnschedulable())))
    assert sum(waited) >= 10 * len(seeds)


@few_and_many
def test_no_item_that_would_fit_waits_in_the_end(seeds: range) -> None:
    """Items rest and ticks are limited; then nothing happens any more, until all have rested."""
    for seed in seeds:
        with history_of(seed) as (history, dice):
            one = engine(backoff=True, reserve_after=dice.choice([0.0, 0.0, 10.0, 40.0]))
            events = history.beginning()
            for _ in range(dice.randint(2, LONGEST)):
                limit = dice.choice([None, None, 1, 2])
                history.bound(one.handle(*events, Tick(history.now, limit=limit)))
                one.validate_state()
                events = history.step()
            history.bound(one.handle(*events, history.measured(None)))
            rest(history, one)
            # Others keep off the nodes that are reserved for a gang, but it does not.
            kept = one.reservation
            for key in one.unschedulable if kept is None else (kept.key,):
                if not cut_short_for(one, key):
                    assert placed_by_one_who_comes_late(history, one, key) == {}


def rest(history: History, one: Engine) -> None:
    """Time goes by until nothing is ready and nothing rests."""
    for _ in range(200):
        history.now += 0.5
        history.bound(one.handle(Tick(history.now)))
        one.validate_state()
        if one.next_backoff_end is None:
            return
    raise AssertionError("it never comes to rest")


def placed_by_one_who_comes_late(history: History, one: Engine, key: str) -> dict[str, str]:
    """Where an engine that hears only now of the cluster, and of one item that waits, places its pods."""
    members = {pod.uid for pod in one.state.waiting(key)}
    bound = History(0).bound(decided_by_one_who_comes_late(history, one, key))
    return {uid: name for uid, name in bound.items() if uid in members}


def decided_by_one_who_comes_late(history: History, one: Engine, key: str) -> list[Output]:
    """What an engine that hears only now of the cluster decides about one item that waits."""
    late = engine()
    late.handle(*history.beginning(), *map(GroupChanged, history.groups.values()), *history.running(), Tick())
    members = {pod.uid for pod in one.state.waiting(key)}
    asked = [PodUpserted(pod) for uid, pod in history.pods.items() if uid in members]
    return late.handle(*asked, Tick())


@few_and_many
def test_what_waits_says_why_it_does_now_once_everything_was_looked_at_again(seeds: range) -> None:
    """While an item lacks room it is not tried, so that what it was told may be false by then; after the look
    at everything, which a live scheduler takes every minute and a simulation at its end, it is true.
    """
    renewed = 0
    for seed in seeds:
        with history_of(seed) as (history, dice):
            one = engine(backoff=dice.random() < 0.5)
            events = history.beginning()
            for _ in range(dice.randint(2, LONGEST)):
                history.bound(one.handle(*events, Tick(history.now)))
                events = history.step()
            history.bound(one.handle(*events, history.measured(None)))
            rest(history, one)
            before = {key: told(one, key) for key in one.unschedulable}
            looked_at_again(history, one)
            for key in one.unschedulable:
                # Members that have finished are gone: one who comes late does not hear of them.
                if one.state.done(key):
                    continue
                decisions = decided_by_one_who_comes_late(history, one, key)
                outcomes = outcomes_of(decisions)
                now = told(one, key)
                assert now == {uid: why for outcome in outcomes for uid, why in reasons(outcome).items()}
                renewed += before.get(key) != now
    assert renewed >= len(seeds) // 4


def looked_at_again(history: History, one: Engine) -> None:
    """Until nothing is placed by it: a gang whose search was cut short may find a place later."""
    bound = dict(history.where)
    history.bound(one.handle(FlushUnschedulable()))
    rest(history, one)
    if bound != history.where:
        looked_at_again(history, one)


def told(one: Engine, key: str) -> dict[str, tuple[ReasonToken, list[str]]]:
    outcome = one.outcome(name_of(key))
    assert outcome is not None
    return reasons(outcome)


def reasons(outcome: Outcome) -> dict[str, tuple[ReasonToken, list[str]]]:
    """By pod, the reason and what is said; of nodes how many there are by reason: which one is named as an
    instance depends on the order in which they came.
    """
    return {one.pod.uid: (one.reason, said(one.message)) for one in outcome.leftover}


def said(message: str) -> list[str]:
    if "for instance" not in message:
        return [message]
    return [message.partition(" (")[0], *re.findall(r"\d+ (?:nodes? )?[A-Z][a-zA-Z]+", message)]


@few_and_many
def test_a_gang_that_keeps_nodes_is_placed_when_all_others_have_left(seeds: range) -> None:
    """From some step on, the history ends with the first reservation. Its own pods that are being deleted
    leave as well, and the links are idle then.
    """
    ended = 0
    for seed in seeds:
        with history_of(seed) as (history, dice):
            one = engine(reserve_after=dice.choice([10.0, 40.0]))
            events = history.beginning()
            first = dice.randint(0, LONGEST)
            for number in range(LONGEST):
                history.bound(one.handle(*events, Tick(history.now)))
                one.validate_state()
                if number >= first and one.reservation is not None:
                    break
                events = history.step()
            else:
                continue
            kept = one.reservation
            if cut_short_for(one, kept.key):
                continue
            others = [job for job in history.jobs if f"default/{job}" != kept.key]
            leave = [event for job in others for event in history.ends(job)]
            leave += [PodDeleted(uid) for uid, pod in history.pods.items() if pod.terminating]
            idle = history.measured(dict.fromkeys(history.nodes, 0))
            bound = history.bound(one.handle(*leave, idle, Tick(history.now + 1)))
            assert bound
            assert {f"default/{history.pods[uid].group}" for uid in bound} == {kept.key}
            ended += 1
    assert ended >= len(seeds) // 5
