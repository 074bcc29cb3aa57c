"""`closeby simulate` with measured links: what the load-watcher says decides where a pod goes."""

import json
from pathlib import Path

import pytest

from tests.cli.calling import Manifest, closeby, node, pod, report, text
from tests.golden.fixture import Golden
from tests.measurements.serving import serving
from tests.measurements.watching import links

BANDWIDTH = "network.aware.com/bandwidth"
#: The example of the proposal: three links of 1 Gbit/s.
MEASURED = links("n1: 300 100\nn2:9100: 500 100\nn3: 700 600")


def linked(name: str) -> Manifest:
    found = node(name, {})
    found["status"]["allocatable"][BANDWIDTH] = "1G"
    return found


def talking(name: str, bandwidth: str) -> Manifest:
    found = pod(name, 0)
    resources = {BANDWIDTH: bandwidth}
    found["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    return found


CLUSTER = text(*(linked(f"n{index}") for index in (1, 2, 3)), talking("p", "100M"))


def configured(folder: Path, address: object, name: str = "CheckRiskNodeBandwidth") -> Path:
    config = folder / "config.yaml"
    config.write_text(f"plugins:\n- name: {name}\n  arguments:\n    watcherAddress: {address}\n")
    return config


@pytest.mark.parametrize("name", ["CheckRiskNodeBandwidth", "CheckRiskNodebandwidth"])
def test_the_node_with_the_busy_link_is_refused(tmp_path: Path, name: str) -> None:
    watcher = tmp_path / "watcher.json"
    watcher.write_text(MEASURED)
    config = configured(tmp_path, watcher, name)
    found = report("simulate", "-f", "-", "--config", config, "--explain", stdin=CLUSTER)
    assert found["pods"][0]["node"] == "n1"
    assert found["explain"][0]["rejected"] == {
        "n3": {
            "plugin": "CheckRiskNodeBandwidth",
            "reason": "BandwidthRisk",
            "message": "risk 0.787 above 0.75: average 700M + 100M of 1G bits/s, deviation 600M",
        }
    }
    assert found["conditions"] == []


def test_a_pod_for_which_all_links_are_too_busy_waits(tmp_path: Path) -> None:
    watcher = tmp_path / "watcher.json"
    watcher.write_text(links("n1: 900 500\nn2: 900 500\nn3: 900 500"))
    found = report("simulate", "-f", "-", "--config", configured(tmp_path, watcher), stdin=CLUSTER)
    waiting = found["pods"][0]
    assert (waiting["phase"], waiting["reason"]) == ("Pending", "BandwidthRisk")


def test_measurements_come_from_a_server_too(tmp_path: Path) -> None:
    with serving(lambda path: (200, MEASURED)) as address:
        config = configured(tmp_path, address)
        found = report("simulate", "-f", "-", "--config", config, "--explain", stdin=CLUSTER)
    assert list(found["explain"][0]["rejected"]) == ["n3"]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    config = configured(tmp_path, tmp_path / "none.json")
    done = closeby("simulate", "-f", "-", "--config", config, stdin=CLUSTER)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {config}:4: arguments of CheckRiskNodeBandwidth: "
        f"watcherAddress: {tmp_path}/none.json can't be read: No such file or directory\n"
    )


def test_hosts_that_match_no_node_are_a_condition(tmp_path: Path, golden: Golden) -> None:
    watcher = tmp_path / "watcher.json"
    watcher.write_text(links("n1: 300 100\nn2: 300 100\n10.0.0.3:9100: 900 900"))
    found = report("simulate", "-f", "-", "--config", configured(tmp_path, watcher), stdin=CLUSTER)
    golden("simulate", [condition["message"] for condition in found["conditions"]])
    assert json.dumps(found["conditions"]).count(f"BandwidthMetrics/{watcher}") == 2


def test_without_measurements_bandwidth_is_a_resource_like_others() -> None:
    """1 Gbit/s holds two pods of 400 Mbit/s."""
    manifests = text(linked("n1"), *(talking(f"p{index}", "400M") for index in range(3)))
    found = report("simulate", "-f", "-", stdin=manifests)
    assert [(entry["node"], entry["reason"]) for entry in found["pods"]] == [
        ("n1", None),
        ("n1", None),
        (None, "InsufficientResources"),
    ]


#: a, b and c run at once if there is a node for each.
JOBS = "name,submitted,duration,pods,gpus\n" + "".join(f"{name},0,100,1,8\n" for name in "abc")


def test_a_run_over_time_keeps_jobs_off_busy_links(tmp_path: Path) -> None:
    """Alone n3's link is at a risk of (0.7 + sqrt(0.6)) / 2 = 0.737, so that its job comes after another."""
    watcher, trace, config = (tmp_path / name for name in ("watcher.json", "jobs.csv", "strict.yaml"))
    watcher.write_text(MEASURED)
    trace.write_text(JOBS)
    arguments = f"{{watcherAddress: {watcher}, RiskThreshold: 0.73}}"
    config.write_text(f"plugins:\n- {{name: CheckRiskNodeBandwidth, arguments: {arguments}}}\n")
    asked = ("-f", "-", "--trace", trace, "--config", config)
    found = report("simulate", *asked, "--full", stdin=CLUSTER)
    assert [job["start"] for job in found["jobs"]] == [0, 0, 100]
    assert found["notices"][0] == (
        f"what {watcher} says counts for CheckRiskNodeBandwidth during the whole run"
    )
    free = report("simulate", "-f", "-", "--trace", trace, "--full", stdin=CLUSTER)
    assert [job["start"] for job in free["jobs"]] == [0, 0, 0]

    compared = report("compare", *asked, "--config", "closeby", "--processes", 1, stdin=CLUSTER)
    assert compared["notices"][0].startswith(f"with strict: what {watcher} says counts")
    (makespan,) = (figure for figure in compared["figures"] if figure["name"] == "makespan")
    assert [one["mean"] for one in makespan["policies"]] == [200, 100]


def test_a_run_over_time_tells_of_measurements_that_are_of_no_use(tmp_path: Path, golden: Golden) -> None:
    watcher, trace = tmp_path / "watcher.json", tmp_path / "jobs.csv"
    trace.write_text(JOBS)
    asked = ("simulate", "--cluster", "small", "--trace", trace, "--config", configured(tmp_path, watcher))
    done = closeby(*asked)
    assert done.exit_code == 2
    assert f"watcherAddress: {watcher} can't be read: No such file or directory" in done.stderr
    watcher.write_text(MEASURED)
    golden("simulate", report(*asked)["notices"][1])
