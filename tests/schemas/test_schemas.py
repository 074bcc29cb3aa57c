"""The JSON schemas of what commands print: they are those of the records, and hold for every example."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from closeby.cli.schema import DOCUMENTS as PRINTED
from tests.cli.calling import closeby, gang, pod, racks, report, text
from tests.schemas import DOCUMENTS, FOLDER, schema_of, text_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
#: What `simulate` reads of each example.
SIMULATED = {
    "tour": ("-f", EXAMPLES / "tour"),
    "shop": ("-f", EXAMPLES / "shop"),
    "measures": ("-f", EXAMPLES / "measures"),
    "search": ("-f", EXAMPLES / "search"),
    "bandwidth": (
        "-f",
        EXAMPLES / "bandwidth" / "cluster.yaml",
        "--config",
        EXAMPLES / "bandwidth" / "config.yaml",
    ),
    "quiet": ("-f", EXAMPLES / "quiet-cluster.yaml", "--config", EXAMPLES / "quiet.yaml"),
    "green": ("-f", EXAMPLES / "tour", "--config", EXAMPLES / "green.yaml"),
    "slurm-tree": ("-f", EXAMPLES / "tour", "--config", "slurm-tree"),
}


@cache
def closed(name: str) -> Validator:
    """The shipped schema, with which a field that it does not know is an error."""

    def close(part: Any) -> Any:
        if isinstance(part, list):
            return [close(one) for one in part]
        if not isinstance(part, dict):
            return part
        shut = {"additionalProperties": False} if isinstance(part.get("required"), list) else {}
        return {**{key: close(value) for key, value in part.items()}, **shut}

    return Draft202012Validator(close(json.loads((FOLDER / f"{name}.json").read_text())))


def check(name: str, document: Any) -> None:
    wrong = [f"{error.json_path}: {error.message[:200]}" for error in closed(name).iter_errors(document)]
    assert not wrong, f"{wrong}; if the records are right, `make schemas` rewrites the schemas"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_shipped_schema_is_that_of_the_records(name: str) -> None:
    fresh = (FOLDER / f"{name}.json").read_text() == text_of(DOCUMENTS[name])
    assert fresh, "a record changed: `make schemas` rewrites the schemas; commit them with the change"


@pytest.mark.parametrize("name", ["SchedulingReport", "Explanation", "TopologyReport"])
def test_every_field_is_described(name: str) -> None:
    missing = [
        f"{record}.{field}"
        for record, definition in schema_of(DOCUMENTS[name])["$defs"].items()
        for field, shape in definition.get("properties", {}).items()
        if not shape.get("description")
    ]
    assert not missing, f"write a comment `#: …` before each of {missing}, then run `make schemas`"


def test_the_command_prints_each_schema() -> None:
    assert set(PRINTED) == set(DOCUMENTS) == {file.stem for file in FOLDER.glob("*.json")}
    listed = closeby("schema").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(PRINTED)
    for name in PRINTED:
        assert closeby("schema", name).stdout == (FOLDER / f"{name}.json").read_text()
        Draft202012Validator.check_schema(json.loads(closeby("schema", name).stdout))


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_examples(name: str) -> None:
    found = report("simulate", *SIMULATED[name], "--explain")
    assert found["pods"]
    check("SchedulingReport", found)


@pytest.mark.parametrize("name", ["tour", "shop"])
def test_explained_examples(name: str) -> None:
    given = SIMULATED[name]
    found = report("simulate", *given)
    pods = {f"{one['namespace']}/{one['name']}" for one in found["pods"] if one["phase"] != "Running"}
    gangs = {f"podgroup/{one['namespace']}/{one['name']}" for one in found["groups"]}
    applications = {f"appgroup/{one['namespace']}/{one['name']}" for one in found["appGroups"]}
    for subject in (*sorted(pods)[:3], *sorted(gangs), *sorted(applications)):
        check("Explanation", report("explain", subject, *given))


@pytest.mark.parametrize("name", ["tour", "shop", "measures"])
def test_topologies_of_examples(name: str) -> None:
    check("TopologyReport", report("topology", *SIMULATED[name]))


def test_the_demo() -> None:
    check("SchedulingReport", report("demo"))


@pytest.mark.slow
def test_a_run_over_time() -> None:
    jobs = ("--workload", "seren", "--jobs", "60", "--cluster", "small", "--seed", "7")
    check("SimulationReport", report("simulate", *jobs))
    check("SimulationReport", report("simulate", *jobs, "--full"))
    shop = ("--workload", "microservices", "--jobs", "20", "--seed", "7")
    check("SimulationReport", report("simulate", *shop))


@pytest.mark.slow
def test_a_comparison() -> None:
    jobs = ("--workload", "seren", "--jobs", "40", "--cluster", "small", "--seeds", "2")
    check("ComparisonReport", report("compare", "--config", "closeby", "--config", "default", *jobs))


def test_a_discovery() -> None:
    network = EXAMPLES / "network"
    found = report("discover", "slurm", network / "topology.conf")
    check("Discovery", found)
    check(
        "DiscoveryDiff",
        report("discover", "diff", network / "topology.conf", network / "topology-later.conf"),
    )


def test_what_waits_and_what_is_wrong() -> None:
    """Refusals, conditions, unused objects and skipped documents have their place too."""
    wrong = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 3}}
    claim = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    world = [*racks({"a/r1": 1}), gang("big", 3, required="rack"), claim, wrong]
    members = [pod(f"big-{number}", 8, gang="big") for number in range(3)]
    lone = pod("lone", 1, nodeSelector={"there": "is none"})
    found = report("simulate", "-f", "-", "--explain", "--keep-going", stdin=text(*world, *members, lone))
    assert found["errors"]
    assert found["unused"] == {"ConfigMap": 1}
    assert found["groups"][0]["reason"] == "GangDoesNotFit"
    check("SchedulingReport", found)


def test_everything_that_the_table_shows_of_subgroups_is_there() -> None:
    """Two roles below a common parent, one beside it::

    job ── workers ── left  (rack r1)
     │          └──── right (rack r2)
     └── driver
    """
    group = gang("job", 1)
    rack = {"topology": "fabric", "requiredTopologyLevel": "rack"}
    group["spec"] = {
        "subGroups": [
            {"name": "workers"},
            {"name": "left", "parent": "workers", "minMember": 2, "topologyConstraint": rack},
            {"name": "right", "parent": "workers", "minMember": 2, "topologyConstraint": rack},
            {"name": "driver", "minMember": 1},
        ]
    }
    members = [
        *(
            labelled(pod(f"{side}-{number}", 8, gang="job"), side)
            for side in ("left", "right")
            for number in (0, 1)
        ),
        labelled(pod("driver-0", 0, gang="job"), "driver"),
    ]
    found = report("simulate", "-f", "-", stdin=text(*racks({"a/r1": 2, "a/r2": 2}), group, *members))
    check("SchedulingReport", found)
    (entry,) = found["groups"]
    workers, driver = entry["subGroups"]
    left, right = workers["subGroups"]
    assert (workers["name"], workers["pods"], workers["scheduled"], workers["minMember"]) == (
        "workers",
        4,
        4,
        None,
    )
    assert (workers["level"], workers["domain"]) == ("zone", ["a"])
    assert {tuple(one["domain"]) for one in (left, right)} == {("a", "r1"), ("a", "r2")}
    assert [(one["name"], one["minMember"], one["scheduled"]) for one in (left, right, driver)] == [
        ("left", 2, 2),
        ("right", 2, 2),
        ("driver", 1, 1),
    ]
    assert "subGroups" not in driver
    assert {one["name"]: one["subGroup"] for one in found["pods"]} == {
        "left-0": "left",
        "left-1": "left",
        "right-0": "right",
        "right-1": "right",
        "driver-0": "driver",
    }


def labelled(manifest: dict[str, Any], subgroup: str) -> dict[str, Any]:
    manifest["metadata"]["labels"]["closeby.dev/subgroup"] = subgroup
    return manifest
