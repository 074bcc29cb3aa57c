from closeby.quality.model import least_ring_hops, ring_crossings, ring_hops, rings
from closeby.quality.placements import spans
from tests.quality.drawn import FOUR_RACKS, Drawn


def test_ranks_that_follow_the_topology_cross_least() -> None:
    #   rack-1 (a b)  rack-2 (c d), all in block-1
    #   ranks a b c d: a-b b-c c-d d-a leave nodes: 4, racks: b-c and d-a = 2     hops 2 x (4 + 2) = 12
    #   ranks a c b d: all four edges leave a rack too                            hops 2 x (4 + 4) = 16
    drawn = Drawn(FOUR_RACKS)
    found = drawn.lying("a b c d", "a c b d")
    crossings = ring_crossings(found, rings(found))
    assert crossings.tolist() == [[0, 2, 4], [0, 4, 4]]
    assert ring_hops(crossings).tolist() == [12, 16]
    assert least_ring_hops(spans(found)).tolist() == [12, 12]


def test_small_rings() -> None:
    #   two pods of one rack: there and back; two pods of one node; one pod; none
    drawn = Drawn(FOUR_RACKS)
    found = drawn.lying("a b", "a a", "a", "", "a a e")
    crossings = ring_crossings(found, rings(found))
    assert crossings.tolist() == [[0, 0, 2], [0, 0, 0], [0, 0, 0], [0, 0, 0], [2, 2, 2]]
    assert ring_hops(crossings).tolist() == [4, 0, 0, 0, 12]
