"""Bindings under way, with the engine that decided them: what is sent, looked at and withdrawn."""

from collections.abc import Sequence
from enum import Enum

from msgspec.structs import replace

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import (
    BindingTurn,
    BindRefused,
    Bound,
    Decided,
    GiveBack,
    Missed,
    NoEffect,
    PlanRefused,
    PlanTurn,
    ReadPod,
    SendBinding,
    StartEvent,
    WritePlan,
)
from closeby.kube.gangs.starts import Starts
from closeby.kube.state.ownership import ForeignMembers, OwnGangs
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.outcomes import Binding, bindings_of
from tests.worlds import GPU, World, gang, node, pods, world

#: a2 is in another rack than before, so that a gang on both nodes of rack-1 does not hold any more.
MOVED = NodeUpserted(node("a2", {"zone": "zone-a", "rack": "rack-9"}, {GPU: 2}))
BACK = NodeUpserted(node("a2", {"zone": "zone-a", "rack": "rack-1"}, {GPU: 2}))


class Ask(Enum):
    SEND = SendBinding
    LOOK = ReadPod
    WRITE = WritePlan
    LET_GO = None


class Scene:
    """Bindings of a gang of four in rack-1, or of plain pods, and what was withdrawn of them."""

    def __init__(self, *members: Pod, minimum: int = 4) -> None:
        self.drawn: World = world("zone-a rack-1 : a1=2 a2=2")
        group = GroupChanged(gang(min_member=minimum, required="rack"))
        self.withdrawn: list[BindingsWithdrawn] = []
        self.refused: list[BindFailed] = []
        own = OwnGangs(DEFAULT_SCHEDULER, self.drawn.engine.state, ForeignMembers())
        self.starts = Starts(self.drawn.engine, GangObjects(), own)
        self.binds = self.decide(group, *map(PodUpserted, members or pods("train", 4)))
        self.begin(self.binds)

    def decide(self, *events: Event) -> list[Binding]:
        return bindings_of(self.drawn.engine.handle(*events, Tick()))

    def begin(self, binds: Sequence[Binding]) -> None:
        self.handle(Decided(tuple(binds), "2026-01-01T00:00:00Z"))

    def handle(self, event: StartEvent) -> Ask:
        """What is to be done about the binding of which the event tells."""
        answer = Ask.LET_GO
        for action in self.starts.handle(event):
            match action:
                case SendBinding() | ReadPod() | WritePlan():
                    answer = Ask(type(action))
                case GiveBack(BindingsWithdrawn() as failure):
                    self.withdrawn.append(failure)
                case GiveBack(BindFailed() as failure):
                    self.refused.append(failure)
        return answer

    def asks(self, *binds: Binding) -> list[Ask]:
        return [self.handle(BindingTurn(bind)) for bind in binds or self.binds]

    def holds(self, binds: Sequence[Binding]) -> bool:
        """Whether the plan of these is still to be written."""
        return self.handle(PlanTurn(tuple(binds))) is Ask.WRITE

    def missed(self, bind: Binding, *, in_doubt: bool) -> None:
        self.handle(Missed(bind, in_doubt))

    def bound(self, *binds: Binding) -> None:
        for bind in binds:
            before = self.starts.in_flight
            self.handle(Bound(bind))
            assert self.starts.in_flight < before

    def not_bound(self, bind: Binding) -> None:
        self.handle(BindRefused(bind, BindFailed(bind.pod.uid, "refused")))

    def uids(self) -> list[set[str]]:
        return [set(one.uids) for one in self.withdrawn]


def uids(*binds: Binding) -> set[str]:
    return {bind.pod.uid for bind in binds}


def bound(bind: Binding) -> PodUpserted:
    return PodUpserted(replace(bind.pod, node_name=bind.node, phase="Running"))


