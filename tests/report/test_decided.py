"""In a cluster the scheduler's own decision and reservation are shown, and beside them what differs now."""

from msgspec import UNSET
from msgspec.structs import replace

from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL, AppGroup, AppWorkload
from closeby.objects.reasons import Problem
from closeby.objects.recorded import (
    DecisionStatus,
    PodCondition,
    PodDecision,
    ReservationStatus,
    SchedulerStatus,
    Story,
)
from closeby.reading.configuration import Configuration
from closeby.report.documents.decided import (
    DecidedEntry,
    Live,
    NowEntry,
    Origin,
    PodDecidedEntry,
    standing_of,
)
from closeby.report.documents.explanations import Explanation, NotAsked, explain
from closeby.report.documents.sentences import BY_THIS_COMMAND, reserved_sentences
from closeby.report.documents.subjects import APP_GROUP, GANG, POD, Subject
from closeby.scheduling.outcomes import ItemKind, Reservation
from closeby.simulator.runs import Asked, Simulation
from tests.crowded import world
from tests.worlds import gang, pods, spec

#: The time, by which the gang has waited for an hour.
WALL = 1_000.0 + 3_600.0
SINCE = "1970-01-01T00:30:00Z"
FULL = (
    *pods("old", 2, on="n1", needs=spec(gpu=1)),
    *pods("old", 2, prefix="far", on="n3", needs=spec(gpu=1)),
)
NEW = "A new decision would"


def explained(
    decision: DecisionStatus | None = None,
    reservation: ReservationStatus | None = None,
    *,
    reserve_after: float = 3_600.0,
    member: bool = False,
    full: bool = True,
    bound: bool = False,
    story: Story | None = None,
) -> Explanation:
    """A gang that waits for a rack (unless it is ``bound``), of which the cluster says this."""
    waiting = pods("big", 2, on="n2" if bound else None, needs=spec(gpu=1 if bound else 2), created=1_000.0)
    given = world(
        [gang("big", 2, required="rack"), gang("old")],
        [*waiting, *(FULL if full else ())],
        "a r1 : n1=2 n2=2\na r2 : n3=2 n4=2",
    )
    configuration = Configuration(reserve_after=reserve_after)
    simulation = Simulation(given, configuration, Asked(explain=(), wall=WALL))
    before = simulation.standing()
    status = SchedulerStatus(last_decision=decision, reservation=reservation, story=story)
    kind, name = (POD, "default/big-0") if member else (GANG, "default/big")
    subject = Subject(kind, name, "default/big", ItemKind.GANG)
    live = Live(standing=standing_of(before, subject), status=status)
    return explain(simulation.decided(explain=["default/big"]), subject, live)


def kept(domain: tuple[str, ...] = ("a", "r2")) -> ReservationStatus:
    return ReservationStatus(nodes=2, topology="fabric", level="rack", domain=domain, since=SINCE, missing=1)


def waits(reason: str = "GangIncomplete") -> DecisionStatus:
    return DecisionStatus(time=SINCE, reason=reason, message="1 of at least 2 pods")


def test_the_schedulers_reason_is_the_reason() -> None:
    found = explained(waits())
    assert found.reason == "GangIncomplete" and found.gang is not None
    assert (found.gang.reason, found.gang.message, found.gang.scheduled) == (found.reason, waits().message, 0)
    assert {(one.phase, one.reason, one.message) for one in found.pods} == {
        ("Pending", "GangIncomplete", waits().message)
    }
    assert found.last_decision == waits()
    assert SINCE in found.sentences[1]
    (new,) = [one for one in found.sentences if one.startswith(NEW) and "reason" in one]
    assert "TopologyPlacementFailed" in new or "GangDoesNotFit" in new


def test_the_same_decision_now_is_not_shown() -> None:
    reason = explained(reserve_after=0.0).reason
    assert reason is not None
    found = explained(waits(reason), reserve_after=0.0)
    assert found.reason == reason and found.gang is not None and found.gang.message == waits().message
    assert not [one for one in found.sentences if one.startswith(NEW)]
    assert len(found.domains) == 2


def test_a_gang_that_would_start_now_still_waits() -> None:
    found = explained(waits(), full=False)
    assert found.gang is not None
    assert (found.reason, found.gang.scheduled) == ("GangIncomplete", 0)
    assert {one.node for one in found.pods} == {None}
    assert [one for one in found.sentences if one.startswith(f"{NEW} place 2 pods")]


def test_a_member_has_the_reason_of_its_gang() -> None:
    found = explained(waits(), member=True)
    assert (found.reason, found.pods[0].phase) == ("GangIncomplete", "Pending")


