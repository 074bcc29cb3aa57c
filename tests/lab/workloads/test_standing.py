"""The jobs that run from the beginning hold what the load says, in the size mix of a steady state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

from closeby.lab.workloads import published
from closeby.lab.workloads.applications import BOUTIQUE
from closeby.lab.workloads.generating import WORKLOADS, WorkloadOptions, generate, standing
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.published import SIZES, Mix

MIXES = {
    "seren": published.SEREN,
    "kalos": published.KALOS,
    "philly": published.PHILLY,
    "helios": published.HELIOS,
}


def begins_with(
    name: str, *, load: float, capacity: float, seed: int, options: WorkloadOptions | None = None
) -> Jobs:
    """The standing jobs of a small workload."""
    chosen = options or WorkloadOptions(standing=True)
    made = generate(name, jobs=50, load=load, capacity=capacity, seed=seed, options=chosen)
    return made.only(made.submitted == 0)


def held(jobs: Jobs) -> float:
    return sum(graph.cores for graph in jobs.graphs if graph) if jobs.graphs else float(jobs.sizes.sum())


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(WORKLOADS)),
    load=st.floats(0.05, 3.0),
    capacity=st.sampled_from((64, 500, 512, 3_840, 6_776, 40_000)),
    seed=st.integers(0, 1_000_000),
)
def test_they_hold_the_load_and_never_more(name: str, load: float, capacity: int, seed: int) -> None:
    """Less than one GPU short of it; applications less than the Online Boutique."""
    target = min(load, 1.0) * capacity
    short = target - held(begins_with(name, load=load, capacity=capacity, seed=seed))
    assert -1e-6 * capacity < short < (BOUTIQUE.cores if name == "microservices" else 1.0)


@pytest.mark.parametrize("name", MIXES)
def test_sizes_hold_their_published_shares_of_gpu_time(name: str) -> None:
    """On average over 60 seeds, within 3 points at each size of the table."""
    mix: Mix = MIXES[name]
    assert mix.gpu_time is not None
    shares = np.zeros(len(mix.gpu_time))
    for seed in range(60):
        sizes = begins_with(name, load=0.85, capacity=6_776, seed=seed).sizes
        shares += [
            100 * float(sizes[sizes <= size].sum() / sizes.sum()) / 60 for size in SIZES[: len(shares)]
        ]
    assert np.abs(shares - mix.gpu_time).max() < 3.0


def test_they_are_in_the_middle_of_their_run() -> None:
    """Two sizes as likely as they are long, each caught at an even moment: half of the run is left."""
    amounts, durations = np.array([1.0, 8.0]), np.array([1_000.0, 500.0])
    jobs, left = standing(amounts, durations, 60_000, Generator(PCG64(1)))
    small = jobs == 0
    # GPU-time is shared out 1 to 4, and so is what they hold.
    assert (int(small.sum()), int((~small).sum())) == (12_000, 6_000)
    assert float(left[small].mean()) == pytest.approx(500, rel=0.03)
    assert float(left[~small].mean()) == pytest.approx(250, rel=0.03)
    assert left[small].max() <= 1_000 and left.min() >= 1


def test_long_jobs_of_a_size_stand_more_often() -> None:
    """Jobs of one GPU that run for 100 and 900 s: nine of ten that are met are of the longer kind."""
    jobs, _ = standing(np.ones(2), np.array([100.0, 900.0]), 1_000, Generator(PCG64(2)))
    assert int((jobs == 1).sum()) == 900


def test_a_job_larger_than_what_is_held_does_not_stand() -> None:
    """400 GPUs never fit into 300, which the others fill."""
    amounts, durations = np.array([1.0, 64.0, 400.0]), np.array([60.0, 3_600.0, 86_400.0])
    for seed in range(20):
        jobs, _ = standing(amounts, durations, 300, Generator(PCG64(seed)))
        assert set(jobs.tolist()) <= {0, 1}
        assert float(amounts[jobs].sum()) == 300


def test_they_are_in_no_order_of_size() -> None:
    """Else all small jobs would be placed before, or after, all large ones."""
    sizes = begins_with("seren", load=0.85, capacity=6_776, seed=1).sizes.astype(np.float64)
    place = np.arange(len(sizes), dtype=np.float64)
    assert abs(float(np.corrcoef(place, sizes)[0, 1])) < 0.1
