"""Jobs of several priorities: who goes for whom, what is lost, and where it goes on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.lab.replay.clusters import GivenCluster, made_up
from closeby.lab.replay.driver import Policy, ReplaySettings, replay
from closeby.lab.replay.event_queue import Checkpoints
from closeby.lab.replay.history import History, measure
from closeby.lab.replay.submitting import Wishes
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.priorities import MIXES, with_priorities
from closeby.objects.pods import Pod, PodSpec
from closeby.quality.delays import PreemptionMeasures
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodUpserted
from closeby.scheduling.preemption.rule import DAY
from closeby.simulator.synthetic import GPU
from tests.lab.replay.small import holds_together, jobs, leaves, places, run
from tests.lab.replay.test_any_workload import ROWS, rows, same


def keeping(every: float, restart: float = 0.0) -> ReplaySettings:
    return ReplaySettings(checkpoints=Checkpoints(every=every, restart=restart))


def evicted(history: History) -> list[tuple[str, str, float, float]]:
    """Who went for whom, when, and the seconds of its run that were lost."""
    names, cut = history.jobs.names, history.cut
    return [
        (names[job], names[by], end, lost)
        for job, by, end, lost in zip(
            cut.job.tolist(), cut.by.tolist(), cut.ended.tolist(), cut.lost.tolist(), strict=True
        )
    ]


def test_a_victim_goes_on_from_its_last_checkpoint() -> None:
    """A host: low has worked for 70 s and has 60 s of that on disk when high comes for 10 s."""
    workload = jobs(("low", 0, 100, 1, 8), ("high", 70, 10, 1, 8), priorities=(0, 5))
    history = run(workload, leaves(1), keeping(30))
    assert evicted(history) == [("low", "high", 70, 10)]
    assert history.started.tolist() == [80, 70]
    assert history.ended.tolist() == [120, 80]
    assert history.waited.tolist() == [10, 0]


def test_what_a_restart_takes_is_lost_too() -> None:
    workload = jobs(("low", 0, 100, 1, 8), ("high", 70, 10, 1, 8), priorities=(0, 5))
    history = run(workload, leaves(1), keeping(30, restart=5))
    assert history.ended[0] == 125
    assert history.lost.tolist() == [15, 0]


def test_a_second_eviction_counts_what_was_kept_before() -> None:
    """low works 0-70 (60 kept), restarts at 80 for 5 s, works 85-120 (30 kept): 10 s are left."""
    workload = jobs(("low", 0, 100, 1, 8), ("a", 70, 10, 1, 8), ("b", 120, 10, 1, 8), priorities=(0, 5, 5))
    history = run(workload, leaves(1), keeping(30, restart=5))
    assert [one[2:] for one in evicted(history)] == [(70, 10), (120, 10)]
    assert history.ended[0] == 130 + 5 + 10
    assert history.evictions.tolist() == [2, 0, 0]


def test_a_job_without_a_checkpoint_begins_again() -> None:
    workload = jobs(("low", 0, 100, 1, 8), ("high", 20, 10, 1, 8), priorities=(0, 5))
    assert run(workload, leaves(1), keeping(30)).ended[0] == 30 + 100


def test_a_gang_goes_as_a_whole() -> None:
    """The gang holds both hosts; high needs one, and the other stays free until the gang is back."""
    workload = jobs(("gang", 0, 100, 2, 8), ("high", 40, 10, 1, 8), priorities=(0, 5))
    history = run(workload, leaves(2), keeping(10))
    assert evicted(history) == [("gang", "high", 40, 0)]
    assert history.started.tolist() == [50, 40]
    assert history.ended[0] == 110
    assert history.samples.busy.tolist() == [16, 8, 16, 0]


def test_the_job_that_loses_least_goes() -> None:
    """old has worked since its checkpoint at 60 for 30 s, fresh for 10 s without one."""
    workload = jobs(
        ("old", 0, 200, 1, 8), ("fresh", 80, 200, 1, 8), ("high", 90, 10, 1, 8), priorities=(0, 0, 5)
    )
    assert evicted(run(workload, leaves(1, 1), keeping(60))) == [("fresh", "high", 90, 10)]


def preempting(**arguments: str) -> ReplaySettings:
    """These arguments of DefaultPreemption."""
    entry = PluginEntry(name="DefaultPreemption", arguments=arguments)
    return ReplaySettings(policy=Policy(configuration=Configuration(plugins=(entry,))))


@pytest.mark.parametrize(
    ("arguments", "when"), [({"minRuntime": "10m"}, 600), ({"preemptionDelay": "5m"}, 320), ({}, 20)]
)
def test_a_job_preempts_when_its_time_has_come_though_nothing_else_happens(
    arguments: dict[str, str], when: float
) -> None:
    """Between the arrival of high and the end of low no job comes or ends."""
    workload = jobs(("low", 0, 5_000, 1, 8), ("high", 20, 10, 1, 8), priorities=(0, 5))
    history = run(workload, leaves(1), preempting(**arguments))
    assert [one[:3] for one in evicted(history)] == [("low", "high", when)]
    assert history.started[1] == when


@pytest.mark.parametrize("began", [6.4, 6.5, 6.9])
def test_a_victim_is_of_age_at_the_very_moment(began: float) -> None:
    """6.4 + 10 - 6.4 is less than 10."""
    workload = jobs(("low", began, 5_000, 1, 8), ("high", 8, 10, 1, 8), priorities=(0, 5))
    history = run(workload, leaves(1), preempting(minRuntime="10s"))
    assert history.started[1] == began + 10


def test_a_victim_that_is_back_preempts_after_a_minute() -> None:
    """middle goes for high at 20. From 40 on it would fit on h2 but for least, which is of lower priority."""
    workload = jobs(
        ("middle", 0, 5_000, 1, 8),
        ("part", 0, 40, 1, 4),
        ("high", 20, 9_000, 1, 8),
        ("least", 30, 9_000, 1, 1),
        priorities=(3, 9, 5, 0),
    )
    history = run(workload, leaves(2), ReplaySettings(until=1_000))
    assert [one[:3] for one in evicted(history)] == [("middle", "high", 20), ("least", "middle", 80)]


def test_equal_priority_evicts_no_job() -> None:
    workload = jobs(("a", 0, 100, 1, 8), ("b", 10, 10, 1, 8), ("c", 0, 5, 1, 1), priorities=(5, 5, 0))
    assert not len(run(jobs(*_rows(workload), priorities=(5, 5, 5)), leaves(1)).cut)
    assert evicted(run(workload, leaves(2))) == []


def _rows(workload: Jobs) -> list[tuple[str, float, float, int, int]]:
    columns = (workload.submitted, workload.durations, workload.pods, workload.gpus)
    return list(zip(workload.names, *(column.tolist() for column in columns), strict=True))


def test_pods_of_the_cluster_stay() -> None:
    """A pod of the files holds h1, has the lowest priority and is no job: high waits for low's end."""
    stays = Pod(
        namespace="default",
        name="old",
        uid="old",
        spec=PodSpec(requests=((GPU, 8),), priority=-10),
        node_name="h1",
    )
    bare = leaves(2)
    cluster: GivenCluster = replace(bare, others=(*bare.others, PodUpserted(stays)))
    workload = jobs(("high", 0, 10, 1, 8), ("later", 1, 5, 1, 8), priorities=(5, 0))
    history = run(workload, cluster)
    assert evicted(history) == []
    assert history.started.tolist() == [0, 10]


