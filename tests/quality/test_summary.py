import pytest

from closeby.quality.summary import summarise, waits_of
from tests.quality.drawn import FOUR_RACKS, ROUND, Drawn

NAN = float("nan")


def test_the_summary_of_a_small_run() -> None:
    #   48 GPUs. Times: submitted, started, ended; the run is stopped at 100.
    #     wide   4 x 8 GPUs on a b c e     0   0  50     both blocks and 3 racks, where one and 2 would do
    #     tight  2 x 8 GPUs on a b        10  50 100     ideal
    #     small  1 GPU on f               20  20  30     not larger than a node
    #     never  2 x 8 GPUs               40   -   -     waits for 60 s; with it the window ends
    drawn = Drawn(FOUR_RACKS)
    run = drawn.run(
        {
            "wide": ("a b c e", 8, 0, 0, 50),
            "tight": ("a b", 8, 10, 50, 100),
            "small": ("f", 1, 20, 20, 30),
            "never": ("2", 8, 40, NAN, NAN),
        },
        until=100.0,
    )
    found = summarise(run)
    assert (found.jobs, found.started, found.ended) == (4, 3, 3)
    assert waits_of(run).tolist() == [0.0, 40.0, 0.0, 60.0]
    assert found.delays[0].mean == 25.0
    assert (found.window.begin, found.window.end, found.makespan) == (0.0, 40.0, 100.0)
    #   32 x 40 + 1 x 10 of 48 x 40
    assert found.utilisation == pytest.approx(1290 / 1920)
    block, rack, host = found.levels
    assert (block.level, rack.level, host.level) == ("block", "rack", "hostname")
    assert (block.span, rack.span, host.span) == (4 / 3, 5 / 3, 7 / 3)
    assert rack.excess_span == pytest.approx((1.5 + 1 + 1) / 3)
    assert rack.greatest_excess_span == 1.5
    #   wide weighs 32 x 50, tight 16 x 50: two to one
    assert rack.weighted_excess_span == pytest.approx((2 * 1.5 + 1) / 3)
    assert block.weighted_excess_span == pytest.approx((2 * 2 + 1) / 3)
    assert host.weighted_excess_span == 1.0


def test_a_run_in_which_nothing_happened() -> None:
    drawn = Drawn(FOUR_RACKS)
    found = summarise(drawn.run({}, until=10.0))
    assert (found.jobs, found.utilisation, found.goodput, found.makespan) == (0, None, None, 0.0)
    assert [level.span for level in found.levels] == [None, None, None]


def test_the_rest_of_the_summary() -> None:
    #   block-1 ── rack-1 (a b)   rack-2 (c d)          48 GPUs, from 0 to 100
    #   block-2 ── rack-3 (e)     rack-4 (f)
    #     near   2 x 8 GPUs on a b     0 ─ 100      16 ranks in one rack: ideal
    #     far    2 x 8 GPUs on c e     0 ─  50      two blocks, where a rack would do
    #     next   2 x 8 GPUs           50 waits to the end
    #     late   1 GPU               100 is not tried any more
    drawn = Drawn(FOUR_RACKS)
    run = drawn.run(
        {
            "near": ("a b", 8, 0, 0, 100),
            "far": ("c e", 8, 0, 0, 50),
            "next": ("2", 8, 50, NAN, NAN),
            "late": ("1", 1, 100, NAN, NAN),
        },
        until=100.0,
    )
    found = summarise(run, unconstrained=waits_of(run) - [0, 0, 20, 0], model=ROUND)
    block, rack, host = found.levels
    #   pairs a-b and c-e: 2 and 6 edges; rings of two edges, which cross 1 and 3 levels
    assert (found.mean_distance, found.diameter, found.ring_hops) == (4.0, 4.0, 1.0)
    assert (block.cross_pairs, rack.cross_pairs, host.cross_pairs) == (0.5, 0.5, 1.0)
    assert (block.ring_crossings, rack.ring_crossings, host.ring_crossings) == (1.0, 1.0, 2.0)
    #   16 GPUs are one data-parallel group of both pods, and two pipeline groups of one pod each
    assert (block.group_spread, rack.group_spread, host.group_spread) == (1.5, 1.5, 2.0)
    assert block.mean_group_spread == pytest.approx((1 + 4 / 3) / 2)
    #   30 steps; 1875 B. near: 2 s a step, 800 B/s. far: 4 s a step, 8 x 100/4 = 200 B/s.
    near, far = 60 + 1875 / 800, 120 + 1875 / 200
    assert found.all_reduce == pytest.approx((near + far) / 2)
    #   far alone on its uplinks: 16 links / 4 of rack-2, 8 / 4 of rack-3 and of block-2: 2 links for 8 flows
    assert found.contended_all_reduce == pytest.approx((near + 120 + 1875 / 200) / 2)
    #   near weighs 16 x 100, far 16 x 50; a quarter of a step is communication
    assert found.slowdown == pytest.approx((2 * 1 + far / near) / 3)
    assert found.job_slowdown == pytest.approx((2 * 1 + 0.75 + 0.25 * far / near) / 3)
    used, stretched = 2400 / 4800, 1600 / 4800 + 800 / 4800 / (0.75 + 0.25 * far / near)
    assert found.utilisation == pytest.approx(used)
    assert found.goodput == pytest.approx(stretched)
    #   Free until 50: d and f, 16 GPUs; a block, a rack and a node hold half. Then c to f, 32 GPUs: a block
    #   and a rack hold half, a node a quarter.
    assert (block.largest_gang, rack.largest_gang, host.largest_gang) == (0.5, 0.5, 0.375)
    #   `next` is next all the time. Until 50 neither d nor f is of use to it, in no block and no rack. From
    #   then on rack-2 and both blocks can hold it: 16 of 32 are in other racks. No single node ever could.
    assert (block.stranded, rack.stranded, host.stranded) == (0.5, 0.75, None)
    #   What was free when far began: c to f. Rack-2 would have held it: one block, one rack, 2 edges, not 6.
    assert (block.span_gap, rack.span_gap, host.span_gap) == (0.5, 0.5, 0.0)
    assert (found.distance_gap, found.compared) == (1.0, 2)
    #   next waits for 50 s, and would have waited for 30.
    assert found.delays[0].topology == pytest.approx(20 / 4)
    assert [delay.topology for delay in found.delays if delay.size == "9-64"] == [pytest.approx(20 / 3)]
    assert found.model is ROUND


def test_a_run_without_any_node() -> None:
    found = summarise(Drawn("").run({"never": ("2", 8, 0, NAN, NAN)}, until=10.0))
    assert (found.started, found.utilisation, found.slowdown, found.compared) == (0, None, None, 0)
    assert [(level.span, level.largest_gang) for level in found.levels] == [(None, None)] * 3
