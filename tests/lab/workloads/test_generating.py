"""Made workloads have the distributions that were published, and offer the load that was asked for."""

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from closeby.errors import UnknownWorkloadError
from closeby.lab.workloads import published
from closeby.lab.workloads.generating import (
    AS_PUBLISHED,
    WORKLOADS,
    LeftOut,
    WorkloadOptions,
    generate,
    left_out,
)
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.published import HELIOS_CLUSTERS, SIZES, Mix

LINGJUN_GPUS = 847 * 8
PUBLISHED = {
    "seren": published.SEREN,
    "kalos": published.KALOS,
    "philly": published.PHILLY,
    "helios": published.HELIOS,
    **{f"helios-{name}": mix for name, mix in HELIOS_CLUSTERS.items()},
}
WITH_GPU_TIME = [name for name, mix in PUBLISHED.items() if mix.gpu_time is not None]


def made(
    name: str,
    *,
    jobs: int = 20_000,
    load: float = 0.85,
    seed: int = 1,
    options: WorkloadOptions = AS_PUBLISHED,
) -> Jobs:
    return generate(name, jobs=jobs, load=load, capacity=LINGJUN_GPUS, seed=seed, options=options)


def share_up_to(
    sizes: NDArray[np.int64], weights: NDArray[np.float64], limits: tuple[int, ...]
) -> list[float]:
    return [100 * float(weights[sizes <= limit].sum() / weights.sum()) for limit in limits]


def within(found: list[float], table: tuple[float, ...], points: float) -> dict[int, tuple[float, float]]:
    """Where the two are farther apart."""
    return {
        at: (one, other)
        for at, (one, other) in enumerate(zip(found, table, strict=False))
        if abs(one - other) > points
    }


@pytest.mark.parametrize("name", WITH_GPU_TIME)
@pytest.mark.parametrize("seed", range(5))
def test_gpu_time_over_sizes_is_as_published(name: str, seed: int) -> None:
    """Within 5 points at each size of the table, in 20,000 jobs."""
    jobs = made(name, seed=seed)
    mix: Mix = PUBLISHED[name]
    assert mix.gpu_time is not None
    assert within(share_up_to(jobs.sizes, jobs.sizes * jobs.durations, SIZES), mix.gpu_time, 5.0) == {}


@pytest.mark.parametrize("name", WITH_GPU_TIME)
def test_more_jobs_come_nearer(name: str) -> None:
    """Within 2 points in 100,000 jobs."""
    jobs, mix = made(name, jobs=100_000), PUBLISHED[name]
    assert mix.gpu_time is not None
    assert within(share_up_to(jobs.sizes, jobs.sizes * jobs.durations, SIZES), mix.gpu_time, 2.0) == {}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_as_published(name: str) -> None:
    """To a fifth of a point: jobs are drawn by strata."""
    jobs = made(name)
    assert within(share_up_to(jobs.sizes, np.ones(len(jobs)), SIZES), PUBLISHED[name].jobs, 0.2) == {}


@pytest.mark.parametrize("name", PUBLISHED)
def test_run_times_are_as_published(name: str) -> None:
    """To a fifth of a point at each power of two, though they depend on the size."""
    jobs = made(name)
    table = PUBLISHED[name].durations
    found = [100 * float((jobs.durations <= 2.0**power).mean()) for power in range(len(table))]
    assert within(found, table, 0.2) == {}
    assert jobs.durations.max() <= 2.0 ** (len(table) - 1)


@pytest.mark.parametrize(
    ("name", "gpus", "seconds"), [("seren", 0.25, 0.25), ("kalos", 0.1, 0.15), ("philly", 0.02, 0.05)]
)
def test_means_come_near_those_published_beside_the_curves(name: str, gpus: float, seconds: float) -> None:
    """Log-linear between the points of a curve that is read to a tenth, the tail can't be exact."""
    jobs, mix = made(name, jobs=100_000), PUBLISHED[name]
    assert mix.mean_gpus is not None and mix.mean_duration is not None
    assert float(jobs.sizes.mean()) == pytest.approx(mix.mean_gpus, rel=gpus)
    assert float(jobs.durations.mean()) == pytest.approx(mix.mean_duration, rel=seconds)


