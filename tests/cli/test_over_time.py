"""`closeby simulate --workload` and `--trace`: jobs that come, wait, run and end in virtual time."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from closeby.cli.options import Seconds
from tests.cli.calling import GPU, closeby, node, pod, racks, report, text
from tests.golden.fixture import Golden

# One zone; r1 has two hosts of 8 GPUs, r2 has one.
CLUSTER = racks({"a/r1": 2, "a/r2": 1})
HEADER = "name,submitted,duration,pods,gpus,priority,kind"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """a takes r1, b takes r2, c must wait for r1; d could never run."""
    path = tmp_path / "jobs.csv"
    rows = ("a,0,100,2,8,0,pretrain", "b,10,300,1,8,0,eval", "c,20,100,2,8,0,", "d,30,10,4,8,0,")
    path.write_text("\n".join((HEADER, *rows)))
    return path


def emptied(found: Any) -> float:
    """When the last job left the queue."""
    samples = found["samples"]
    pairs = zip(samples["times"][1:], samples["queuedJobs"], strict=False)
    return max((end for end, queued in pairs if queued), default=0.0)


def small(*arguments: object, cluster: list[Any] = CLUSTER) -> Any:
    return report("simulate", "-f", "-", *arguments, stdin=text(*cluster))


def test_the_report_of_a_trace_on_a_cluster_of_ones_own(trace: Path) -> None:
    found = small("--trace", trace, "--full")
    assert list(found) == [
        "apiVersion",
        "kind",
        "workload",
        "cluster",
        "policy",
        "summary",
        "measures",
        "refusals",
        "reservations",
        "samples",
        "jobs",
        "notices",
    ]
    assert (found["apiVersion"], found["kind"]) == ("closeby.dev/v1alpha1", "SimulationReport")
    assert found["workload"] == {"name": "jobs.csv", "jobs": 4, "standing": 0, "load": None, "seed": None}
    assert found["cluster"] == {
        "name": "the cluster of the files",
        "nodes": 3,
        "gpus": 24,
        "heldGpus": 0,
        "cores": 96.0,
        "topology": "fabric",
        "levels": [
            {"name": "zone", "domains": 1},
            {"name": "rack", "domains": 2},
            {"name": "hostname", "domains": 3},
        ],
    }
    assert found["policy"] == {"name": "default", "required": None, "preferred": None}
    assert found["summary"] == {
        "until": 310.0,
        "jobs": 4,
        "ended": 3,
        "running": 0,
        "waiting": 0,
        "impossible": 1,
        "toCome": 0,
    }
    assert found["refusals"] == [
        {
            "message": "all nodes together take 3 pods of 8 GPUs when no other job runs",
            "jobs": 1,
            "largestGpus": 32,
            "largestPods": 4,
            "example": "d",
        }
    ]
    assert found["samples"] == {
        "times": [0.0, 10.0, 20.0, 100.0, 200.0, 310.0],
        "busyGpus": [16, 24, 24, 24, 8, 0],
        "queuedJobs": [0, 0, 1, 0, 0, 0],
        "queuedGpus": [0, 0, 16, 0, 0, 0],
    }
    assert found["jobs"][2] == {
        "name": "c",
        "kind": "",
        "gpus": 16,
        "pods": 2,
        "submitted": 20.0,
        "start": 100.0,
        "end": 200.0,
        "wait": 80.0,
        "nodes": 2,
        "domain": ["a", "r1"],
        "span": {"zone": 1, "rack": 1, "hostname": 2},
    }
    assert found["jobs"][3]["start"] is None
    # Three jobs count; the last of them comes at 20, and the cluster is full from 10 on.
    assert found["measures"]["jobs"] == 3
    assert found["measures"]["window"] == {"begin": 0.0, "end": 20.0}
    assert found["measures"]["utilisation"] == pytest.approx((16 * 10 + 24 * 10) / (24 * 20))


def test_the_table_says_what_ran_on_what(trace: Path, golden: Golden) -> None:
    printed = closeby("simulate", "-f", "-", "--trace", trace, stdin=text(*CLUSTER)).stdout
    golden("simulate-over-time", printed)
    # c waits from 20 to 100.


def test_what_runs_already_stays_and_what_waits_is_left_aside(trace: Path, golden: Golden) -> None:
    cluster = [*CLUSTER, pod("old", 8, on="node-3"), pod("new", 1)]
    found = small("--trace", trace, cluster=cluster)
    assert (found["cluster"]["gpus"], found["cluster"]["heldGpus"]) == (16, 8)
    golden("simulate-over-time", found["notices"])
    assert found["summary"]["ended"] == 3
    # a until 100, then b alone, and c only when b has left its node.
    assert found["samples"]["times"] == [0, 10, 20, 100, 400, 500]
    assert found["samples"]["busyGpus"] == [16, 16, 16, 8, 16, 0]
    assert "jobs" not in found


def test_jobs_may_ask_for_one_rack(tmp_path: Path, golden: Golden) -> None:
    trace = tmp_path / "wide.csv"
    trace.write_text(f"{HEADER}\nwide,0,10,3,8,0,\nsingle,1,10,1,8,0,")
    assert small("--trace", trace)["summary"]["ended"] == 2
    found = small("--trace", trace, "--required", "rack")
    assert found["policy"]["required"] == "rack"
    golden("simulate-over-time", found["refusals"][0]["message"])


def test_what_a_required_level_costs_in_waiting(tmp_path: Path) -> None:
    """Single hosts go to the rack that is fullest: wide starts at 60 on two racks, or at 100 on one.

    ::

        r1: node-1 other (1 to 100)  node-2 third (2 to 60)    r2: node-3 narrow (0 to 60)
    """
    trace = tmp_path / "wide.csv"
    rows = ("narrow,0,60,1,8,0,", "other,1,99,1,8,0,", "third,2,58,1,8,0,", "wide,10,10,2,8,0,")
    trace.write_text("\n".join((HEADER, *rows)))
    (delay, *_) = small("--trace", trace, "--required", "rack")["measures"]["delays"]
    assert delay["mean"] == (100 - 10) / 4
    assert delay["topology"] == (100 - 60) / 4
    assert small("--trace", trace)["measures"]["delays"][0]["topology"] is None
    printed = closeby("simulate", "-f", "-", "--trace", trace, "--required", "rack", stdin=text(*CLUSTER))
    assert "mean for topology" in printed.stdout


def test_jobs_that_no_rack_could_hold_cost_the_others_nothing_when_none_is_required(tmp_path: Path) -> None:
    """huge takes all three nodes until 100, which no rack has; then small would wait for it."""
    trace = tmp_path / "huge.csv"
    trace.write_text("\n".join((HEADER, "huge,0,100,3,8,0,", "small,10,10,1,8,0,")))
    measures = small("--trace", trace, "--required", "rack")["measures"]
    assert (measures["jobs"], measures["delays"][0]["mean"], measures["delays"][0]["topology"]) == (
        1,
        0.0,
        0.0,
    )
    assert small("--trace", trace)["measures"]["delays"][0]["mean"] == 45.0


def test_a_made_up_workload_is_the_same_again(tmp_path: Path) -> None:
    asked = ("--workload", "seren", "--jobs", 60, "--cluster", "small", "--load", 1.5, "--full")
    found = report("simulate", *asked, "--seed", 7)
    workload = found["workload"]
    assert (workload["name"], workload["load"], workload["seed"]) == ("seren", 1.5, 7)
    assert workload["jobs"] == 60 + workload["standing"] == len(found["jobs"])
    assert all(job["submitted"] == 0 for job in found["jobs"][: workload["standing"]])
    assert found == report("simulate", *asked, "--seed", 7)
    assert found != report("simulate", *asked, "--seed", 8)


@pytest.mark.parametrize(("required", "most", "where"), [(None, 512, "small"), ("leaf", 64, "one leaf")])
def test_no_made_up_job_is_larger_than_what_can_run(required: str | None, most: int, where: str) -> None:
    """Seren goes up to 1,024 GPUs, small has 512 in leaves of 64; what is left out is said."""
    asked = ("--workload", "seren", "--jobs", 2_000, "--cluster", "small", "--full")
    found = report("simulate", *asked, *(("--required", required) if required else ()))
    assert found["summary"]["impossible"] == found["summary"]["waiting"] == 0
    come = [job for job in found["jobs"] if job["submitted"] > 0]
    assert 2 * max(job["gpus"] for job in come) > most >= max(job["gpus"] for job in come)
    standing = sum(job["gpus"] for job in found["jobs"] if job["submitted"] == 0)
    assert standing == 435, "0.85 x 512 is 435.2"
    offered = sum(job["gpus"] * (job["end"] - job["start"]) for job in come)
    last = come[-1]["submitted"]
    assert offered / (512 * last) == pytest.approx(found["workload"]["load"], rel=0.02)
    (notice,) = found["notices"]
    assert f"would have more than {most} GPUs, the most that a job can get in {where}: smaller" in notice


def test_where_all_jobs_fit_nothing_is_said() -> None:
    assert report("simulate", "--workload", "seren", "--jobs", 50)["notices"] == []


def test_a_level_that_is_not_there_is_refused_before_jobs_are_made(golden: Golden) -> None:
    done = closeby("simulate", "--workload", "seren", "--jobs", 50, "--required", "shelf")
    assert done.exit_code != 0
    golden("command-errors", done.stderr)


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_a_level_may_be_named_by_the_end_of_its_label_as_for_the_topology(command: str, trace: Path) -> None:
    levels = [{"nodeLabel": f"example.com/topology-{one}"} for one in ("block", "rack")]
    labels = {f"example.com/topology-{one}": "x" for one in ("block", "rack")}
    cluster = [{**CLUSTER[0], "spec": {"levels": levels}}, node("n", labels)]
    configs = ("--config", "default", "--config", "random") if command == "compare" else ()
    asked = (command, *configs, "--trace", trace, "-f", "-", "--preferred")
    assert closeby(*asked, "rack", stdin=text(*cluster)).exit_code == 0
    levels.insert(1, {"nodeLabel": "example.com/half-rack"})
    refused = closeby(*asked, "rack", stdin=text(*cluster))
    topology = closeby("topology", "--level", "rack", "-f", "-", stdin=text(*cluster))
    assert (refused.exit_code, refused.stderr) == (2, topology.stderr)


def test_no_application_is_larger_than_what_can_run(golden: Golden) -> None:
    """Ten nodes of 1.5 cores: pods of 2 cores have no place there."""
    nodes = [node(f"n{number}", {}, 0) for number in range(10)]
    for one in nodes:
        one["status"]["allocatable"]["cpu"] = "1500m"
    asked = ("--workload", "microservices", "--jobs", 8, "--load", 0.3)
    found = small(*asked, cluster=nodes)
    assert found["summary"]["impossible"] == 0
    golden("simulate-over-time", found["notices"][0])
    done = closeby("simulate", "-f", "-", *asked, stdin=text({**nodes[0]}))
    assert done.exit_code != 0
    golden("command-errors", done.stderr)


def test_a_written_trace_gives_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    made = report(
        "simulate", "--workload", "philly", "--jobs", 60, "--cluster", "small", "--write-trace", path
    )
    read = report("simulate", "--trace", path, "--cluster", "small")
    for part in ("summary", "measures", "samples"):
        assert made[part] == read[part]


def test_applications_run_over_time(golden: Golden) -> None:
    found = report("simulate", "--workload", "microservices", "--jobs", 12, "--load", 0.1, "--full")
    assert (found["cluster"]["name"], found["cluster"]["gpus"], found["cluster"]["cores"]) == (
        "zones",
        0,
        3840,
    )
    assert found["workload"]["jobs"] == found["summary"]["ended"] == found["applications"]["placed"] > 12
    assert found["applications"]["pairs"] > 100
    assert found["applications"]["costPerPair"] < 1
    assert found["measures"]["utilisation"] is None
    assert all(job["gpus"] == 0 and job["nodes"] for job in found["jobs"])
    printed = closeby("simulate", "--workload", "microservices", "--jobs", 12, "--load", 0.1).stdout
    assert "120 nodes with 3,840 cores in 6 zones, 2 regions" in printed
    assert "applications with" in printed


def test_a_workload_may_begin_on_an_empty_cluster() -> None:
    found = report("simulate", "--workload", "philly", "--jobs", 60, "--cluster", "small", "--from-empty")
    assert (found["workload"]["jobs"], found["workload"]["standing"]) == (60, 0)


def test_samples_are_thinned_unless_all_are_asked_for() -> None:
    asked = ("simulate", "--workload", "gavel", "--jobs", 300, "--cluster", "small")
    few, all_of_them = report(*asked), report(*asked, "--full")
    assert len(few["samples"]["times"]) == 200
    assert len(all_of_them["samples"]["times"]) > 400
    assert few["samples"]["times"][-1] == all_of_them["samples"]["times"][-1]
    assert emptied(few) == emptied(all_of_them)


def test_a_run_that_is_stopped() -> None:
    found = report("simulate", "--workload", "seren", "--jobs", 60, "--cluster", "small", "--until", "5m")
    summary = found["summary"]
    assert summary["until"] == 300
    assert summary["running"] > 0
    assert summary["toCome"] > 0
    assert sum(value for key, value in summary.items() if key not in ("until", "jobs")) == summary["jobs"]
    assert found["measures"]["jobs"] == summary["jobs"] - summary["toCome"] - summary["impossible"]


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_run_may_be_stopped_before_its_first_job_comes(form: str, tmp_path: Path) -> None:
    path = tmp_path / "later.csv"
    path.write_text(f"{HEADER}\nlate,3600,60,1,8,0,")
    asked = ("--trace", path, "--until", 60, "-o", form, "--html", tmp_path / "report.html")
    assert closeby("simulate", "-f", "-", *asked, stdin=text(*CLUSTER)).exit_code == 0


def test_the_configuration_is_named(tmp_path: Path, trace: Path) -> None:
    config = tmp_path / "tight.yaml"
    config.write_text("plugins:\n- name: topology\n  enabled: false\n")
    assert small("--trace", trace, "--config", config)["policy"]["name"] == "tight"


def test_reservations_are_reported(tmp_path: Path, golden: Golden) -> None:
    """wide needs all three nodes, which others take in turn until it keeps them free."""
    trace, config = tmp_path / "wide.csv", tmp_path / "eager.yaml"
    rows = ("a,0,100,1,8,0,", "b,0,50,2,8,0,", "wide,1,10,3,8,0,", "c,30,100,1,8,0,")
    trace.write_text("\n".join((HEADER, *rows)))
    config.write_text("reserveAfter: 10s\n")
    found = small("--trace", trace, "--config", config, "--full")
    (kept,) = found["reservations"]
    assert (kept["job"], kept["nodes"], kept["begin"], kept["end"]) == ("wide", 3, 30, 100)
    assert [job["start"] for job in found["jobs"]] == [0, 0, 100, 110]
    asked = ("simulate", "-f", "-", "--trace", trace, "--config", config)
    printed = closeby(*asked, stdin=text(*CLUSTER)).stdout
    golden("simulate-over-time", printed)


def test_strict_minds_jobs_that_never_started(trace: Path) -> None:
    stdin = text(*CLUSTER)
    assert closeby("simulate", "-f", "-", "--trace", trace, "--strict", stdin=stdin).exit_code == 3
    assert closeby("simulate", "--trace", trace, "--cluster", "small", "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("7200", 7200),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1.5d", 129_600),
        ("3 d 4 h", 273_600),
        ("1d30m", 88_200),
        ("2 min 5 s", 125),
    ],
)
def test_a_span_of_time_is_read_as_reports_write_it(given: str, seconds: float) -> None:
    assert Seconds().convert(given, None, None) == seconds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "serene"), "'serene' is not a known workload; known workloads: seren, kalos, philly"),
        (
            ("--workload", "seren", "--cluster", "big"),
            "'big' is not a known cluster; known clusters: lingjun: 847",
        ),
        (("--workload", "seren", "--trace", "x.csv"), "give one of them"),
        (("--trace", "x.csv", "--seed", "3"), "--seed belongs to --workload"),
        (("--trace", "x.csv"), "x.csv: can't be read: No such file or directory; check the path"),
        (("--jobs", "3"), "--jobs belongs to a run over time"),
        (("--workload", "seren", "--explain"), "--explain is for the pods of manifests"),
        (("--workload", "seren", "--until", "soon"), "'soon' is not a span of time; write seconds"),
        (("--workload", "seren", "--until", "1h30"), "'1h30' is not a span of time"),
        (("--workload", "seren", "--until", "1d5"), "'1d5' is not a span of time"),
        (("--workload", "seren", "--until", "0d"), "'0d' is not a span of time"),
        (("--workload", "seren", "--until", "d"), "'d' is not a span of time"),
        (("--workload", "seren", "--segment", f"rack={'9' * 5000}"), "write like leaf=16"),
        (("--workload", "seren", "--failures", f"rack={'9' * 5000}"), "write like leaf=2"),
        (("--workload", "seren", "--failures", "leaf=1:"), "'' is not a span of time"),
        (
            ("--workload", "seren", "--cluster", "small", "--failures", "leaf=8"),
            "--failures: no leaf has more than 8 nodes",
        ),
        (("--workload", "seren", "--load", "0"), "0.0 is not in the range"),
        (("--workload", "seren", "--load", "nan"), "'nan' is not a number"),
        (("--trace", "-", "-f", "-"), "can't both read standard input"),
        (
            ("--workload", "seren", "--required", "row"),
            "topology fabric has no level row; there are pod",
        ),
        (
            ("--workload", "seren", "--resource", "amd.com/gpu"),
            "no node that pods tolerate offers amd.com/gpu",
        ),
        (("--workload", "seren", "--resource", "cpu"), "'cpu' is not a device that jobs can ask for"),
        (("--workload", "seren", "--resource", ""), "'' is not a device that jobs can ask for"),
        (("--workload", "seren", "--cluster", ""), "'' is not a known cluster"),
        (
            ("--workload", "microservices", "--jobs", "2", "--load", "0.01", "--write-trace", "x.csv"),
            "who calls",
        ),
        (("--workload", "seren", "--topology", "ring"), "there is no topology ring; there is fabric"),
        (("--workload", "seren", "--write-trace", "/nowhere/x.csv"), "/nowhere/x.csv: can't be written"),
        ((), "missing option '-f' / '--filename'"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: tuple[str, ...], said: str) -> None:
    result = closeby("simulate", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_jobs_without_gpus_need_none(tmp_path: Path) -> None:
    trace = tmp_path / "light.csv"
    trace.write_text(f"{HEADER}\na,0,10,1,0,0,\nb,0,10,3,0,0,")
    found = small("--trace", trace, cluster=racks({"a/r1": 2}, gpus=0))
    assert found["summary"]["ended"] == 2
    heavy = tmp_path / "heavy.csv"
    heavy.write_text(f"{HEADER}\na,0,10,1,1,0,")
    result = closeby("simulate", "-f", "-", "--trace", heavy, stdin=text(*racks({"a/r1": 2}, gpus=0)))
    assert result.exit_code == 2
    assert "no node that pods tolerate offers nvidia.com/gpu" in result.stderr


def test_the_size_of_jobs_without_gpus_is_reported_in_pods_on_any_cluster(
    tmp_path: Path, golden: Golden
) -> None:
    """Three jobs of 1, 3 and 12 pods on hosts that have GPUs; 24 pods of the fourth find no room."""
    trace = tmp_path / "light.csv"
    rows = ("a,0,10,1,0,0,", "b,0,10,3,0,0,", "c,0,10,12,0,0,", "d,0,10,400,0,0,")
    trace.write_text("\n".join((HEADER, *rows)))
    printed = closeby("simulate", "-f", "-", "--trace", trace, stdin=text(*CLUSTER)).stdout
    sizes = printed.split("Waiting, by size of job\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in sizes if "─" not in line] == ["pods", "all", "1", "2-8", "9-64"]
    assert "Use of the GPUs" not in printed
    golden("simulate-over-time", printed)
    found = small("--trace", trace)
    assert found["measures"]["sizeUnit"] == "pod"
    assert (found["refusals"][0]["largestGpus"], found["refusals"][0]["largestPods"]) == (0, 400)


def test_one_job_with_gpus_is_enough_to_tell_sizes_in_them(tmp_path: Path) -> None:
    trace = tmp_path / "mixed.csv"
    trace.write_text(f"{HEADER}\na,0,10,1,0,0,\nb,0,10,3,8,0,")
    found = small("--trace", trace)
    assert found["measures"]["sizeUnit"] == "GPU"
    assert [one["size"] for one in found["measures"]["delays"] if one["jobs"]] == ["all", "1", "9-64"]


def test_nodes_that_take_no_jobs_do_not_count(trace: Path) -> None:
    """node-1 is kept for GPU pods, which the jobs' are; node-2 for somebody else; node-3 is cordoned."""
    fabric, one, two, three = CLUSTER
    cluster = [
        fabric,
        {**one, "spec": {"taints": [{"key": GPU, "value": "", "effect": "NoSchedule"}]}},
        {**two, "spec": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}},
        {**three, "spec": {"unschedulable": True}},
    ]
    found = small("--trace", trace, "--full", cluster=cluster)
    assert (found["cluster"]["nodes"], found["cluster"]["gpus"], found["cluster"]["heldGpus"]) == (3, 8, 0)
    assert found["summary"]["ended"] == 1
    assert found["summary"]["impossible"] == 3
    assert [job["start"] for job in found["jobs"]] == [None, 10, None, None]


