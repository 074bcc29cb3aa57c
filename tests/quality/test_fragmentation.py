import numpy as np
import pytest

from closeby.quality.moments import Waiting, free_at, largest_shares, stranded_shares
from tests.quality.drawn import FOUR_RACKS, Drawn


def test_the_largest_gang_that_one_domain_can_hold() -> None:
    #   free:  rack-1 (a 3, b 2)  rack-2 (c 1, d 0) | rack-3 (e 4)  rack-4 (f 0)      10 in all
    #   GPUs one by one: block-1 6, rack-1 5, e 4.
    #   Pods of 2: a 1, b 1, e 2: block 4 GPUs, rack 4, node 4. Pods of 4: only e.
    drawn = Drawn(FOUR_RACKS)
    free = np.asarray([3, 2, 1, 0, 4, 0])
    assert largest_shares(drawn.tree, free).tolist() == [0.6, 0.5, 0.4]
    assert largest_shares(drawn.tree, free, each=2).tolist() == [0.4, 0.4, 0.4]
    assert np.isnan(largest_shares(drawn.tree, np.zeros(6, dtype=np.int64))).all()


def test_what_lies_where_the_next_gangs_cannot() -> None:
    #   the same; the next two gangs have 2 pods of 2 GPUs, and 4 of 1
    #     racks:  the first fits in rack-1 (1 + 1) and rack-3 (2): 1 of 10 is elsewhere
    #             the second fits in rack-1 and rack-3 too: 1 of 10
    #     blocks: both fit in both: 0
    #     nodes:  the first fits on e: 6 of 10; the second on e: 6 of 10
    #   A third needs 20 GPUs in pods of 4: no rack could ever hold it, and no block does now (one pod on e).
    drawn = Drawn(FOUR_RACKS)
    free = np.asarray([3, 2, 1, 0, 4, 0])
    two = Waiting(
        pods=np.asarray([2, 4]), gpus=np.asarray([2, 1]), fewest=np.asarray([[1.0, 1, 1], [1, 1, 1]])
    )
    assert stranded_shares(drawn.tree, free, two).tolist() == pytest.approx([0.0, 0.1, 0.6])
    three = Waiting(
        pods=np.asarray([2, 4, 5]),
        gpus=np.asarray([2, 1, 4]),
        fewest=np.asarray([[1.0, 1, 1], [1, 1, 1], [1, 2, 3]]),
    )
    assert stranded_shares(drawn.tree, free, three).tolist() == pytest.approx([1 / 3, 0.1, 0.6])
    nobody = Waiting(pods=np.zeros(0, int), gpus=np.zeros(0, int), fewest=np.zeros((0, 3)))
    assert np.isnan(stranded_shares(drawn.tree, free, nobody)).all()


def test_what_is_free_at_a_moment() -> None:
    #   node 0 of 8: 3 from 0 to 10, 4 from 5 to 15.  node 1 of 4: 2 from 10 on.
    free = free_at(
        np.asarray([0.0, 5.0, 9.9, 10.0, 20.0]),
        np.asarray([8, 4]),
        np.asarray([0, 0, 1, 1]),
        np.asarray([3, 4, 2, 1]),
        np.asarray([[0.0, 10.0], [5.0, 15.0], [10.0, np.inf], [np.nan, np.nan]]),
    )
    assert free.tolist() == [[5, 4], [1, 4], [1, 4], [4, 2], [8, 2]]
