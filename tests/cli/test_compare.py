"""`closeby compare`: configurations side by side on the same jobs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import closeby, racks, report, text
from tests.cli.programs import Program, until_beside
from tests.golden.fixture import Golden

# One zone; an empty r1 holds four pods of 8 GPUs, r2 two.
CLUSTER = text(*racks({"a/r1": 4, "a/r2": 2}))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """x takes three hosts of r1 until 100; y comes at 10 with three pods."""
    path = tmp_path / "jobs.csv"
    path.write_text("name,submitted,duration,pods,gpus\nx,0,100,3,8\ny,10,50,3,8\n")
    return path


def figures(found: Any, policy: str) -> dict[str, Any]:
    """What is told of one policy, by the figure's name."""
    return {
        figure["name"]: next(one for one in figure["policies"] if one["policy"] == policy)
        for figure in found["figures"]
    }


def test_a_known_difference(trace: Path) -> None:
    """closeby starts y at once, over two racks. With a rack required it waits 90 s for x: a mean of 45 s."""
    configs = ("--config", "closeby", "--config", "single-level-required")
    found = report("compare", *configs, "--trace", trace, "-f", "-", stdin=CLUSTER)
    assert (found["apiVersion"], found["kind"]) == ("closeby.dev/v1alpha1", "ComparisonReport")
    assert found["workload"] == {
        "name": "jobs.csv",
        "jobs": 2,
        "load": None,
        "seeds": [],
        "standing": False,
    }
    assert found["cluster"] == {"name": "the cluster of the files", "nodes": 6, "gpus": 48}
    assert (found["reference"], found["policies"]) == ("closeby", ["closeby", "single-level-required"])
    ours, theirs = figures(found, "closeby"), figures(found, "single-level-required")
    assert ours["delay"] == {
        "policy": "closeby",
        "values": [0.0],
        "mean": 0.0,
        "seeds": 1,
        "pairedSeeds": 1,
        "difference": 0.0,
        "low": None,
        "high": None,
        "differs": False,
        "better": None,
    }
    assert (theirs["delay"]["mean"], theirs["delay"]["difference"]) == (45.0, 45.0)
    # y has a third of the GPU-time, and is in two racks.
    assert ours["excessSpan.rack"]["mean"] == pytest.approx(4 / 3)
    assert theirs["excessSpan.rack"]["mean"] == 1.0
    assert theirs["excessSpan.rack"]["difference"] == pytest.approx(-1 / 3)
    assert theirs["makespan"]["difference"] == 50.0
    assert (ours["delay.topology"]["mean"], theirs["delay.topology"]["mean"]) == (None, 45.0)


def test_seeds_are_paired_and_marked() -> None:
    """Random scatters gangs over the leaves, whatever the seed."""
    found = report(
        *("compare", "--config", "closeby", "--config", "random", "--workload", "seren", "--jobs", 300),
        *("--seeds", 3, "--processes", 1),
    )
    assert found["workload"]["seeds"] == [1, 2, 3]
    theirs = figures(found, "random")["excessSpan.leaf"]
    ours = figures(found, "closeby")["excessSpan.leaf"]
    assert len(theirs["values"]) == 3
    mean = sum(one - other for one, other in zip(theirs["values"], ours["values"], strict=True)) / 3
    assert theirs["difference"] == pytest.approx(mean)
    assert (theirs["differs"], theirs["better"]) == (True, False)
    assert 0 < theirs["low"] < theirs["difference"] < theirs["high"]


def test_the_verdict_names_the_best_and_whether_chance_explains_it() -> None:
    """Closer places are no chance there; the jobs are never so many that one waits."""
    found = report(
        *("compare", "--config", "random", "--config", "closeby", "--config", "slurm-tree"),
        *("--workload", "seren", "--jobs", 300, "--load", 0.4, "--seeds", 3, "--processes", 1),
    )
    delay, slowdown = found["verdict"]
    assert (delay["figure"], delay["best"], delay["difference"]) == ("delay", None, 0.0)
    assert slowdown["figure"] == "slowdown.job"
    means = {one: figures(found, one)["slowdown.job"]["mean"] for one in found["policies"]}
    best, second, last = sorted(means, key=lambda one: means[one])
    assert (slowdown["best"], slowdown["runnerUp"], last) == (best, second, "random")
    assert slowdown["share"] == pytest.approx(slowdown["difference"] / means[second])
    assert slowdown["beyondChance"] is (slowdown["high"] < 0)


