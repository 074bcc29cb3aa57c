"""The wait that a requirement causes: against a second run of the same jobs without it."""

import numpy as np
import pytest

from closeby.lab.replay.clusters import made_up
from closeby.lab.replay.driver import Policy, ReplaySettings, replay, unconstrained_waits
from closeby.lab.replay.history import measure
from closeby.lab.replay.submitting import Wishes
from closeby.lab.workloads.jobs import Jobs
from closeby.plugins.configurations import NAMED

#: Eight leaves of eight hosts. Eight gangs of five hosts take a leaf each; the ninth fits in none of the
#: eight rests of three hosts, though there are 24 hosts left in all. The first ends after 100 seconds.
GANGS = 9
JOBS = Jobs(
    names=tuple(f"g{number}" for number in range(GANGS)),
    submitted=np.arange(GANGS, dtype=np.float64),
    durations=np.asarray([100.0] + [500.0] * (GANGS - 1)),
    pods=np.full(GANGS, 5),
    gpus=np.full(GANGS, 8),
    priorities=np.zeros(GANGS, dtype=np.int64),
    kinds=("",) * GANGS,
)


def topology_waits(policy: str, required: str | None = None) -> float | None:
    settings = ReplaySettings(
        policy=Policy(name=policy, configuration=NAMED[policy]), wishes=Wishes(required=required)
    )
    cluster = made_up("small")
    past = replay(JOBS, cluster, settings)
    return measure(past, unconstrained=unconstrained_waits(past, cluster, settings)).delays[0].topology


@pytest.mark.parametrize(("policy", "required"), [("closeby", "leaf"), ("single-level-required", None)])
def test_the_ninth_gang_waits_for_a_leaf_in_either_case(policy: str, required: str | None) -> None:
    """From second 8 to 100, and not at all where it may use several leaves: 92 s of nine jobs."""
    assert topology_waits(policy, required) == pytest.approx(92 / GANGS)


@pytest.mark.parametrize("policy", ["closeby", "slurm-tree", "kueue-best-fit", "random", "first-task-labels"])
def test_there_is_none_where_nothing_is_required(policy: str) -> None:
    assert topology_waits(policy) is None