def test_several_topologies_need_a_choice(trace: Path, golden: Golden) -> None:
    # Equal topologies would be one.
    levels = CLUSTER[0]["spec"]["levels"][1:]
    other = {**CLUSTER[0], "metadata": {"name": "other"}, "spec": {"levels": levels}}
    stdin = text(*CLUSTER, other)
    result = closeby("simulate", "-f", "-", "--trace", trace, stdin=stdin)
    assert result.exit_code == 2
    golden("command-errors", result.stderr)
    chosen = report("simulate", "-f", "-", "--trace", trace, "--topology", "other", stdin=stdin)
    assert chosen["cluster"]["topology"] == "other"


def test_a_trace_may_come_through_a_pipe(trace: Path, golden: Golden) -> None:
    """A program of its own, as a test in this process has no standard input that can be opened."""
    run = [sys.executable, "-m", "closeby", "simulate", "--trace", "-", "--cluster", "small"]
    # Libraries of this process may have set COLUMNS for the programs that it starts.
    wide = {**os.environ, "COLUMNS": "100"}
    with trace.open() as jobs:
        done = subprocess.run(
            run, stdin=jobs, capture_output=True, text=True, timeout=100, check=True, env=wide
        )
    golden("simulate-over-time", done.stdout)
    done = subprocess.run(run, input="name\na\n", capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    golden("command-errors", done.stderr)


def test_of_many_jobs_that_never_started_one_is_named_as_an_example(tmp_path: Path, golden: Golden) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{HEADER}\na,0,10,9,8,0,\nb,1,10,9,8,0,")
    told = closeby("simulate", "-f", "-", "--trace", trace, stdin=text(*CLUSTER)).stdout
    golden("simulate-over-time", told)


def test_without_a_topology_no_level_can_be_required(trace: Path, golden: Golden) -> None:
    nodes = [one for one in CLUSTER if one["kind"] == "Node"]
    result = closeby("simulate", "-f", "-", "--trace", trace, "--required", "rack", stdin=text(*nodes))
    assert result.exit_code == 2
    golden("command-errors", result.stderr)


def test_a_level_that_the_table_prints_can_be_asked_for(trace: Path) -> None:
    cluster = text(*CLUSTER)
    printed = closeby("simulate", "-f", "-", "--trace", trace, stdin=cluster).stdout
    table = printed.split("Where jobs ran\n")[1].split("Means over jobs")[0].splitlines()
    levels = [line.split()[0] for line in table[2:] if line.strip()]
    assert levels == ["zone", "rack", "hostname"]
    for level in levels:
        assert small("--trace", trace, "--required", level)["policy"]["required"] == level
        assert closeby("topology", "-f", "-", "--level", level, stdin=cluster).exit_code == 0


def test_nodes_are_a_level_to_ask_for_only_where_they_are_declared_one(trace: Path) -> None:
    zones = {"nodeLabel": "example.com/zone"}
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology"}
    zoned = {**topology, "metadata": {"name": "zones"}, "spec": {"levels": [zones]}}
    asked = ("--trace", trace, "--required", "hostname", "--topology", "zones")
    result = closeby("simulate", "-f", "-", *asked, stdin=text(*CLUSTER, zoned))
    assert result.exit_code == 2
    remedy = "there is zone; add kubernetes.io/hostname to its levels"
    assert f"topology zones has no level hostname; {remedy}" in result.stderr


def test_a_row_that_cannot_be_read_is_named_by_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER}\na,0,10,1,8,0,\nb,0,long,1,8,0,\nc,0,10,none,8,0,\n")
    result = closeby("simulate", "--trace", path)
    assert result.exit_code == 2
    assert f"error: {path}:3: duration: 'long' is not a time" in result.stderr
    assert f"error: {path}:4: pods: 'none' is not a number" in result.stderr


