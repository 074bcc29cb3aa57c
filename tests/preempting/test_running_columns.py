"""Columns of possible victims, kept as pods come and go, equal those that are made from scratch."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass, ProtectionRequest
from closeby.objects.selectors import selector_of
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    BudgetChanged,
    BudgetDeleted,
    GroupChanged,
    GroupDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    PriorityClassChanged,
    Tick,
)
from closeby.scheduling.fork import Change
from closeby.scheduling.preemption.columns import RunningColumns
from closeby.scheduling.preemption.rule import Preemptible, PreemptionRule
from closeby.scheduling.preemption.running import RunningPods
from tests.preempting.site import SEMI_PREEMPTIBLE
from tests.worlds import GPU, gang, node, pods, spec, subgroup

NODES = [f"n{index}" for index in range(6)]
RULE = PreemptionRule(min_runtime="100s", protected_namespaces=("default",))
WHOSE = Preemptible(scheduler_name="closeby", excluded_namespaces=("kept",))
NOW = 1_000.0
SEMI = {"kai.scheduler/preemptibility": "semi-preemptible"}
#: Specs are shared between pods, as decoding shares them.
SPECS = [
    replace(spec(gpu=gpu, cpu=cpu), priority=priority, priority_class_name=named, scheduler_name=scheduler)
    for gpu, cpu, priority, named, scheduler in (
        (1, 100, 0, "", "closeby"),
        (2, 100, None, "batch", "closeby"),
        (0, 500, None, "", "closeby"),
        (1, 0, 7, "", "other"),
    )
]


def plain(running: RunningPods) -> dict[str, Any]:
    """All that is said of running pods, by uid, whatever the order of its pods and holders."""
    uids = [pod.uid for pod in running.pods]
    rows = zip(
        running.slots.tolist(),
        running.priorities.tolist(),
        running.accelerators.tolist(),
        running.lost.tolist(),
        running.started.tolist(),
        running.evictable.tolist(),
        running.young.tolist(),
        running.terminating.tolist(),
        running.budget_of.tolist(),
        running.amounts(0).tolist(),
        [running.holders[at].key for at in running.holder_of.tolist()],
        strict=True,
    )
    holders = {}
    for number in set(running.holder_of.tolist()):
        holder = running.holders[number]
        holders[holder.key] = (
            holder.gang,
            holder.owner,
            sorted(uids[at] for at in holder.members),
            sorted(uids[at] for at in holder.pods),
            holder.surplus,
            dict(holder.surplus_of),
            holder.singly,
            holder.minimum_kept,
            bool(running.divisible[number]),
            bool(running.never_whole[number]),
            running.limits.get(number),
            float(running.holder_lost[number]),
            int(running.holder_accelerators[number]),
            int(running.holder_priority[number]),
            float(running.holder_started[number]),
        )
    return {
        "pods": dict(zip(uids, rows, strict=True)),
        "index": {uid: uids[at] == uid for uid, at in running.index_of.items()},
        "holders": holders,
        "gangs": {key: running.holders[at].key for key, at in running.gangs.items()},
        "owners": {
            owner: sorted(running.holders[at].key for at in numbers)
            for owner, numbers in running.owners.items()
        },
        "limits": len(running.limits),
    }


class History:
    """An engine to which random things happen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.engine = Engine(lambda handle: profile_for(Configuration(), handle), backoff=False)
        self.nodes = {name: node(name, {}, {GPU: 8, "cpu": 64_000}) for name in NODES}
        self.engine.handle(*map(NodeUpserted, self.nodes.values()))
        self.pods: dict[str, Pod] = {}
        self.number = 0

    def happen(self) -> None:
        steps = (
            self.comes,
            self.comes,
            self.comes,
            self.goes,
            self.changes,
            self.waits,
            self.gang,
            self.other,
        )
        self.random.choice(steps)()

    def comes(self) -> None:
        draw, self.number = self.random, self.number + 1
        group = draw.choice((None, None, "g0", "g1", "g2"))
        name = f"p{self.number}"
        fields: dict[str, Any] = {
            "created": draw.choice((None, 0.0, 950.0)),
            "started": draw.choice((None, 10.1, 960.0)),
            "checkpointed": draw.choice((None, None, 970.3)),
            "labels": draw.choice(({}, {"app": "covered"}, {"tier": "x", "app": "covered"}, SEMI)),
            "annotations": draw.choice(({}, {}, {"closeby.dev/preemptible": "false"})),
            "owner": draw.choice(("", "ReplicaSet/a", "DaemonSet/b")),
        }
        [pod] = pods(group, 1, draw.choice(SPECS), prefix=name, on=draw.choice(NODES), **fields)
        pod = replace(pod, namespace=draw.choice(("default", "default", "kept")))
        if group is not None:
            pod = replace(pod, namespace="default", subgroup=draw.choice((None, "left", "right")))
        self.tell(pod)

    def tell(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.engine.handle(PodUpserted(pod))

    def any_pod(self) -> Pod | None:
        return self.random.choice(list(self.pods.values())) if self.pods else None

    def goes(self) -> None:
        pod = self.any_pod()
        if pod is not None:
            del self.pods[pod.uid]
            self.engine.handle(PodDeleted(pod.uid))

    def changes(self) -> None:
        pod = self.any_pod()
        if pod is None:
            return
        self.tell(
            self.random.choice(
                (
                    replace(pod, terminating=True),
                    replace(pod, labels={"app": "covered"}),
                    replace(pod, annotations={"closeby.dev/preemptible": "false"}),
                    replace(pod, checkpointed=990.0),
                    replace(pod, group=None, subgroup=None),
                    replace(pod, node_name=self.random.choice(NODES)),
                    replace(pod, phase="Pending"),
                )
            )
        )

    def waits(self) -> None:
        """Pods that the engine itself places, and a fork in which something is gone and comes back."""
        self.number += 1
        for new in pods(None, 2, SPECS[0], prefix=f"w{self.number}", created=5.0):
            self.tell(new)
        self.engine.handle(Tick(wall=NOW))
        gone = tuple(pod for _ in range(2) if (pod := self.any_pod()) is not None)
        with self.engine.fork() as fork:
            fork.apply(Change(gone=gone))
            fork.decide()

    def gang(self) -> None:
        draw = self.random
        name = draw.choice(("g0", "g1", "g2"))
        if draw.random() < 0.2:
            self.engine.handle(GroupDeleted(f"default/{name}"))
            return
        parts = draw.choice(((), (subgroup("left", 1), subgroup("right", 0))))
        record = gang(name, draw.randint(1, 4), subgroups=parts)
        asks = draw.choice((None, None, ProtectionRequest("all"), SEMI_PREEMPTIBLE))
        record = replace(record, disruption=draw.choice(("", "", "all", "single")), protected_by=asks)
        self.engine.handle(GroupChanged(record))

    def other(self) -> None:
        draw, engine = self.random, self.engine
        name = draw.choice(NODES)
        selector = selector_of({draw.choice(("app", "tier")): draw.choice(("covered", "x"))})
        budget = PodDisruptionBudget(
            namespace="default",
            name=draw.choice(("a", "b")),
            selector=selector,
            max_unavailable=1,
            allowed=draw.choice((None, 1)),
            unhealthy_may_go=draw.random() < 0.3,
        )
        match draw.randrange(6):
            case 0:
                engine.handle(BudgetChanged(budget))
            case 1:
                engine.handle(BudgetDeleted(budget.key))
            case 2:
                default = draw.random() < 0.5
                engine.handle(
                    PriorityClassChanged(
                        PriorityClass(name="batch", value=draw.randint(1, 9), global_default=default)
                    )
                )
            case 3:
                engine.handle(NodeDeleted(name))
            case 4:
                engine.handle(NodeUpserted(self.nodes[name]))
            case _:
                engine.handle(NodeUpserted(replace(self.nodes[name], allocatable={"cpu": 64_000})))


@pytest.mark.parametrize("seed", range(40))
def test_columns_that_are_kept_equal_those_made_from_scratch(seed: int) -> None:
    history = History(seed)
    engine = history.engine
    kept = RunningColumns(engine.cluster, engine.state, RULE, WHOSE)
    for step in range(120):
        history.happen()
        if history.random.random() < 0.3:
            continue
        now = NOW + step // 3
        found = plain(kept.running(now))
        fresh = RunningColumns(engine.cluster, engine.state, RULE, WHOSE).running(now)
        assert found == plain(fresh), f"seed {seed}, step {step}"
        lowest = min(fresh.priorities.tolist(), default=None)
        assert kept.lowest() == lowest


def test_nothing_is_made_again_while_nothing_changes() -> None:
    history = History(1)
    for _ in range(30):
        history.comes()
    engine = history.engine
    kept = RunningColumns(engine.cluster, engine.state, RULE, WHOSE)
    first = kept.running(NOW)
    assert kept.running(NOW) is first
    with engine.fork() as fork:
        fork.apply(Change(gone=tuple(history.pods.values())))
    assert kept.running(NOW) is first
    history.comes()
    assert kept.running(NOW) is not first


def test_a_pod_inherits_nothing_from_a_gang_that_is_gone() -> None:
    """The object of the gang stays, and says a priority and that no member may be evicted."""
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    kept = RunningColumns(engine.cluster, engine.state, PreemptionRule(), Preemptible())
    asks = replace(gang("train"), priority=9, protected_by=ProtectionRequest("an annotation"))
    engine.handle(NodeUpserted(node("n0", {}, {GPU: 2})), GroupChanged(asks))
    engine.handle(PodUpserted(pods("train", 1, SPECS[0], on="n0")[0]))
    assert kept.running(NOW).priorities.tolist() == [9]
    engine.handle(PodDeleted("default/train-0"))
    assert len(kept.running(NOW).pods) == 0
    engine.handle(PodUpserted(pods(None, 1, SPECS[0], on="n0")[0]))
    running = kept.running(NOW)
    assert (running.priorities.tolist(), running.evictable.tolist()) == ([0], [True])
