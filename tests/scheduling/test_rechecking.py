"""A decision that waits to be carried out is asked about again: it holds as long as it could be made now."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.applications import AppGroup
from closeby.objects.nodes import Taint
from closeby.objects.pods import HostPort, Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupRemoved,
    BindFailed,
    Event,
    GroupChanged,
    GroupRemoved,
    NodeAdded,
    NodeRemoved,
    PodAdded,
    PodRemoved,
    Tick,
    TopologyChanged,
    TopologyRemoved,
    Withdrawn,
)
from closeby.scheduling.intake.surprises import Surprises
from closeby.scheduling.outcomes import Binding, bindings_of
from closeby.scheduling.placing.rechecking import NEVER, Checked
from tests.scheduling.histories import History, engine
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, subgroup, world

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=2 b2=2
"""
NODES = {one.name: one for one in draw(TWO_RACKS)}
RACK_1 = {"zone": "zone-a", "rack": "rack-1"}


class Deciding:
    """A world with what was decided in it, and what is known of that."""

    def __init__(self, drawn: World, members: Sequence[Pod], *groups: Event) -> None:
        self.engine = drawn.engine
        decisions = drawn.engine.handle(*groups, *map(PodAdded, members), Tick())
        self.binds = bindings_of(decisions)
        self.checked = drawn.engine.recheck.now()

    def broken(self, *events: Event, started: bool = False) -> Condition | None:
        """What breaks the decision, if it is asked about after these events."""
        self.engine.handle(*events)
        before = self.engine.cluster.requested.copy()
        self.checked = self.engine.recheck.still_holds(self.binds, self.checked, started=started)
        assert (self.engine.cluster.requested == before).all()
        self.engine.validate_state()
        return self.checked.broken

    def reason(self, *events: Event) -> Reason | None:
        found = self.broken(*events)
        return None if found is None else found.reason


def a_gang(min_member: int = 4, **fields: str) -> Deciding:
    """A gang of four that lies in rack-1."""
    group = gang(min_member=min_member, required="rack")
    drawn = Deciding(world(TWO_RACKS), pods("train", 4), GroupChanged(replace(group, **fields)))
    assert {bind.node for bind in drawn.binds} == {"a1", "a2"}
    return drawn


def a_pod(**needs: int) -> Deciding:
    """A plain pod on a1, the only node with room for it."""
    drawn = Deciding(world("zone-a rack-1 : a1=4 a2=1"), pods(None, 1, spec(**(needs or {"gpu": 3}))))
    assert [bind.node for bind in drawn.binds] == ["a1"]
    return drawn


def on(name: str, count: int = 1) -> list[PodAdded]:
    """Pods that others have put there."""
    return [PodAdded(pod) for pod in pods(None, count, prefix="rival", on=name)]


