import numpy as np

from closeby.quality.jobs import cross_pairs, diameters, mean_distances, pairs
from closeby.quality.placements import spans
from tests.quality.drawn import FOUR_RACKS, Drawn


def test_pairs_of_four_pods() -> None:
    #   block-1: rack-1 (a a b)  rack-2 (c)      6 pairs: aa, ab ab, ac ac, bc
    #     different nodes: all but aa = 5        different racks: the three with c        blocks: none
    #     edges: aa 0, ab 2 2, ac 4 4, bc 4 = 16, a mean of 16/6
    drawn = Drawn(FOUR_RACKS)
    found = drawn.lying("a a b c")
    assert pairs(found).tolist() == [6]
    assert cross_pairs(found).tolist() == [[0, 3, 5]]
    assert mean_distances(cross_pairs(found), pairs(found)).tolist() == [16 / 6]
    assert diameters(spans(found)).tolist() == [4]


def test_a_job_over_both_blocks_and_jobs_without_pairs() -> None:
    #   a | e: no common block: 6 edges. One pod and none have no pairs, and no distance.
    drawn = Drawn(FOUR_RACKS)
    found = drawn.lying("a e", "d", "")
    assert cross_pairs(found).tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]
    distances = mean_distances(cross_pairs(found), pairs(found))
    assert distances[0] == 6.0
    assert np.isnan(distances[1:]).all()
    assert diameters(spans(found)).tolist() == [6, 0, 0]


def test_each_of_two_jobs_has_its_own_mean() -> None:
    #   a | e: 6 edges.   a | b: 2 edges.
    found = Drawn(FOUR_RACKS).lying("a e", "a b")
    assert mean_distances(cross_pairs(found), pairs(found)).tolist() == [6.0, 2.0]


def test_distances_are_those_of_the_tree() -> None:
    drawn = Drawn(FOUR_RACKS)
    tree = drawn.tree
    names = ["a", "b", "c", "e", "f"]
    homes = [tree.node_domain(drawn.slot(name)) for name in names]
    each = [
        tree.distance(one, other)
        for place, one in enumerate(homes)
        for other in homes[:place]
        if one is not None and other is not None
    ]
    found = drawn.lying(" ".join(names))
    assert mean_distances(cross_pairs(found), pairs(found)).tolist() == [sum(each) / 10]
    assert diameters(spans(found)).tolist() == [max(each)]
