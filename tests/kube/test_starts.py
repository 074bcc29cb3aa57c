"""What the start of a gang needs, and when it has ended: one table or scene for each rule."""

import pytest
from msgspec.structs import replace

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import (
    BindingTurn,
    BindRefused,
    Bound,
    Decided,
    GiveBack,
    GivenBack,
    GroupGone,
    LeadLost,
    MemberGone,
    PlanTurn,
    PlanWritten,
    PreparationFailed,
    Prepare,
    Prepared,
    QueueBinding,
    QueuePlan,
    Reconciled,
    Restarted,
    Review,
    SendBinding,
    StartAction,
    StatusWritten,
    Undo,
    WritePlan,
)
from closeby.kube.gangs.starts import Starts
from closeby.kube.gangs.status import GangStanding, plan, scheduled
from closeby.kube.state.ownership import ForeignMembers, OwnGangs
from closeby.objects.pods import DEFAULT_SCHEDULER
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupChanged,
    GroupDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.outcomes import Binding, bindings_of
from tests.worlds import GPU, World, gang, node, pods, world

KEY, EARLIER, NOW = "default/train", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


class Scene:
    """A gang with a minimum on two nodes of four GPUs each."""

    def __init__(self, minimum: int, running: int = 0, steps: tuple[str, ...] = ()) -> None:
        self.drawn: World = world("zone-a rack-1 : a1=4 a2=4")
        self.group = gang(min_member=minimum, required="rack")
        self.running = pods("train", running, prefix="old", on="a1")
        self.tell(GroupChanged(self.group), *map(PodUpserted, self.running))
        needs = (lambda binding: binding.pod.name in steps) if steps else None
        own = OwnGangs(DEFAULT_SCHEDULER, self.drawn.engine.state, ForeignMembers())
        self.starts = Starts(self.drawn.engine, GangObjects(), own, needs)

    def tell(self, *events: Event) -> None:
        self.drawn.engine.handle(*events)

    def decide(self, count: int, prefix: str = "new") -> tuple[Binding, ...]:
        new = map(PodUpserted, pods("train", count, prefix=prefix))
        found = tuple(bindings_of(self.drawn.engine.handle(*new, Tick())))
        assert len(found) == count
        return found

    def begin(self, count: int) -> tuple[Binding, ...]:
        """A start whose plan stands."""
        bindings = self.decide(count)
        assert self.starts.handle(Decided(bindings, EARLIER)) == [QueuePlan(KEY, bindings)]
        assert self.starts.handle(PlanTurn(bindings)) == [WritePlan(KEY)]
        self.plan(bindings)
        return bindings

    def plan(self, bindings: tuple[Binding, ...]) -> list[StartAction]:
        self.group = replace(self.group, plan={one.pod.uid: one.node for one in bindings})
        self.tell(GroupChanged(self.group))
        self.starts.handle(StatusWritten(KEY, planned=True))
        return self.starts.handle(PlanWritten(bindings))

    def bound(self, binding: Binding) -> list[StartAction]:
        assert self.starts.handle(BindingTurn(binding)) == [SendBinding(binding)]
        self.tell(PodUpserted(replace(binding.pod, node_name=binding.node)))
        return self.starts.handle(Bound(binding))

    def lose(self, uid: str) -> None:
        self.tell(PodDeleted(uid))
        self.starts.handle(MemberGone(KEY, NOW))

    @property
    def standing(self) -> GangStanding:
        found = self.starts.standing(KEY)
        assert found is not None
        return found

    @property
    def kept(self) -> tuple[bool, bool]:
        """Whether a plan is kept for its start, and whether that is one after members were lost."""
        return self.standing.begun, self.standing.reduced

    @property
    def unfinished(self) -> list[str]:
        return [one.group.key for one in self.starts.unfinished()]


@pytest.mark.parametrize(
    ("minimum", "running", "new", "needed"),
    [
        (4, 0, 4, True),
        (3, 0, 4, True),
        (4, 2, 2, True),
        (4, 3, 1, False),  # One binding can't be cut in the middle.
        (2, 2, 2, False),  # The gang has enough already.
        (2, 1, 2, True),
        (1, 0, 2, False),  # One member suffices.
    ],
)
def test_a_plan_is_needed_where_some_could_be_bound_but_too_few(
    minimum: int, running: int, new: int, needed: bool
) -> None:
    it = Scene(minimum, running)
    bindings = it.decide(new)
    queued: list[StartAction] = [QueueBinding(one) for one in bindings]
    assert it.starts.handle(Decided(bindings, NOW)) == ([QueuePlan(KEY, bindings)] if needed else queued)
    assert it.standing.begun is needed
    assert it.starts.in_flight == new


