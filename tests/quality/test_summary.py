import pytest

from closeby.quality.summary import summarise, waits_of
from tests.quality.drawn import FOUR_RACKS, Drawn

NAN = float("nan")


def test_the_summary_of_a_small_run() -> None:
    #   48 GPUs. Times: submitted, started, ended; the run is stopped at 100.
    #     wide   4 x 8 GPUs on a b c e     0   0  50     both blocks and 3 racks, where one and 2 would do
    #     tight  2 x 8 GPUs on a b        10  50 100     ideal
    #     small  1 GPU on f               20  20  30     not larger than a node
    #     never  2 x 8 GPUs               40   -   -     waits for 60 s, and keeps the window open to 100
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
    assert (found.window.begin, found.window.end, found.makespan) == (0.0, 100.0, 100.0)
    #   32 x 50 + 16 x 50 + 1 x 10 of 48 x 100
    assert found.utilisation == pytest.approx(2410 / 4800)
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
