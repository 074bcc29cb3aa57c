"""Attack: a tenant gives things names as long as an annotation can be, to fill the terminal of others.

What must hold: each name, message and cell takes some lines, and says how much of it is missing.
"""

from typing import Any

import pytest

from tests.cli.calling import closeby, racks, text

ENDLESS = "A" * 262_144
#: Characters of a report about two nodes and a few pods.
REPORT = 40_000


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "evil", **more.pop("metadata", {})},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}], **more},
    }


def requiring(key: str, value: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


PODS = {
    "gang": pod("p", metadata={"annotations": {"pod-group-name": ENDLESS}}),
    "node selector": pod("p", nodeSelector={"rack": ENDLESS}),
    "node affinity": pod("p", **requiring("rack", ENDLESS)),
    "label of a node affinity": pod("p", **requiring(ENDLESS, "r")),
    "topology key": pod(
        "p",
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": ENDLESS, "whenUnsatisfiable": "DoNotSchedule"}
        ],
    ),
}


@pytest.mark.parametrize("named", PODS)
def test_reports_stay_short(named: str) -> None:
    manifests = text(*racks({"a/r": 2}), PODS[named], pod("q"))
    for command in ("simulate", "simulate --explain", "explain evil/p", "topology --after"):
        result = closeby(*command.split(), "-f", "-", stdin=manifests)
        assert result.exit_code == 0
        assert len(result.stdout) < REPORT, command
    assert "more " in closeby("explain", "evil/p", "-f", "-", stdin=manifests).stdout
