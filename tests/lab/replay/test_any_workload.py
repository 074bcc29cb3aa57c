"""What holds of every run: the same again, no slot over its capacity, nobody forgotten."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.lab.replay.clusters import cluster_of, made_up
from closeby.lab.replay.driver import Policy, ReplaySettings, replay
from closeby.lab.replay.history import History
from closeby.lab.replay.submitting import Wishes
from closeby.lab.workloads.generating import generate
from closeby.plugins.configurations import NAMED
from closeby.reading.manifests import Manifests
from closeby.simulator.synthetic import fabric_topology
from tests.lab.replay.small import Job, holds_together, jobs, leaves, run

ROWS = st.lists(
    st.tuples(
        st.integers(0, 200), st.integers(0, 100), st.integers(1, 7), st.sampled_from((0, 1, 2, 3, 4, 8, 9))
    ),
    min_size=1,
    max_size=25,
)


def rows(drawn: list[tuple[int, int, int, int]]) -> list[Job]:
    ordered = sorted(drawn, key=lambda one: one[0])
    return [
        (f"j{number}", float(row[0]), float(row[1]), row[2], row[3]) for number, row in enumerate(ordered)
    ]


@settings(max_examples=60, deadline=None)
@given(drawn=ROWS, required=st.sampled_from((None, "leaf")), until=st.none() | st.integers(1, 250))
def test_everybody_starts_or_could_not(
    drawn: list[tuple[int, int, int, int]], required: str | None, until: int | None
) -> None:
    chosen = ReplaySettings(wishes=Wishes(required=required), until=None if until is None else float(until))
    history = run(jobs(*rows(drawn)), leaves(2, 3, 1), chosen)
    waits = np.isnan(history.started)
    waits[list(history.impossible)] = False
    if until is None:
        assert not waits.any(), f"{np.flatnonzero(waits)} wait on an empty cluster"
    assert set(history.refusals) <= set(np.flatnonzero(np.isnan(history.started)).tolist())


def same(one: History, other: History) -> bool:
    columns = ("started", "ended", "offsets", "slots")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in columns)
        and one.refusals == other.refusals
        and one.nodes == other.nodes
        and np.array_equal(one.samples.times, other.samples.times)
    )


def test_the_same_seed_gives_the_same_history() -> None:
    def once(seed: int) -> History:
        workload = generate("seren", jobs=300, load=2.0, capacity=512, seed=seed)
        return replay(workload, made_up("small"), ReplaySettings(seed=seed))

    assert same(once(3), once(3))
    assert not same(once(3), once(4))


@pytest.mark.parametrize("config", ["random", "least-allocated", "most-allocated", "first-task-labels"])
def test_draws_are_those_of_the_seed(config: str) -> None:
    """The same jobs: what a policy draws differs from seed to seed, and can be had again."""
    workload = generate("philly", jobs=40, load=0.5, capacity=512, seed=3)
    policy = Policy(name=config, configuration=NAMED[config])
    one, again, other, trace = (
        replay(workload, made_up("small"), ReplaySettings(policy=policy, seed=seed))
        for seed in (1, 1, 2, None)
    )
    assert same(one, again)
    assert not same(one, other)
    assert not same(one, trace)


def test_draws_of_applications_are_those_of_the_seed() -> None:
    workload = generate("microservices", jobs=5, load=0.2, capacity=3840, seed=3)
    policy = Policy(name="random", configuration=NAMED["random"])
    one, again, other = (
        replay(workload, made_up("zones"), ReplaySettings(policy=policy, seed=seed)) for seed in (1, 1, 2)
    )
    assert same(one, again)
    assert not same(one, other)


def test_the_order_of_the_files_does_not_matter() -> None:
    nodes, fabric = made_up("small").nodes, (fabric_topology(),)
    workload = generate("philly", jobs=300, load=1.5, capacity=512, seed=3)
    histories = [
        replay(workload, cluster_of(Manifests(nodes=order, topologies=fabric), "files"), ReplaySettings())
        for order in (nodes, nodes[::-1], nodes[::2] + nodes[1::2])
    ]
    assert same(histories[0], histories[1])
    assert same(histories[0], histories[2])


def test_a_full_cluster_of_many_jobs() -> None:
    """More is asked for than there is, so that a queue grows and is worked off; seed 5."""
    workload = generate("gavel", jobs=1_000, load=3.0, capacity=512, seed=5)
    history = replay(workload, made_up("small"), ReplaySettings(seed=5))
    holds_together(history)
    assert history.samples.queued.max() > 10
    assert not np.isnan(history.ended).any()


@pytest.mark.slow
def test_twenty_thousand_jobs() -> None:
    """The Seren mix on the Lingjun network; seed 1."""
    workload = generate("seren", jobs=20_000, load=0.85, capacity=6_776, seed=1)
    history = replay(workload, made_up("lingjun"), ReplaySettings(seed=1))
    holds_together(history)
    assert not np.isnan(history.ended).any()
    assert history.samples.busy[-1] == 0
