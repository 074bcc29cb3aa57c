"""Runs over time, small enough to be worked out by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import GivenCluster
from closeby.lab.replay.driver import Policy, ReplaySettings, replay
from closeby.lab.replay.event_queue import Checkpoints
from closeby.lab.replay.history import History
from closeby.lab.replay.submitting import Wishes
from closeby.objects.pods import Pod, PodSpec
from closeby.reading.configuration import Configuration
from closeby.scheduling.events import PodUpserted
from closeby.simulator.synthetic import GPU
from tests.golden.fixture import Golden
from tests.lab.replay.small import jobs, leaves, places, run


def samples(history: History) -> list[tuple[float, int, int, int]]:
    """Time, busy GPUs, queued jobs, queued GPUs."""
    columns = history.samples
    rows = zip(columns.times, columns.busy, columns.queued, columns.queued_gpus, strict=True)
    return [(float(time), int(busy), int(queued), int(gpus)) for time, busy, queued, gpus in rows]


def test_three_jobs_on_two_leaves() -> None:
    """Leaf 1 has h1 and h2, leaf 2 has h3.

    ::

        0    a needs two whole hosts: leaf 1 alone holds it
        10   b needs one host: h3
        20   c needs two hosts: only h3 could be free soon, so it waits
        100  a ends; c takes leaf 1
        200  c ends
        310  b ends
    """
    history = run(
        jobs(("a", 0, 100, 2, 8), ("b", 10, 300, 1, 8), ("c", 20, 100, 2, 8)),
        leaves(2, 1),
    )

    assert history.started.tolist() == [0, 10, 100]
    assert history.ended.tolist() == [100, 310, 200]
    assert places(history) == {"a": ["h1", "h2"], "b": ["h3"], "c": ["h1", "h2"]}
    assert samples(history) == [
        (0, 16, 0, 0),
        (10, 24, 0, 0),
        (20, 24, 1, 16),
        (100, 24, 0, 0),
        (200, 8, 0, 0),
        (310, 0, 0, 0),
    ]
    assert (history.until, history.refusals, history.impossible) == (310, {}, ())


def test_a_small_job_passes_a_large_one_that_waits() -> None:
    """a holds h1; b needs both hosts and waits; c fits beside."""
    history = run(jobs(("a", 0, 60, 1, 8), ("b", 1, 10, 2, 8), ("c", 2, 30, 1, 4)), leaves(2))
    assert history.started.tolist() == [0, 60, 2]


def test_those_that_end_make_room_for_those_that_come_at_the_same_moment() -> None:
    history = run(jobs(("a", 0, 50, 1, 8), ("b", 50, 50, 1, 8)), leaves(1))
    assert history.started.tolist() == [0, 50]
    assert samples(history) == [(0, 8, 0, 0), (100, 0, 0, 0)]


def test_priority_goes_before_age() -> None:
    workload = jobs(("a", 0, 50, 1, 8), ("b", 10, 50, 1, 8), ("c", 20, 50, 1, 8), priorities=(0, 0, 5))
    unhurried = ReplaySettings(preempt=False)
    assert run(workload, leaves(1), unhurried).started.tolist() == [0, 100, 50]


def test_a_job_without_a_duration_ends_as_it_starts() -> None:
    history = run(jobs(("a", 5, 0, 1, 8), ("b", 5, 10, 1, 8)), leaves(1))
    assert history.started.tolist() == [5, 5]
    assert history.ended.tolist() == [5, 15]


def test_jobs_larger_than_the_cluster_are_refused_at_once() -> None:
    """Three hosts do not fit on two, nor nine GPUs on one host; nobody waits for them."""
    history = run(jobs(("a", 0, 10, 3, 8), ("b", 1, 10, 1, 9), ("c", 2, 10, 2, 8)), leaves(2))
    assert history.impossible == (0, 1)
    assert list(history.refusals) == [0, 1]
    assert history.refusals == {
        0: "all nodes together take 2 pods of 8 GPUs when no other job runs",
        1: "all nodes together take 0 pods of 9 GPUs when no other job runs",
    }
    assert history.started[2] == 2
    assert samples(history) == [(0, 0, 0, 0), (2, 16, 0, 0), (12, 0, 0, 0)]


def test_a_required_level_makes_jobs_too_large_that_would_fit_the_cluster() -> None:
    wishes = ReplaySettings(wishes=Wishes(required="leaf"))
    history = run(jobs(("a", 0, 10, 3, 8), ("b", 0, 10, 2, 8)), leaves(2, 2), wishes)
    assert history.refusals == {0: "no leaf takes more than 2 pods of 8 GPUs when no other job runs"}
    assert history.impossible == (0,)
    assert places(history) == {"b": ["h1", "h2"]}
    assert run(jobs(("a", 0, 10, 3, 8)), leaves(2, 2)).started.tolist() == [0]


def test_a_required_level_is_waited_for() -> None:
    """a and c end first and leave one host of each leaf, which e may not use where it must have a leaf.

    ::

        leaf-1: h1 a(50) h2 b(100)    leaf-2: h3 c(52) h4 d(103)
    """
    workload = jobs(
        ("a", 0, 50, 1, 8), ("b", 1, 99, 1, 8), ("c", 2, 50, 1, 8), ("d", 3, 100, 1, 8), ("e", 10, 10, 2, 8)
    )
    free = run(workload, leaves(2, 2))
    required = run(workload, leaves(2, 2), ReplaySettings(wishes=Wishes(required="leaf")))
    assert places(free) == {"a": ["h1"], "b": ["h2"], "c": ["h3"], "d": ["h4"], "e": ["h1", "h3"]}
    assert free.started[4] == 52
    assert places(required)["e"] == ["h1", "h2"]
    assert required.started[4] == 100


def test_a_run_stops_at_a_time() -> None:
    """a runs still, b waits, c has not come."""
    workload = jobs(("a", 0, 100, 1, 8), ("b", 10, 10, 1, 8), ("c", 70, 10, 1, 8))
    history = run(workload, leaves(1), ReplaySettings(until=60))
    assert history.until == 60
    assert history.started.tolist()[0] == 0
    assert np.isnan(history.started[1:]).all()
    assert np.isnan(history.ended).all()
    assert list(history.refusals) == [1]


def test_a_run_may_stop_before_its_first_job_comes() -> None:
    """The cluster is idle then, from the beginning on."""
    history = run(jobs(("a", 60, 100, 1, 8)), leaves(1), ReplaySettings(until=10))
    assert (history.until, history.samples.times.tolist()) == (10, [0])
    assert (history.samples.busy.tolist(), history.samples.queued.tolist()) == ([0], [0])


def test_what_waits_at_the_end_says_why_it_does_then(golden: Golden) -> None:
    """d comes when all hosts are in use. One is free when the run stops, which is too few to try it again."""
    rows = (("a", 0, 50, 1, 8), ("b", 0, 100, 1, 8), ("c", 0, 100, 1, 8), ("d", 10, 10, 3, 8))
    early, late = (run(jobs(*rows), leaves(3), ReplaySettings(until=until)) for until in (40, 60))
    golden("replay", early.refusals[3])
    golden("replay", late.refusals[3])


def test_what_runs_there_already_stays() -> None:
    """Six of h1's eight GPUs are held for ever: two are left for jobs."""
    held = Pod(
        namespace="other",
        name="held",
        uid="held",
        spec=PodSpec(requests=((GPU, 6),)),
        node_name="h1",
        phase="Running",
    )
    bare = leaves(1)
    cluster = GivenCluster(name="held", nodes=bare.nodes, others=(*bare.others, PodUpserted(held)))
    history = run(jobs(("a", 0, 10, 1, 2), ("b", 1, 10, 1, 3)), cluster)
    assert history.node_gpus.tolist() == [2]
    assert history.started.tolist()[0] == 0
    assert history.impossible == (1,)