def test_bindings_in_flight_are_no_members_that_are_bound() -> None:
    it = Scene(4, 3)
    single = it.decide(1)
    assert it.starts.handle(Decided(single, NOW)) == [QueueBinding(*single)]
    late = it.decide(2, prefix="late")
    assert it.starts.handle(Decided(late, NOW)) == [QueuePlan(KEY, late)]


def test_only_members_that_are_there_count_as_bound() -> None:
    """Two of three are deleted while their bindings, which nobody withdraws, are on the way."""
    it = Scene(3, 2)
    first, *others = it.begin(3)
    assert [it.starts.handle(BindingTurn(one)) for one in others] == [[SendBinding(one)] for one in others]
    for one in others:
        it.lose(one.pod.uid)
    standing = it.standing
    assert (len(standing.held), standing.bound) == (3, 2)
    assert not standing.enough and standing.unfinished and standing.starting
    assert "2 of 3 members are bound" in scheduled(standing).message
    it.lose(it.running[0].uid)
    it.lose(it.running[1].uid)
    assert it.standing.bound == 0 and not it.standing.unfinished
    it.lose(first.pod.uid)
    assert it.standing.bound == 0 and not it.standing.starting


def test_bindings_of_members_that_are_gone_make_no_plan_needed() -> None:
    it = Scene(4, 3)
    single = it.decide(1)
    it.starts.handle(Decided(single, NOW))
    it.starts.handle(BindingTurn(*single))
    it.tell(PodDeleted(single[0].pod.uid))
    it.tell(*map(PodUpserted, pods("train", 4, prefix="old", on="a1")[3:]))  # Four are bound: enough.
    late = it.decide(2, prefix="late")
    assert it.starts.handle(Decided(late, NOW)) == [QueueBinding(one) for one in late]


def test_a_start_ends_with_its_last_binding() -> None:
    it = Scene(2)
    first, second = it.begin(2)
    assert it.bound(first) == []
    assert it.standing.starting and it.unfinished == [KEY]
    it.tell(GroupChanged(replace(it.group, plan={})))  # The watch may be late.
    assert it.bound(second) == [Review(KEY)]
    assert not it.standing.begun and it.unfinished == []
    assert it.starts.plan_may_stand(KEY)
    it.starts.handle(StatusWritten(KEY, planned=False))
    assert not it.starts.plan_may_stand(KEY) and it.starts.plan_made(KEY) == ""


def test_members_of_a_planned_start_that_follow_its_plan_are_sent_at_once() -> None:
    it = Scene(3)
    first, *others = it.begin(3)
    assert it.starts.handle(BindingTurn(first)) == [SendBinding(first)]
    failure = BindFailed(first.pod.uid, "no")
    assert it.starts.handle(BindRefused(first, failure)) == [GiveBack(failure)]
    assert first.pod.uid in it.standing.on_the_way  # Until the engine knows.
    assert it.starts.in_flight == len(others)


def test_a_plan_that_the_watch_reports_late_is_followed_and_kept() -> None:
    it = Scene(2, 1)
    (binding,) = it.decide(1)
    it.tell(GroupChanged(replace(it.group, plan={binding.pod.uid: binding.node})))
    assert it.starts.handle(Decided((binding,), NOW)) == [QueueBinding(binding)]
    assert it.kept == (True, False)


def test_a_start_that_is_withdrawn_ends_once_the_engine_knows() -> None:
    it = Scene(4)
    first, *_ = it.begin(4)
    it.tell(NodeUpserted(node("a1", {"zone": "zone-a", "rack": "rack-9"}, {GPU: 1})))
    (given,) = it.starts.handle(BindingTurn(first))
    assert isinstance(given, GiveBack) and it.kept == (True, False)
    it.tell(given.failure)
    assert it.starts.handle(GivenBack((given.failure,))) == [Review(KEY, waits=True)]
    assert it.kept == (False, False)


