"""`closeby demo`: quick, complete and the same every time."""

import json
import resource
import subprocess
import sys

from tests.cli.calling import closeby, report


def test_it_takes_less_than_five_seconds_from_a_cold_start() -> None:
    """It waits for nothing, so that on a machine that does nothing else this is its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "closeby", "demo"], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
    assert done.stderr == ""
    assert "847 hosts" in done.stdout


def test_it_shows_the_cluster_before_and_after_and_the_reasons() -> None:
    shown = closeby("demo", environment={"COLUMNS": "80"}).stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    before, after = shown.split("\nAfter\n")
    assert "\nBefore\n" in before
    assert "AAAAAA" in after
    assert "AAAAAA" not in before
    for part in ("Why here?", "runner-up", "Why not?", "TopologyPlacementFailed", "Even if it were empty"):
        assert part in " ".join(after.split())


def test_its_report_places_all_gangs_but_the_one_that_can_not_fit() -> None:
    found = report("demo")
    submitted = {entry["group"] for entry in found["pods"] if entry["phase"] != "Running" and entry["group"]}
    waiting = {entry["name"] for entry in found["groups"] if entry["reason"] is not None}
    assert len(submitted) == 6
    assert waiting == {"one-leaf-please"}
    by_name = {entry["name"]: entry for entry in found["groups"]}
    assert by_name["llama-sft"]["level"] == "leaf"
    assert by_name["mixtral"]["level"] == "pod"
    assert by_name["mixtral"]["span"]["leaf"] > 1
    assert all(entry["node"] for entry in found["pods"] if entry["group"] is None)
    assert json.dumps(found) == json.dumps(report("demo"))
