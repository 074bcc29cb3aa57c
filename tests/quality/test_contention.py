import numpy as np
import pytest

from closeby.quality.contention import JobRanks, alone_seconds, contended_seconds
from closeby.quality.model import rings, tiers_climbed
from closeby.quality.placements import spans
from tests.quality.drawn import FOUR_RACKS, ROUND, Drawn


def seconds(
    drawn: Drawn, jobs: list[str], gpus: int, during: list[tuple[float, float]] | None = None
) -> list[float]:
    found = drawn.lying(*jobs)
    times = np.asarray(during or [(0.0, 1.0)] * len(jobs))
    ranks_of_jobs = ranks_of(drawn, jobs, gpus)
    return [
        float(one) for one in contended_seconds(ROUND, found, rings(found), ranks_of_jobs, drawn.gpus, times)
    ]


def ranks_of(drawn: Drawn, jobs: list[str], gpus: int) -> JobRanks:
    found = drawn.lying(*jobs)
    links = np.full(len(jobs), gpus)
    return JobRanks(ranks=found.pods * links, links=links, climbed=tiers_climbed(spans(found)))


def test_a_ring_alone_has_full_links() -> None:
    #   a and c, 8 GPUs each: 16 ranks, 30 steps of 4 s (they meet two tiers up), 30/16 x 1000 = 1875 B.
    #   rack-1 has 16 links, divided by 4 above it: 4 full links for 8 flows: each gets half of 100 B/s.
    #   8 flows x 50 = 400 B/s.
    assert seconds(Drawn(FOUR_RACKS), ["a c"], 8) == [120 + 1875 / 400]
    #   Inside the rack nothing is shared: 8 x 100 = 800 B/s, and 30 steps of 2 s.
    assert seconds(Drawn(FOUR_RACKS), ["a b"], 8) == [60 + 1875 / 800]


def test_two_rings_share_an_uplink() -> None:
    #   a-c and b-d: 16 flows on the 4 full links of rack-1: a quarter each, 8 x 25 = 200 B/s.
    assert seconds(Drawn(FOUR_RACKS), ["a c", "b d"], 8) == [120 + 1875 / 200] * 2


def test_only_flows_at_the_same_time_count() -> None:
    #   a-c runs from 0 to 10; b-d from 5 to 15, and from 20 on another a-c. For half of the time of the first
    #   two 16 flows are there, for half 8: 12 in the mean, so that each gets 4/12 of 100 B/s.
    found = seconds(
        Drawn(FOUR_RACKS), ["a c", "b d", "a c"], 8, [(1000.0, 1010.0), (1005.0, 1015.0), (1020.0, 1030.0)]
    )
    assert found[0] == pytest.approx(120 + 1875 / (8 * 100 * 4 / 12))
    assert found[1] == pytest.approx(found[0])
    assert found[2] == pytest.approx(120 + 1875 / 400)


def test_ranks_out_of_order_share_with_themselves() -> None:
    #   a c b d: each rack is left twice, by 16 flows on 4 full links; a b c d leaves it once.
    drawn = Drawn(FOUR_RACKS)
    steps = 62 * 4 + 0.0
    size = 62 / 32 * 1000
    assert seconds(drawn, ["a b c d"], 8) == [steps + size / 400]
    assert seconds(drawn, ["a c b d"], 8) == [steps + size / 200]


def test_pods_of_one_node_share_its_links() -> None:
    #   a a b b in the order a b a b with 4 GPUs each: a is left twice, 8 flows on 8 links: nothing is lost.
    #   With 8 GPUs each (more than there are) 16 flows on 8 links: half.
    drawn = Drawn(FOUR_RACKS)
    assert seconds(drawn, ["a b a b"], 4) == [30 * 2 + 1875 / 400]
    assert seconds(drawn, ["a b a b"], 8) == [62 * 2 + 62 / 32 * 1000 / 400]


def test_no_ring_is_faster_among_others_than_alone() -> None:
    drawn = Drawn(FOUR_RACKS)
    jobs = ["a c", "b d", "a e f", "c", "a b", ""]
    found = np.asarray(seconds(drawn, jobs, 4))
    alone = alone_seconds(ROUND, ranks_of(drawn, jobs, 4), levels=3)
    assert (found >= alone).all()
    assert found[3] == alone[3] > 0
    assert found[5] == 0.0
