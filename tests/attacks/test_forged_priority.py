"""A tenant wants its pods to be decided before those of others, with a priority that nobody gave them.

The API server's admission checks the priority of each pod (which classes exist, which a ResourceQuota
allows), and of nothing else. So a tenant who may only write in its namespace tries a PodGroup that names a
high class, one member of high priority beside many of low priority, and members that come and go. What must
hold: no pod is decided before items whose priority is higher than what this very pod was admitted with.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PriorityClass
from closeby.objects.reasons import Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import AppGroupChanged, NodeUpserted, PodDeleted, PriorityClassChanged
from closeby.scheduling.intake.members import sufficient
from tests.applications.calls import app
from tests.attacks.dialects import CLASSED, DIALECTS, dialect_of
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World as LiveWorld
from tests.kube.live_world import condition, host, until_said, world
from tests.kube.priority_classes import priority_class
from tests.reading.manifest_text import read_good
from tests.worlds import GPU, World, fabric, gang, node, pods, spec, subgroup

CRITICAL = PriorityClass(name="system-node-critical", value=2_000_001_000)
#: Nothing is trusted, as in a cluster without ``trustGroupPriority``.
NOBODY = Configuration(trust_group_priority=())


def cluster(configuration: Configuration = NOBODY) -> World:
    """A full cluster: all wait, so that the order in which they get their nodes later is seen."""
    engine = Engine(lambda handle: profile_for(configuration, handle))
    full = World(engine, [node("a1", allocatable={GPU: 0})], fabric("kubernetes.io/hostname"))
    return full.tell(PriorityClassChanged(CRITICAL))


def of(priority: int, group: str | None, count: int, prefix: str | None = None) -> list[Pod]:
    """Pods that were admitted with this priority."""
    return pods(group, count, replace(spec(gpu=1), priority=priority), prefix=prefix)


def order(full: World) -> list[str]:
    """There is room for all: who goes first?"""
    full.tell(NodeUpserted(node("a2", allocatable={GPU: 100}))).run()
    return list(full.where)


def begun(count: int, minimum: int) -> tuple[PodGroup, list[Pod]]:
    """A start of two members that was cut off; its owner raised the minimum and added pods since."""
    members = of(0, "forged", count)
    plan = {members[0].uid: "a1", members[1].uid: "a2"}
    members[0] = replace(members[0], node_name="a1", phase="Running")
    return replace(gang("forged", minimum), plan=plan), members


class TestAStartThatWasBegun:
    """While it is bound, its owner asks for a level that is not there, adds pods, and takes that back."""

    def test_lifts_no_pod_that_it_was_not_written_down_for(self) -> None:
        forged, members = begun(count=15, minimum=15)
        full = cluster().run(forged, gang("older", 15), members=[*members, *of(1000, "older", 15)])
        assert order(full)[:15] == [f"older-{number}" for number in range(15)]

    def test_lifts_none_of_a_gang_with_subgroups(self) -> None:
        forged, members = begun(count=15, minimum=2)
        forged = replace(forged, subgroups=(subgroup("all", 2),))
        members = [replace(one, subgroup="all") for one in members]
        full = cluster().run(forged, gang("older", 2), members=[*members, *of(1000, "older", 2)])
        assert order(full)[:2] == ["older-0", "older-1"]

    def test_is_completed_before_others_by_its_own_members(self) -> None:
        forged, members = begun(count=15, minimum=2)
        full = cluster().run(forged, gang("older", 2), members=[*members, *of(1000, "older", 2)])
        assert order(full)[:3] == ["forged-1", "older-0", "older-1"]


@pytest.mark.parametrize("dialect", CLASSED)
class TestAClassThatOnlyThePodGroupNames:
    def group(self, dialect: str) -> PodGroup:
        [found] = read_good(dialect_of(dialect, "forged", 2, CRITICAL.name)).groups
        return found

    def test_lifts_no_pod_above_what_it_was_admitted_with(self, dialect: str) -> None:
        full = cluster().run(
            self.group(dialect), gang("older", 2), members=[*of(0, "forged", 2), *of(1000, "older", 2)]
        )
        assert order(full) == ["older-0", "older-1", "forged-0", "forged-1"]

    def test_a_forged_priority_is_reported_with_the_field_to_set(self, dialect: str) -> None:
        members = [replace(pod, owner="Job/train") for pod in of(0, "forged", 2)]
        full = cluster().run(self.group(dialect), members=members)
        [said] = [one for one in full.outcome("forged").conditions if one.reason is Reason.PRIORITY_LIMITED]
        assert said.field == "spec.priorityClassName"
        assert said.remedy.endswith(".spec.priorityClassName of Job/train")
        assert not said.blocking

    def test_a_priority_counts_where_the_operator_trusts_the_namespace(self, dialect: str) -> None:
        full = cluster(Configuration(trust_group_priority=("default",)))
        full.run(self.group(dialect), gang("older", 2), members=[*of(0, "forged", 2), *of(1000, "older", 2)])
        assert order(full) == ["forged-0", "forged-1", "older-0", "older-1"]
        assert full.outcome("forged").conditions == ()

    def test_a_forged_priority_counts_in_no_other_namespace(self, dialect: str) -> None:
        full = cluster(Configuration(trust_group_priority=("another",)))
        full.run(self.group(dialect), gang("older", 2), members=[*of(0, "forged", 2), *of(1000, "older", 2)])
        assert order(full)[0] == "older-0"

    def test_a_forged_priority_counts_in_files(self, dialect: str) -> None:
        """Whoever simulates wrote all the files."""
        full = cluster(Configuration())
        full.run(self.group(dialect), gang("older", 2), members=[*of(0, "forged", 2), *of(1000, "older", 2)])
        assert order(full)[0] == "forged-0"

    def test_may_ask_for_less(self, dialect: str) -> None:
        low = PriorityClass(name=CRITICAL.name, value=-5)
        full = cluster().tell(PriorityClassChanged(low))
        full.run(self.group(dialect), gang("other", 2), members=[*of(9, "forged", 2), *of(0, "other", 2)])
        assert order(full) == ["other-0", "other-1", "forged-0", "forged-1"]
        assert full.outcome("forged").conditions == ()


def test_a_number_that_only_the_podgroup_states_lifts_no_gang_either() -> None:
    """Upstream's ``spec.priority`` of a PodGroup."""
    forged = replace(gang("forged", 1), priority=2_000_000_000)
    full = cluster().run(forged, gang("older", 1), members=[*of(0, "forged", 1), *of(1, "older", 1)])
    assert order(full) == ["older-0", "forged-0"]
    [said] = full.outcome("forged").conditions
    assert (said.reason, said.field) == (Reason.PRIORITY_LIMITED, "spec.priority")


