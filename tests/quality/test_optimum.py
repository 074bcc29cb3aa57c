from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.quality.jobs import cross_pairs, mean_distances, pairs
from closeby.quality.moments import MOST_PODS, least_mean_distance, least_spans
from closeby.quality.placements import placements, spans
from closeby.topology.tree import Tree
from tests.quality.drawn import FOUR_RACKS, Drawn
from tests.topology.drawing import Slots


def test_the_best_place_for_four_pods() -> None:
    #   room:  rack-1 (a 2, b 1)  rack-2 (c 1, d 0) | rack-3 (e 3)  rack-4 (f 0)
    #   4 pods: block-1 alone holds them (2 racks, 3 nodes); on nodes e and a, 2 nodes are enough.
    #   a a b c: edges 0, 2 2, 4 4 4 = 16.   e e e a: 3 x 0, 3 x 6 = 18.
    drawn = Drawn(FOUR_RACKS)
    room = np.asarray([2, 1, 1, 0, 3, 0])
    best = least_spans(drawn.tree, room, 4)
    assert best is not None
    assert best.tolist() == [1, 2, 2]
    assert least_mean_distance(drawn.tree, room, 4) == pytest.approx(16 / 6)
    #   3 pods go to e alone.
    assert least_mean_distance(drawn.tree, room, 3) == 0.0


def test_what_does_not_fit_or_is_too_large_is_not_known() -> None:
    drawn = Drawn(FOUR_RACKS)
    room = np.asarray([2, 1, 1, 0, 3, 0])
    assert least_spans(drawn.tree, room, 8) is None
    assert least_mean_distance(drawn.tree, room, 8) is None
    assert least_mean_distance(drawn.tree, room, 1) is None
    assert least_mean_distance(drawn.tree, 100 * room, MOST_PODS + 1) is None


def searched(tree: Tree, room: list[int], pods: int) -> tuple[list[int], float]:
    """Fewest domains by level, and least mean distance, of all ways to place so many pods."""
    ways = [
        way
        for way in combinations_with_replacement(range(len(room)), pods)
        if all(way.count(slot) <= held for slot, held in enumerate(room))
    ]
    found = placements(tree, np.arange(len(ways) + 1) * pods, np.asarray(ways).reshape(-1))
    distances = mean_distances(cross_pairs(found), pairs(found))
    return spans(found).min(axis=0).tolist(), float(distances.min())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("rst"), st.integers(0, 3)), max_size=6),
    st.integers(2, 5),
)
def test_nothing_that_a_search_tries_is_better(nodes: list[tuple[str, str, int]], pods: int) -> None:
    drawn = Slots({f"n{at}": {"block": one, "rack": two} for at, (one, two, _) in enumerate(nodes)})
    room = [held for _, _, held in nodes]
    for tree in (drawn.tree("block", "rack"), drawn.tree("rack"), drawn.tree()):
        best, nearest = (
            least_spans(tree, np.asarray(room, dtype=np.int64), pods),
            least_mean_distance(tree, np.asarray(room, dtype=np.int64), pods),
        )
        if sum(room) < pods:
            assert best is None
            assert nearest is None
        else:
            fewest, distance = searched(tree, room, pods)
            assert best is not None
            assert best.tolist() == fewest
            assert nearest == pytest.approx(distance)
