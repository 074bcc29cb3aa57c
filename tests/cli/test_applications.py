"""Applications on the command line: their order, what their talk costs, broken limits, and why."""

from pathlib import Path
from typing import Any

from tests.cli.calling import closeby, report, text
from tests.golden.fixture import Golden

#: Two zones of two nodes, one CPU each; the zones are 5 apart.
ZONES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def nodes(cpu: str = "1") -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": cpu, "pods": "10"}},
        }
        for name, zone in ZONES.items()
    ]


def network(cost: int = 5) -> dict[str, Any]:
    origin = {"origin": "a", "costList": [{"destination": "b", "networkCost": cost}]}
    zones = {"topologyKey": "topology.kubernetes.io/zone", "originList": [origin]}
    return {
        "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "net"},
        "spec": {"configmapName": "costs", "weights": [{"name": "UserDefined", "topologyList": [zones]}]},
    }


def chain(**more: Any) -> dict[str, Any]:
    """P1 calls P2, which calls P3 (the proposal's example)."""
    pods = [
        {"name": "P1", "type": "Pod", "dependencies": [{"name": "P2", "type": "Pod"}]},
        {"name": "P2", "type": "Pod", "dependencies": [{"name": "P3", "type": "Pod"}]},
        {"name": "P3", "type": "Pod"},
    ]
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "AppGroup",
        "metadata": {"name": "A1"},
        "spec": {"numMembers": 3, "topologySortingAlgorithm": "KahnSort", "Pods": pods, **more},
    }


