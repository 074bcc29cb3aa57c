import pytest

from closeby.applications.registry import Edge
from closeby.applications.talk import EdgeCost
from closeby.quality.talk import talk_measures
from closeby.topology.network_costs import REGION, ZONE
from tests.topology.drawing import Slots


def edge(caller: str, callee: str, weight: float = 1.0, limit: int | None = None) -> Edge:
    return Edge(caller=caller, callee=callee, weight=weight, limit=limit)


def places() -> Slots:
    """Slots 0 and 1 in zone a, 2 in zone b, all of region one; 3 in zone c of region two; 4 says nothing."""
    return Slots(
        {
            "n0": {ZONE: "a", REGION: "one"},
            "n1": {ZONE: "a", REGION: "one"},
            "n2": {ZONE: "b", REGION: "one"},
            "n3": {ZONE: "c", REGION: "two"},
            "n4": {},
        }
    )


def test_pairs_by_what_they_share() -> None:
    #   web: 2 on n0, 1 on n2.   db: 1 on n0, 1 on n1, 1 on n3.      9 pairs
    #     same node:   the two on n0 with the one there: 2
    #     same zone a: 2 x 2 = 4
    #     same region one: 3 x 2 = 6
    found = talk_measures(
        [edge("web", "db")], {"web": {0: 2, 2: 1}, "db": {0: 1, 1: 1, 3: 1}}, places().labels
    )
    assert found.pairs == 9
    assert (found.same_node, found.same_zone, found.same_region) == (2 / 9, 4 / 9, 6 / 9)
    assert found.cost is None


def test_a_workload_that_talks_to_itself_has_each_pair_once() -> None:
    #   3 on n0, 1 on n1: 6 pairs, 3 on n0, all in zone a
    found = talk_measures([edge("db", "db")], {"db": {0: 3, 1: 1}}, places().labels)
    assert (found.pairs, found.same_node, found.same_zone) == (6, 0.5, 1.0)


def test_nodes_without_labels_share_no_zone() -> None:
    #   both on n4: one node, but nobody knows in which zone. cache is not placed: no pair.
    found = talk_measures(
        [edge("web", "db"), edge("web", "cache")], {"web": {4: 1}, "db": {4: 1}}, places().labels
    )
    assert (found.pairs, found.same_node, found.same_zone, found.same_region) == (1, 1.0, 0.0, 0.0)


def test_nothing_placed_has_no_share() -> None:
    found = talk_measures([edge("web", "db")], {}, places().labels)
    assert (found.pairs, found.same_node, found.over) == (0, None, 0)


def test_costs_and_broken_limits_add_up() -> None:
    #   2 pairs at cost 5 and weight 3: 30, one of them over the limit; one pair at cost 7: 7
    edges = [edge("web", "db", 3.0, limit=4), edge("web", "cache")]
    costs = [
        EdgeCost(edge=edges[0], pairs=2, cost=30.0, unknown=0, over=1),
        EdgeCost(edge=edges[1], pairs=1, cost=7.0, unknown=0, over=0),
    ]
    found = talk_measures(edges, {"web": {0: 1}, "db": {2: 2}, "cache": {0: 1}}, places().labels, costs)
    assert (found.cost, found.over, found.pairs) == (37.0, 1, 3)
    assert found.same_node == pytest.approx(1 / 3)
