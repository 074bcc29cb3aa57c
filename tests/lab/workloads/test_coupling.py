"""Run times by size: both margins are kept, and each size has its share of GPU time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.lab.workloads.sampling import Target, coupled, run_time_means


def test_two_sizes_and_two_run_times() -> None:
    """Half the jobs run 1 s, half 1.44 s (2 s at most, log-linear); small and large jobs in equal number.

    The large ones (3 GPUs) take three quarters of the GPU time: so all run equally long.
    """
    target = Target(
        rows=np.array([0.5, 0.5]),
        gpus=np.array([1.0, 3.0]),
        gpu_time=np.array([1.0, 3.0]),
        columns=np.array([0.5, 0.5]),
    )
    joint, tilts = coupled(target)
    assert joint == pytest.approx(np.full((2, 2), 0.25))
    assert tilts == pytest.approx([0, 0], abs=1e-9)


@given(
    st.lists(st.floats(0.2, 1.0), min_size=2, max_size=6),
    st.lists(st.floats(0.2, 1.0), min_size=6, max_size=16),
    st.lists(st.floats(-0.1, 0.1), min_size=6, max_size=6),
)
def test_margins_and_gpu_time_are_met(rows: list[float], columns: list[float], tilts: list[float]) -> None:
    """Those of any such coupling are met again; not all margins go with all shares of GPU time."""
    means = run_time_means(len(columns))
    drawn = np.array(columns) * np.exp(np.outer(tilts[: len(rows)], np.log2(means)))
    drawn *= (np.array(rows) / sum(rows) / drawn.sum(axis=1))[:, None]
    gpus = np.array([2.0**power for power in range(len(rows))])
    gpu_time = drawn @ means * gpus
    share, times = drawn.sum(axis=1), drawn.sum(axis=0)
    joint, _ = coupled(Target(rows=share, gpus=gpus, gpu_time=gpu_time, columns=times))
    assert joint.sum(axis=1) == pytest.approx(share, abs=1e-6)
    assert joint.sum(axis=0) == pytest.approx(times, abs=1e-6)
    got = joint @ means * gpus
    assert got / got.sum() == pytest.approx(gpu_time / gpu_time.sum(), abs=1e-4)
