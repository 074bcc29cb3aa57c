import numpy as np

from closeby.quality.placements import domains_needed, excess_spans, fewest, level_names, most_held, spans
from tests.quality.drawn import FOUR_RACKS, Drawn


def test_the_span_counts_the_domains_that_a_job_uses() -> None:
    #   block-1 ── rack-1 (a b)   rack-2 (c d)
    #   block-2 ── rack-3 (e)     rack-4 (f)
    drawn = Drawn(FOUR_RACKS)
    found = spans(drawn.lying("a a b", "a c", "b e f c", "d", ""))
    assert level_names(drawn.tree) == ("block", "rack", "hostname")
    assert found.tolist() == [
        [1, 1, 2],
        [1, 2, 2],
        [2, 4, 4],
        [1, 1, 1],
        [0, 0, 0],
    ]


def test_an_empty_domain_says_how_few_could_hold_a_job() -> None:
    #   A block holds 4 nodes, a rack 2, a node 8 GPUs: 32, 16 and 8.
    drawn = Drawn(FOUR_RACKS)
    assert most_held(drawn.tree, drawn.gpus).tolist() == [32, 16, 8]
    pods, gpus = np.asarray([4, 4, 5, 3, 7]), np.asarray([8, 3, 8, 0, 5])
    #   4 pods of 8: one to a node. 4 pods of 3: two to a node, four to a rack. 5 of 8: a second block.
    #   Pods without GPUs fit anywhere. 7 pods of 5: one to a node, though two GPUs' worth would be left.
    assert fewest(drawn.tree, drawn.gpus, pods, gpus).tolist() == [
        [1, 2, 4],
        [1, 1, 2],
        [2, 3, 5],
        [1, 1, 1],
        [2, 4, 7],
    ]


def test_no_domain_holds_a_pod_that_is_larger_than_every_node() -> None:
    drawn = Drawn(FOUR_RACKS)
    least = fewest(drawn.tree, drawn.gpus, np.asarray([1]), np.asarray([9]))
    assert np.isnan(least).all()
    assert domains_needed(np.asarray([5]), np.asarray([2.0])).tolist() == [3.0]


def test_the_excess_is_the_span_over_the_fewest() -> None:
    drawn = Drawn(FOUR_RACKS)
    #   4 pods of 8 GPUs need one block, 2 racks, 4 nodes; the first is so. The second has a rack too many:
    #   3/2 and both blocks. The third never started.
    pods, gpus = np.asarray([4, 4, 2]), np.asarray([8, 8, 8])
    least = fewest(drawn.tree, drawn.gpus, pods, gpus)
    found = excess_spans(spans(drawn.lying("a b c d", "a b c e", "")), least)
    assert found[:2].tolist() == [[1.0, 1.0, 1.0], [2.0, 1.5, 1.0]]
    assert np.isnan(found[2]).all()


def test_pods_on_nodes_outside_the_tree_are_left_out() -> None:
    drawn = Drawn(FOUR_RACKS)
    tree = drawn.tree
    drawn.slots.remove("b")
    without = drawn.slots.tree("block", "rack")
    assert tree.size == 6
    assert without.size == 5
    smaller = Drawn(FOUR_RACKS)
    smaller.tree = without
    assert spans(smaller.lying("a b c", "b")).tolist() == [[1, 2, 2], [0, 0, 0]]


def test_a_topology_without_levels_tells_of_nodes_only() -> None:
    drawn = Drawn(": a=8 b=8", levels=())
    assert spans(drawn.lying("a b b")).tolist() == [[2]]
    assert level_names(drawn.tree) == ("hostname",)
