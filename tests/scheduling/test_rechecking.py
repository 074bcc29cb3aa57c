"""A decision that waits to be carried out is asked about again: it holds as long as it could be made now."""

from collections.abc import Sequence
from typing import ClassVar

import pytest
from msgspec.structs import replace

from closeby.objects.applications import AppGroup
from closeby.objects.arrays import Bools
from closeby.objects.groups import Layer
from closeby.objects.nodes import Taint
from closeby.objects.pods import HostPort, Pod
from closeby.objects.reasons import Condition, Reason, ReasonToken, Rejection
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.commit_points import Permit
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupChanged,
    GroupDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
    TopologyDeleted,
)
from closeby.scheduling.extension import Filter, Plugin, PreFilter, Scope
from closeby.scheduling.outcomes import Binding, bindings_of
from closeby.scheduling.placing.rechecking import NEVER, Checked, Invalidations
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.scheduling.histories import History, engine
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, subgroup, world

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=2 b2=2
"""
NODES = {one.name: one for one in draw(TWO_RACKS)}
RACK_1 = {"zone": "zone-a", "rack": "rack-1"}
WRONG = Condition(reason=Reason.INVALID_SPEC, object="PodGroup/default/train", message="wrong", blocking=True)


class Deciding:
    """A world with what was decided in it, and what is known of that."""

    def __init__(self, drawn: World, members: Sequence[Pod], *groups: Event) -> None:
        self.engine = drawn.engine
        decisions = drawn.engine.handle(*groups, *map(PodUpserted, members), Tick())
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

    def reason(self, *events: Event) -> ReasonToken | None:
        found = self.broken(*events)
        return None if found is None else found.reason


def a_gang(min_member: int = 4, **fields: str) -> Deciding:
    """A gang of four that is in rack-1."""
    group = gang(min_member=min_member, required="rack")
    drawn = Deciding(world(TWO_RACKS), pods("train", 4), GroupChanged(replace(group, **fields)))
    assert {bind.node for bind in drawn.binds} == {"a1", "a2"}
    return drawn


def a_pod() -> Deciding:
    """A plain pod on a1, the only node with room for it."""
    drawn = Deciding(world("zone-a rack-1 : a1=4 a2=1"), pods(None, 1, spec(gpu=3)))
    assert [bind.node for bind in drawn.binds] == ["a1"]
    return drawn


def on(name: str, count: int = 1) -> list[PodUpserted]:
    """Pods that others have put there."""
    return [PodUpserted(pod) for pod in pods(None, count, prefix="rival", on=name)]


class TestAPlainPod:
    def test_holds_while_nothing_happens_to_its_node(self) -> None:
        assert a_pod().broken(*on("a2"), NodeUpserted(node("a3", {}, {GPU: 9}))) is None

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
        assert a_pod().reason(NodeUpserted(changed)) is reason

    def test_its_node_is_gone(self) -> None:
        assert a_pod().reason(NodeDeleted("a1")) is Reason.NODE_UNSCHEDULABLE

    def test_another_machine_of_that_name_is_judged_again(self) -> None:
        drawn = a_pod()
        assert drawn.broken(NodeDeleted("a1"), NodeUpserted(node("a1", {}, {GPU: 4}))) is None
        smaller = NodeUpserted(node("a1", {}, {GPU: 1}))
        assert drawn.reason(NodeDeleted("a1"), smaller) is Reason.INSUFFICIENT_RESOURCES

    def test_a_selector_that_the_node_does_not_meet_any_more(self) -> None:
        needs = replace(spec(gpu=1), node_selector=(("rack", "rack-1"),))
        drawn = Deciding(world("zone-a rack-1 : a1=4"), pods(None, 1, needs))
        moved = node("a1", {**RACK_1, "rack": "rack-9"}, {GPU: 4})
        assert drawn.reason(NodeUpserted(moved)) is Reason.NODE_AFFINITY_MISMATCH

    def test_a_port_that_another_pod_took(self) -> None:
        needs = replace(spec(gpu=1), host_ports=(HostPort(port=80),))
        drawn = Deciding(world("zone-a rack-1 : a1=4"), pods(None, 1, needs))
        assert drawn.broken(*on("a1")) is None
        [rival] = pods(None, 1, needs, prefix="web", on="a1")
        assert drawn.reason(PodUpserted(rival)) is Reason.HOST_PORT_CONFLICT

    def test_what_gets_well_again_holds_again(self) -> None:
        drawn = a_pod()
        well = node("a1", RACK_1, {GPU: 4})
        assert drawn.broken(NodeUpserted(replace(well, unschedulable=True))) is not None
        assert drawn.broken(NodeUpserted(well)) is None

    def test_one_that_was_bound_elsewhere_does_not_hold(self) -> None:
        drawn = Deciding(world("zone-a rack-1 : a1=4 a2=4"), pods(None, 1))
        assert [bind.node for bind in drawn.binds] == ["a1"]
        bound = replace(drawn.binds[0].pod, node_name="a2", phase="Running")
        assert drawn.reason(PodUpserted(bound)) is Reason.NODE_UNSCHEDULABLE

    def test_one_that_was_removed_holds_nothing(self) -> None:
        drawn = a_pod()
        assert drawn.broken(PodDeleted(drawn.binds[0].pod.uid)) is not None

    def test_without_changes_no_plugin_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn = a_pod()
        monkeypatch.setattr(drawn.engine.cluster, "placement", None)
        assert drawn.engine.recheck.still_holds(drawn.binds, drawn.checked, started=False) is drawn.checked


class TestAGang:
    def test_holds_while_nothing_happens_to_it(self) -> None:
        assert a_gang().broken(*on("b1"), NodeDeleted("b2"), PodUpserted(pods(None, 1)[0])) is None

    def test_its_own_bindings_break_nothing(self) -> None:
        drawn = a_gang()
        bound = replace(drawn.binds[0].pod, node_name=drawn.binds[0].node, phase="Running")
        assert drawn.broken(PodUpserted(bound)) is None

    @pytest.mark.parametrize(
        ("events", "reason"),
        [
            (on("a1"), Reason.INSUFFICIENT_RESOURCES),
            ([NodeDeleted("a2")], Reason.NODE_UNSCHEDULABLE),
            ([NodeUpserted(replace(NODES["a2"], unschedulable=True))], Reason.NODE_UNSCHEDULABLE),
            ([NodeUpserted(replace(NODES["a1"], allocatable={GPU: 1}))], Reason.INSUFFICIENT_RESOURCES),
            ([PodDeleted("default/train-3")], Reason.NODE_UNSCHEDULABLE),
            ([GroupChanged(gang(min_member=5, required="rack"))], Reason.GANG_INCOMPLETE),
            ([GroupChanged(gang(min_member=4, required="hostname"))], Reason.TOPOLOGY_PLACEMENT_FAILED),
            ([GroupChanged(gang(min_member=4, required="row"))], Reason.TOPOLOGY_LEVEL_NOT_FOUND),
            ([GroupChanged(gang(min_member=4, required="zone"))], None),
            ([GroupChanged(replace(gang(min_member=4), conditions=(WRONG,)))], Reason.INVALID_SPEC),
            ([GroupDeleted("default/train")], Reason.GANG_INCOMPLETE),
            ([TopologyDeleted("fabric")], Reason.TOPOLOGY_NOT_FOUND),
            ([TopologyChanged(fabric("zone", "hostname"))], Reason.TOPOLOGY_LEVEL_NOT_FOUND),
        ],
    )
    def test_goes_by_all_that_it_depends_on(self, events: Sequence[Event], reason: Reason | None) -> None:
        assert a_gang().reason(*events) is reason

    def test_a_rack_that_was_torn_apart(self) -> None:
        drawn = a_gang()
        moved = NodeUpserted(node("a2", {**RACK_1, "rack": "rack-9"}, {GPU: 2}))
        found = drawn.broken(moved)
        assert found is not None and found.reason is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert "zone-a/rack-1" in found.message and "zone-a/rack-9" in found.message

    def test_a_rack_of_another_name(self) -> None:
        """The level still holds, but what was told of the gang's place does not."""
        renamed = [NodeUpserted(node(name, {**RACK_1, "rack": "rack-9"}, {GPU: 2})) for name in ("a1", "a2")]
        assert a_gang().reason(*renamed) is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_a_plan_that_was_written_is_no_news(self) -> None:
        drawn = a_gang()
        plan = {bind.pod.uid: bind.node for bind in drawn.binds}
        assert drawn.broken(GroupChanged(replace(gang(min_member=4, required="rack"), plan=plan))) is None
        assert drawn.checked.version == drawn.engine.recheck.now().version

    def test_once_a_gang_has_started_the_minimum_stops_no_member(self) -> None:
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
        moved = NodeUpserted(node("b2", {"zone": "zone-a", "rack": "r1"}, {GPU: 1}))
        found = drawn.broken(moved)
        assert found is not None and "subgroup" in found.message

    def test_a_node_on_which_another_member_runs(self) -> None:
        """It is in another rack now, and nothing has happened to the nodes of the others."""
        running = pods("train", 1, prefix="old", on="a1")
        group = GroupChanged(gang(min_member=3, required="rack"))
        drawn = Deciding(world("zone-a rack-1 : a1=1 a2=2\nzone-a rack-2 : b1=9"), running, group)
        drawn = Deciding(World(drawn.engine, ()), pods("train", 2))
        assert [bind.node for bind in drawn.binds] == ["a2", "a2"]
        assert drawn.broken(*on("b1")) is None  # From here on it is known which nodes are its own.
        moved = NodeUpserted(node("a1", {**RACK_1, "rack": "rack-9"}, {GPU: 1}))
        assert drawn.reason(moved) is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_once_a_member_runs_the_minimum_stops_no_other(self) -> None:
        drawn = a_gang()
        bound = replace(drawn.binds[0].pod, node_name=drawn.binds[0].node, phase="Running")
        raised = GroupChanged(gang(min_member=5, required="rack"))
        assert drawn.broken(PodUpserted(bound), raised) is None

    def test_a_pod_that_is_no_member_any_more_still_goes_where_it_was_to(self) -> None:
        drawn = Deciding(
            world("zone-a rack-1 : a1=2 a2=1"), pods("train", 3), GroupChanged(gang(min_member=2))
        )
        [last] = [bind for bind in drawn.binds if bind.node == "a2"]
        assert drawn.broken(PodUpserted(replace(last.pod, group=None))) is None
        assert drawn.reason(*on("a2")) is Reason.INSUFFICIENT_RESOURCES

    def test_what_is_broken_stays_so_whatever_happens_elsewhere(self) -> None:
        drawn = a_gang()
        assert drawn.reason(*on("a1")) is Reason.INSUFFICIENT_RESOURCES
        assert drawn.reason(NodeDeleted("b2")) is Reason.INSUFFICIENT_RESOURCES

    def test_one_that_started_meanwhile_is_asked_about_again(self) -> None:
        drawn = a_gang()
        raised = GroupChanged(gang(min_member=5, required="rack"))
        assert drawn.reason(raised) is Reason.GANG_INCOMPLETE
        assert drawn.broken(started=True) is None

    def test_without_bindings_nothing_can_break(self) -> None:
        drawn = a_gang()
        drawn.binds = []
        assert drawn.broken(*on("a1", 2)) is None


