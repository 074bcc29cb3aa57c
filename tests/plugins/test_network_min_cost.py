"""Pods of an application go where talking to the others costs least: the KEP's tables and upstream's."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.applications import traffic
from closeby.objects.applications import AppGroup, AppWorkload, Dependency, NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.network_min_cost import NetworkMinCost, NetworkMinCostArguments
from closeby.scheduling.extension import Undo
from closeby.scheduling.plugin_view import Nodes
from tests.applications.calls import app
from tests.applications.networks import (
    EIGHT_NODES,
    EIGHT_REGIONS,
    EIGHT_ZONES,
    FIVE_NODES,
    distances,
    in_zones,
    network,
    replicas,
    workers,
)
from tests.golden.fixture import Golden
from tests.plugins.asking import STATE, allowed, handle_of, scores, why_not
from tests.worlds import draw, fabric

#: The chain of the KEP's example.
CHAIN = "P1 > P2\nP2 > P3\nP3"


#: Distances from worker-1 where no costs are known, and no topology.
IN_THE_TREE = [0, 2, 2, 2, 2]


class Asked:
    """The plugin on a small cluster, with replicas that run."""

    def __init__(
        self,
        nodes: list[Node],
        *objects: AppGroup | NetworkTopology,
        placed: str = "",
        **arguments: Any,
    ) -> None:
        """``placed``: ``P1@worker-1 P2@worker-2``."""
        self.handle = handle_of(nodes)
        self.applications = self.handle.applications
        self.tell(*objects)
        self.plugin = NetworkMinCost(NetworkMinCostArguments(**arguments), self.handle)
        self.running = [self.place(*one.split("@")) for one in placed.split()]

    def tell(self, *objects: AppGroup | NetworkTopology) -> None:
        for one in objects:
            if isinstance(one, AppGroup):
                self.applications.declare(one)
            else:
                self.applications.declare_network(one)

    def place(self, workload: str, name: str) -> tuple[Pod, int]:
        [pod] = replicas(workload, prefix=f"{workload}-{name}", on=name)
        slot = self.handle.cluster.slot(name)
        assert slot is not None
        self.plugin.pod_assumed(pod, slot)
        return pod, slot

    def costs(self, workload: str) -> list[float]:
        raw = self.plugin.score(STATE, self.next(workload), Nodes(self.handle.cluster))
        return [float(-one) + 0.0 for one in raw]

    def scores(self, workload: str) -> list[float]:
        return [round(one, 2) for one in scores(self.plugin, self.next(workload)).values()]

    def allowed(self, workload: str) -> str:
        return allowed(self.plugin, self.next(workload))

    def why_not(self, workload: str, name: str) -> str:
        rejection = why_not(self.plugin, self.next(workload), name)
        assert rejection.reason is Reason.NETWORK_COST_TOO_HIGH
        return rejection.message

    def messages(self) -> list[str]:
        return [one.message for one in self.plugin.conditions()]

    @staticmethod
    def next(workload: str) -> Pod:
        [pod] = replicas(workload, prefix=f"{workload}-next")
        return pod


def five_nodes(drawing: str = CHAIN, placed: str = "", **arguments: Any) -> Asked:
    return Asked(workers(), app(drawing), network(FIVE_NODES), placed=placed, **arguments)


# The KEP's five nodes

RUNNING = "P1@worker-1 P1@worker-2 P2@worker-2 P2@worker-4"


@pytest.mark.parametrize("algorithm", ["", "Dijkstra", "BellmanFord"])
def test_the_next_replica_of_p1_on_the_five_nodes(algorithm: str) -> None:
    asked = five_nodes(placed=RUNNING, direction="dependencies", topology_algorithm=algorithm)
    assert asked.costs("P1") == [8, 6, 10, 6, 10]
    assert asked.scores("P1") == [50, 100, 0, 100, 0]


def test_p3_of_the_example_has_no_dependency_so_that_one_way_all_nodes_are_equal() -> None:
    asked = five_nodes(placed=RUNNING, direction="dependencies")
    assert asked.costs("P3") == [0] * 5
    assert asked.scores("P3") == [100] * 5


def test_both_ways_p3_is_drawn_to_p2() -> None:
    asked = five_nodes(placed=RUNNING)
    assert asked.costs("P3") == [8, 6, 10, 6, 10]
    assert asked.scores("P3") == [50, 100, 0, 100, 0]


def test_p3_of_the_earlier_draft_needs_p1_and_p2() -> None:
    asked = five_nodes("P1\nP2\nP3 > P1 P2", placed=RUNNING, direction="dependencies")
    assert asked.costs("P3") == [9, 7, 19, 19, 25]
    assert asked.scores("P3") == [88.89, 100, 33.33, 33.33, 0]


def test_every_replica_counts_and_so_does_each_on_one_node() -> None:
    once = five_nodes(placed="P2@worker-1")
    twice = five_nodes(placed="P2@worker-1 P2@worker-1 P2@worker-5")
    assert once.costs("P1") == [0, 1, 4, 7, 7]
    assert twice.costs("P1") == [7, 2 + 8, 8 + 3, 14 + 2, 14]


def test_the_weight_of_an_edge() -> None:
    asked = five_nodes("P1 > P2:3 P3\nP2\nP3", placed="P2@worker-1 P3@worker-5")
    assert asked.costs("P1") == [7, 3 + 8, 12 + 3, 21 + 2, 21]


def test_a_workload_that_talks_to_itself_is_drawn_to_its_replicas_once() -> None:
    asked = five_nodes("P1 > P1", placed="P1@worker-1 P1@worker-4")
    assert asked.costs("P1") == [7, 7, 9, 7, 9]


def test_two_workloads_that_need_each_other_count_both_edges() -> None:
    asked = five_nodes("P1 > P2\nP2 > P1", placed="P2@worker-1")
    assert asked.costs("P1") == [0, 2, 8, 14, 14]


def test_replicas_of_another_application_do_not_count() -> None:
    asked = five_nodes()
    [other] = replicas("P2", app="A2", on="worker-1")
    asked.plugin.pod_assumed(other, 0)
    assert asked.costs("P1") == [0] * 5


def test_a_pod_without_the_workload_label_is_called_by_its_name() -> None:
    asked = five_nodes(placed="P2@worker-1")
    pod = replace(asked.next("P1"), name="P1", labels={"appgroup.diktyo.x-k8s.io": "A1"})
    assert scores(asked.plugin, pod)["worker-1"] == 100
    assert asked.plugin.scores(pod)


# Regions and zones as published


@pytest.mark.parametrize(
    ("workload", "raw", "normalised"),
    [
        ("p1", [20, 20, 20, 20, 0, 1, 10, 10], [0, 0, 0, 0, 100, 95, 50, 50]),
        ("p2", [0, 1, 5, 5, 20, 20, 20, 20], [100, 95, 75, 75, 0, 0, 0, 0]),
        ("p3", [0] * 8, [100] * 8),
    ],
)
def test_the_eight_nodes_of_the_published_tests(
    workload: str, raw: list[float], normalised: list[float]
) -> None:
    asked = Asked(
        in_zones(EIGHT_NODES),
        app("p1 > p2\np2 > p3\np3"),
        network(zones=EIGHT_ZONES, regions=EIGHT_REGIONS),
        placed="p1@n-2 p2@n-5 p3@n-1",
        direction="dependencies",
    )
    assert asked.costs(workload) == raw
    assert asked.scores(workload) == normalised


def test_both_ways_p2_is_between_p1_and_p3() -> None:
    asked = Asked(
        in_zones(EIGHT_NODES),
        app("p1 > p2\np2 > p3\np3"),
        network(zones=EIGHT_ZONES, regions=EIGHT_REGIONS),
        placed="p1@n-2 p2@n-5 p3@n-1",
    )
    assert asked.costs("p2") == [1, 1, 10, 10, 40, 40, 40, 40]


# What nobody knows


def test_an_unknown_cost_counts_as_the_greatest_known_one_and_one_more() -> None:
    asked = Asked(workers(6), app(CHAIN), network(FIVE_NODES), placed="P2@worker-1")
    assert asked.costs("P1") == [0, 1, 4, 7, 7, 9]
    lonely = Asked(workers(6), app(CHAIN), network(FIVE_NODES), placed="P2@worker-6")
    assert lonely.costs("P1") == [9, 9, 9, 9, 9, 0]


def test_unknown_cost_by_argument() -> None:
    asked = Asked(workers(6), app(CHAIN), network(FIVE_NODES), placed="P2@worker-1", unknown_cost=2.5)
    assert asked.costs("P1") == [0, 1, 4, 7, 7, 2.5]


def test_a_network_that_says_nothing_costs_the_same_everywhere_but_on_the_node_itself() -> None:
    asked = Asked(workers(3), app(CHAIN), network(), placed="P2@worker-2")
    assert asked.costs("P1") == [1, 0, 1]


def test_two_nodes_without_labels_are_unknown_to_each_other() -> None:
    asked = Asked(in_zones("west Z1 n-1|- - n-2 n-3"), app(CHAIN), network(zones="Z1 Z2 5"), placed="P2@n-2")
    assert asked.costs("P1") == [6, 0, 6]


@pytest.mark.parametrize("pod", [replicas("P1", app="A2")[0], replicas("P9")[0], replicas("P4")[0]])
def test_a_pod_of_no_known_group_of_no_known_workload_or_without_edges_is_left_alone(pod: Pod) -> None:
    asked = five_nodes(CHAIN + "\nP4", placed=RUNNING)
    assert not asked.plugin.scores(pod)
    assert not asked.plugin.concerns(pod)
    assert set(scores(asked.plugin, pod).values()) == {100.0}
    assert allowed(asked.plugin, pod) == "worker-1 worker-2 worker-3 worker-4 worker-5"


def test_without_a_network_topology_the_distance_in_the_tree_counts() -> None:
    """Two racks of a zone and one of another: the same node 0, rack 2, zone 4, else 6 edges."""
    drawn = """
    a r1 : n1=9 n2=9
    a r2 : n3=9
    b r3 : n4=9
    - -  : n5=9
    """
    asked = Asked(draw(drawn), app(CHAIN), placed="P2@n1")
    assert asked.costs("P1") == [0, 2, 2, 2, 2], "without a topology all other nodes are equally far"
    asked.handle.topologies.declare(fabric("zone", "rack"))
    assert asked.costs("P1") == [0, 2, 4, 6, 6]
    assert asked.scores("P1") == [100, 66.67, 33.33, 0, 0]
    assert not asked.plugin.conditions()


def test_distances_in_the_tree_are_no_costs() -> None:
    asked = Asked(workers(), app("P1 > P2<=1000\nP2"), placed="P2@worker-1 P1@worker-2")
    application = next(iter(asked.applications))
    [edge] = asked.plugin.edges(application)
    assert (edge.cost, edge.unknown, edge.over) == (2, 1, 1)
    assert not asked.plugin.knows_costs(application)
    assert asked.allowed("P1") == "worker-1"


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_tree_with_too_many_domains_is_looked_at_more_coarsely(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "MOST_LOCATIONS", most)
    asked = Asked(draw("a r1 : n1=9 n2=9\na r2 : n3=9\nb r3 : n4=9"), app(CHAIN), placed="P2@n1")
    asked.handle.topologies.declare(fabric("zone", "rack"))
    assert asked.costs("P1") == {1: [0, 6, 6, 6], 2: [0, 4, 4, 6], 3: [0, 2, 4, 6]}[most]


def test_an_unusable_application_is_left_alone() -> None:
    asked = five_nodes(placed=RUNNING)
    cause = Condition(
        reason=Reason.INVALID_SPEC, object="AppGroup/default/A1", message="it is broken", blocking=True
    )
    asked.tell(replace(app(CHAIN), conditions=(cause,)))
    assert not asked.plugin.scores(asked.next("P1"))


# maxNetworkCost

LIMITED = "P1 > P2<=5\nP2 > P3\nP3"
ALL_FIVE = "worker-1 worker-2 worker-3 worker-4 worker-5"


def test_a_limit_that_is_not_set_is_no_limit() -> None:
    assert five_nodes(placed=RUNNING).allowed("P1") == ALL_FIVE


def test_a_node_farther_than_the_limit_from_any_replica_is_refused(golden: Golden) -> None:
    asked = five_nodes(LIMITED, placed="P2@worker-2")
    assert asked.allowed("P1") == "worker-1 worker-2 worker-3"
    golden("plugins", asked.why_not("P1", "worker-4"))
    asked.place("P2", "worker-4")
    assert asked.allowed("P1") == "worker-3"


def test_a_limit_holds_from_both_ends(golden: Golden) -> None:
    for direction in ("both", "dependencies"):
        asked = five_nodes(LIMITED, placed="P1@worker-2", direction=direction)
        assert asked.allowed("P2") == "worker-1 worker-2 worker-3"
        golden("plugins", asked.why_not("P2", "worker-5"))


def test_a_limit_equal_to_the_cost_holds() -> None:
    asked = five_nodes("P1 > P2<=6\nP2", placed="P2@worker-2")
    assert asked.allowed("P1") == "worker-1 worker-2 worker-3 worker-4"


def test_one_node_is_always_near_enough_and_an_unknown_one_never(golden: Golden) -> None:
    asked = Asked(workers(6), app("P1 > P2<=1000\nP2"), network(FIVE_NODES), placed="P2@worker-6")
    assert asked.allowed("P1") == "worker-6"
    golden("plugins", asked.why_not("P1", "worker-1"))
    nothing = five_nodes("P1 > P2<=0\nP2", placed="P2@worker-2")
    assert nothing.allowed("P1") == "worker-2"


def test_a_substitute_for_unknown_costs_is_no_way_round_a_limit() -> None:
    asked = Asked(
        workers(6), app("P1 > P2<=1000\nP2"), network(FIVE_NODES), placed="P2@worker-6", unknown_cost=0.0
    )
    assert asked.allowed("P1") == "worker-6"


def test_a_limit_without_any_network_leaves_only_the_node_itself() -> None:
    asked = Asked(workers(3), app("P1 > P2<=1000\nP2"), placed="P2@worker-2")
    assert asked.allowed("P1") == "worker-2"
    asked.place("P2", "worker-3")
    assert asked.allowed("P1") == ""
    assert "unknown distance" in asked.why_not("P1", "worker-2")


def test_nothing_placed_means_nothing_refused() -> None:
    assert five_nodes(LIMITED).allowed("P1") == ALL_FIVE


def test_several_edges_all_limits_hold() -> None:
    asked = five_nodes("P1 > P2<=5 P3<=3\nP2\nP3", placed="P2@worker-1 P3@worker-5")
    assert asked.allowed("P1") == "worker-3"


# Which network and which of its costs

UNIFORM = "\n".join(f"worker-{a} worker-{b} 1" for a in range(1, 6) for b in range(a + 1, 6))


def test_of_several_networks_none_counts_until_one_is_named(golden: Golden) -> None:
    both = network(FIVE_NODES), network(UNIFORM, name="other")
    asked = Asked(workers(), app(CHAIN), *both, placed="P2@worker-1")
    assert asked.costs("P1") == IN_THE_TREE
    golden("plugins", asked.messages())
    for name in ("net", "default/net"):
        named = Asked(workers(), app(CHAIN), *both, placed="P2@worker-1", network_topology_name=name)
        assert named.costs("P1") == [0, 1, 4, 7, 7]
        assert not named.messages()


def test_several_networks_are_nobodys_business_without_applications() -> None:
    asked = Asked(workers(), network(FIVE_NODES), network(UNIFORM, name="other"))
    assert not asked.messages()


def test_a_name_that_no_network_has(golden: Golden) -> None:
    asked = five_nodes(placed="P2@worker-1", network_topology_name="nt-default")
    assert asked.costs("P1") == IN_THE_TREE
    [condition] = asked.plugin.conditions()
    assert condition.field == "arguments.networkTopologyName"
    golden("plugins", condition.message)


def test_a_name_that_two_networks_have_in_two_namespaces(golden: Golden) -> None:
    other = replace(network(UNIFORM), namespace="apps")
    asked = Asked(
        workers(),
        app(CHAIN),
        network(FIVE_NODES),
        other,
        placed="P2@worker-1",
        network_topology_name="net",
    )
    golden("plugins", asked.messages())


def sets(**costs: str) -> NetworkTopology:
    parts = [network(text, weights=name).weight_sets[0] for name, text in costs.items()]
    return replace(network(), weight_sets=tuple(parts))


def test_the_only_weight_set_is_taken_whatever_it_is_called() -> None:
    asked = Asked(workers(), app(CHAIN), sets(Dijkstra=FIVE_NODES), placed="P2@worker-1")
    assert asked.costs("P1") == [0, 1, 4, 7, 7]
    assert not asked.messages()


def test_user_defined_goes_before_others_unless_one_is_named() -> None:
    costs = sets(NetperfCosts=FIVE_NODES, UserDefined=UNIFORM)
    asked = Asked(workers(), app(CHAIN), costs, placed="P2@worker-1")
    assert asked.costs("P1") == [0, 1, 1, 1, 1]
    named = Asked(workers(), app(CHAIN), costs, placed="P2@worker-1", weights_name="NetperfCosts")
    assert named.costs("P1") == [0, 1, 4, 7, 7]


def test_of_sets_named_after_algorithms_that_of_the_algorithm_counts() -> None:
    costs = sets(BellmanFord=UNIFORM, Dijkstra=FIVE_NODES)
    asked = Asked(workers(), app(CHAIN), costs, placed="P2@worker-1")
    assert asked.costs("P1") == [0, 1, 4, 7, 7]
    named = Asked(workers(), app(CHAIN), costs, placed="P2@worker-1", topology_algorithm="BellmanFord")
    assert named.costs("P1") == [0, 1, 1, 1, 1]
    by_object = Asked(workers(), app(CHAIN), replace(costs, algorithm="BellmanFord"), placed="P2@worker-1")
    assert by_object.costs("P1") == [0, 1, 1, 1, 1]


def test_a_weight_set_that_is_not_there(golden: Golden) -> None:
    asked = five_nodes(placed="P2@worker-1", weights_name="NetperfCosts")
    assert asked.costs("P1") == IN_THE_TREE
    [condition] = asked.plugin.conditions()
    assert condition.field == "arguments.weightsName"
    golden("plugins", condition.message)


def test_two_directions_that_differ_are_reported(golden: Golden) -> None:
    asked = Asked(workers(2), app(CHAIN), network("worker-1 worker-2 3\nworker-2 worker-1 5"))
    golden("plugins", asked.messages())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topologyAlgorithm": "FloydWarshall"}, "topologyAlgorithm must be Dijkstra or BellmanFord"),
        ({"unknownCost": -1}, "unknownCost must be a number from 0 to 1,000,000,000,000"),
        ({"unknownCost": 1e308}, "unknownCost must be a number from 0 to 1,000,000,000,000"),
        ({"direction": "dependents"}, "Invalid enum value 'dependents'"),
        ({"weightName": "UserDefined"}, "unknown field `weightName`"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(arguments, NetworkMinCostArguments)


# Changes


def test_scores_follow_the_network_the_graph_and_the_nodes() -> None:
    asked = five_nodes(placed="P2@worker-1")
    assert asked.costs("P1") == [0, 1, 4, 7, 7]
    asked.tell(network(UNIFORM))
    assert asked.costs("P1") == [0, 1, 1, 1, 1]
    asked.tell(app("P1 > P2:2\nP2"))
    assert asked.costs("P1") == [0, 2, 2, 2, 2]
    asked.handle.cluster.add_node(workers(6)[-1])
    assert asked.costs("P1") == [0, 2, 2, 2, 2, 4]
    asked.applications.withdraw_network("default/net")
    assert asked.costs("P1") == [0, 4, 4, 4, 4, 4], "the edge counts twice, and nodes are 2 apart"


def test_a_limit_comes_and_goes_with_the_graph() -> None:
    asked = five_nodes(placed="P2@worker-2")
    pod = asked.next("P1")
    assert asked.plugin.class_key(pod) is None
    asked.tell(app(LIMITED))
    assert asked.allowed("P1") == "worker-1 worker-2 worker-3"
    keys = {asked.plugin.class_key(asked.next(name)) for name in ("P1", "P2", "P3")}
    assert len(keys) == 3
    asked.tell(app(CHAIN))
    assert asked.plugin.class_key(pod) is None
    assert asked.allowed("P1") == ALL_FIVE


@given(
    st.lists(st.tuples(st.sampled_from(["P1", "P2", "P3"]), st.integers(0, 4), st.booleans()), max_size=12)
)
def test_undo_restores_every_score(steps: list[tuple[str, int, bool]]) -> None:
    asked = five_nodes("P1 > P2:0.1 P3:0.7<=6\nP2 > P3:0.3\nP3", placed=RUNNING)

    def seen() -> list[list[float]]:
        return [asked.costs(name) for name in ("P1", "P2", "P3")]

    states, there = [seen()], list(asked.running)
    undos: list[Undo | None] = []
    for workload, slot, leaves in steps:
        if leaves and there:
            undos.append(asked.plugin.pod_forgotten(*there.pop(slot % len(there))))
        else:
            [pod] = replicas(workload, prefix=f"more-{len(undos)}")
            undos.append(asked.plugin.pod_assumed(pod, slot))
            there.append((pod, slot))
        states.append(seen())
    for undo in reversed(undos):
        assert seen() == states.pop()
        assert undo is not None
        undo()
    assert seen() == states.pop()
    assert asked.allowed("P1") == five_nodes("P1 > P3<=6\nP3", placed=RUNNING).allowed("P1")


# What always holds


@st.composite
def drawn_cases(draw: st.DrawFn) -> tuple[list[Node], AppGroup, NetworkTopology, str]:
    size = draw(st.integers(2, 6))
    names = [f"worker-{number}" for number in range(1, size + 1)]
    pairs = [(a, b) for a in names for b in names if a < b]
    costs = {pair: draw(st.integers(0, 20)) for pair in pairs if draw(st.booleans())}
    edges = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)), max_size=6))
    workloads = tuple(
        AppWorkload(
            name=f"P{head}",
            dependencies=tuple(
                Dependency(workload=f"P{tail}", weight=weight)
                for (_, tail), weight in {(h, t): w for h, t, w in edges if h == head}.items()
            ),
        )
        for head in range(4)
    )
    placed = draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(names)), max_size=6))
    return (
        workers(size),
        AppGroup(namespace="default", name="A1", workloads=workloads),
        network("\n".join(f"{a} {b} {cost}" for (a, b), cost in costs.items())),
        " ".join(f"P{workload}@{name}" for workload, name in placed),
    )


@given(drawn_cases(), st.integers(0, 3))
def test_costs_are_the_sum_over_replicas_of_every_edge(
    case: tuple[list[Node], AppGroup, NetworkTopology, str], number: int
) -> None:
    nodes, group, costs, placed = case
    asked = Asked(nodes, group, costs, placed=placed)
    between = distances([node.name for node in nodes], costs)
    expected = [0.0] * len(nodes)
    for workload in group.workloads:
        for edge in workload.dependencies:
            ends = {(workload.name, edge.workload), (edge.workload, workload.name)}
            for here, there in ends:
                if here == f"P{number}":
                    for one in placed.split():
                        if one.split("@")[0] == there:
                            home = one.split("@")[1]
                            for slot in range(len(nodes)):
                                expected[slot] += edge.weight * between[nodes[slot].name, home]
    np.testing.assert_allclose(asked.costs(f"P{number}"), expected)


@given(drawn_cases(), st.integers(0, 3))
def test_an_unknown_node_never_changes_the_order_of_the_others(
    case: tuple[list[Node], AppGroup, NetworkTopology, str], number: int
) -> None:
    nodes, group, costs, placed = case
    before = Asked(nodes, group, costs, placed=placed).scores(f"P{number}")
    more = [*nodes, *workers(9)[-1:]]
    after = Asked(more, group, costs, placed=placed).scores(f"P{number}")[: len(before)]
    assert all(
        (before[a] > before[b]) == (after[a] > after[b]) or abs(before[a] - before[b]) < 0.1
        for a in range(len(before))
        for b in range(len(before))
    )


@given(drawn_cases(), st.integers(0, 3), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_anything(
    case: tuple[list[Node], AppGroup, NetworkTopology, str], number: int, random: Any
) -> None:
    nodes, group, costs, placed = case
    asked = Asked(nodes, group, costs, placed=placed)
    running = placed.split()
    shuffled = [*nodes]
    random.shuffle(shuffled)
    random.shuffle(running)
    other = Asked(shuffled, group, costs, placed=" ".join(running))
    pod = asked.next(f"P{number}")
    assert scores(asked.plugin, pod) == scores(other.plugin, pod)