def test_slots_are_in_the_order_of_ranks() -> None:
    history = run(jobs(("a", 0, 10, 6, 4)), leaves(3))
    assert places(history) == {"a": ["h1", "h1", "h2", "h2", "h3", "h3"]}


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (Wishes(required="rack"), "topology fabric has no level rack; there are pod, leaf, hostname"),
        (Wishes(topology="ring"), "there is no topology ring; there is fabric"),
        (
            Wishes(required="leaf", preferred="pod"),
            "preferred level pod is coarser than the required one, leaf",
        ),
    ],
)
def test_wishes_that_make_no_sense(wishes: Wishes, said: str) -> None:
    with pytest.raises(UnrunnableError, match=said):
        replay(jobs(("a", 0, 1, 2, 8)), leaves(2), ReplaySettings(wishes=wishes))


def test_a_cluster_without_the_resource() -> None:
    bare = leaves(2)
    cluster = GivenCluster(name="bare", nodes=bare.nodes, others=bare.others, resource="amd.com/gpu")
    with pytest.raises(UnrunnableError, match=r"no node that pods tolerate offers amd\.com/gpu"):
        replay(jobs(("a", 0, 1, 1, 1)), cluster, ReplaySettings())


def keeping(after: float, until: float | None = None) -> ReplaySettings:
    """Nodes are kept free for a job that has waited so many seconds."""
    return ReplaySettings(policy=Policy(configuration=Configuration(reserve_after=after)), until=until)