class TestAPlainPod:
    def test_holds_while_nothing_happens_to_its_node(self) -> None:
        assert a_pod().broken(*on("a2"), NodeAdded(node("a3", {}, {GPU: 9}))) is None

    def test_is_not_its_own_rival(self) -> None:
        drawn = a_pod()
        assert drawn.broken(*on("a1")) is None
        assert drawn.reason(*on("a1", 2)) is Reason.INSUFFICIENT_RESOURCES

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"unschedulable": True}, Reason.NODE_UNSCHEDULABLE),
            ({"ready": False}, Reason.NODE_UNSCHEDULABLE),
            ({"taints": (Taint("broken", "", "NoSchedule"),)}, Reason.TAINT_NOT_TOLERATED),
            ({"taints": (Taint("busy", "", "PreferNoSchedule"),)}, None),
            ({"allocatable": {GPU: 2}}, Reason.INSUFFICIENT_RESOURCES),
            ({"allocatable": {GPU: 3}}, None),
            ({"annotations": {"other": "thing"}}, None),
        ],
    )
    def test_goes_by_the_node_as_it_is_now(self, change: dict[str, object], reason: Reason | None) -> None:
        changed = replace(node("a1", RACK_1, {GPU: 4}), **change)
        assert a_pod().reason(NodeAdded(changed)) is reason

    def test_its_node_is_gone(self) -> None:
        assert a_pod().reason(NodeRemoved("a1")) is Reason.NODE_UNSCHEDULABLE

    def test_another_machine_of_that_name_is_judged_anew(self) -> None:
        drawn = a_pod()
        assert drawn.broken(NodeRemoved("a1"), NodeAdded(node("a1", {}, {GPU: 4}))) is None
        smaller = NodeAdded(node("a1", {}, {GPU: 1}))
        assert drawn.reason(NodeRemoved("a1"), smaller) is Reason.INSUFFICIENT_RESOURCES

    def test_a_selector_that_the_node_does_not_meet_any_more(self) -> None:
        needs = replace(spec(gpu=1), node_selector=(("rack", "rack-1"),))
        drawn = Deciding(world("zone-a rack-1 : a1=4"), pods(None, 1, needs))
        moved = node("a1", {**RACK_1, "rack": "rack-9"}, {GPU: 4})
        assert drawn.reason(NodeAdded(moved)) is Reason.NODE_AFFINITY_MISMATCH

    def test_a_port_that_somebody_took(self) -> None:
        needs = replace(spec(gpu=1), host_ports=(HostPort(port=80),))
        drawn = Deciding(world("zone-a rack-1 : a1=4"), pods(None, 1, needs))
        assert drawn.broken(*on("a1")) is None
        [rival] = pods(None, 1, needs, prefix="web", on="a1")
        assert drawn.reason(PodAdded(rival)) is Reason.HOST_PORT_CONFLICT

    def test_what_gets_well_again_holds_again(self) -> None:
        drawn = a_pod()
        well = node("a1", RACK_1, {GPU: 4})
        assert drawn.broken(NodeAdded(replace(well, unschedulable=True))) is not None
        assert drawn.broken(NodeAdded(well)) is None

    def test_one_that_was_removed_holds_nothing(self) -> None:
        drawn = a_pod()
        assert drawn.broken(PodRemoved(drawn.binds[0].pod.uid)) is not None

    def test_without_news_nobody_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn = a_pod()
        monkeypatch.setattr(drawn.engine.cluster, "placement", None)
        assert drawn.engine.recheck.still_holds(drawn.binds, drawn.checked, started=False) is drawn.checked


