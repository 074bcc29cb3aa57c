"""In a cluster the scheduler's own decision and reservation are shown, and beside them what differs now."""

from msgspec import UNSET

from closeby.objects.recorded import DecisionStatus, ReservationStatus, SchedulerStatus
from closeby.reading.configuration import Configuration
from closeby.report.documents.decided import Live, reserved_sentences, standing_of
from closeby.report.documents.explanations import Explanation, explain
from closeby.report.documents.subjects import GANG, POD, Subject
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
    status = SchedulerStatus(last_decision=decision, reservation=reservation)
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
        f"The scheduler says that 1 node of a/- is reserved for it since {SINCE}."
    ]