def test_a_refusal_withdraws_the_others_if_the_decision_does_not_hold() -> None:
    it = Scene(4)
    first, *others = it.begin(4)
    assert it.starts.handle(BindingTurn(first)) == [SendBinding(first)]
    it.tell(NodeUpserted(node("a1", {"zone": "zone-a", "rack": "rack-9"}, {GPU: 1})))
    assert it.starts.handle(BindingTurn(others[0])) == []
    failure = BindFailed(first.pod.uid, "no")
    passed_on, withdrawn = it.starts.handle(BindRefused(first, failure))
    assert passed_on == GiveBack(failure)
    assert isinstance(withdrawn, GiveBack) and isinstance(withdrawn.failure, BindingsWithdrawn)
    assert set(withdrawn.failure.uids) == {one.pod.uid for one in others}


class TestALostMember:
    def test_a_gang_that_was_complete_has_a_plan_until_it_is_so_again(self) -> None:
        it = Scene(2, 2)
        it.lose(it.running[0].uid)
        assert it.kept == (True, True) and it.standing.starting
        assert it.starts.plan_made(KEY) == NOW
        # It is no start that stopped in the middle.
        assert it.unfinished == []
        (binding,) = it.decide(1)
        later = "2026-01-03T00:00:00Z"
        assert it.starts.handle(Decided((binding,), later)) == [QueuePlan(KEY, (binding,))]
        assert it.kept == (True, False)
        assert it.starts.plan_made(KEY) == later

    def test_a_gang_that_has_enough_without_it_needs_no_plan(self) -> None:
        it = Scene(2, 3)
        it.lose(it.running[0].uid)
        assert not it.standing.begun

    def test_a_start_that_is_in_the_middle_stays_what_it_is(self) -> None:
        it = Scene(3)
        first, second, _ = it.begin(3)
        it.bound(first)
        it.bound(second)
        it.lose(second.pod.uid)
        assert it.kept == (True, False)
        assert it.starts.plan_made(KEY) == EARLIER

    def test_a_smaller_minimum_ends_it_which_is_noticed_in_time(self) -> None:
        it = Scene(2, 2)
        it.lose(it.running[0].uid)
        it.starts.handle(StatusWritten(KEY, planned=True))
        assert it.starts.handle(Reconciled()) == []
        it.tell(GroupChanged(replace(it.group, min_member=1)))
        assert it.starts.handle(Reconciled()) == [Review(KEY)]
        assert it.starts.handle(Reconciled()) == []
        assert it.kept == (False, False)


class TestAPodGroupThatIsGone:
    def test_the_start_waits_for_one_that_has_its_name(self) -> None:
        it = Scene(3)
        first, *_ = it.begin(3)
        it.bound(first)
        it.tell(GroupDeleted(KEY))
        it.starts.handle(GroupGone(KEY, NOW))
        assert it.starts.handle(Reconciled()) == []
        assert it.starts.standing(KEY) is None and not it.starts.plan_may_stand(KEY)
        it.tell(GroupChanged(replace(it.group, plan={})))
        assert it.standing.starting
        written = plan(it.standing, it.starts.plan_made(KEY))
        assert written is not None and written.made == NOW

    def test_a_start_with_a_binding_in_flight_goes_on_though_its_pods_are_gone(self) -> None:
        it = Scene(2)
        bindings = first, second = it.begin(2)
        assert it.starts.handle(BindingTurn(first)) == [SendBinding(first)]
        it.tell(GroupDeleted(KEY), *(PodDeleted(one.pod.uid) for one in bindings))
        assert it.starts.handle(Reconciled()) == []
        gone = [BindFailed(one.pod.uid, "gone", final=True) for one in bindings]
        it.starts.handle(BindRefused(first, gone[0]))
        it.starts.handle(BindRefused(second, gone[1]))
        assert it.starts.handle(Reconciled()) == []
        assert it.starts.handle(GivenBack(tuple(gone))) == [Review(KEY)]
        assert it.starts.handle(Reconciled()) == []

    def test_a_start_of_which_no_member_is_left_ends(self) -> None:
        it = Scene(2, 2)
        first, second = it.running
        it.lose(first.uid)
        it.tell(GroupDeleted(KEY))
        it.starts.handle(GroupGone(KEY, NOW))
        assert it.starts.handle(Reconciled()) == []
        it.lose(second.uid)
        assert it.starts.handle(Reconciled()) == [Review(KEY)]


