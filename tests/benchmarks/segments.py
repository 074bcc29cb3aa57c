"""NVL72 racks over time: the same jobs in segments of 16, 18 and 9 nodes, and in none, while nodes fail.

``python -m tests.benchmarks.segments`` prints the table of docs/benchmarks.md. Its figures do not depend on
the machine.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click
import numpy as np
from msgspec import Struct
from scipy.special import stdtrit

from closeby.lab.replay.clusters import made_up
from closeby.lab.replay.driver import Policy, ReplaySettings, replay
from closeby.lab.replay.failures import FailureRate
from closeby.lab.replay.history import measure
from closeby.lab.replay.submitting import Segments, Wishes
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.objects.words import time_text
from closeby.plugins.configurations import NAMED

RACKS, NODES, GPUS = 64, 18, 4
#: Pods (nodes) of a segment; 0: no segments.
SIZES = (16, 18, 9, 0)
#: Jobs of more nodes have several segments of 16.
LARGE = 16
DAY = 86_400.0


class Ran(Struct, frozen=True, kw_only=True):
    """One run."""

    failing: int
    size: int
    seed: int
    occupancy: float
    goodput: float
    #: What all jobs waited, mean; and each large one, in seconds.
    mean: float
    large: tuple[float, ...]
    jobs: int
    unstarted: int
    evictions: int


def run(jobs: int, task: tuple[int, int, int]) -> Ran:
    """One seed with so many nodes of each rack out of order, in segments of one size."""
    failing, size, seed = task
    history = replay(
        generate(
            "kalos",
            jobs=jobs,
            load=0.85,
            capacity=RACKS * (NODES - failing) * GPUS,
            seed=seed,
            options=WorkloadOptions(standing=True, gpus_of_a_pod=GPUS),
        ),
        made_up("nvl72"),
        ReplaySettings(
            policy=Policy(name="default", configuration=NAMED["default"]),
            seed=seed,
            wishes=Wishes(segments=(Segments(level="rack", size=size),) if size else ()),
            failures=FailureRate(level="rack", nodes=failing, repair=7 * DAY) if failing else None,
        ),
    )
    found = measure(history)
    return Ran(
        failing=failing,
        size=size,
        seed=seed,
        occupancy=found.utilisation or 0.0,
        goodput=found.goodput or 0.0,
        mean=found.delays[0].mean or 0.0,
        large=tuple(history.waited[history.jobs.pods > LARGE].tolist()),
        jobs=found.jobs,
        unstarted=int(np.isnan(history.started).sum()),
        evictions=len(history.cut),
    )


def row(runs: Sequence[Ran]) -> str:
    """One line of the table."""
    large = np.concatenate([one.large for one in runs])
    p50, p95 = np.percentile(large, (50, 95)).tolist()
    cells = (
        f"{runs[0].failing}",
        f"{runs[0].size or 'none'}",
        shares([one.occupancy for one in runs]),
        shares([one.goodput for one in runs]),
        *map(time_text, (float(np.mean([one.mean for one in runs])), float(large.mean()), p50, p95)),
        f"{sum(one.unstarted for one in runs):,} of {sum(one.jobs for one in runs):,}",
        f"{sum(one.evictions for one in runs):,}",
    )
    return f"| {' | '.join(cells)} |"


def shares(values: Sequence[float]) -> str:
    """Mean over the seeds in percent, and half of its 95 % confidence interval."""
    count = len(values)
    half = float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / count**0.5) if count > 1 else 0.0
    return f"{100 * float(np.mean(values)):.1f} ± {100 * half:.1f}"


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--failing", type=int, nargs="+", default=[2, 0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    tasks = [
        (failing, size, seed)
        for failing in asked.failing
        for size in asked.sizes
        for seed in range(1, asked.seeds + 1)
    ]
    click.echo("| out of order | segments | occupancy, % | goodput, % | mean delay | ", nl=False)
    click.echo("large: mean | p50 | p95 | never started | evictions |")
    click.echo("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    with ProcessPoolExecutor(asked.processes) as pool:
        waiting: list[Ran] = []
        for one in pool.map(partial(run, asked.jobs), tasks):
            waiting.append(one)
            if len(waiting) == asked.seeds:
                click.echo(row(waiting))
                waiting = []


if __name__ == "__main__":
    main()
