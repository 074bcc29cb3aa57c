"""Starts that an older version began and wrote down: this version finishes them along the plan it finds.

The statuses are those of the version in which binding and planning had several owners, as a server kept them.
"""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import (
    Bound,
    Decided,
    MemberGone,
    QueueBinding,
    QueuePlan,
    Restarted,
    Review,
)
from closeby.kube.gangs.starts import Starts
from closeby.kube.gangs.status import plan
from closeby.kube.state.feed import Feed
from closeby.kube.state.ownership import OwnGangs
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import NODES, PODS, Resource
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of
from tests.kube.test_feed import OURS, TOPOLOGIES, put, served

NAMESPACE, KEY, RACK = "ml", "ml/g", "tests.closeby.dev/rack"
MADE = "2026-11-23T00:25:05Z"
PLAN = """{"domain": ["z1", "r2"], "level": "rack", "made": "2026-11-23T00:25:05Z", "nodes": [
    {"name": "r2-0", "pods": [{"name": "g-1", "uid": "uid-1"}, {"name": "g-2", "uid": "uid-2"}]},
    {"name": "r2-1", "pods": [{"name": "g-3", "uid": "uid-3"}, {"name": "g-0", "uid": "uid-0"}]}],
    "topology": "fabric"}"""
#: Of closeby's own PodGroup, and of the mirror of another one.
STATUS = """{"conditions": [{"lastTransitionTime": "2026-11-23T00:25:05Z",
    "message": "2 of 4 members are bound, the others are on their way in z1/r2", "observedGeneration": 1,
    "reason": "Starting", "status": "False", "type": "Scheduled"}], "domain": "z1/r2",
    "lastDecision": {"time": "2026-11-23T00:25:05Z"}, "plan": %s,
    "ranks": ["uid-0", "uid-1", "uid-2", "uid-3"], "scheduled": 2}"""
OWN = """{"apiVersion": "closeby.dev/v1alpha1", "kind": "PodGroup", "metadata": {"generation": 1, "name": "g",
    "namespace": "ml", "resourceVersion": "294", "uid": "b79167c6-a4f0-49a8-ba45-cb5874a39c71"},
    "spec": {"minMember": 4, "topologyConstraint": {"requiredTopologyLevel": "rack", "topology": "fabric"}},
    "status": %s}"""
MIRROR = """{"apiVersion": "closeby.dev/v1alpha1", "kind": "PodGroup", "metadata": {"generation": 1,
    "labels": {"app.kubernetes.io/managed-by": "closeby-scheduler", "closeby.dev/mirror-of": "%s"},
    "name": "g", "namespace": "ml", "ownerReferences": [{"apiVersion": "%s", "kind": "PodGroup", "name": "g",
    "uid": "09d64c42-89a9-41a8-bafe-f2119ee0db60"}], "resourceVersion": "329",
    "uid": "f6b4d59c-b301-4226-8c3f-fc1dc2b4020f"}, "spec": {}, "status": %s}"""
VOLCANO = """{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"generation": 1,
    "name": "g", "namespace": "ml", "resourceVersion": "323",
    "uid": "09d64c42-89a9-41a8-bafe-f2119ee0db60"}, "spec": {"minMember": 4}}"""
UPSTREAM = """{"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1alpha2", "metadata": {"name": "g",
    "namespace": "ml", "uid": "09d64c42-89a9-41a8-bafe-f2119ee0db60", "resourceVersion": "373",
    "finalizers": ["scheduling.k8s.io/podgroup-protection"]}, "spec": {"podGroupTemplateRef": null,
    "schedulingPolicy": {"gang": {"minCount": 4}},
    "schedulingConstraints": {"topology": [{"key": "tests.closeby.dev/rack"}]}, "disruptionMode": "Pod"},
    "status": {"conditions": [{"type": "PodGroupScheduled", "status": "False",
    "lastTransitionTime": "2026-11-23T00:25:07Z", "reason": "Unschedulable",
    "message": "Starting: 0 of 4 members are bound, the others are on their way in z1/r2"}]}}"""

Object = dict[str, Any]


def raw(text: str, *parts: str) -> Object:
    found: Object = json.loads(text % parts if parts else text)
    return found


STARTS = {
    "own": [(OURS, raw(OWN, STATUS % PLAN))],
    "volcano": [
        (served("scheduling.volcano.sh", "PodGroup", "v1beta1"), raw(VOLCANO)),
        (OURS, raw(MIRROR, "scheduling.volcano.sh", "scheduling.volcano.sh/v1beta1", STATUS % PLAN)),
    ],
    "upstream": [
        (served("scheduling.k8s.io", "PodGroup", "v1alpha2"), raw(UPSTREAM)),
        (OURS, raw(MIRROR, "scheduling.k8s.io", "scheduling.k8s.io/v1alpha2", STATUS % PLAN)),
    ],
}
PROMISED = {"uid-0": "r2-1", "uid-1": "r2-0", "uid-2": "r2-0", "uid-3": "r2-1"}


