"""All policies get the same jobs, and the same comes out in however many processes."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from closeby.lab.comparing.running import Experiment, run_all
from closeby.lab.replay.clusters import made_up
from closeby.lab.replay.driver import Policy
from closeby.lab.workloads.generating import Load, WorkloadOptions
from closeby.lab.workloads.jobs import Jobs
from closeby.plugins.configurations import NAMED
from tests.cli.programs import until_beside

POLICIES = tuple(Policy(name=name, configuration=NAMED[name]) for name in ("closeby", "random"))


def experiment(seeds: tuple[int, ...], standing: bool = True) -> Experiment:
    """60 jobs of Seren on 64 hosts."""
    load = Load(
        workload="seren",
        jobs=60,
        load=0.85,
        capacity=512,
        options=WorkloadOptions(max_gpus=256, standing=standing),
    )
    return Experiment(policies=POLICIES, seeds=seeds, source=load, cluster=made_up("small"))


def test_the_same_comes_out_in_one_process_and_in_two() -> None:
    told: list[int] = []
    one = run_all(experiment((1, 2)), processes=1, progress=told.append)
    two = run_all(experiment((1, 2)), processes=2)
    assert one == two
    assert told == [1, 2, 3, 4]
    assert [(result.policy, result.seed) for result in one] == [
        ("closeby", 1),
        ("random", 1),
        ("closeby", 2),
        ("random", 2),
    ]


def test_seeds_make_other_jobs_and_policies_get_the_same() -> None:
    made = experiment((1, 2))
    first, again, second = made.jobs_of(1), made.jobs_of(1), made.jobs_of(2)
    assert (first.submitted == again.submitted).all() and (first.durations == again.durations).all()
    assert len(first) != len(second) or (first.submitted != second.submitted).any()
    assert len(first) > 60, "with those that already run"
    assert len(experiment((1,), standing=False).jobs_of(1)) == 60


def test_a_trace_is_run_once() -> None:
    jobs = Jobs(
        names=("a", "b"),
        submitted=np.array([0.0, 10.0]),
        durations=np.array([100.0, 50.0]),
        pods=np.array([2, 1]),
        gpus=np.array([8, 8]),
        priorities=np.array([0, 0]),
        kinds=("", ""),
    )
    found = run_all(
        Experiment(policies=POLICIES, seeds=(None,), source=jobs, cluster=made_up("small")), processes=1
    )
    assert [(result.policy, result.seed, result.jobs, result.unstarted) for result in found] == [
        ("closeby", None, 2, 0),
        ("random", None, 2, 0),
    ]
    figures = [{figure.name: value for figure, value in result.figures} for result in found]
    assert [one["makespan"] for one in figures] == [100.0, 100.0]
    assert [one["excessSpan.leaf"] for one in figures] == [1.0, 2.0]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_do_not_outlive_the_one_that_started_them(number: signal.Signals) -> None:
    asked = ("--workload", "seren", "--jobs", "60000", "--seeds", "2", "--processes", "2")
    run = [sys.executable, "-m", "closeby", "compare", "--config", "closeby", "--config", "random", *asked]
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as comparing:
        until_beside(comparing, 2)
        comparing.send_signal(number)
        # The workers hold its other end, so that this ends with the last of them.
        comparing.communicate(timeout=100)
    assert comparing.returncode == (128 + number if number == signal.SIGTERM else -number)