class TestOneMemberOfHighPriority:
    """A quota may allow a tenant one pod of a high class: that is no reason to let its whole gang pass."""

    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_does_not_lift_a_gang_that_needs_more_of_them(self, dialect: str) -> None:
        [train] = read_good(dialect_of(dialect, "train", 8)).groups
        members = [*of(5000, "train", 1, "high"), *of(0, "train", 7)]
        full = cluster().run(train, gang("other", 1), members=[*members, *of(1, "other", 1)])
        assert order(full)[0] == "other-0"

    def test_does_not_lift_the_other_pods_of_an_application(self) -> None:
        labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: "P1"}
        members = [replace(pod, labels=labels) for pod in [*of(9, None, 1, "high"), *of(0, None, 2, "low")]]
        full = cluster().tell(AppGroupChanged(app("P1 > P2\nP2", name="shop")))
        full.run(gang("other", 1), members=[*members, *of(1, "other", 1)])
        assert order(full) == ["high-0", "other-0", "low-0", "low-1"]

    def test_does_not_lift_those_beyond_the_minimum(self) -> None:
        """``minMember: 1`` is the default: then one member suffices, but it alone goes first."""
        members = [*of(5000, "train", 1, "high"), *of(0, "train", 3)]
        full = cluster().run(gang(min_member=1), gang("other", 1), members=[*members, *of(1, "other", 1)])
        assert order(full) == ["high-0", "other-0", "train-0", "train-1", "train-2"]

    def test_does_not_lift_another_subgroup(self) -> None:
        parts = [subgroup("ps", 1), subgroup("worker", 2)]
        members = [
            replace(pod, subgroup=pod.name.partition("-")[0])
            for pod in [*of(5000, "train", 4, "worker"), *of(0, "train", 1, "ps")]
        ]
        group = gang(min_member=3, subgroups=parts)
        full = cluster().run(group, gang("other", 1), members=[*members, *of(1, "other", 1)])
        assert order(full)[0] == "other-0"

    def test_that_comes_first_keeps_no_place_for_the_others(self) -> None:
        full = cluster().run(gang(min_member=2), members=of(5000, "train", 1, "high"))
        full.run(gang("other", 1), members=[*of(0, "train", 1), *of(1, "other", 1)])
        assert order(full)[0] == "other-0"

    def test_that_goes_again_leaves_its_place_too(self) -> None:
        full = cluster().run(gang(min_member=2), members=of(5000, "train", 2, "high"))
        full.run(gang("other", 1), members=[*of(0, "train", 2), *of(1, "other", 1)])
        full.tell(*(PodDeleted(f"default/high-{number}") for number in range(2))).run()
        assert order(full)[0] == "other-0"

    def test_that_already_runs_lifts_no_late_one(self) -> None:
        running = [replace(pod, node_name="a2") for pod in of(5000, "train", 2, "high")]
        full = cluster().tell(NodeUpserted(node("a2", allocatable={GPU: 2})))
        full.run(gang(min_member=2), gang("other", 1), members=running)
        full.run(members=[*of(0, "train", 1), *of(1, "other", 1)])
        full.tell(NodeUpserted(node("a3", allocatable={GPU: 9}))).run()
        assert list(full.where) == ["other-0", "train-0"]

    def test_a_member_kept_out_of_the_queue_lifts_no_other(self) -> None:
        gated = [
            replace(pod, spec=replace(pod.spec, scheduling_gates=("wait",)))
            for pod in of(5000, "train", 1, "high")
        ]
        members = [*gated, *of(0, "train", 1)]
        full = cluster().run(gang(min_member=1), gang("other", 1), members=[*members, *of(1, "other", 1)])
        assert order(full) == ["other-0", "train-0"]