@pytest.mark.parametrize(("running", "reduced"), [(2, True), (1, False)])
def test_a_plan_that_names_bound_members_alone_is_of_a_gang_that_lost_some(
    running: int, reduced: bool
) -> None:
    it = Scene(3, running)
    it.tell(GroupChanged(replace(it.group, plan={"default/old-0": "a1", "default/old-1": "a1"})))
    assert it.starts.handle(Restarted(NOW)) == [Review(KEY, waits=True)]
    assert it.kept == (True, reduced)
    assert it.unfinished == ([] if reduced else [KEY])


class TestStepsBeforeBindings:
    def test_members_without_steps_wait_for_those_with_them(self) -> None:
        it = Scene(2, steps=("new-1",))
        bindings = it.decide(2)
        it.starts.handle(Decided(bindings, NOW))
        needs = next(one for one in bindings if one.pod.name == "new-1")
        assert it.plan(bindings) == [Prepare(needs)]
        assert it.starts.preparing == 2
        queued: list[StartAction] = [QueueBinding(one) for one in bindings]
        assert it.starts.handle(Prepared(needs)) == queued
        assert (it.starts.preparing, it.starts.in_flight) == (0, 2)

    def test_a_gang_without_any_goes_straight_on(self) -> None:
        it = Scene(2, steps=("another",))
        bindings = it.decide(2)
        it.starts.handle(Decided(bindings, NOW))
        assert it.plan(bindings) == [QueueBinding(one) for one in bindings]

    def test_plain_pods_wait_for_their_own_alone(self) -> None:
        it = Scene(1, steps=("pod-1",))
        new = map(PodUpserted, pods(None, 3))
        bindings = tuple(bindings_of(it.drawn.engine.handle(*new, Tick())))
        one, two, three = sorted(bindings, key=lambda binding: binding.pod.name)
        actions = it.starts.handle(Decided((one, two, three), NOW))
        assert actions == [QueueBinding(one), Prepare(two), QueueBinding(three)]
        failure = BindFailed(two.pod.uid, "no volume")
        assert it.starts.handle(PreparationFailed(two, "no volume")) == [Undo(two), GiveBack(failure)]
        assert it.starts.in_flight == 2

    def test_what_was_done_for_a_binding_that_is_refused_is_undone(self) -> None:
        it = Scene(1, steps=("new-0",))
        (binding,) = it.decide(1)
        assert it.starts.handle(Decided((binding,), NOW)) == [Prepare(binding)]
        assert it.starts.handle(Prepared(binding)) == [QueueBinding(binding)]
        assert it.starts.handle(BindingTurn(binding)) == [SendBinding(binding)]
        failure = BindFailed(binding.pod.uid, "no")
        assert it.starts.handle(BindRefused(binding, failure)) == [Undo(binding), GiveBack(failure)]

    def test_steps_of_a_binding_that_is_in_flight_no_more_are_undone(self) -> None:
        it = Scene(1, steps=("new-0",))
        (old,) = it.decide(1)
        it.starts.handle(Decided((old,), NOW))
        new = replace(old, order=old.order + 1)
        it.starts.handle(Decided((new,), NOW))
        assert it.starts.handle(Prepared(old)) == [Undo(old)]
        assert it.starts.handle(PreparationFailed(old, "no volume")) == [Undo(old)]
        assert it.starts.handle(Prepared(new)) == [QueueBinding(new)]

    def test_a_newer_decision_about_a_member_does_not_hold_up_the_others(self) -> None:
        it = Scene(3, steps=("new-0", "new-1"))
        bindings = one, two, three = it.decide(3)
        it.starts.handle(Decided(bindings, NOW))
        assert it.plan(bindings) == [Prepare(one), Prepare(two)]
        assert it.starts.handle(Prepared(two)) == []
        newer = replace(one, order=one.order + 9)
        assert it.starts.handle(Decided((newer,), NOW))[:2] == [QueueBinding(two), QueueBinding(three)]

    def test_nothing_is_undone_once_the_lead_is_lost(self) -> None:
        """The next leader follows the same plan, and may rely on it."""
        it = Scene(2, steps=("new-0", "new-1"))
        bindings = first, second = it.decide(2)
        it.starts.handle(Decided(bindings, NOW))
        assert it.plan(bindings) == [Prepare(first), Prepare(second)]
        it.starts.handle(LeadLost())
        assert it.starts.handle(Prepared(first)) == []
        withdrawn = it.starts.handle(PreparationFailed(second, "no volume"))
        assert [type(one) for one in withdrawn] == [GiveBack]
        late = it.decide(1, prefix="late")
        assert not any(isinstance(one, Prepare) for one in it.starts.handle(Decided(late, NOW)))
