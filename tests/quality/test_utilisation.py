import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.quality.utilisation import Window, busy_window, goodput, held, utilisation

NAN = float("nan")


def test_the_busy_window_ends_when_the_last_job_leaves_the_queue() -> None:
    #   0 ───────── 100 ──── 150      300
    #   first job   last     it       the longest
    #   submitted   comes    starts   ends
    submitted = np.asarray([0.0, 20.0, 100.0])
    started = np.asarray([0.0, 20.0, 150.0])
    ended = np.asarray([300.0, 60.0, 200.0])
    assert busy_window(submitted, started, ended, 300.0) == Window(0.0, 150.0)


def test_a_job_that_never_starts_keeps_the_window_open_to_the_end_of_the_run() -> None:
    assert busy_window(np.asarray([5.0, 6.0]), np.asarray([5.0, NAN]), np.asarray([9.0, NAN]), 80.0) == (
        Window(5.0, 80.0)
    )


def test_jobs_that_all_start_at_once_are_busy_until_the_last_one_ends() -> None:
    assert busy_window(np.asarray([5.0, 5.0]), np.asarray([5.0, 5.0]), np.asarray([9.0, NAN]), 20.0) == (
        Window(5.0, 20.0)
    )
    assert busy_window(np.zeros(0), np.zeros(0), np.zeros(0), 7.0).length == 0.0


def test_utilisation_counts_what_is_held_inside_the_window() -> None:
    #   16 GPUs from 0 to 100 s: 1600 GPU seconds.
    #   8 GPUs from -10 to 50: 400.  8 from 50 to 150: 400.  4 never.  4 from 90, still running: 40.
    window = Window(0.0, 100.0)
    seconds = held(np.asarray([-10.0, 50.0, NAN, 90.0]), np.asarray([50.0, 150.0, NAN, NAN]), 200.0, window)
    assert seconds.tolist() == [50.0, 50.0, 0.0, 10.0]
    gpus = np.asarray([8, 8, 4, 4])
    assert utilisation(gpus, seconds, 16, window) == pytest.approx(840 / 1600)
    #   The second job takes twice the time that it would take on an ideal placement: 400 + 200 + 40.
    slowdown = np.asarray([1.0, 2.0, NAN, 1.0])
    assert goodput(gpus, seconds, slowdown, 16, window) == pytest.approx(640 / 1600)


def test_without_gpus_or_time_nothing_is_used() -> None:
    gpus, seconds, slowdown = np.asarray([1]), np.asarray([1.0]), np.ones(1)
    assert utilisation(gpus, seconds, 0, Window(0.0, 1.0)) is None
    assert utilisation(gpus, seconds, 8, Window(1.0, 1.0)) is None
    assert goodput(gpus, seconds, slowdown, 0, Window(0.0, 1.0)) is None


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 100), st.floats(1, 9)), min_size=1, max_size=20))
def test_goodput_never_exceeds_utilisation(jobs: list[tuple[int, float, float]]) -> None:
    gpus, seconds, slowdown = (np.asarray(column, dtype=np.float64) for column in zip(*jobs, strict=True))
    window = Window(0.0, 100.0)
    used, good = utilisation(gpus, seconds, 8, window), goodput(gpus, seconds, slowdown, 8, window)
    assert used is not None
    assert good is not None
    assert good <= used