class Gate(Filter):
    """Lets pods pass while it is open, and keeps what it is asked: a filter that looks beyond the node."""

    name: ClassVar[str] = "Gate"
    filter_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    open: ClassVar[bool] = True
    #: Members that run, and those that were placed before the pod that it is about.
    asked: ClassVar[list[tuple[int, int]]] = []

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        self.asked.append((len(state.anchors), len(state.placed)))
        return nodes.all(self.open)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(Reason.UNSUPPORTED, "the gate is closed")


class Door(PreFilter, Permit):
    """Refuses pods before their places are looked for, or after."""

    name: ClassVar[str] = "Door"
    before: ClassVar[Condition | None] = None
    after: ClassVar[Condition | None] = None

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        return self.before

    def permit(self, state: CycleState, placed: tuple[tuple[Pod, int], ...]) -> Condition | None:
        return self.after


def with_plugin(kind: type[Plugin]) -> World:
    return world(TWO_RACKS, plugins=[PluginEntry(name=f"{__name__}:{kind.__name__}")])


class TestFiltersThatLookBeyondTheNode:
    """Whatever happens anywhere, they are asked again."""

    def test_about_a_plain_pod(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn = Deciding(with_plugin(Gate), pods(None, 1))
        assert drawn.broken(NodeDeleted("b2")) is None
        monkeypatch.setattr(Gate, "open", False)
        assert drawn.reason(NodeDeleted("b1")) is Reason.UNSUPPORTED

    def test_about_a_gang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        group = GroupChanged(gang(min_member=2, required="rack"))
        drawn = Deciding(with_plugin(Gate), pods("train", 2), group)
        assert drawn.broken(NodeDeleted("b2")) is None
        monkeypatch.setattr(Gate, "open", False)
        assert drawn.reason(NodeDeleted("b1")) is Reason.UNSUPPORTED

    def test_each_member_beside_those_before_it_and_those_that_run(self) -> None:
        group = GroupChanged(gang(min_member=4, required="rack"))
        running = pods("train", 1, prefix="old", on="a1")
        drawn = Deciding(with_plugin(Gate), [*running, *pods("train", 3)], group)
        Gate.asked.clear()
        assert drawn.broken(NodeDeleted("b2")) is None
        assert Gate.asked == [(1, 0), (1, 1), (1, 2)]

    def test_one_that_fails_leaves_the_members_where_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        group = GroupChanged(gang(min_member=2, required="rack"))
        drawn = Deciding(with_plugin(Gate), pods("train", 2), group)
        before = drawn.engine.cluster.requested.copy()
        drawn.engine.handle(NodeDeleted("b2"))
        monkeypatch.setattr(Gate, "filter", None)
        with pytest.raises(TypeError):
            drawn.engine.recheck.still_holds(drawn.binds, drawn.checked, started=False)
        assert (drawn.engine.cluster.requested == before).all()
        drawn.engine.validate_state()

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_gang_as_a_whole_is_refused(self, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
        group = GroupChanged(gang(min_member=4, required="rack"))
        drawn = Deciding(with_plugin(Door), pods("train", 4), group)
        node_changed = NodeUpserted(replace(NODES["a1"], annotations={"other": "thing"}))
        assert drawn.broken(node_changed) is None
        closed = Condition(reason=Reason.UNSUPPORTED, object="Plugin/Door", message="closed", blocking=True)
        monkeypatch.setattr(Door, when, closed)
        assert drawn.reason(NodeUpserted(NODES["a1"])) is Reason.UNSUPPORTED


class TestWhereAGangLies:
    def test_its_place_is_that_of_all_members(self) -> None:
        drawn = a_gang()
        found = drawn.engine.recheck.place("default/train")
        assert found is not None and found.path == ("zone-a", "rack-1")

    def test_it_is_unknown_while_one_runs_on_a_node_that_is_gone(self) -> None:
        running = pods("train", 2, on="a1")
        drawn = Deciding(world(TWO_RACKS), running, GroupChanged(gang(min_member=2)))
        assert drawn.engine.recheck.place("default/train") is not None
        [elsewhere] = pods("train", 1, prefix="old", on="gone")
        drawn.engine.handle(PodUpserted(elsewhere))
        assert drawn.engine.recheck.place("default/train") is None

    def test_an_unknown_gang_has_none(self) -> None:
        assert world(TWO_RACKS).engine.recheck.place("default/train") is None


class TestWhatDoesNotConcernAGang:
    """Others make news as often as they like; it must not cost a look at each member of every gang."""

    @pytest.mark.parametrize(
        "event",
        [
            *on("b1"),
            NodeDeleted("b2"),
            AppGroupChanged(AppGroup(namespace="other", name="app", workloads=())),
            AppGroupDeleted("other/app"),
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
        assert drawn.broken(*(PodDeleted(bind.pod.uid) for bind in drawn.binds)) is not None

    def test_an_app_group_of_its_own_namespace_concerns_it(self) -> None:
        invalidations, since = Invalidations(), 0
        invalidations.namespace("default")
        assert invalidations.at_gang("default/train", since)
        assert not invalidations.at_gang("other/train", since)

    def test_what_is_kept_is_bounded_and_nothing_is_missed(self) -> None:
        invalidations = Invalidations()
        invalidations.gang("default/first")
        for index in range(10_000):
            invalidations.gang(f"default/{index}")
        assert invalidations.at_gang("default/first", 0)
        assert not invalidations.at_gang("default/first", 1)


class TestWithdrawing:
    def test_a_gang_is_decided_again_as_a_whole(self) -> None:
        drawn = a_gang()
        drawn.engine.handle(*on("a1"))
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        decisions = drawn.engine.handle(BindingsWithdrawn(uids, "no room", "default/train"), Tick())
        again = bindings_of(decisions)
        assert {bind.node for bind in again} == {"b1", "b2"}
        assert len(again) == 4
        drawn.engine.validate_state()

    def test_it_waits_as_a_whole_where_there_is_no_room(self) -> None:
        drawn = a_gang()
        drawn.engine.handle(*on("a1"), NodeDeleted("b1"))
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        drawn.engine.handle(BindingsWithdrawn(uids, "no room", "default/train"), Tick())
        outcome = drawn.engine.outcome("default/train")
        assert outcome is not None and outcome.reason is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert len(drawn.engine.state.waiting("default/train")) == 4

    def test_who_was_bound_meanwhile_stays(self) -> None:
        drawn = a_gang()
        first = drawn.binds[0]
        drawn.engine.handle(PodUpserted(replace(first.pod, node_name=first.node, phase="Running")))
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        drawn.engine.handle(BindingsWithdrawn(uids, "anything", "default/train"))
        assert [pod.uid for pod in drawn.engine.state.placed("default/train")] == [first.pod.uid]
        drawn.engine.validate_state()

    def test_pods_on_a_node_that_is_gone(self) -> None:
        drawn = a_gang()
        uids = tuple(bind.pod.uid for bind in drawn.binds)
        drawn.engine.handle(NodeDeleted("a1"), BindingsWithdrawn(uids, "gone", "default/train"))
        drawn.engine.validate_state()
        assert len(drawn.engine.state.waiting("default/train")) == 4

    def test_unknown_pods_are_passed_over(self) -> None:
        assert world(TWO_RACKS).engine.handle(BindingsWithdrawn(("nobody",), "anything")) == []


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
                kept[made.state.item_key(binds[0].pod)] = binds, made.recheck.now()


def _by_item(made: Engine, binds: Sequence[Binding]) -> list[list[Binding]]:
    items: dict[str, list[Binding]] = {}
    for bind in binds:
        key = made.state.item_key(bind.pod) if bind.pod.group else bind.pod.uid
        items.setdefault(key, []).append(bind)
    return list(items.values())


def test_a_segment_holds_only_in_one_domain() -> None:
    asked = replace(gang(min_member=8), layers=(Layer(level="rack", size=4),))
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 8))]
    drawn = Deciding(world(TWO_RACKS), members, GroupChanged(asked))
    assert len(drawn.binds) == 8
    assert drawn.broken(NodeUpserted(replace(NODES["a1"], taints=()))) is None
    moved = replace(NODES["a1"], labels={**NODES["a1"].labels, "rack": "rack-9"})
    assert drawn.reason(NodeUpserted(moved)) is Reason.TOPOLOGY_PLACEMENT_FAILED
    assert drawn.broken(NodeUpserted(NODES["a1"])) is None