@pytest.mark.parametrize(
    ("minimum", "priorities", "expected"),
    [
        (1, [3, 2, 1], 3),
        (2, [3, 2, 1], 2),
        (3, [3, 2, 1], 1),
        (0, [3, 2, 1], 3),
        (4, [3, 2, 1], 1),
        (2, [7], 7),
    ],
)
def test_a_gang_has_the_priority_of_the_members_it_needs(
    minimum: int, priorities: list[int], expected: int
) -> None:
    """Of one that is not complete the least that is there counts; the others may bring less, never more."""
    assert sufficient(gang(min_member=minimum), [(None, one) for one in priorities]) == expected


def test_a_tree_has_the_priority_of_the_subgroups_it_needs() -> None:
    parts = [subgroup("a", 2), subgroup("b", 1), subgroup("c", 1)]
    tree = gang(min_member=1, subgroups=parts)
    members = [("a", 9), ("a", 8), ("a", 1), ("b", 5), ("c", 2)]
    assert sufficient(tree, members) == 2
    assert sufficient(replace(tree, min_subgroups=2), members) == 5
    assert sufficient(replace(tree, min_subgroups=1), members) == 8
    assert sufficient(tree, [("a", 9), ("a", 8), ("b", 5)]) == 5


@asynccontextmanager
async def full_room(control_plane: ControlPlane, namespace: str) -> AsyncIterator[LiveWorld]:
    """Room for one gang of two. One of priority 1000 has waited for it, then came one whose PodGroup names
    system-node-critical, and whose pods have priority 0.
    """
    async with world(control_plane, namespace, host("h0", gpus=2)) as it, priority_class(it, 1000) as name:
        await it.declare_group("older", {"minMember": 2})
        older = [it.pod(f"older-{i}", gang="older", priorityClassName=name) for i in range(2)]
        await it.create(*older)
        await it.declare_group("forged", {"minMember": 2, "priorityClassName": CRITICAL.name})
        await it.create(*(it.pod(f"forged-{i}", gang="forged") for i in range(2)))
        yield it


def test_in_a_cluster_an_older_gang_of_priority_1000_goes_before(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with full_room(control_plane, namespace) as it, it.scheduling():
            assert set(await it.bound(2)) == {"older-0", "older-1"}
            said = await until_said(it, "forged", "PriorityLimited", "PriorityLimited")
            assert said["status"] == "True"
            assert "spec.priorityClassName of its pods" in said["message"]
            # Nothing is wrong with what it asks for, and the other one asks for nothing that it may not have.
            assert await condition(it, "forged", "Valid") == {}
            assert await condition(it, "older", "PriorityLimited") == {}

    asyncio.run(run())


def test_in_a_cluster_a_trusted_namespace_may_name_the_class(
    control_plane: ControlPlane, namespace: str
) -> None:
    trusting = Configuration(trust_group_priority=(namespace,))

    async def run() -> None:
        async with full_room(control_plane, namespace) as it, it.scheduling(trusting):
            assert set(await it.bound(2)) == {"forged-0", "forged-1"}
            await until_said(it, "forged", "Placed")
            assert await condition(it, "forged", "PriorityLimited") == {}

    asyncio.run(run())