@pytest.mark.parametrize("argument", ["observe", "off"])
def test_a_policy_may_say_no(argument: str) -> None:
    entry = PluginEntry(name="DefaultPreemption", arguments={"preemption": argument})
    policy = Policy(configuration=Configuration(plugins=(entry,)))
    workload = jobs(("low", 0, 100, 1, 8), ("high", 70, 10, 1, 8), priorities=(0, 5))
    history = run(workload, leaves(1), ReplaySettings(policy=policy))
    assert evicted(history) == []
    assert history.started.tolist() == [0, 100]


def test_the_places_of_every_run_are_known() -> None:
    """low begins on h1 and ends on h2, which small has left by then."""
    workload = jobs(
        ("low", 0, 100, 1, 8), ("small", 0, 60, 1, 8), ("high", 50, 100, 1, 8), priorities=(0, 5, 5)
    )
    history = run(workload, leaves(1, 1), keeping(10))
    assert [history.nodes[slot] for slot in history.cut.slots.tolist()] == places(history)["high"]
    assert places(history)["low"] == places(history)["small"]
    each = history.each_run()
    assert each.jobs.names == ("low", "small", "high", "low")
    assert each.jobs.submitted.tolist() == [50, 0, 50, 0]


def test_measures_by_priority() -> None:
    """low waits 10 s after its eviction and loses 10 s x 8 GPUs; goodput is without that."""
    workload = jobs(
        ("low", 0, 100, 1, 8), ("high", 70, 10, 1, 8), ("last", 200, 10, 1, 8), priorities=(0, 5, 0)
    )
    found = measure(run(workload, leaves(1), keeping(30)))
    by = found.preemption
    assert isinstance(by, PreemptionMeasures)
    assert (by.evictions, by.evicted_jobs, by.most_evictions) == (1, 1, 1)
    assert by.lost_gpu_hours == pytest.approx(80 / 3600)
    assert [(one.priority, one.jobs, one.mean, one.evictions) for one in by.priorities] == [
        (5, 1, 0, 0),
        (0, 2, 5, 1),
    ]
    assert found.jobs == found.ended == 3
    assert found.delays[0].mean == pytest.approx(10 / 3)
    assert found.utilisation == pytest.approx(120 / 200)
    assert found.goodput == pytest.approx(110 / 200)