class TestAGang:
    def test_holds_while_nothing_happens_to_it(self) -> None:
        assert a_gang().broken(*on("b1"), NodeRemoved("b2"), PodAdded(pods(None, 1)[0])) is None

    def test_is_told_of_its_own_bindings(self) -> None:
        drawn = a_gang()
        bound = replace(drawn.binds[0].pod, node_name=drawn.binds[0].node, phase="Running")
        assert drawn.broken(PodAdded(bound)) is None

    @pytest.mark.parametrize(
        ("events", "reason"),
        [
            (on("a1"), Reason.INSUFFICIENT_RESOURCES),
            ([NodeRemoved("a2")], Reason.NODE_UNSCHEDULABLE),
            ([NodeAdded(replace(NODES["a2"], unschedulable=True))], Reason.NODE_UNSCHEDULABLE),
            ([NodeAdded(replace(NODES["a1"], allocatable={GPU: 1}))], Reason.INSUFFICIENT_RESOURCES),
            ([PodRemoved("default/train-3")], Reason.NODE_UNSCHEDULABLE),
            ([GroupChanged(gang(min_member=5, required="rack"))], Reason.GANG_INCOMPLETE),
            ([GroupChanged(gang(min_member=4, required="hostname"))], Reason.TOPOLOGY_PLACEMENT_FAILED),
            ([GroupChanged(gang(min_member=4, required="row"))], Reason.TOPOLOGY_LEVEL_NOT_FOUND),
            ([GroupChanged(gang(min_member=4, required="zone"))], None),
            ([GroupRemoved("default/train")], Reason.GANG_INCOMPLETE),
            ([TopologyRemoved("fabric")], Reason.TOPOLOGY_NOT_FOUND),
            ([TopologyChanged(fabric("zone", "hostname"))], Reason.TOPOLOGY_LEVEL_NOT_FOUND),
        ],
    )
    def test_goes_by_all_that_it_depends_on(self, events: Sequence[Event], reason: Reason | None) -> None:
        assert a_gang().reason(*events) is reason

    def test_a_rack_that_was_torn_apart(self) -> None:
        drawn = a_gang()
        moved = NodeAdded(node("a2", {**RACK_1, "rack": "rack-9"}, {GPU: 2}))
        found = drawn.broken(moved)
        assert found is not None and found.reason is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert "zone-a/rack-1" in found.message and "zone-a/rack-9" in found.message

    def test_a_rack_of_another_name(self) -> None:
        """The level still holds, but what was told of the gang's place does not."""
        renamed = [NodeAdded(node(name, {**RACK_1, "rack": "rack-9"}, {GPU: 2})) for name in ("a1", "a2")]
        assert a_gang().reason(*renamed) is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_a_plan_that_was_written_is_no_news(self) -> None:
        drawn = a_gang()
        plan = {bind.pod.uid: bind.node for bind in drawn.binds}
        assert drawn.broken(GroupChanged(replace(gang(min_member=4, required="rack"), plan=plan))) is None
        assert drawn.checked.version == drawn.engine.recheck.now().version

    def test_once_started_its_minimum_stops_nobody(self) -> None:
        drawn = a_gang()
        raised = GroupChanged(gang(min_member=5, required="rack"))
        assert drawn.broken(raised, started=True) is None

    def test_a_member_that_was_refused_breaks_the_others_while_none_is_bound(self) -> None:
        drawn = a_gang()
        [refused, *drawn.binds] = drawn.binds
        assert drawn.reason(BindFailed(refused.pod.uid, "no")) is Reason.GANG_INCOMPLETE

    def test_members_beyond_the_minimum_are_not_missed(self) -> None:
        drawn = a_gang(min_member=3)
        [refused, *drawn.binds] = drawn.binds
        assert drawn.broken(BindFailed(refused.pod.uid, "no")) is None

    def test_the_level_of_a_subgroup(self) -> None:
        parts = [subgroup("left", 2, required="rack"), subgroup("right", 2, required="rack")]
        members = [*pods("train", 2, subgroup="left"), *pods("train", 2, subgroup="right")]
        group = GroupChanged(gang(min_member=4, subgroups=parts))
        drawn = Deciding(world("zone-a r1 : a1=1 a2=1\nzone-a r2 : b1=1 b2=1"), members, group)
        moved = NodeAdded(node("b2", {"zone": "zone-a", "rack": "r1"}, {GPU: 1}))
        found = drawn.broken(moved)
        assert found is not None and "subgroup" in found.message


