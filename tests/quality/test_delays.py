import numpy as np
import pytest

from closeby.quality.delays import SizeUnit, delays, size_bucket, size_unit, sizes, waits


def test_a_job_waits_from_its_submission_to_its_start_or_to_the_end_of_the_run() -> None:
    submitted = np.asarray([0.0, 5.0, 10.0])
    started = np.asarray([3.0, 5.0, np.nan])
    assert waits(submitted, started, until=40.0).tolist() == [3.0, 0.0, 30.0]


def test_sizes_fall_into_four_buckets() -> None:
    assert sizes(np.asarray([1, 2, 4]), np.asarray([8, 0, 16])).tolist() == [8, 2, 64]
    assert [size_bucket(size) for size in (1, 2, 8, 9, 64, 65, 4096)] == [
        "1",
        "2-8",
        "2-8",
        "9-64",
        "9-64",
        ">64",
        ">64",
    ]


def test_sizes_are_gpus_if_any_job_asks_for_one_else_pods() -> None:
    assert size_unit(np.asarray([0, 8])) is SizeUnit.GPU
    assert size_unit(np.asarray([0, 0])) is SizeUnit.POD


def test_delays_by_size() -> None:
    #   Three jobs of one GPU wait 0, 10 and 20 s: the 95th percentile is at 0.95 x 2 = 1.9 of the way,
    #   between 10 and 20: 19 s; the 99th at 1.98: 19.8 s. One job of 128 GPUs still waits after 600 s.
    size = np.asarray([1, 1, 1, 128])
    waited = np.asarray([0.0, 10.0, 20.0, 600.0])
    unstarted = np.asarray([False, False, False, True])
    every, one, few, some, many = delays(size, waited, unstarted)
    assert [one.size, few.size, some.size, many.size] == ["1", "2-8", "9-64", ">64"]
    assert (one.jobs, one.unstarted, one.mean, one.p50) == (3, 0, 10.0, 10.0)
    assert one.p95 == pytest.approx(19.0)
    assert one.p99 == pytest.approx(19.8)
    assert (few.jobs, few.mean, few.p50, few.p95, few.p99) == (0, None, None, None, None)
    assert (many.jobs, many.unstarted, many.mean) == (1, 1, 600.0)
    assert (every.size, every.jobs, every.mean) == ("all", 4, 157.5)
    assert every.topology is None


def test_the_wait_caused_by_topology_is_what_the_same_jobs_would_not_have_waited_without_it() -> None:
    #   with constraint: 0, 30, 100.  without: 0, 10, 40 -> more by 0, 20, 60.
    size = np.asarray([1, 16, 16])
    found = delays(
        size, np.asarray([0.0, 30.0, 100.0]), np.zeros(3, dtype=np.bool_), np.asarray([0.0, 10.0, 40.0])
    )
    assert [one.topology for one in found] == [pytest.approx(80 / 3), 0.0, None, 40.0, None]