def test_files_without_nodes(golden: Golden) -> None:
    result = closeby("simulate", "-f", "-", "--workload", "seren", stdin=text(pod("lonely")))
    assert result.exit_code == 2
    golden("command-errors", result.stderr)


@pytest.mark.parametrize("option", ["--write-trace", "--html"])
def test_what_is_read_is_not_overwritten(option: str, trace: Path) -> None:
    before = trace.read_bytes()
    other_way = trace.parent / ".." / trace.parent.name / trace.name
    result = closeby("simulate", "--trace", trace, "--cluster", "small", option, other_way)
    assert (result.exit_code, trace.read_bytes()) == (2, before)
    assert f"{option} {other_way} would overwrite a file that is read; name another one" in result.stderr


def test_a_file_of_a_folder_that_is_read_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "below" / "cluster.yaml"
    path.parent.mkdir()
    path.write_text(text(*CLUSTER))
    before = path.read_bytes()
    result = closeby("simulate", "-f", tmp_path, "--html", path)
    assert (result.exit_code, path.read_bytes()) == (2, before)
    assert f"--html {path} would overwrite a file that is read" in result.stderr
    beside = path.with_suffix(".html")
    assert closeby("simulate", "-f", tmp_path, "--html", beside).exit_code == 0
    assert beside.is_file()