def pod(name: str, workload: str = "", cpu: str = "1", node: str = "") -> dict[str, Any]:
    labels = {"appgroup.diktyo.x-k8s.io": "A1"}
    if workload:
        labels["appgroup.diktyo.x-k8s.io.workload"] = workload
    requests = {"resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"containers": [{"name": "main", **requests}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


APPLICATION = (*nodes(), network(), chain(), pod("p3-0", "P3"), pod("p1-0", "P1"), pod("p2-0", "P2"))


def test_the_report_of_an_application() -> None:
    """Three pods of one CPU on nodes of one CPU: two share a zone (1), one must cross (5)."""
    found = report("simulate", "-f", "-", stdin=text(*APPLICATION))
    [app] = found["appGroups"]
    assert (app["namespace"], app["name"]) == ("default", "A1")
    assert app["topologyOrder"] == [
        {"podName": "P1", "index": 1},
        {"podName": "P2", "index": 2},
        {"podName": "P3", "index": 3},
    ]
    assert app["cost"] == 6
    assert app["conditions"] == []
    assert sorted(edge["cost"] for edge in app["edges"]) == [1, 5]
    order = {entry["name"]: entry["order"] for entry in found["pods"]}
    assert order == {"p1-0": 0, "p2-0": 1, "p3-0": 2}
    assert {entry["appGroup"] for entry in found["pods"]} == {"A1"}


def test_without_a_network_the_cost_is_the_distance_in_the_tree() -> None:
    """Zones are known from the labels: two pods share one (2 edges), one must cross (4)."""
    documents = [one for one in APPLICATION if one["kind"] != "NetworkTopology"]
    [app] = report("simulate", "-f", "-", stdin=text(*documents))["appGroups"]
    assert (app["cost"], app["costSource"]) == (6, "tree")
    assert [edge["unknown"] for edge in app["edges"]] == [1, 1]
    assert [one["reason"] for one in app["conditions"]] == ["NetworkCostUnknown"]
    [known] = report("simulate", "-f", "-", stdin=text(*APPLICATION))["appGroups"]
    assert known["costSource"] == "network"


def test_without_a_network_a_caller_goes_to_the_node_of_its_callee() -> None:
    for callee in ("a2", "b1"):
        documents = (*nodes(cpu="2"), chain(), pod("p2-0", "P2", node=callee), pod("p1-0", "P1"))
        found = report("simulate", "-f", "-", stdin=text(*documents))
        assert {one["name"]: one["node"] for one in found["pods"]}["p1-0"] == callee


def test_without_a_network_a_limit_lets_a_pod_go_to_the_same_node_alone() -> None:
    held = pod("p2-0", "P2", node="a1")
    found = report("simulate", "-f", "-", stdin=text(*nodes(cpu="2"), limited(99), held, pod("p1-0", "P1")))
    assert {one["name"]: one["node"] for one in found["pods"]}["p1-0"] == "a1"

    found = report("simulate", "-f", "-", stdin=text(*nodes(), limited(99), held, pod("p1-0", "P1")))

    [waiting] = [one for one in found["pods"] if one["phase"] == "Pending"]
    assert "NetworkCostTooHigh" in waiting["message"]
    [app] = found["appGroups"]
    assert "maxNetworkCost" in [one["field"] for one in app["conditions"]]


def test_pods_of_an_application_with_a_higher_priority_go_first() -> None:
    """P1 comes before P3 in the graph, and P3 has the priority; there is room for one."""
    low, high = pod("p1-0", "P1"), pod("p3-0", "P3")
    high["spec"]["priority"] = 10
    documents = (nodes()[0], network(), chain(), low, high)
    found = report("simulate", "-f", "-", stdin=text(*documents))
    assert {one["name"]: one["phase"] for one in found["pods"]} == {"p1-0": "Pending", "p3-0": "Scheduled"}


def test_an_application_that_makes_no_sense_has_no_cost() -> None:
    needs = [{"name": "P2", "type": "Pod", "maxNetworkCost": -1}]
    broken = chain(Pods=[{"name": "P1", "type": "Pod", "dependencies": needs}, {"name": "P2", "type": "Pod"}])
    pods = (pod("p1-0", "P1", node="a1"), pod("p2-0", "P2", node="b1"))
    [entry] = report("simulate", "-f", "-", stdin=text(*nodes(), network(), broken, *pods))["appGroups"]
    assert (entry["cost"], entry["edges"], entry["pods"]) == (None, [], 0)


def test_pods_are_known_by_their_own_name_where_no_label_says_their_workload() -> None:
    documents = (*nodes(), network(), chain(), pod("P1"), pod("P2", node="b1"))
    found = report("simulate", "-f", "-", stdin=text(*documents))
    where = {entry["name"]: entry["node"] for entry in found["pods"]}
    assert where == {"P1": "b2", "P2": "b1"}


def test_a_cycle_and_undeclared_pods_are_conditions(golden: Golden) -> None:
    circular = chain(Pods=[{"name": "P1", "type": "Pod", "dependencies": [{"name": "P1", "type": "Pod"}]}])
    [app] = report("simulate", "-f", "-", stdin=text(*nodes(), circular, pod("p9-0", "P9")))["appGroups"]
    messages = [one["message"] for one in app["conditions"]]
    assert "P1 needs itself" in messages
    golden("simulate", messages)


def test_a_dependency_on_what_is_no_workload_and_no_pod_is_said_with_the_name_that_was_meant(
    golden: Golden,
) -> None:
    """A pod with that name makes it a leaf of the graph, which the KEP allows."""
    wrong = chain(
        numMembers=2,
        Pods=[
            {"name": "P1", "type": "Pod", "dependencies": [{"name": "Cart1", "type": "Pod"}]},
            {"name": "Cart", "type": "Pod"},
        ],
    )
    pods = (pod("p1-0", "P1"), pod("cart-0", "Cart"))

    def wrong_ones(*more: dict[str, Any]) -> list[str]:
        [app] = report("simulate", "-f", "-", stdin=text(*nodes(), network(), wrong, *pods, *more))[
            "appGroups"
        ]
        return [f"{one['field']}: {one['message']}; {one['remedy']}" for one in app["conditions"]]

    found = wrong_ones()
    assert len(found) == 1
    golden("simulate", found)
    assert wrong_ones(pod("cart1-0", "Cart1")) == []


def test_pods_and_workloads_that_do_not_find_each_other_are_said(golden: Golden) -> None:
    app = chain(numMembers=None, Pods=[{"name": "web", "type": "Pod"}, {"name": "store", "type": "Pod"}])
    documents = (*nodes(), network(), app, pod("p1-0", "web"), pod("p2-0", "stroe"))
    [entry] = report("simulate", "-f", "-", stdin=text(*documents))["appGroups"]
    assert [one["reason"] for one in entry["conditions"]] == ["InvalidSpec", "GangIncomplete"]
    golden("simulate", [f"{one['message']}; {one['remedy']}" for one in entry["conditions"]])


def limited(limit: int) -> dict[str, Any]:
    """The chain as published, with a greatest cost between P1 and P2."""
    needs = {"workload": {"kind": "Deployment", "name": "p2", "selector": "P2"}, "maxNetworkCost": limit}
    first = {"workload": {"kind": "Deployment", "name": "p1", "selector": "P1"}, "dependencies": [needs]}
    second = {"workload": {"kind": "Deployment", "name": "p2", "selector": "P2"}}
    return {
        "apiVersion": "appgroup.diktyo.x-k8s.io/v1alpha1",
        "kind": "AppGroup",
        "metadata": {"name": "A1"},
        "spec": {"numMembers": 2, "topologySortingAlgorithm": "KahnSort", "workloads": [first, second]},
    }


def test_a_pod_beyond_its_limit_waits_and_says_how_far_it_is(golden: Golden) -> None:
    """P2 runs in zone a, where nothing is free; zone b is 5 away and 3 are allowed."""
    full = [pod("p2-0", "P2", node="a1"), pod("other", "P2", node="a2")]
    documents = (*nodes(), network(), limited(3), *full, pod("p1-0", "P1"))
    found = report("simulate", "-f", "-", stdin=text(*documents))
    [waiting] = [entry for entry in found["pods"] if entry["phase"] == "Pending"]
    assert waiting["name"] == "p1-0"
    assert "2 InsufficientResources, 2 NetworkCostTooHigh" in waiting["message"]
    shown = closeby("simulate", "-f", "-", "--explain", stdin=text(*documents)).stdout
    golden("simulate", shown)


def test_the_tables_show_the_order_the_cost_and_the_edges(golden: Golden) -> None:
    shown = closeby("simulate", "-f", "-", "--explain", stdin=text(*APPLICATION)).stdout
    assert "Applications" in shown
    golden("simulate", shown)
    assert "Dependencies" in shown
    assert "placed together with A1" in shown


def test_explain_an_application_and_one_of_its_pods(golden: Golden) -> None:
    shown = closeby("explain", "appgroup/A1", "-f", "-", stdin=text(*APPLICATION)).stdout
    golden("explain", shown)
    shown = closeby("explain", "pod/p2-0", "-f", "-", stdin=text(*APPLICATION)).stdout
    golden("explain", shown)


def test_a_policy_that_minds_no_costs_is_judged_by_them() -> None:
    #   north: catalog-0 or -1 and both frontends apart.   south: the other catalog, the database, both carts.
    #     frontend to cart:      4 x 8
    #     frontend to catalog:   2 x 1 + 2 x 8
    #     catalog to database:   1 + 8
    shop = Path(__file__).parents[2] / "docs" / "examples" / "shop"
    found = report("simulate", "-f", shop, "--config", "least-allocated")
    zones = {pod["name"]: pod["node"].partition("-")[0] for pod in found["pods"]}
    assert sorted(zones[name] for name in ("catalog-0", "catalog-1")) == ["north", "south"]
    assert {zones[name] for name in ("frontend-0", "frontend-1")} == {"north"}
    assert {zones[name] for name in ("cart-0", "cart-1", "database-0")} == {"south"}
    (app,) = found["appGroups"]
    assert [edge["cost"] for edge in app["edges"]] == [32, 18, 9]
    assert app["cost"] == 59