def test_a_verdict_beyond_chance_and_one_of_a_single_run(trace: Path, golden: Golden) -> None:
    asked = ("compare", "--config", "random", "--config", "closeby")
    seren = ("--workload", "seren", "--jobs", 300, "--processes", 1)
    several = report(*asked, *seren, "--seeds", 3)["verdict"]
    assert [(one["best"], one["beyondChance"]) for one in several if one["figure"] == "slowdown.job"] == [
        ("closeby", True)
    ]
    golden("compare", [one["sentence"] for one in several])
    single = report(*asked, *seren, "--seeds", 1)["verdict"]
    assert {one["beyondChance"] for one in single} == {None}
    golden("compare", [one["sentence"] for one in single])


def test_the_table_says_what_differs(trace: Path, golden: Golden) -> None:
    configs = ("--config", "closeby", "--config", "single-level-required")
    printed = closeby("compare", *configs, "--trace", trace, "-f", "-", stdin=CLUSTER).stdout
    lines = printed.splitlines()
    assert "Waiting" in lines and "Where jobs ran" in lines and "Use of the GPUs" in lines
    row = next(index for index, line in enumerate(lines) if line.startswith("  single-level-required"))
    assert lines[row].split()[1] == "45.0"
    assert lines[row + 1].split()[0] == "+45.0"
    golden("compare", printed)


def test_sizes_of_jobs_without_gpus_are_reported_in_pods(tmp_path: Path) -> None:
    trace = tmp_path / "light.csv"
    trace.write_text("name,submitted,duration,pods,gpus\na,0,10,12,0")
    asked = ("--config", "closeby", "--config", "random", "--trace", trace, "--cluster", "small")
    figures = {one["name"]: one["title"] for one in report("compare", *asked)["figures"]}
    assert figures["delay.9-64"] == "mean, 9-64 pods"


def test_jobs_that_are_too_large_are_reported(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("name,submitted,duration,pods,gpus\nx,0,100,1,8\ny,10,50,9,8\n")
    found = report(
        *("compare", "--config", "closeby", "--config", "random", "--trace", path, "-f", "-"), stdin=CLUSTER
    )
    golden("compare", found["notices"])
    assert found["unstarted"] == []
    assert figures(found, "random")["ended"]["mean"] == 1.0


def test_files_are_called_by_their_name_and_by_their_path_where_that_is_the_same(tmp_path: Path) -> None:
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "mine.yaml"
        path.write_text("plugins:\n  - name: random\n")
        paths.append(path)
    found = report(
        *("compare", "--config", paths[0], "--config", paths[1], "--config", "random"),
        *("--workload", "gavel", "--jobs", 5, "--seeds", 1, "--cluster", "small", "--processes", 1),
    )
    assert found["policies"] == [str(paths[0]), str(paths[1]), "random"]


def test_a_file_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "random").write_text("plugins: [{name: nonsense}]")
    monkeypatch.chdir(tmp_path)
    result = closeby("compare", "--config", "closeby", "--config", "random", "--workload", "seren")
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