class TestAPlainPod:
    def test_what_holds_is_sent(self) -> None:
        it = Scene(*pods(None, 2))
        assert it.asks() == [Ask.SEND, Ask.SEND]
        it.bound(*it.binds)
        assert it.withdrawn == []

    def test_what_does_not_hold_is_withdrawn_alone(self) -> None:
        it = Scene(*pods(None, 4))
        gone = [bind for bind in it.binds if bind.node == "a2"]
        it.decide(NodeDeleted("a2"))
        assert it.asks(*gone) == [Ask.LET_GO] * len(gone)
        assert it.uids() == [uids(bind) for bind in gone]
        assert {one.gang for one in it.withdrawn} == {None}
        stays = [bind for bind in it.binds if bind.node == "a1"]
        assert it.asks(*stays) == [Ask.SEND] * len(stays)

    def test_one_that_was_withdrawn_is_neither_sent_nor_over(self) -> None:
        it = Scene(*pods(None, 4))
        [first, *_] = [bind for bind in it.binds if bind.node == "a2"]
        it.decide(NodeDeleted("a2"))
        assert it.asks(first, first) == [Ask.LET_GO, Ask.LET_GO]
        assert len(it.withdrawn) == 1
        it.not_bound(first)
        assert it.refused == []

    def test_only_the_newest_binding_of_a_pod_counts(self) -> None:
        it = Scene(*pods(None, 1))
        [old] = it.binds
        new = replace(old, order=old.order + 1)
        it.begin([new])
        assert it.asks(old) == [Ask.LET_GO]
        it.not_bound(old)
        assert it.refused == []
        assert it.asks(new) == [Ask.SEND]


