import numpy as np
import pytest

from closeby.quality.model import (
    DEFAULT_MODEL,
    all_reduce_seconds,
    job_slowdowns,
    ring_seconds,
    slowdowns,
    tiers_climbed,
)
from closeby.quality.placements import spans
from tests.quality.drawn import FOUR_RACKS, ROUND, Drawn


def test_the_ring_formula() -> None:
    #   4 ranks: 6 steps of 2 s, and 6/4 x 1000 B at 100 B/s: 12 + 15 = 27 s. One rank talks to nobody.
    found = ring_seconds(np.asarray([4, 1, 0]), 1000, np.full(3, 2.0), np.full(3, 100.0))
    assert found.tolist() == [27.0, 0.0, 0.0]


def test_a_ring_climbs_as_far_as_its_pods_lie_apart() -> None:
    drawn = Drawn(FOUR_RACKS)
    assert tiers_climbed(spans(drawn.lying("a a", "a b", "a c", "a e", ""))).tolist() == [0, 1, 2, 3, 0]


def test_all_reduce_by_tier() -> None:
    #   two pods of 4 GPUs, 8 ranks, 14 steps, 14/8 x 1000 = 1750 B
    #     one node      14 x 1 + 1750/800             = 16.1875
    #     one rack      14 x 2 + 1750/(4 links x 100) = 32.375
    #     one block     14 x 4 + 1750/(4 x 100 / 4)   = 73.5
    #     two blocks    as in one: the last tier stands for all farther ones
    ranks, links = np.full(4, 8), np.full(4, 4)
    found = all_reduce_seconds(ROUND, ranks, links, np.asarray([0, 1, 2, 3]), levels=3)
    assert found.tolist() == [16.1875, 32.375, 73.5, 73.5]


def test_many_links_are_never_faster_than_the_inside_of_a_node() -> None:
    #   16 links would give 1600 B/s in a rack; the ring still passes the inside of its nodes at 800.
    ranks, links = np.asarray([32]), np.asarray([16])
    found = all_reduce_seconds(ROUND, ranks, links, np.asarray([1]), levels=3)
    assert found.tolist() == [62 * 2 + 62 / 32 * 1000 / 800]


def test_slowdown_of_communication_and_of_the_job() -> None:
    found = slowdowns(np.asarray([73.5, 10.0, 0.0, 5.0]), np.asarray([32.375, 10.0, 0.0, np.nan]))
    assert found[:3].tolist() == [73.5 / 32.375, 1.0, 1.0]
    assert np.isnan(found[3])
    #   A quarter of a step is communication: 0.75 + 0.25 x 2 = 1.25.
    assert job_slowdowns(ROUND, np.asarray([2.0, 1.0])).tolist() == [1.25, 1.0]


def test_the_default_model_is_slower_the_farther() -> None:
    ranks, links = np.full(6, 64), np.full(6, 8)
    found = all_reduce_seconds(DEFAULT_MODEL, ranks, links, np.arange(6), levels=5)
    assert (np.diff(found[:4]) > 0).all()
    assert found[3] == found[4] == found[5]
    #   64 ranks in one rack: 126 steps of 9.6 us, and 126/64 GiB over 8 x 50 GB/s
    assert found[1] == pytest.approx(126 * 9.6e-6 + 126 / 64 * 2**30 / 400e9)