@pytest.mark.parametrize("name", [name for name, workload in WORKLOADS.items() if workload.resource != "cpu"])
@pytest.mark.parametrize("load", [0.5, 0.85, 1.2])
def test_the_load_is_offered_within_the_time_in_which_jobs_come(name: str, load: float) -> None:
    jobs = made(name, jobs=5_000, load=load)
    span = float(jobs.sizes @ jobs.durations) / (load * LINGJUN_GPUS)
    assert jobs.submitted[0] > 0 and jobs.submitted[-1] < span
    assert jobs.submitted[-1] > span * 0.98
    assert bool((np.diff(jobs.submitted) >= 0).all())


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_makes_the_same_workload(name: str) -> None:
    one, same, other = (made(name, jobs=500, seed=seed) for seed in (7, 7, 8))
    for field in ("submitted", "durations", "pods", "gpus", "priorities"):
        assert (getattr(one, field) == getattr(same, field)).all()
    assert (one.names, one.kinds, one.graphs) == (same.names, same.kinds, same.graphs)
    assert (one.submitted != other.submitted).any()
    assert len(set(one.names)) == 500


def test_jobs_of_whole_hosts_have_one_pod_a_host() -> None:
    jobs = made("seren")
    several = jobs.pods > 1
    assert set(jobs.gpus[several].tolist()) == {8}
    assert set(jobs.gpus[~several].tolist()) == {1, 2, 4, 8}
    assert 3 in set(jobs.pods.tolist()), "sizes between powers of two are there too"
    assert int(jobs.pods.max()) == 128


