"""Classes of priority: as many GPU-hours in each as asked for, and what can be written."""

import pytest

from closeby.errors import UnrunnableError
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.priorities import MIXES, PriorityMix, mix_named, with_priorities


def seren(seed: int, count: int = 4_000) -> Jobs:
    options = WorkloadOptions(standing=True)
    return generate("seren", jobs=count, load=0.85, capacity=6_776, seed=seed, options=options)


def shares(workload: Jobs, mix: PriorityMix) -> list[float]:
    """Of the GPU-time, by class."""
    work = workload.sizes * workload.durations
    return [float(work[workload.priorities == one.priority].sum() / work.sum()) for one in mix.classes]


@pytest.mark.parametrize(
    ("text", "off"),
    [("high=1000:10%,low=0", 0.03), ("a=3:20,b=2:30,c=1", 0.1), ("borg", 0.04), ("spot-gpu", 0.01)],
)
def test_shares_of_gpu_time_and_of_jobs(text: str, off: float) -> None:
    """A few jobs hold most of the time, so that it can't be dealt out better; jobs are as many as it says."""
    mix = mix_named(text)
    for seed in range(10):
        workload = with_priorities(seren(seed), mix, seed)
        assert shares(workload, mix) == pytest.approx(mix.shares, abs=off)
        jobs = [float((workload.priorities == one.priority).mean()) for one in mix.classes]
        assert jobs == pytest.approx(mix.shares, abs=0.003)


def test_a_class_has_jobs_of_every_size() -> None:
    mix = mix_named("high=1000:10%,low=0")
    workload = with_priorities(seren(1), mix, 1)
    assert set(workload.sizes[workload.priorities == 1000].tolist()) >= {1, 2, 8, 16, 64}


def test_equal_seeds_give_equal_classes_and_the_same_jobs() -> None:
    mix = mix_named("high=1000:10%,low=0")
    workload = seren(7)
    one, again, other = (with_priorities(workload, mix, seed) for seed in (1, 1, 2))
    assert (one.priorities == again.priorities).all()
    assert (one.priorities != other.priorities).any()
    assert one.names == workload.names
    assert (one.submitted == workload.submitted).all()
    assert one.classes == mix.classes


def test_jobs_that_run_already_have_their_share_too() -> None:
    mix = mix_named("high=1000:10%,low=0")
    workload = with_priorities(seren(1), mix, 1)
    standing = workload.submitted == 0
    assert shares(workload.only(standing), mix)[0] == pytest.approx(0.1, abs=0.03)
    assert shares(workload.only(~standing), mix)[0] == pytest.approx(0.1, abs=0.03)


def test_kinds_decide_where_that_was_published() -> None:
    workload = with_priorities(seren(1), MIXES["acme"], 1)
    of_kind = dict(zip(workload.kinds, workload.priorities.tolist(), strict=True))
    assert of_kind["pretrain"] == 1000
    assert of_kind["eval"] == 0
    assert of_kind["sft"] == of_kind["debug"] == 500


def test_classes_are_listed_from_the_highest() -> None:
    assert [(one.name, one.priority) for one in mix_named("low=0,high=10:5%").classes] == [
        ("high", 10),
        ("low", 0),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rich", "take borg"),
        ("high=1000:10%,low", "'low' is not a class"),
        ("high=x:10%,low=0", "'high=x:10%'"),
        ("high=1:60%,low=0:60%", "100 %"),
        ("high=1:60%,low=0:30%", "100 %"),
        ("high=1,low=0", "100 %"),
        ("high=1:50%,low=1:50%", "give each its own"),
        ("high=99999999999:50%,low=1:50%", "not a class"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, told: str) -> None:
    with pytest.raises(UnrunnableError, match=told):
        mix_named(text)