def test_one_priority_has_no_measures_of_its_own() -> None:
    assert not isinstance(measure(run(jobs(("a", 0, 5, 1, 8)), leaves(1))).preemption, PreemptionMeasures)


@settings(max_examples=40, deadline=None)
@given(drawn=ROWS, priority=st.integers(-5, 5), required=st.sampled_from((None, "leaf")))
def test_with_one_priority_nothing_changes(
    drawn: list[tuple[int, int, int, int]], priority: int, required: str | None
) -> None:
    workload = replace(jobs(*rows(drawn)), priorities=np.full(len(drawn), priority, dtype=np.int64))
    wishes = Wishes(required=required)
    with_it, without = (
        run(workload, leaves(2, 3, 1), ReplaySettings(wishes=wishes, preempt=preempt))
        for preempt in (True, False)
    )
    assert same(with_it, without)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), drawn=ROWS, required=st.sampled_from((None, "leaf")), every=st.sampled_from((7, 50)))
def test_promises_of_any_run(
    data: st.DataObject, drawn: list[tuple[int, int, int, int]], required: str | None, every: int
) -> None:
    """All jobs start, victims have lower priority, and no job is evicted again and again."""
    count = len(drawn)
    drawn_priorities = data.draw(st.lists(st.sampled_from((0, 3, 7)), min_size=count, max_size=count))
    workload = jobs(*rows(drawn), priorities=drawn_priorities)
    history = run(workload, leaves(2, 3, 1), replace(keeping(every), wishes=Wishes(required=required)))
    waits = np.isnan(history.started)
    waits[list(history.impossible)] = False
    assert not waits.any(), f"{np.flatnonzero(waits)} wait on an empty cluster"
    bounded(history)


def bounded(history: History, most: int = 3) -> None:
    """Within a day a job is evicted ``most`` times, and once more for each higher priority."""
    cut, priorities = history.cut, history.jobs.priorities
    for job in np.unique(cut.job).tolist():
        mine = cut.job == job
        times, by = cut.ended[mine], priorities[cut.by[mine]]
        for number, time in enumerate(times.tolist()):
            day = (times <= time) & (times > time - DAY) & (np.arange(len(times)) <= number)
            assert day.sum() <= most + len(np.unique(by[day])) - 1, f"{history.jobs.names[job]} at {time}"


def prioritised(count: int, cluster: str, capacity: int, seed: int, load: float, mix: str) -> History:
    options = WorkloadOptions(standing=True, max_gpus=capacity)
    workload = generate("seren", jobs=count, load=load, capacity=capacity, seed=seed, options=options)
    given_classes = with_priorities(workload, MIXES[mix], seed)
    chosen = ReplaySettings(seed=seed)
    return replay(given_classes, made_up(cluster), chosen, after_each=Engine.validate_state)


@pytest.mark.parametrize("mix", ["borg", "acme"])
def test_promises_of_a_full_cluster(mix: str) -> None:
    """The engine's invariants are asserted after every moment, those of plans among them; seed 3."""
    history = prioritised(800, "small", 512, seed=3, load=1.1, mix=mix)
    holds_together(history)
    bounded(history)
    assert len(history.cut)
    assert not np.isnan(history.ended).any()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_promises_of_ten_thousand_jobs() -> None:
    """The Seren mix on the Lingjun network, three classes, more asked for than there is; seed 1.

    It takes a minute and a half, nearly all of it for the invariants that are asserted after every moment.
    """
    history = prioritised(10_000, "lingjun", 6_776, seed=1, load=1.05, mix="acme")
    holds_together(history)
    bounded(history)
    assert len(history.cut)
    assert not np.isnan(history.ended).any()