def test_terms_of_closeby_are_explained_below_the_tables(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("name,submitted,duration,pods,gpus\na,0,10,2,8\nb,1,10,1,8\n")
    asked = ("--config", "closeby", "--config", "random", "--trace", trace, "--cluster", "small")
    told = closeby("compare", *asked).stdout
    tables, words = told.split("Delay: from submission to start.")
    words = " ".join(words.split()).lower()
    told_so = ("excess span", "group spread", "cross pairs", "ring crossings", "ring hops", "distance")
    for word in (*told_so, "largest gang", "goodput", "slowdown"):
        assert word in tables
        assert f"{word}: " in words
    assert "above the best" in tables.lower() and "above the best: " in words


def test_a_figure_that_not_every_seed_tells_says_how_many_do() -> None:
    """Of few jobs some seeds have none of more than 64 GPUs."""
    load = ("--workload", "seren", "--cluster", "small", "--jobs", 20, "--from-empty", "--seeds", 4)
    asked = ("--config", "closeby", "--config", "random", *load)
    delay = figures(report("compare", *asked), "random")["delay.9-64"]
    known = sum(value is not None for value in delay["values"])
    assert 0 < known < 4
    assert (delay["seeds"], delay["pairedSeeds"]) == (known, known)
    told = closeby("compare", *asked).stdout
    assert f"(n={known})" in told
    assert "n: seeds with a value, where not all have one" in " ".join(told.split())


def test_every_measure_and_the_constants_of_the_model_are_compared(trace: Path) -> None:
    """Those that docs/baselines.md names, in its order."""
    asked = ("--config", "closeby", "--config", "random", "--trace", trace, "-f", "-")
    found = report("compare", *asked, stdin=CLUSTER)
    page = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()
    (told,) = re.findall(r"^Figures are called (.+?), and `model` has", page, re.DOTALL | re.MULTILINE)
    names = [re.sub(r"\.[a-z]*(leaf|rack|zone|pod)$", ".LEVEL", one["name"]) for one in found["figures"]]
    assert list(dict.fromkeys(names)) == re.findall(r"`([^`]+)`", told)
    assert found["model"]["messageBytes"] == 2**30


APPLICATIONS = ("--workload", "microservices", "--jobs", 8, "--from-empty", "--processes", 1)


def test_applications_are_compared_by_what_their_talk_costs() -> None:
    """The emptiest nodes are in all zones of both regions: a pair is in one of two regions by chance."""
    configs = ("--config", "default", "--config", "least-allocated")
    found = report("compare", *configs, *APPLICATIONS, "--seeds", 3)
    assert found["cluster"] == {"name": "zones", "nodes": 120, "gpus": 0, "cores": 3840.0}
    assert [figure["name"] for figure in found["figures"]] == [
        *("delay", "delay.p99", "started", "makespan", "talkCost", "talkCost.pair"),
        *("overLimit", "sameNode", "sameZone", "sameRegion"),
    ]
    ours, theirs = figures(found, "default"), figures(found, "least-allocated")
    assert ours["started"]["values"] == theirs["started"]["values"] == [1.0, 1.0, 1.0]
    assert ours["talkCost.pair"]["mean"] < 1
    assert theirs["talkCost.pair"]["mean"] > 5
    assert (theirs["talkCost.pair"]["differs"], theirs["talkCost.pair"]["better"]) == (True, False)
    assert (ours["sameRegion"]["mean"], theirs["sameRegion"]["better"]) == (1.0, False)
    assert 0.3 < theirs["sameRegion"]["mean"] < 0.7


def test_there_are_fewer_applications_than_jobs_unless_it_is_said() -> None:
    asked = ("--config", "random", "--config", "least-allocated", "--workload", "microservices")
    found = report("compare", *asked, "--from-empty", "--seeds", 1, "--processes", 1)
    assert found["workload"]["jobs"] == 100
    # Neither minds costs, so that the usual ones count; nor limits.
    assert figures(found, "random")["talkCost"]["mean"] > 0
    assert 0 < figures(found, "random")["overLimit"]["mean"] < 1


def test_the_table_of_applications(golden: Golden) -> None:
    configs = ("--config", "default", "--config", "slurm-tree", "--config", "kueue-best-fit")
    printed = closeby("compare", *configs, *APPLICATIONS, "--seeds", 1).stdout
    golden("compare", printed)
    assert "Network cost between pods" in printed
    assert "Pairs of dependent pods" in printed
    assert "GPU" not in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--config", "closeby", "--workload", "seren"), "at least two configurations: give --config again"),
        (
            ("--config", "closeby", "--config", "closeby", "--workload", "seren"),
            "--config closeby is given twice",
        ),
        (("--config", "closeby", "--config", "random"), "--trace reads them: give one of them"),
        (
            ("--config", "closeby", "--config", "random", "--workload", "seren", "--load", "nan"),
            "'nan' is not a number",
        ),
        (
            ("--config", "closeby", "--config", "random", "--trace", "-", "-f", "-"),
            "can't both read standard input",
        ),
        (
            ("--config", "closeby", "--config", "random", "--workload", "seren", "--trace", "x.csv"),
            "--trace reads them: give one of them",
        ),
        (
            ("--config", "closeby", "--config", "random", "--trace", "x.csv", "--seeds", "3"),
            "--seeds belongs to --workload: a trace says what its jobs are",
        ),
        (
            ("--config", "closeby", "--config", "random", "--trace", "none.csv"),
            "none.csv: can't be read: No such file or directory; check the path",
        ),
        (
            ("--config", "closeby", "--config", "rendom", "--workload", "seren"),
            "rendom: is neither a file nor a known configuration; did you mean random?",
        ),
        (
            ("--config", "closeby", "--config", "random", "--workload", "saren"),
            "'saren' is not a known workload; known workloads: seren, kalos,",
        ),
        (
            ("--config", "closeby", "--config", "random", "--workload", "seren", "--cluster", "moon"),
            "'moon' is not a known cluster; known clusters: lingjun",
        ),
        (
            ("--config", "closeby", "--config", "random", "--workload", "seren", "--resource", "a.com/gold"),
            "no node that pods tolerate offers a.com/gold; name with --resource what jobs are to ask for",
        ),
        (
            ("--config", "closeby", "--config", "random", "--workload", "seren", "--required", "shelf"),
            "topology fabric has no level shelf",
        ),
        (("--config", "closeby", "--config", "random", "--workload", "seren", "--load", "0"), "--load"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str) -> None:
    result = closeby("compare", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupt_ends_all_processes_quietly() -> None:
    """As Ctrl-C at a terminal, which all processes of the command hear."""
    command = (sys.executable, "-m", "closeby", "compare", "--config", "closeby", "--config", "random")
    with Program(
        (*command, "--workload", "seren", "--jobs", "100000", "--seeds", "4", "--processes", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        until_beside(running, 2)
        os.killpg(running.pid, signal.SIGINT)
        printed, said = running.communicate(timeout=100)
    assert (running.returncode, printed, said) == (130, "", "")


def test_applications_are_drawn_but_for_what_only_gangs_have(tmp_path: Path, golden: Golden) -> None:
    configs = ("--config", "closeby", "--config", "least-allocated", "--processes", 1)
    load = ("--workload", "microservices", "--jobs", 3, "--seeds", 1, "--from-empty")
    result = closeby("compare", *configs, *load, "--plot", tmp_path)
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "delay.png",
        "delay.svg",
        "talk.png",
        "talk.svg",
    ]
    golden("command-errors", result.stderr)


def test_what_can_not_be_read_is_left_out_only_if_that_is_said(trace: Path) -> None:
    asked = ("compare", "-f", "-", "--trace", trace, "--config", "closeby", "--config", "random")
    stdin = CLUSTER + "\n---\n{broken: [\n"
    refused = closeby(*asked, stdin=stdin)
    assert refused.exit_code == 2
    assert "skip it with --keep-going" in refused.stderr
    assert report(*asked, "--keep-going", "--processes", 1, stdin=stdin)["notices"][0].startswith("skipped: ")


def test_a_configuration_is_given_twice_however_it_is_called(tmp_path: Path, trace: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("schedulerName: mine\n")
    again = tmp_path / ".." / tmp_path.name / "mine.yaml"
    result = closeby("compare", "--trace", trace, "--config", config, "--config", again)
    assert result.exit_code == 2
    assert f"--config {again} is given twice" in result.stderr


def test_the_trace_is_not_overwritten_by_the_report(trace: Path, golden: Golden) -> None:
    before = trace.read_bytes()
    asked = ("--trace", trace, "--config", "closeby", "--config", "random", "--html", trace)
    result = closeby("compare", *asked)
    assert (result.exit_code, trace.read_bytes()) == (2, before)
    golden("command-errors", result.stderr)
