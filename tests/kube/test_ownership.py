"""Gangs of two schedulers in one cluster: which are ours, and whose plans are left alone."""

import asyncio

import pytest

from closeby.kube.client.connection import Connection
from closeby.kube.client.credentials import Fixed
from closeby.kube.client.transport import Transport
from closeby.kube.gangs.gang_statuses import GangStatuses
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import MemberGone, Restarted, Review
from closeby.kube.gangs.starts import Starts
from closeby.kube.gangs.status import scheduled
from closeby.kube.state.feed import Feed
from closeby.kube.state.ownership import OwnGangs
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import NODES, PODS, Resource
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import ReportingSettings
from closeby.kube.writing.writer import Writer, WriteResult
from closeby.objects.groups import PodGroup
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Tick
from tests.kube.test_feed import OURS, gone, node, put

KEY, NOW = "a/g", "2026-01-02T00:00:00Z"
Object = dict[str, object]
#: Scheduler, node and phase of a member.
Member = tuple[str, str, str]
WAITS, BOUND, DONE = ("closeby", "", "Pending"), ("closeby", "n1", "Running"), ("closeby", "n1", "Succeeded")
THEIRS_WAITS, THEIRS_BOUND = ("other", "", "Pending"), ("other", "n1", "Running")
THEIRS_DONE = ("other", "n1", "Succeeded")