class TestAGang:
    def test_it_is_withdrawn_as_a_whole(self) -> None:
        it = Scene()
        it.decide(MOVED)
        assert it.asks() == [Ask.LET_GO] * 4
        assert it.uids() == [uids(*it.binds)]
        assert it.withdrawn[0].gang == "default/train"

    def test_what_was_bound_stays_and_the_others_are_withdrawn(self) -> None:
        it = Scene()
        first, *others = it.binds
        assert it.asks(first) == [Ask.SEND]
        it.bound(first)
        it.decide(bound(first), MOVED)
        assert it.asks(*others) == [Ask.LET_GO] * 3
        assert it.uids() == [uids(*others)]

    def test_nothing_is_withdrawn_while_an_attempt_is_on_its_way(self) -> None:
        it = Scene()
        first, *others = it.binds
        assert it.asks(first) == [Ask.SEND]
        it.decide(MOVED)
        assert it.asks(*others) == [Ask.LET_GO] * 3
        assert it.withdrawn == []
        it.bound(first)
        assert it.uids() == [uids(*others)]

    def test_what_had_no_effect_is_withdrawn_with_the_others(self) -> None:
        it = Scene()
        it.asks(it.binds[0])
        it.decide(MOVED)
        it.asks()
        it.missed(it.binds[0], in_doubt=False)
        assert it.uids() == [uids(*it.binds)]

    def test_what_may_have_had_an_effect_is_looked_at_first(self) -> None:
        it = Scene()
        first = it.binds[0]
        it.asks(first)
        it.missed(first, in_doubt=True)
        it.decide(MOVED)
        assert it.asks(*it.binds[1:], first) == [*[Ask.LET_GO] * 3, Ask.LOOK]
        assert it.withdrawn == []
        it.handle(NoEffect(first))
        assert it.uids() == [uids(*it.binds)]

    def test_a_later_attempt_without_effect_does_not_end_the_doubt_about_an_earlier_one(self) -> None:
        it = Scene()
        first = it.binds[0]
        it.asks(first)
        it.missed(first, in_doubt=True)
        assert it.asks(first) == [Ask.SEND]
        it.missed(first, in_doubt=False)
        it.decide(MOVED)
        assert it.asks(first) == [Ask.LOOK]
        assert it.withdrawn == []

    def test_a_pod_that_was_read_is_sent_again(self) -> None:
        it = Scene()
        first = it.binds[0]
        it.asks(first)
        it.missed(first, in_doubt=True)
        it.handle(NoEffect(first))
        assert it.asks(first) == [Ask.SEND]
        it.missed(first, in_doubt=False)
        it.decide(MOVED)
        assert it.asks(first) == [Ask.LET_GO]
        assert it.uids() == [uids(*it.binds)]

    def test_it_does_not_hold_while_another_of_its_bindings_is_on_its_way(self) -> None:
        it = Scene()
        first, *others = it.binds
        assert it.asks(first) == [Ask.SEND]
        assert it.holds(others)
        it.decide(MOVED)
        assert not it.holds(others)
        assert it.withdrawn == []
        it.missed(first, in_doubt=False)
        assert it.uids() == [uids(*it.binds)]
        assert not it.holds(others)

    def test_what_is_to_be_withdrawn_stays_so_though_it_would_hold_again(self) -> None:
        it = Scene()
        first, *others = it.binds
        it.asks(first)
        it.decide(MOVED)
        assert not it.holds(others)
        it.decide(BACK)
        assert not it.holds(others)
        assert it.asks(*others) == [Ask.LET_GO] * 3

    def test_once_a_member_is_bound_the_minimum_stops_no_other(self) -> None:
        it = Scene()
        first, *others = it.binds
        it.asks(first)
        it.bound(first)
        raised = GroupChanged(gang(min_member=5, required="rack"))
        it.decide(raised)
        assert it.asks(*others) == [Ask.SEND] * 3

    def test_one_that_was_refused_later_does_not_undo_that(self) -> None:
        it = Scene()
        first, second, *others = it.binds
        it.asks(first, second)
        it.bound(first)
        it.not_bound(second)
        it.decide(GroupChanged(gang(min_member=5, required="rack")))
        assert it.asks(*others) == [Ask.SEND] * 2

    def test_members_that_were_decided_later_are_checked_with_those_before(self) -> None:
        late = pods("train", 1, prefix="late")
        it = Scene(*pods("train", 2), minimum=2)
        assert {bind.node for bind in it.binds} == {"a1"}
        it.decide(NodeUpserted(node("b1", {"zone": "zone-a", "rack": "rack-2"}, {GPU: 9})))
        assert it.holds(it.binds)  # From here on it is known which nodes are its own.
        more = it.decide(*map(PodUpserted, late))
        [last] = more
        it.begin(more)
        assert last.node == "a2"
        it.decide(MOVED)
        assert it.asks(*it.binds, last) == [Ask.LET_GO] * 3
        assert it.uids() == [uids(*it.binds, last)]

    def test_members_that_were_decided_before_a_change_are_checked_though_others_came_after_it(self) -> None:
        it = Scene(*pods("train", 2), minimum=2)
        assert {bind.node for bind in it.binds} == {"a1"}
        labels = {"zone": "zone-a", "rack": "rack-1"}
        cordoned = NodeUpserted(node("a1", labels, {GPU: 2}, unschedulable=True))
        (last,) = it.decide(cordoned, *map(PodUpserted, pods("train", 1, prefix="late")))
        it.begin([last])
        assert it.asks(last, *it.binds) == [Ask.LET_GO] * 3
        assert it.uids() == [uids(*it.binds, last)]

    def test_a_gang_that_comes_again_is_another_start(self) -> None:
        it = Scene()
        it.decide(MOVED)
        it.asks()
        again = it.decide(it.withdrawn[0], BACK)
        assert uids(*again) == uids(*it.binds)
        it.begin(again)
        assert it.asks(*again) == [Ask.SEND] * 4

    def test_what_is_given_up_is_withdrawn_for_that_reason(self) -> None:
        it = Scene()
        it.handle(PlanRefused(tuple(it.binds), "no plan"))
        assert [one.why for one in it.withdrawn] == ["no plan"]
        assert it.uids() == [uids(*it.binds)]

    def test_the_first_reason_counts(self) -> None:
        it = Scene()
        first, *others = it.binds
        it.asks(first)
        it.decide(MOVED)
        assert not it.holds(others)
        it.handle(PlanRefused(tuple(others), "no plan"))
        it.missed(first, in_doubt=False)
        assert len(it.withdrawn) == 1 and it.withdrawn[0].why != "no plan"