def test_large_jobs_and_long_ones_can_be_left_out() -> None:
    jobs = made("seren", options=WorkloadOptions(max_gpus=96, max_duration=3600.0))
    assert int(jobs.sizes.max()) == 96
    assert float(jobs.durations.max()) == 3600.0
    whole = made("seren")
    assert jobs.sizes.mean() < whole.sizes.mean()
    assert float((jobs.sizes == 1).mean()) == pytest.approx(0.54 / (1 - 0.006), abs=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_cap_that_all_jobs_are_below_changes_nothing(name: str) -> None:
    whole, capped = (
        made(name, jobs=2_000),
        made(name, jobs=2_000, options=WorkloadOptions(max_gpus=LINGJUN_GPUS)),
    )
    assert (whole.sizes == capped.sizes).all() and (whole.durations == capped.durations).all()


@pytest.mark.parametrize("most", [1, 2, 3, 8, 60, 64, 512])
@pytest.mark.parametrize("name", [*PUBLISHED, "gavel"])
def test_a_cap_leaves_the_others_in_proportion(name: str, most: int) -> None:
    whole, capped = made(name), made(name, options=WorkloadOptions(max_gpus=most, standing=True))
    assert int(capped.sizes.max()) <= most
    come = capped.only(capped.submitted > 0)
    kept = whole.sizes[whole.sizes <= most]
    for size in (1, 2, 4, 8, 32):
        share = 100 * float((kept <= size).mean())
        assert 100 * float((come.sizes <= size).mean()) == pytest.approx(share, abs=1.5)
    span = float(come.sizes @ come.durations) / (0.85 * LINGJUN_GPUS)
    assert span * 0.98 < come.submitted[-1] < span, "the load is that of the jobs which there are"


def test_omitted_jobs_are_reported_as_published() -> None:
    """Seren has 0.2 % of its jobs and 33.1 % of its GPU time above 512 GPUs."""
    found = left_out("seren", WorkloadOptions(max_gpus=512))
    assert found.jobs == pytest.approx(0.002, abs=0.0003)
    assert found.time == pytest.approx(0.331, abs=0.02)
    assert left_out("seren", WorkloadOptions(max_gpus=1_024)) == LeftOut(jobs=0.0, time=0.0)
    assert left_out("gavel", WorkloadOptions(max_gpus=4)).jobs == pytest.approx(0.05, abs=0.005)
    assert left_out("microservices", WorkloadOptions()).jobs == 0


def test_more_jobs_come_in_the_afternoon_than_at_night() -> None:
    """4 pm has 543 of 8,729 jobs a day, 7 am 185; whole days only, without bursts."""
    jobs = made("helios", jobs=50_000, options=WorkloadOptions(burstiness=1.0))
    hours = (jobs.submitted[jobs.submitted < jobs.submitted[-1] // 86_400 * 86_400] / 3600 % 24).astype(int)
    counts = np.bincount(hours, minlength=24)
    assert counts[16] / counts[7] == pytest.approx(543 / 185, rel=0.15)


def test_arrivals_come_in_bursts() -> None:
    """Standard deviation over mean of the times between arrivals: 1.75 as in openb; 1 for Poisson."""
    gaps = np.diff(made("seren", jobs=50_000, options=WorkloadOptions(diurnal=False)).submitted)
    assert float(gaps.std() / gaps.mean()) == pytest.approx(1.75, rel=0.05)
    even = np.diff(made("gavel", jobs=50_000).submitted)
    assert float(even.std() / even.mean()) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("name", ["seren", "philly", "gavel"])
def test_standing_jobs_hold_the_load_from_the_beginning(name: str) -> None:
    """At 85 % of 6,776 GPUs, 5,760 are held at 0, and on average over the time in which jobs come."""
    cold, warm = (
        made(name, jobs=5_000, options=WorkloadOptions(standing=standing)) for standing in (False, True)
    )
    extra = len(warm) - len(cold)
    assert warm.submitted[:extra].max() == 0.0 < warm.submitted[extra]
    assert (warm.sizes[extra:] == cold.sizes).all() and (warm.submitted[extra:] == cold.submitted).all()
    assert int(warm.sizes[:extra].sum()) == 5_759, "0.85 x 6,776 is 5,759.6"

    span = float(cold.sizes @ cold.durations) / (0.85 * LINGJUN_GPUS)

    def held(jobs: Jobs) -> float:
        ran = np.minimum(jobs.submitted + jobs.durations, span) - jobs.submitted
        return float(jobs.sizes @ ran) / span

    assert held(warm) == pytest.approx(5_760, rel=0.1)
    assert held(cold) < 0.8 * held(warm)


def test_gavel_is_its_closed_form() -> None:
    jobs = made("gavel", jobs=50_000)
    shares = [float((jobs.sizes == size).mean()) for size in (1, 2, 4, 8)]
    assert shares == pytest.approx([0.70, 0.10, 0.15, 0.05], abs=0.01)
    assert float((jobs.durations > 60_000).mean()) == pytest.approx(0.2, abs=0.01)
    assert jobs.durations.min() >= 60 * 10**1.5
    assert jobs.durations.max() <= 600_000


def test_pretraining_is_what_is_large() -> None:
    """0.9 % of Seren's jobs and 69.5 % of its GPU time; jobs above 64 GPUs are nearly that."""
    jobs = made("seren")
    large = np.array([kind == "pretrain" for kind in jobs.kinds])
    amounts = jobs.sizes * jobs.durations
    assert float(large.mean()) == pytest.approx(0.007, abs=0.001)
    assert float(amounts[large].sum() / amounts.sum()) == pytest.approx(0.724, abs=0.05)
    assert set(jobs.kinds) == {"pretrain", "eval", "sft", "other", "mllm", "debug"}
    assert set(made("philly", jobs=100).kinds) == {""}


def test_a_hundred_thousand_jobs_take_less_than_a_second() -> None:
    """Not a benchmark: ten times as long would be a mistake. The best of three, as processors are shared."""
    took = []
    for _ in range(3):
        began = time.process_time()
        assert len(made("seren", jobs=100_000)) == 100_000
        took.append(time.process_time() - began)
    assert min(took) < 1.0


@pytest.mark.parametrize("jobs", [1, 2, 3, 17])
@pytest.mark.parametrize("name", WORKLOADS)
def test_few_jobs_are_a_workload_too(name: str, jobs: int) -> None:
    made_few = made(name, jobs=jobs)
    assert len(made_few) == jobs
    assert bool(np.isfinite(made_few.submitted).all() and (made_few.durations >= 1).all())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(
        UnknownWorkloadError, match="'saren' is not a known workload; known workloads: seren, kalos"
    ):
        made("saren")
    with pytest.raises(ValueError, match="jobs must be a number above 0, not 0"):
        made("seren", jobs=0)
    with pytest.raises(ValueError, match="load must be a number above 0, not nan"):
        made("seren", load=float("nan"))
    with pytest.raises(ValueError, match="capacity must be a number above 0, not 0"):
        generate("seren", jobs=1, load=1, capacity=0, seed=0)
    with pytest.raises(ValueError, match=r"burstiness must be 1 or more, not 0\.5"):
        WorkloadOptions(burstiness=0.5)
    with pytest.raises(ValueError, match="max_gpus must be 1 or more, not 0"):
        WorkloadOptions(max_gpus=0)