@pytest.mark.parametrize("option", ["--write-trace", "--html"])
def test_no_file_is_written_that_has_the_name_of_standard_input(
    option: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    result = closeby("simulate", "--trace", trace, "--cluster", "small", option, "-")
    assert (result.exit_code, Path("-").exists()) == (2, False)
    assert f"{option} writes to a file" in result.stderr


def test_two_files_are_not_written_to_one(trace: Path) -> None:
    path = trace.with_name("out")
    result = closeby("simulate", "--trace", trace, "--write-trace", path, "--html", path)
    assert (result.exit_code, path.exists()) == (2, False)
    assert f"--write-trace and --html both write {path}; name another file for one" in result.stderr


def test_a_job_of_more_pods_than_all_nodes_take_is_not_waited_for(tmp_path: Path, golden: Golden) -> None:
    """Three nodes take 110 pods each."""
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER}\nfits,0,10,330,0,0,\nlarge,0,10,331,0,0,\n")
    found = small("--trace", path)
    assert (found["summary"]["ended"], found["summary"]["impossible"]) == (1, 1)
    golden("simulate-over-time", found["refusals"][0]["message"])


def test_jobs_can_not_come_through_a_closed_pipe(golden: Golden) -> None:
    closed = [sys.executable, "-c", "import os, sys; os.close(0); os.execv(sys.executable, sys.argv[1:])"]
    run = [sys.executable, "-m", "closeby", "simulate", "--trace", "-"]
    done = subprocess.run([*closed, *run], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    golden("command-errors", done.stderr)


def test_conditions_of_a_cluster_are_reported(trace: Path, golden: Golden) -> None:
    """A pod runs on a node that is not there, and another takes more than node-3 has."""
    here = [*CLUSTER, pod("ghost", on="gone"), pod("greedy", 9, on="node-3")]
    notices = small("--trace", trace, cluster=here)["notices"]
    golden("simulate-over-time", notices[0])
    golden("simulate-over-time", notices[1])


def test_documents_that_were_skipped_are_reported(trace: Path) -> None:
    stdin = text(*CLUSTER) + "\n---\n{broken: [\n"
    assert closeby("simulate", "-f", "-", "--trace", trace, stdin=stdin).exit_code == 2
    found = report("simulate", "-f", "-", "--trace", trace, "--keep-going", stdin=stdin)
    assert found["notices"][0].startswith("skipped: ")


def test_all_measures_and_constants_are_shown_on_request_and_on_a_page(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("name,submitted,duration,pods,gpus\na,0,10,12,8\nb,1,10,2,8\n")
    asked = ("simulate", "--trace", trace, "--cluster", "small")
    rows = (
        "cross pairs",
        "ring hops",
        "stranded",
        "span gap",
        "all-reduce",
        "any farther level",
        "NCCL 2.17",
    )
    page = tmp_path / "report.html"
    short = closeby(*asked, "--html", page).stdout
    assert "--quality adds all measures" in " ".join(short.split())
    full, html = closeby(*asked, "--quality").stdout, page.read_text(encoding="utf-8")
    for row in rows:
        assert row in full and row in html
        assert row not in short or row == "all-reduce"


TWO_CLASSES = """\
name,submitted,duration,pods,gpus,priority
low,0,7200,2,8,0
high,5400,600,1,8,1000
later,9000,60,1,8,0
"""


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Two hosts' worth of a low priority, and a job that needs one of them after an hour and a half."""
    path = tmp_path / "classes.csv"
    path.write_text(TWO_CLASSES)
    return path


def two_hosts() -> str:
    return text(*racks({"a/r1": 2}))


def test_jobs_preempt_by_priority(classes: Path) -> None:
    """low has an hour and a half on disk, waits for ten minutes and needs three more until it ends."""
    options = ("--trace", classes, "-f", "-", "--restart-time", "3m")
    found = report("simulate", *options, "--full", stdin=two_hosts())
    jobs = {one["name"]: one for one in found["jobs"]}
    assert [jobs[name]["evictions"] for name in ("low", "high", "later")] == [1, 0, 0]
    assert (jobs["low"]["start"], jobs["low"]["end"], jobs["low"]["wait"]) == (6000, 7980, 600)
    assert found["evictions"] == [
        {"job": "low", "by": "high", "at": 5400, "gpus": 16, "ran": 5400, "lost": 0}
    ]
    by = found["measures"]["preemption"]
    assert (by["evictions"], by["lostGpuHours"]) == (1, 16 * 180 / 3600)
    assert [(one["priority"], one["mean"]) for one in by["priorities"]] == [(1000, 0), (0, 300)]


def test_without_preemption_jobs_wait(classes: Path) -> None:
    options = ("--trace", classes, "-f", "-", "--full", "--no-preemption")
    found = report("simulate", *options, stdin=two_hosts())
    assert [one["start"] for one in found["jobs"]] == [0, 7200, 9000]
    assert found["evictions"] == []


def test_one_priority_says_nothing_of_preemption(trace: Path) -> None:
    found = report("simulate", "--trace", trace, "--cluster", "small", "--full")
    assert "evictions" not in found
    assert "preemption" not in found["measures"]
    assert "priorities" not in found["workload"]


def test_a_workload_gets_classes_of_priority(golden: Golden) -> None:
    options = ("--workload", "seren", "--jobs", "300", "--cluster", "small", "--load", "1.1")
    printed = closeby("simulate", *options, "--priorities", "high=1000:20%,low=0").stdout
    golden("simulate-over-time", printed.split("Waiting and evictions")[1].split("Where jobs ran")[0])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--workload", "seren", "--priorities", "rich"), "is not known; take borg"),
        (("--workload", "microservices", "--priorities", "borg"), "applications"),
        (("--trace", "x.csv", "--priorities", "borg"), "--priorities belongs to --workload"),
        (("-f", "x.yaml", "--restart-time", "3m"), "--restart-time belongs to a run over time"),
    ],
)
def test_priorities_that_make_no_sense(options: tuple[str, ...], told: str) -> None:
    done = closeby("simulate", *options)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split())
