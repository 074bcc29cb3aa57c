"""Searches are suspended every few steps while events of all kinds arrive: the state is always right.

The cluster is small and the allowance tiny, so that decisions are interrupted wherever they can be.
"""

import pytest
from msgspec.structs import replace

from closeby.objects.reasons import Reason
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, NodeDeleted, NodeUpserted, PodUpserted, Tick
from closeby.scheduling.outcomes import Binding, Outcome, Suspended, bindings_of, outcomes_of
from tests.attacks.crowds import in_namespace
from tests.scheduling.histories import History, engine
from tests.scheduling.test_histories_of_refusals import (
    cut_short_for,
    few_and_many,
    history_of,
    placed_by_one_who_comes_late,
)
from tests.worlds import GPU, gang, node, pods, spec

LONGEST = 25


def tick(history: History, one: Engine, allowance: int) -> bool:
    """Carries out what is decided in a turn; whether anything was."""
    decisions = one.handle(Tick(history.now, limit=1, steps=allowance))
    history.bound(decisions)
    one.validate_state()
    assert (one.cluster.requested <= one.cluster.allocatable).all(), "overcommitted"
    return bool(decisions)


@few_and_many
def test_whatever_happens_between_the_turns_of_a_search_nothing_is_overcommitted(seeds: range) -> None:
    """And in the end, when all have rested, nobody waits who would fit."""
    suspended = 0
    for seed in seeds:
        with history_of(seed) as (history, dice):
            one = engine(backoff=True, reserve_after=dice.choice([0.0, 0.0, 10.0]))
            events = history.beginning()
            for _ in range(dice.randint(2, LONGEST)):
                one.handle(*events)
                for _ in range(dice.randint(0, 6)):
                    tick(history, one, dice.choice([1, 100, 300]))
                    suspended += len(one._pending.suspensions.keys)
                events = history.step()
            one.handle(*events, history.measured(None))
            for _ in range(400):
                while tick(history, one, 300):
                    pass
                history.now += 1.0
                if one.next_backoff_end is None:
                    break
            assert one._pending.suspensions.keys == () and one.next_backoff_end is None
            kept = one.reservation
            for key in one.unschedulable if kept is None else (kept.key,):
                if not cut_short_for(one, key):
                    assert placed_by_one_who_comes_late(history, one, key) == {}
    assert suspended > 3 * len(seeds), "hardly any search was suspended"


@few_and_many
def test_what_is_suspended_ends_as_if_it_had_not_been(seeds: range) -> None:
    """All of a history's jobs are there from the start; nothing happens while an item is decided."""
    for seed in seeds:
        with history_of(seed, busy=True) as (history, dice):
            through, suspended = engine(), engine()
            events = [
                *history.beginning(),
                *(one for _ in range(dice.randint(1, 6)) for one in history.step()),
            ]
            through.handle(*events)
            suspended.handle(*events)
            while decided := through.handle(Tick(limit=1)):
                ended: list[Outcome] = []
                bound: list[Binding] = []
                while not ended:
                    decisions = suspended.handle(Tick(limit=1))
                    while any(isinstance(one, Suspended) for one in decisions):
                        decisions = suspended.handle(Tick(limit=1, steps=100))
                    ended += outcomes_of(decisions)
                    bound += bindings_of(decisions)
                assert ended == outcomes_of(decided)
                assert bound == bindings_of(decided)


def test_a_search_whose_nodes_change_too_often_is_given_up_for_now() -> None:
    """The gang of unequal pods is looked for five times, and each time a node is another one meanwhile."""
    one = engine(backoff=True)
    members = [pod for i in range(8) for pod in pods("mixed", 1, spec(gpu=1 + i % 2), prefix=f"mixed-{i}")]
    one.handle(*(NodeUpserted(node(f"n{i}", {}, {GPU: 3})) for i in range(8)))
    one.handle(GroupChanged(gang("mixed", 8)), *map(PodUpserted, members))
    for turn in range(20):
        again = NodeUpserted(node("n0", {"turn": str(turn)}, {GPU: 3}))
        decisions = one.handle(NodeDeleted("n0"), again, Tick(0.0, steps=1))
        one.validate_state()
        if not one._pending.suspensions.keys:
            break
    outcome = one.outcome("default/mixed")
    assert outcome is not None and outcome.reason is Reason.SEARCH_BUDGET_EXHAUSTED
    assert not bindings_of(decisions)
    assert bindings_of(one.handle(NodeUpserted(node("n9")), Tick(60.0)))


def test_a_suspended_decision_about_a_pod_ends_where_another_like_it_was_refused_meanwhile() -> None:
    one = engine()
    one.handle(*(NodeUpserted(node(f"n{i}", {}, {GPU: 1})) for i in range(4)))
    for namespace in ("a", "b"):
        (pod,) = pods(None, 1, spec(gpu=2))
        one.handle(PodUpserted(in_namespace(pod, namespace)))
    both = 0
    while one.handle(Tick(steps=1, limit=1)):
        both += len(one._pending.suspensions.keys) == 2
        one.validate_state()
    assert both and one._pending.suspensions.keys == ()
    assert [len(outcome.refused) for key in ("a/pod-0", "b/pod-0") if (outcome := one.outcome(key))] == [1, 1]


@pytest.mark.parametrize("steps", [1, 50, None])
def test_a_gang_that_is_suspended_keeps_its_buckets(steps: int | None) -> None:
    """Another gang with task-topology is placed during the suspension: each has a plan of its own."""
    rules = {"volcano.sh/task-topology-anti-affinity": "a"}
    one = engine()
    one.handle(*(NodeUpserted(node(f"n{i}", {}, {GPU: 8})) for i in range(6)))
    for namespace in ("x", "y"):
        group = gang("g", 4)
        one.handle(GroupChanged(replace(group, namespace=namespace, annotations=rules, members_apart=True)))
        for i, role in enumerate("aaab"):
            (pod,) = pods("g", 1, prefix=f"{role}{i}", role=role)
            one.handle(PodUpserted(replace(pod, namespace=namespace, uid=f"{namespace}/{pod.name}")))
    while one.handle(Tick(steps=steps, limit=1)):
        one.validate_state()
    for key in ("x/g", "y/g"):
        outcome = one.outcome(key)
        assert outcome is not None
        assert len({assigned.node for assigned in outcome.bindings if assigned.pod.role == "a"}) == 3