def test_what_an_older_version_wrote_is_not_known() -> None:
    """Then it is decided here, as before."""
    found = explained()
    assert found.reason == "TopologyPlacementFailed"
    assert (found.last_decision, found.reservation) == (UNSET, UNSET)


def test_members_that_came_after_the_decision() -> None:
    """The scheduler placed all that there were, and now there are others: they are decided here."""
    found = explained(DecisionStatus(time=SINCE))
    assert found.reason is not None and found.reason != "GangIncomplete"


def test_a_placed_gang_was_decided_by_the_scheduler() -> None:
    found = explained(DecisionStatus(time=SINCE), bound=True)
    assert found.reason is None
    assert SINCE in found.sentences[1]
    assert SINCE not in " ".join(explained(bound=True).sentences)


def test_nodes_that_this_command_would_reserve_are_not_shown_as_reserved() -> None:
    found = explained()
    assert found.gang is not None
    messages = (found.gang.message, *(one.message for one in found.pods))
    told = (*found.sentences, *(one or "" for one in messages))
    assert [one for one in told if "reserve" in one] == [f"{NEW} reserve 2 nodes of a/r1 for it."]


def test_the_schedulers_reservation_and_what_would_be_chosen_now() -> None:
    found = explained(waits(), kept())
    assert found.reservation == kept()
    assert found.sentences[-1].endswith("would choose 2 nodes of a/r1.")
    same = explained(waits(), kept(("a", "r1")))
    assert "choose" not in same.sentences[-1] and SINCE in same.sentences[-1]


def test_only_the_scheduler_keeps_nodes_free() -> None:
    found = explained(waits(), kept(), reserve_after=0.0)
    assert "a/r2" in found.sentences[-1] and "choose" not in found.sentences[-1]


def test_the_status_says_what_the_reservation_is() -> None:
    own = Reservation(
        key="default/big",
        nodes=("n1",),
        topology="fabric",
        level="rack",
        path=("a", None),
        missing=1,
        since=SINCE,
    )
    status = own.status
    assert (status.nodes, status.domain, status.missing, status.level) == (1, ("a", ""), 1, "rack")
    assert list(reserved_sentences(status, own)) == [
        f"The scheduler says that 1 node of a/– is reserved for it since {SINCE}."
    ]


# The story of a scheduler that was asked, and conditions of pods


def served(
    *pods: PodDecision, decision: DecisionStatus | None = None, kept: ReservationStatus | None = None
) -> Story:
    return Story(
        api_version="v1",
        kind="Story",
        namespace="default",
        name="any",
        scheduler="closeby",
        last_decision=decision,
        pods=pods,
        reservation=kept,
    )


def refused(name: str, reason: str = "GangIncomplete", message: str = "") -> PodDecision:
    return PodDecision(name=name, uid=f"default/{name}", reason=reason, message=message, time=SINCE)


def test_the_story_counts_before_the_status() -> None:
    members = refused("big-0"), refused("big-1", "PodAntiAffinityConflict", "its own")
    older = DecisionStatus(time="1970-01-01T00:00:00Z", reason="GangDoesNotFit", message="older")
    found = explained(older, story=served(*members, decision=waits()))
    assert found.decided == DecidedEntry(source=Origin.SCHEDULER, scheduler="closeby", time=SINCE)
    assert (found.reason, found.last_decision) == ("GangIncomplete", older)
    assert [(one.reason, one.message) for one in found.pods] == [
        ("GangIncomplete", waits().message),
        ("PodAntiAffinityConflict", "its own"),
    ]
    assert isinstance(found.now, NowEntry) and found.now.reason == "TopologyPlacementFailed"


def test_a_story_of_before_a_member_came_does_not_count() -> None:
    found = explained(waits("GangDoesNotFit"), story=served(refused("big-0"), decision=waits()))
    assert isinstance(found.decided, DecidedEntry) and found.decided.source is Origin.STATUS
    assert found.reason == "GangDoesNotFit"


def test_a_reservation_in_the_story_is_the_newest() -> None:
    members = refused("big-0"), refused("big-1")
    found = explained(waits(), kept(), story=served(*members, decision=waits(), kept=kept(("a", "r1"))))
    assert found.reservation == kept(("a", "r1"))