def member(index: int, of: Member) -> Object:
    scheduler, on, phase = of
    spec: Object = {"schedulerName": scheduler, "containers": [{"name": "c"}]}
    if on:
        spec["nodeName"] = on
    labels = {"closeby.dev/pod-group": "g"}
    metadata = {"name": f"g-{index}", "namespace": "a", "uid": f"uid-{index}", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def group(planned: int = 0, placed: bool | None = None) -> Object:
    """Four members; a plan names the first ones."""
    status: Object = {}
    if planned:
        pods = [{"name": f"g-{i}", "uid": f"uid-{i}"} for i in range(planned)]
        status["plan"] = {"made": NOW, "nodes": [{"name": "n1", "pods": pods}]}
    if placed is not None:
        status["conditions"] = [{"type": "Scheduled", "status": str(placed), "reason": "Any"}]
    metadata = {"name": "g", "namespace": "a", "uid": "uid-g", "generation": 1}
    return {"metadata": metadata, "spec": {"minMember": 4}, "status": status}


class Process:
    """A scheduler named closeby, with what the watches reported; it writes nothing."""

    def __init__(self, *members: Member, planned: int = 0, placed: bool | None = None) -> None:
        self.engine = Engine(lambda handle: profile_for(Configuration(), handle))
        self.objects = GangObjects()
        self.feed = Feed("closeby")
        self.own = OwnGangs("closeby", self.engine.state, self.feed.foreign)
        self.starts = Starts(self.engine, self.objects, self.own)
        # Never entered: a request would fail.
        away = Transport(Connection(url="http://127.0.0.1:9", credentials=Fixed(None), source="a test"))
        writer = Writer(away, "closeby-test", "replica-0")
        events = Events(writer, self.say)
        self.statuses = GangStatuses(
            writer, events, self.say, self.objects, self.starts, ReportingSettings(), lambda: True
        )
        pods = [put(PODS, member(i, of)) for i, of in enumerate(members)]
        self.take(put(NODES, node("n1")), put(OURS, group(planned, placed)), *pods)

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        raise AssertionError(message, fields)

    def take(self, *changes: tuple[Resource, Change]) -> None:
        self.objects.take(changes)
        self.engine.handle(*self.feed.take(changes).events)

    def delete(self, index: int) -> None:
        self.take(gone(PODS, f"a/g-{index}", f"uid-{index}"))

    def lose(self, index: int) -> None:
        """As the scheduler does: whose the gang is, is asked while all members are known."""
        ours = KEY in self.own
        self.delete(index)
        if ours:
            self.starts.handle(MemberGone(KEY, NOW))
            self.statuses.lost(KEY)

    @property
    def group(self) -> PodGroup:
        return self.engine.state.groups[KEY]

    @property
    def begun(self) -> bool:
        standing = self.starts.standing(KEY)
        return standing is not None and standing.begun


@pytest.mark.parametrize(
    ("members", "ours"),
    [
        ((), False),
        ((WAITS,) * 4, True),
        ((BOUND,) * 4, True),
        ((DONE,) * 4, True),
        ((THEIRS_WAITS,) * 4, False),
        ((THEIRS_BOUND,) * 4, False),
        ((THEIRS_DONE,) * 4, False),
        ((THEIRS_BOUND, THEIRS_BOUND, THEIRS_WAITS, THEIRS_DONE), False),
        ((THEIRS_BOUND, THEIRS_BOUND, THEIRS_BOUND, WAITS), True),
        ((THEIRS_WAITS, THEIRS_WAITS, THEIRS_WAITS, BOUND), True),
    ],
)
def test_a_gang_is_ours_if_a_member_names_our_scheduler(members: tuple[Member, ...], ours: bool) -> None:
    it = Process(*members)
    assert (KEY in it.own) is ours
    assert it.own.may_write(it.group) is ours


def test_a_gang_without_members_is_remembered_with_its_podgroup_alone() -> None:
    it = Process(WAITS)
    it.lose(0)
    assert KEY in it.own
    it = Process(WAITS)
    it.take(gone(OURS, KEY, "uid-g"))
    it.own.forget(KEY)
    assert KEY in it.own
    it.delete(0)
    assert KEY not in it.own


@pytest.mark.parametrize(
    ("members", "planned", "claimed", "begun"),
    [
        ((WAITS,) * 4, 0, False, False),
        ((WAITS,) * 4, 4, True, True),
        ((BOUND, BOUND, WAITS, WAITS), 4, True, True),
        ((BOUND,) * 4, 4, True, True),
        # Its members are not all there any more.
        ((BOUND,) * 2, 4, True, True),
        # No pod that it names exists: it is corrected, once.
        ((), 4, True, False),
        # Another scheduler carries it out, has bound all, or takes it up when it is back.
        ((THEIRS_WAITS,) * 4, 4, False, False),
        ((THEIRS_BOUND, THEIRS_WAITS, THEIRS_WAITS, THEIRS_WAITS), 4, False, False),
        ((THEIRS_BOUND,) * 4, 4, False, False),
        ((THEIRS_BOUND,) * 2, 4, False, False),
        # The plan in a gang of both: of the one for which a planned member waits.
        ((THEIRS_WAITS, THEIRS_BOUND, WAITS, WAITS), 2, False, False),
        ((THEIRS_BOUND, THEIRS_BOUND, WAITS, WAITS), 4, True, True),
        ((WAITS, WAITS, THEIRS_WAITS, THEIRS_WAITS), 2, True, True),
        # Of an earlier run of a gang that another scheduler runs now.
        ((THEIRS_BOUND, THEIRS_WAITS), 0, False, False),
    ],
)
def test_a_restart_takes_up_its_own_starts_alone(
    members: tuple[Member, ...], planned: int, claimed: bool, begun: bool
) -> None:
    it = Process(*members, planned=planned)
    assert it.starts.handle(Restarted(NOW)) == ([Review(KEY, waits=True)] if claimed else [])
    assert it.begun is begun
    if planned:
        assert (it.statuses.desired(KEY) is not None) is claimed


@pytest.mark.parametrize(
    ("members", "ours"),
    [((BOUND,) * 4, True), ((THEIRS_BOUND,) * 4, False), ((THEIRS_BOUND,) * 3 + (BOUND,), True)],
)
def test_a_plan_after_a_loss_is_made_for_our_gangs_alone(members: tuple[Member, ...], ours: bool) -> None:
    it = Process(*members, placed=True)
    it.statuses.resume(KEY)
    it.lose(0)
    it.statuses.renewed(KEY)
    assert it.begun is ours
    assert (it.statuses.desired(KEY) is not None) is ours


def test_a_gang_whose_last_member_named_another_scheduler_is_not_ours() -> None:
    it = Process(BOUND, THEIRS_BOUND)
    it.lose(0)
    assert KEY not in it.own
    it.lose(1)
    assert KEY not in it.own


class TestAGangWithoutMembers:
    def test_it_stays_ours_until_its_pod_group_is_gone(self) -> None:
        it = Process(BOUND, BOUND)
        it.lose(0)
        it.lose(1)
        assert KEY in it.own and it.own.may_write(it.group)
        it.own.forget(KEY)
        assert KEY not in it.own

    def test_it_is_not_ours_once_members_wait_for_another_scheduler(self) -> None:
        it = Process(BOUND)
        it.lose(0)
        it.take(put(PODS, member(7, THEIRS_WAITS)))
        assert KEY not in it.own
        it.delete(7)
        assert KEY in it.own

    def test_nor_once_those_are_bound(self) -> None:
        it = Process(BOUND)
        it.lose(0)
        it.take(put(PODS, member(7, THEIRS_WAITS)))
        it.take(put(PODS, member(7, THEIRS_BOUND)))
        assert KEY not in it.own
        it.delete(7)
        assert KEY not in it.own


@pytest.mark.parametrize("later", [THEIRS_BOUND, THEIRS_DONE, None])
def test_another_schedulers_plan_counts_until_its_members_wait_no_more(later: Member | None) -> None:
    it = Process(THEIRS_WAITS, WAITS, planned=1)
    assert it.own.planned_by_another(it.group)
    if later is None:
        it.delete(0)
    else:
        it.take(put(PODS, member(0, later)))
    assert not it.own.planned_by_another(it.group)
    assert it.own.may_write(it.group)


def test_our_plan_does_not_replace_another_schedulers() -> None:
    it = Process(THEIRS_WAITS, WAITS, planned=1)
    written = asyncio.run(it.statuses.write_plan(KEY))
    assert written.verdict is WriteResult.FATAL
    assert written.error is not None and written.error.reason == "PlannedByAnother"


def test_pods_of_another_scheduler_are_no_members_until_they_are_bound() -> None:
    process = Process(WAITS, THEIRS_WAITS, THEIRS_WAITS)
    assert process.feed.foreign.news() == {KEY}
    assert "2 pods of another scheduler" in said(process)
    process.take(put(PODS, member(1, THEIRS_WAITS)))
    assert process.feed.foreign.news() == set()
    process.take(put(PODS, member(1, THEIRS_BOUND)))
    assert process.feed.foreign.news() == {KEY}
    assert "1 pod of another scheduler" in said(process)
    process.delete(2)
    assert process.feed.foreign.news() == {KEY}
    assert "scheduler" not in said(process)


def said(process: Process) -> str:
    """What the condition of the incomplete gang says."""
    process.engine.handle(Tick(0.0))
    standing = process.starts.standing(KEY)
    assert standing is not None
    found = scheduled(standing)
    assert found.reason == "GangIncomplete"
    return found.message
