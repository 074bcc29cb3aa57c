import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.quality.moments import Window, goodput, held, submission_window, utilisation

NAN = float("nan")


def test_the_window_ends_with_the_last_submission() -> None:
    #   0 ───────── 100 ──── 150      300
    #   first job   last     it       the longest
    #   submitted   comes    starts   ends
    submitted = np.asarray([0.0, 20.0, 100.0])
    assert submission_window(submitted, np.asarray([300.0, 60.0, 200.0]), 300.0) == Window(0.0, 100.0)


def test_nothing_that_a_scheduler_does_moves_it() -> None:
    #   The job of 100 s never starts with one, is late with another, and ends at once with the last.
    submitted = np.asarray([5.0, 6.0, 100.0])
    ends = [np.asarray([9.0, 40.0, last]) for last in (NAN, 900.0, 101.0)]
    assert {submission_window(submitted, ended, 1000.0) for ended in ends} == {Window(5.0, 100.0)}


def test_jobs_that_all_come_at_once_are_measured_until_the_last_one_ends() -> None:
    submitted = np.asarray([5.0, 5.0])
    assert submission_window(submitted, np.asarray([9.0, 12.0]), 20.0) == Window(5.0, 12.0)
    assert submission_window(submitted, np.asarray([9.0, NAN]), 20.0) == Window(5.0, 20.0)
    assert submission_window(np.zeros(0), np.zeros(0), 7.0).length == 0.0


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