def solo(status: SchedulerStatus, *, bound: bool = False) -> Explanation:
    """A pod that would get a node now, of which the cluster says this."""
    (pod,) = pods(None, 1, prefix="solo", on="n2" if bound else None, needs=spec(gpu=1))
    given = world([], [pod], "a r1 : n1=2 n2=2")
    simulation = Simulation(given, Configuration(), Asked(explain=(), wall=WALL))
    subject = Subject(POD, pod.key, pod.key, ItemKind.POD)
    live = Live(standing=standing_of(simulation.standing(), subject), status=status)
    return explain(simulation.decided(explain=[pod.key]), subject, live)


def condition(*, bound: bool) -> dict[str, PodCondition]:
    reason = "" if bound else "SchedulingGated"
    return {"solo-0": PodCondition(bound=bound, reason=reason, message="gated", since=SINCE)}


def only(found: Explanation) -> PodDecidedEntry:
    assert isinstance(found.decisions, tuple)
    (one,) = found.decisions
    return one


def test_a_pod_that_no_scheduler_has_decided_about() -> None:
    found = solo(SchedulerStatus())
    assert only(found).source is Origin.COMMAND and found.pods[0].phase == "Scheduled"
    assert found.sentences[0] == BY_THIS_COMMAND


def test_a_pod_of_which_only_its_condition_is_known() -> None:
    found = solo(SchedulerStatus(pods=condition(bound=False)))
    one = only(found)
    assert (one.source, one.reason, one.message, one.time) == (
        Origin.POD,
        "SchedulingGated",
        "gated",
        SINCE,
    )
    assert (found.reason, found.pods[0].node) == ("SchedulingGated", None)
    assert isinstance(found.now, NowEntry) and found.now.scheduled == 1


def test_a_bound_pod_is_on_its_node_since_its_condition_says_so() -> None:
    found = solo(SchedulerStatus(pods=condition(bound=True)), bound=True)
    assert (only(found).node, only(found).time, only(found).source) == ("n2", SINCE, Origin.POD)
    assert BY_THIS_COMMAND not in found.sentences


def test_a_pod_whose_binding_is_on_the_way() -> None:
    chosen = PodDecision(name="solo-0", uid="default/solo-0", node="n1", time=SINCE)
    found = solo(SchedulerStatus(story=served(chosen, decision=DecisionStatus(time=SINCE))))
    assert (only(found).source, only(found).node) == (Origin.SCHEDULER, "n1")
    assert (found.pods[0].phase, found.pods[0].node, found.reason) == ("Scheduled", "n1", None)


def test_a_pod_that_waits_for_its_volume_has_not_gone_to_its_node() -> None:
    chosen = PodDecision(name="solo-0", uid="default/solo-0", node="n1", time=SINCE)
    said = PodCondition(
        bound=False, reason="Unschedulable", message="VolumeNotBindable: claim c has none", since=SINCE
    )
    story = served(chosen, decision=DecisionStatus(time=SINCE))
    for known in (
        SchedulerStatus(story=story, pods={"solo-0": said}),
        SchedulerStatus(pods={"solo-0": said}),
    ):
        found = solo(known)
        assert (found.reason, found.pods[0].node) == ("VolumeNotBindable", None)
        assert only(found).message == "claim c has none"


def test_a_scheduler_that_could_not_be_asked() -> None:
    found = solo(SchedulerStatus(unasked=Problem("it sleeps", "wake it")))
    assert found.not_asked == NotAsked(message="it sleeps", remedy="wake it")
    assert found.story is UNSET


def test_an_application_of_which_a_pod_belongs_to_a_gang() -> None:
    """It is decided with its gang, and shown with its application too."""
    web = AppGroup(namespace="default", name="shop", workloads=(AppWorkload(name="web"),))
    labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: "web"}
    members = [
        *pods("big", 1, needs=spec(gpu=1), labels=labels),
        *pods(None, 1, on="n1", needs=spec(gpu=1), labels=labels),
    ]
    given = replace(world([gang("big", 1)], members, "a r1 : n1=2 n2=2"), app_groups=(web,))
    simulation = Simulation(given, Configuration(), Asked(explain=(), wall=WALL))
    subject = Subject(APP_GROUP, "default/shop", "default/shop", ItemKind.APPLICATION)
    waiting = {"big-0": PodCondition(bound=False, reason="Unschedulable", message="", since=SINCE)}
    live = Live(standing=standing_of(simulation.standing(), subject), status=SchedulerStatus(pods=waiting))
    found = explain(simulation.decided(), subject, live)
    assert isinstance(found.decisions, tuple)
    assert {(one.name, one.node, one.source) for one in found.decisions} == {
        ("big-0", None, Origin.POD),
        ("pod-0", "n1", Origin.POD),
    }
    assert found.app_group is not None and found.app_group.scheduled == 1