def test_a_gang_that_waits_long_keeps_nodes_free() -> None:
    """b wants both hosts. c and d would go on holding h2 in turn; after ten seconds b keeps it free.

    ::

        h1  a 0 to 100 ............ b 100 to 120
        h2  c 2 to 50 . kept free . b 100 to 120 . d 120 to 220
    """
    workload = jobs(("a", 0, 100, 1, 8), ("b", 1, 20, 2, 8), ("c", 2, 48, 1, 8), ("d", 40, 100, 1, 8))
    patient = run(workload, leaves(2), keeping(0))
    assert patient.started.tolist() == [0, 150, 2, 50]
    assert patient.reservations == ()

    history = run(workload, leaves(2), keeping(10))
    assert history.started.tolist() == [0, 100, 2, 120]
    (kept,) = history.reservations
    assert (kept.job, kept.slots, kept.begin, kept.end) == (1, (0, 1), 40, 100)
    assert kept.why


def test_a_job_lets_go_once_its_budget_is_spent() -> None:
    """b wants both hosts, and may let 120 GPU-seconds idle, half of that for each of its hosts.

    ::

        h1  a 0 to 1000 .................................................. b
        h2  ............. kept free from 11 on . c 27 to 32 . d 32 to 132
    """
    workload = jobs(("a", 0, 1000, 1, 8), ("b", 1, 20, 2, 8), ("c", 11, 5, 1, 8), ("d", 27, 100, 1, 8))
    configuration = Configuration(reserve_after=10.0, reserve_budget=120 / (16 * 3600))
    history = run(workload, leaves(2), ReplaySettings(policy=Policy(configuration=configuration)))
    assert history.started.tolist() == [0, 1000, 27, 32]
    kept = history.reservations[0]
    assert (kept.job, kept.begin, kept.end, kept.reason) == (1, 11, 27, "ReservationBudgetSpent")


@pytest.mark.parametrize(("deadlines", "started"), [(False, [0, 100, 120, 120]), (True, [0, 100, 40, 120])])
def test_with_deadlines_a_short_job_may_use_nodes_that_are_kept_free(
    deadlines: bool, started: list[float]
) -> None:
    """b waits for a. Until then c uses the other host if it is known that it ends before; d would not."""
    workload = jobs(("a", 0, 100, 1, 8), ("b", 1, 20, 2, 8), ("c", 40, 50, 1, 8), ("d", 41, 70, 1, 8))
    history = run(workload, leaves(2), replace(keeping(10), deadlines=deadlines))
    assert history.started.tolist() == started


def test_a_job_that_is_evicted_has_the_deadline_of_what_it_has_still_to_do() -> None:
    """After its checkpoint at 60 e has 40 to do; f waits for both hosts, as it did without it."""
    workload = jobs(("e", 0, 100, 1, 8), ("f", 70, 10, 1, 8), priorities=(0, 5))
    settings = ReplaySettings(checkpoints=Checkpoints(every=30.0, restart=5.0), deadlines=True)
    history = run(workload, leaves(1), settings)
    assert history.ended.tolist() == [80 + 5 + 40, 80]


def test_a_reservation_that_lasts_ends_with_the_run() -> None:
    workload = jobs(("a", 0, 100, 1, 8), ("b", 1, 20, 2, 8), ("c", 40, 100, 1, 4))
    history = run(workload, leaves(2), keeping(10, until=60))
    (kept,) = history.reservations
    assert (kept.begin, kept.end, kept.why) == (40, 60, "")