class TestWhatDoesNotConcernAGang:
    """Others make news as often as they like; it must not cost a look at each member of every gang."""

    @pytest.mark.parametrize(
        "event",
        [
            *on("b1"),
            NodeRemoved("b2"),
            AppGroupChanged(AppGroup(namespace="other", name="app", workloads=())),
            AppGroupRemoved("other/app"),
        ],
    )
    def test_no_member_is_looked_at(self, event: Event, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn = a_gang()
        assert drawn.broken(*on("b2")) is None  # From here on it is known which nodes are its own.
        drawn.engine.handle(event)
        with monkeypatch.context() as patch:
            patch.setattr(drawn.engine.cluster, "placement", None)
            checked = drawn.engine.recheck.still_holds(drawn.binds, drawn.checked, started=False)
        assert (checked.version, checked.broken) == (drawn.engine.recheck.version, None)
        assert drawn.reason(*on("a1")) is Reason.INSUFFICIENT_RESOURCES

    def test_members_that_are_all_gone_are_missed(self) -> None:
        drawn = a_gang()
        assert drawn.broken(*on("b2")) is None
        assert drawn.broken(*(PodRemoved(bind.pod.uid) for bind in drawn.binds)) is not None

    def test_an_app_group_of_its_own_namespace_concerns_it(self) -> None:
        surprises, since = Surprises(), 0
        surprises.namespace("default")
        assert surprises.at_gang("default/train", since)
        assert not surprises.at_gang("other/train", since)

    def test_what_is_kept_is_bounded_and_nothing_is_missed(self) -> None:
        surprises = Surprises()
        surprises.gang("default/first")
        for index in range(10_000):
            surprises.gang(f"default/{index}")
        assert surprises.at_gang("default/first", 0)
        assert not surprises.at_gang("default/first", 1)


class TestWithdrawing:
    def test_a_gang_is_decided_again_as_a_whole(self) -> None:
        drawn = a_gang()
        drawn.engine.handle(*on("a1"))
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        decisions = drawn.engine.handle(Withdrawn(uids, "no room", "default/train"), Tick())
        again = bindings_of(decisions)
        assert {bind.node for bind in again} == {"b1", "b2"}
        assert len(again) == 4
        drawn.engine.validate_state()

    def test_it_waits_as_a_whole_where_there_is_no_room(self) -> None:
        drawn = a_gang()
        drawn.engine.handle(*on("a1"), NodeRemoved("b1"))
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        drawn.engine.handle(Withdrawn(uids, "no room", "default/train"), Tick())
        outcome = drawn.engine.outcome("default/train")
        assert outcome is not None and outcome.reason is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert len(drawn.engine.books.waiting("default/train")) == 4

    def test_who_was_bound_meanwhile_stays(self) -> None:
        drawn = a_gang()
        first = drawn.binds[0]
        drawn.engine.handle(PodAdded(replace(first.pod, node_name=first.node, phase="Running")))
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        drawn.engine.handle(Withdrawn(uids, "anything", "default/train"))
        assert [pod.uid for pod in drawn.engine.books.placed("default/train")] == [first.pod.uid]
        drawn.engine.validate_state()

    def test_pods_on_a_node_that_is_gone(self) -> None:
        drawn = a_gang()
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        drawn.engine.handle(NodeRemoved("a1"), Withdrawn(uids, "gone", "default/train"))
        drawn.engine.validate_state()
        assert len(drawn.engine.books.waiting("default/train")) == 4

    def test_unknown_pods_are_passed_over(self) -> None:
        assert world(TWO_RACKS).engine.handle(Withdrawn(("nobody",), "anything")) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_decided_holds_at_that_moment(seed: int) -> None:
    """Whatever happened before: else it would be withdrawn and decided the same way for ever."""
    history, made = History(seed), engine()
    made.handle(*history.beginning())
    for _ in range(60):
        decisions = made.handle(*history.step(), Tick(history.now))
        history.bound(decisions)
        for binds in _by_item(made, bindings_of(decisions)):
            found = made.recheck.still_holds(binds, NEVER, started=False)
            assert (found.version, found.broken) == (made.recheck.now().version, None), (seed, binds)
        made.validate_state()


@pytest.mark.parametrize("seed", range(10))
def test_an_answer_that_is_kept_is_the_one_that_a_full_check_gives(seed: int) -> None:
    """A gang is asked about after every step, by what was known of it before and by nothing."""
    history, made = History(seed), engine()
    made.handle(*history.beginning())
    kept: dict[str, tuple[list[Binding], Checked]] = {}
    for _ in range(60):
        made.handle(*history.step())
        for key, (binds, before) in list(kept.items()):
            now = made.recheck.still_holds(binds, before, started=False)
            full = made.recheck.still_holds(binds, NEVER, started=False)
            assert (now.broken is None) == (full.broken is None), (seed, key, now, full)
            kept[key] = binds, now
            if now.broken is not None:
                del kept[key]
        decisions = made.handle(Tick(history.now))
        history.bound(decisions)
        for binds in _by_item(made, bindings_of(decisions)):
            if binds[0].pod.group is not None:
                kept[made.books.item_key(binds[0].pod)] = binds, made.recheck.now()


def _by_item(made: Engine, binds: Sequence[Binding]) -> list[list[Binding]]:
    items: dict[str, list[Binding]] = {}
    for bind in binds:
        key = made.books.item_key(bind.pod) if bind.pod.group else bind.pod.uid
        items.setdefault(key, []).append(bind)
    return list(items.values())