def host(name: str, gpus: int) -> Object:
    labels = {RACK: name.partition("-")[0], "tests.closeby.dev/zone": "z1", "kubernetes.io/hostname": name}
    capacity = {"nvidia.com/gpu": str(gpus), "cpu": "64", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": capacity}}


def member(dialect: str, index: int, on: str | None) -> Object:
    limits = {"nvidia.com/gpu": "1"}
    metadata: Object = {"name": f"g-{index}", "namespace": NAMESPACE, "uid": f"uid-{index}"}
    spec: Object = {
        "schedulerName": "closeby",
        "containers": [{"name": "c", "resources": {"requests": limits, "limits": limits}}],
    }
    match dialect:
        case "own":
            metadata["labels"] = {"closeby.dev/pod-group": "g"}
        case "volcano":
            metadata["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        case _:
            spec["schedulingGroup"] = {"podGroupName": "g"}
    if on is not None:
        spec["nodeName"] = on
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


class Successor:
    """The process that leads next, with what the watches report to it: so many members are bound."""

    def __init__(self, dialect: str, bound: int) -> None:
        self.engine = Engine(lambda handle: profile_for(Configuration(), handle))
        self.objects = GangObjects()
        self.feed = Feed("closeby")
        self.feed.can_keep_plans(True)
        levels = [{"nodeLabel": "tests.closeby.dev/zone"}, {"nodeLabel": RACK}]
        levels.append({"nodeLabel": "kubernetes.io/hostname"})
        topology = {"metadata": {"name": "fabric"}, "spec": {"levels": levels}}
        self.take(
            put(TOPOLOGIES, topology),
            # Nodes that a new decision would rather take.
            *(
                put(NODES, host(name, gpus))
                for name, gpus in (("r1-0", 4), ("r2-0", 2), ("r2-1", 2), ("r2-2", 4))
            ),
            *(put(resource, one) for resource, one in STARTS[dialect]),
            *(put(PODS, member(dialect, i, PROMISED[f"uid-{i}"] if i < bound else None)) for i in range(4)),
        )
        self.starts = Starts(
            self.engine, self.objects, OwnGangs("closeby", self.engine.state, self.feed.foreign)
        )

    def take(self, *changes: tuple[Resource, Change]) -> None:
        self.objects.take(changes)
        self.engine.handle(*self.feed.take(changes).events)


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
@pytest.mark.parametrize("dialect", STARTS)
def test_a_start_that_an_older_version_began_is_finished_along_its_plan(dialect: str, bound: int) -> None:
    it = Successor(dialect, bound)
    assert it.starts.handle(Restarted("2027-01-01T00:00:00Z")) == [Review(KEY, waits=True)]
    assert it.starts.plan_made(KEY) == MADE
    bindings = tuple(bindings_of(it.engine.handle(Tick())))
    assert {one.pod.uid: one.node for one in bindings} == {
        uid: node for uid, node in PROMISED.items() if int(uid[-1]) >= bound
    }
    assert sorted(one.rank or 0 for one in bindings) == list(range(bound, 4))
    # The plan stands already.
    assert it.starts.handle(Decided(bindings, "2027-01-01T00:00:00Z")) == [
        QueueBinding(one) for one in bindings
    ]
    standing = it.starts.standing(KEY)
    assert standing is not None
    written = plan(standing, it.starts.plan_made(KEY))
    assert written is not None and written.made == MADE
    assert {pod.uid: each.name for each in written.nodes for pod in each.pods} == PROMISED
    for one in bindings:
        last = it.starts.handle(Bound(one))
    assert last == [Review(KEY)]
    standing = it.starts.standing(KEY)
    assert standing is not None and plan(standing, "") is None
    assert it.starts.plan_may_stand(KEY)  # So that it is removed.


@pytest.mark.parametrize("dialect", STARTS)
def test_a_start_of_which_all_is_bound_has_ended(dialect: str) -> None:
    it = Successor(dialect, 4)
    assert it.starts.handle(Restarted("2027-01-01T00:00:00Z")) == [Review(KEY, waits=True)]
    assert it.engine.handle(Tick()) == []
    standing = it.starts.standing(KEY)
    assert standing is not None and plan(standing, "") is None
    assert it.starts.plan_may_stand(KEY)


@pytest.mark.parametrize("dialect", STARTS)
def test_a_start_whose_promised_member_is_gone_is_planned_again(dialect: str) -> None:
    """It began when it was planned first."""
    it = Successor(dialect, 2)
    it.starts.handle(Restarted("2027-01-01T00:00:00Z"))
    gone = it.engine.state.pods["uid-3"]
    new = PodUpserted(replace(gone, uid="uid-9"))
    bindings = tuple(bindings_of(it.engine.handle(PodDeleted("uid-3"), new, Tick())))
    assert {one.pod.uid for one in bindings} == {"uid-2", "uid-9"}
    assert {one.pod.uid: one.node for one in bindings}["uid-2"] == "r2-0"
    actions = it.starts.handle(Decided(bindings, "2027-01-01T00:00:00Z"))
    assert actions == [QueuePlan(KEY, bindings)]
    assert it.starts.plan_made(KEY) == MADE


def test_a_gang_that_lost_members_starts_again_whenever_its_older_plan_was_made() -> None:
    it = Successor("own", 4)
    lost = it.engine.state.pods["uid-3"]
    it.starts.handle(Restarted("2027-01-01T00:00:00Z"))
    it.engine.handle(PodDeleted("uid-3"))
    it.starts.handle(MemberGone(KEY, "2027-01-01T00:00:01Z"))
    new = PodUpserted(replace(lost, uid="uid-9", node_name=None))
    bindings = tuple(bindings_of(it.engine.handle(new, Tick())))
    assert it.starts.handle(Decided(bindings, "2027-01-01T00:00:02Z")) == [QueuePlan(KEY, bindings)]
    assert it.starts.plan_made(KEY) == "2027-01-01T00:00:02Z"
    # Decided once more, it is the same start.
    it.starts.handle(Decided(bindings, "2027-01-01T00:00:03Z"))
    assert it.starts.plan_made(KEY) == "2027-01-01T00:00:02Z"
