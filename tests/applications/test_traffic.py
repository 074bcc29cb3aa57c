"""What the traffic of an application costs, on nodes n0 -2- n1 -3- n2; nobody knows how far n3 and n4 are."""

import numpy as np
import pytest

from closeby.applications.registry import application
from closeby.applications.traffic import EdgeCost, Network, edge_costs, network_of, pulled, reached, within
from closeby.topology.costs import locate, network_costs
from tests.applications.calls import app
from tests.applications.networks import network
from tests.topology.drawing import Slots


def line(unknown: float = 1.0) -> Network:
    slots, costs = Slots({f"n{number}": {} for number in range(5)}), network("n0 n1 2\nn1 n2 3")
    known = network_costs(costs, costs.weight_sets[0])
    return network_of(locate(known, slots.names, slots.labels), unknown)


def cost_of(drawing: str, **replicas: dict[int, int]) -> EdgeCost:
    [found] = edge_costs(line(), application(app(drawing)), replicas)
    return found


def test_each_pair_costs_its_distance_times_the_weight() -> None:
    #   web: 2 on n0, 1 on n2.   db: 1 on n0, 1 on n1.   2 x (0 + 2) + (5 + 3)
    found = cost_of("web > db:3", web={0: 2, 2: 1}, db={0: 1, 1: 1})
    assert (found.pairs, found.cost, found.unknown, found.over) == (6, 36.0, 0, 0)


def test_distances_that_are_unknown_are_counted_and_have_a_substitute() -> None:
    #   n0 to n3 and n4, n3 to n4: three pairs at 1. The two on n3 are on one node, which costs nothing.
    found = cost_of("web > db", web={0: 1, 3: 1}, db={3: 1, 4: 1})
    assert (found.pairs, found.cost, found.unknown) == (4, 3.0, 3)


def test_replicas_of_a_workload_that_calls_itself_are_one_pair_each_two() -> None:
    #   2 on n0, 1 on n1, 2 on n3: ten pairs, of which n0-n1 is 2 twice, and six cost 1 as nobody knows.
    found = cost_of("web > web:2", web={0: 2, 1: 1, 3: 2})
    assert (found.pairs, found.cost, found.unknown) == (10, 20.0, 6)


@pytest.mark.parametrize(("limit", "over"), [("", 0), ("<=5", 1), ("<=4", 2)])
def test_pairs_beyond_a_limit_and_unknown_pairs(limit: str, over: int) -> None:
    #   n0 to n2 is 5, n0 to n3 unknown; n0 to n1 is 2.
    found = cost_of(f"web > db{limit}", web={0: 1}, db={1: 1, 2: 1, 3: 1})
    assert (found.pairs, found.over) == (3, over)


def test_where_one_side_has_no_replica_there_is_nothing_to_pay() -> None:
    found = cost_of("web > db:3<=4", web={0: 2})
    assert (found.pairs, found.cost, found.unknown, found.over) == (0, 0.0, 0, 0)


def test_what_draws_a_replica_to_each_node() -> None:
    #   Two replicas on n0 that weigh 1, one on n3 that weighs 10; each node is at no distance from itself.
    found = pulled(line(unknown=7.0), [(1.0, {0: 2}), (10.0, {3: 1})])
    assert found.tolist() == [0 + 70, 4 + 70, 10 + 70, 14 + 0, 14 + 70]


def test_nodes_within_the_limits_of_replicas() -> None:
    #   n0 within 2 of the first, and on the very node of the second, whose limit holds nothing else.
    near = within(line(), np.array([0]), np.array([2.0]))
    assert near.tolist() == [True, True, False, False, False]
    both = within(line(), np.array([0, 1]), np.array([5.0, 0.0]))
    assert both.tolist() == [False, True, False, False, False]
    unknown = within(line(), np.array([3]), np.array([100.0]))
    assert unknown.tolist() == [False, False, False, True, False]


def test_limits_are_rounded_down_to_distances_that_occur() -> None:
    limits = np.array([-1.0, 0.0, 1.9, 2.0, 4.0, 100.0, np.inf])
    assert reached(limits, line(unknown=2.0)).tolist() == [0.0, 0.0, 0.0, 2.0, 3.0, 5.0, np.inf]
