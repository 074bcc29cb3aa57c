from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.applications.registry import Edge
from closeby.applications.traffic import EdgeCost
from closeby.objects.labels import REGION, ZONE
from closeby.quality.traffic import TrafficMeasures, run_traffic, traffic_measures
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
    found = traffic_measures(
        [edge("web", "db")], {"web": {0: 2, 2: 1}, "db": {0: 1, 1: 1, 3: 1}}, places().labels
    )
    assert found.pairs == 9
    assert (found.same_node, found.same_zone, found.same_region) == (2 / 9, 4 / 9, 6 / 9)
    assert found.cost is None


def test_a_workload_that_talks_to_itself_has_each_pair_once() -> None:
    #   3 on n0, 1 on n1: 6 pairs, 3 on n0, all in zone a
    found = traffic_measures([edge("db", "db")], {"db": {0: 3, 1: 1}}, places().labels)
    assert (found.pairs, found.same_node, found.same_zone) == (6, 0.5, 1.0)


def test_nodes_without_labels_share_no_zone() -> None:
    #   both on n4: one node, but nobody knows in which zone. cache is not placed: no pair.
    found = traffic_measures(
        [edge("web", "db"), edge("web", "cache")], {"web": {4: 1}, "db": {4: 1}}, places().labels
    )
    assert (found.pairs, found.same_node, found.same_zone, found.same_region) == (1, 1.0, 0.0, 0.0)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=4),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=9),
)
def test_shares_counted_pair_by_pair(calls: list[tuple[str, str]], pods: list[tuple[str, int]]) -> None:
    zones = ["a", "a", "b", "c", None]
    regions = ["one", "one", "one", "two", None]
    together: list[tuple[int, int]] = []
    for caller, callee in calls:
        mine, theirs = ([slot for name, slot in pods if name == side] for side in (caller, callee))
        together += combinations(mine, 2) if caller == callee else product(mine, theirs)
    replicas: dict[str, dict[int, int]] = {}
    for name, slot in pods:
        replicas.setdefault(name, {})[slot] = replicas.get(name, {}).get(slot, 0) + 1
    found = traffic_measures([edge(*call) for call in calls], replicas, places().labels)
    assert found.pairs == len(together)
    for told, homes in ((found.same_zone, zones), (found.same_region, regions)):
        near = sum(homes[one] is not None and homes[one] == homes[other] for one, other in together)
        assert told == (pytest.approx(near / len(together)) if together else None)
    same = sum(one == other for one, other in together)
    assert found.same_node == (pytest.approx(same / len(together)) if together else None)


def test_nothing_placed_has_no_share() -> None:
    found = traffic_measures([edge("web", "db")], {}, places().labels)
    assert (found.pairs, found.same_node, found.over) == (0, None, 0)


def test_costs_and_broken_limits_add_up() -> None:
    #   2 pairs at cost 5 and weight 3: 30, one of them over the limit; one pair at cost 7: 7
    edges = [edge("web", "db", 3.0, limit=4), edge("web", "cache")]
    costs = [
        EdgeCost(edge=edges[0], pairs=2, cost=30.0, unknown=0, over=1),
        EdgeCost(edge=edges[1], pairs=1, cost=7.0, unknown=0, over=0),
    ]
    found = traffic_measures(edges, {"web": {0: 1}, "db": {2: 2}, "cache": {0: 1}}, places().labels, costs)
    assert (found.cost, found.over, found.pairs) == (37.0, 1, 3)
    assert found.same_node == pytest.approx(1 / 3)


def measured(
    cost: float | None, pairs: int, same_node: float, over: int = 0, limited: int = 0
) -> TrafficMeasures:
    return TrafficMeasures(
        cost=cost,
        pairs=pairs,
        same_node=same_node,
        same_zone=same_node,
        same_region=1.0,
        over=over,
        limited=limited,
    )


def test_applications_count_by_how_long_they_ran() -> None:
    #   10 for 300 s and 40 for 100 s: (3000 + 4000) / 400, and over 4 x 300 + 8 x 100 pair-seconds
    #   same node: (4 x 0.5 x 300 + 8 x 0.25 x 100) / 2000.   Beyond limits: 2 x 100 of 1 x 300 + 4 x 100.
    apps = [measured(10.0, 4, 0.5, over=0, limited=1), measured(40.0, 8, 0.25, over=2, limited=4)]
    found = run_traffic(apps, np.array([300.0, 100.0]))
    assert (found.cost, found.cost_per_pair) == (17.5, 3.5)
    assert (found.same_node, found.same_zone, found.same_region) == (0.4, 0.4, 1.0)
    assert found.over == pytest.approx(2 / 7)


def test_what_is_unknown_of_a_run_is_none() -> None:
    none = run_traffic([], np.zeros(0))
    assert (none.cost, none.cost_per_pair, none.same_node, none.over) == (None,) * 4
    # One application whose cost is unknown makes the mean unknown, and the shares stay; nothing has a limit.
    found = run_traffic([measured(None, 2, 1.0), measured(5.0, 2, 0.0)], np.array([1.0, 1.0]))
    assert (found.cost, found.cost_per_pair, found.same_node, found.over) == (None, None, 0.5, None)
