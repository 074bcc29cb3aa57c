"""Whom the baselines of preemption evict, and where closeby does otherwise."""

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.lab.replay.clusters import made_up
from closeby.lab.replay.driver import Policy, ReplaySettings, replay
from closeby.lab.replay.submitting import Wishes
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.lab.workloads.priorities import mix_named, with_priorities
from closeby.plugins.configurations import DEFAULT, NAMED
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodUpserted
from closeby.scheduling.outcomes import Preemption
from tests.lab.replay.small import holds_together
from tests.preempting.site import NOW, Site, names
from tests.worlds import gang

BY_NODE, NEWEST, NONE = "preempt-by-node", "preempt-newest", "no-preemption"
POLICIES = (DEFAULT, NONE, BY_NODE, NEWEST)

FOUR_HOSTS = """
zone-a rack-1 : a1=1 a2=1
zone-a rack-2 : a3=1 a4=1
"""


def site(name: str, drawing: str = FOUR_HOSTS) -> Site:
    return Site(drawing, configuration=NAMED[name])


def victims(plans: list[Preemption]) -> list[str]:
    assert len(plans) <= 1
    return [victim for plan in plans for victim in names(plan)]


@pytest.mark.parametrize(
    ("policy", "gone"), [(DEFAULT, ["two-0", "two-1"]), (BY_NODE, ["one-1", "two-1"]), (NONE, [])]
)
def test_by_node_breaks_two_gangs_where_one_would_do(policy: str, gone: list[str]) -> None:
    """One member of each gang was made again lately; the gang two has run for less in all."""
    here = site(policy)
    for gang_name, nodes, starts in (
        ("one", ["a1", "a2"], (0, 9_000)),
        ("two", ["a3", "a4"], (6_000, 9_500)),
    ):
        members = here.running(gang_name, nodes)
        here.tell(
            *(PodUpserted(replace(pod, started=float(at))) for pod, at in zip(members, starts, strict=True))
        )
    here.waiting("train", 2, group=gang("train", 2))
    assert victims(here.tick(NOW)) == gone


def test_by_node_uses_free_nodes_first_and_spares_what_may_stay() -> None:
    """a1 is free; on a2 the small pod that is more important stays."""
    here = site(BY_NODE, "zone-a rack-1 : a1=2 a2=4")
    here.alone("old", "a2", priority=1, gpu=2, started=10.0), here.alone("new", "a2", gpu=2, started=20.0)
    here.waiting("train", 2, gpu=2, group=gang("train", 2))
    assert victims(here.tick()) == ["new"]


def test_by_node_evicts_nothing_unless_all_pods_find_a_node() -> None:
    here = site(BY_NODE, "zone-a rack-1 : a1=1 a2=1")
    here.alone("low", "a1"), here.alone("equal", "a2", priority=100)
    here.waiting("train", 2, group=gang("train", 2))
    assert here.tick() == []


def test_by_node_keeps_a_required_level() -> None:
    """The youngest pods are in two racks."""
    here = site(BY_NODE)
    for name, on, start in (("a", "a1", 1), ("b", "a2", 9), ("c", "a3", 2), ("d", "a4", 8)):
        here.alone(name, on, started=float(start))
    here.waiting("train", 2)
    assert victims(here.tick()) == ["a", "b"]


@pytest.mark.parametrize(("policy", "gone"), [(DEFAULT, "saved"), (NEWEST, "fresh")])
def test_newest_minds_no_checkpoint(policy: str, gone: str) -> None:
    """saved is older and has all its work on disk."""
    here = site(policy)
    here.running("saved", ["a1", "a2"], started=0.0, checkpointed=NOW)
    here.running("fresh", ["a3", "a4"], started=5_000.0)
    here.waiting("train", 2)
    assert victims(here.tick()) == [f"{gone}-0", f"{gone}-1"]


def test_newest_lets_come_back_what_is_not_needed() -> None:
    """The youngest is in a rack that is not free without the oldest."""
    here = site(NEWEST)
    here.alone("youngest", "a1", started=9_000.0), here.alone("oldest", "a2", started=0.0)
    here.running("middle", ["a3", "a4"], started=5_000.0)
    here.waiting("train", 2)
    assert victims(here.tick()) == ["middle-0", "middle-1"]


@pytest.mark.parametrize("policy", [BY_NODE, NEWEST])
def test_a_plain_pod_preempts_too(policy: str) -> None:
    here = site(policy)
    for name, on, start in (("a", "a1", 1), ("b", "a2", 9), ("c", "a3", 2), ("d", "a4", 8)):
        here.alone(name, on, started=float(start))
    here.alone("new", priority=100)
    plans = here.tick()
    assert victims(plans) == ["b"]
    assert here.evict(*plans) == []
    assert here.where["new"] == "a2"


@pytest.mark.parametrize("required", [None, "leaf"])
@pytest.mark.parametrize("policy", POLICIES)
def test_promises_over_time(policy: str, required: str | None) -> None:
    """Victims have lower priority, capacity is kept and every job ends, whoever chooses; seed 1."""
    options = WorkloadOptions(standing=True, max_gpus=64)
    workload = generate("seren", jobs=400, load=1.1, capacity=512, seed=1, options=options)
    classes = with_priorities(workload, mix_named("high=1000:10%,low=0"), 1)
    chosen = ReplaySettings(
        policy=Policy(name=policy, configuration=NAMED[policy]), wishes=Wishes(required=required), seed=1
    )
    history = replay(classes, made_up("small"), chosen, after_each=Engine.validate_state)
    holds_together(history)
    assert not np.isnan(history.ended).any()
    assert bool(len(history.cut)) is (policy != NONE)
