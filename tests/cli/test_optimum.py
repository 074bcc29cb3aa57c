"""`closeby simulate --optimum`: how cheap an application's talk could have been."""

import sys

import pytest

from tests.cli.calling import closeby, node, pod, report, text

NETWORK = {
    "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
    "kind": "NetworkTopology",
    "metadata": {"name": "net", "namespace": "default"},
    "spec": {
        "weights": [
            {
                "name": "UserDefined",
                "topologyList": [
                    {
                        "topologyKey": "topology.kubernetes.io/zone",
                        "originList": [
                            {"origin": "a", "costList": [{"destination": "b", "networkCost": 7}]},
                        ],
                    }
                ],
            }
        ]
    },
}
#: web calls db, both take all GPUs of a node: they are on the two nodes of zone a, at cost 1.
SHOP = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "AppGroup",
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {"numMembers": 2, "Pods": [{"name": "web", "dependencies": [{"name": "db"}]}, {"name": "db"}]},
}


def world() -> str:
    nodes = [node(f"{zone}-{i}", {"topology.kubernetes.io/zone": zone}) for zone in "ab" for i in range(2)]
    pods = [pod(name, 8) for name in ("web", "db")]
    for one in pods:
        one["metadata"]["labels"] = {"appgroup.diktyo.x-k8s.io": "shop"}
    return text(*nodes, NETWORK, SHOP, *pods)


def test_the_report_tells_the_least_cost_where_it_is_asked_for() -> None:
    (asked,) = report("simulate", "--optimum", "-f", "-", stdin=world())["appGroups"]
    (unasked,) = report("simulate", "-f", "-", stdin=world())["appGroups"]

    assert (asked["cost"], asked["optimum"], asked["gap"]) == (1, 1, 0)
    assert (unasked["cost"], unasked["optimum"], unasked["gap"]) == (1, None, None)


def test_without_a_solver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    result = closeby("simulate", "--optimum", "-f", "-", stdin=world())

    assert result.exit_code == 2
    assert "pip install 'closeby[optimum]'" in result.stderr
    assert result.stdout == ""
