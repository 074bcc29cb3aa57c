"""Which nodes a gang keeps free: what stands in the cluster goes before what explaining works out anew."""

from closeby.objects.recorded import Recorded
from closeby.reading.configuration import Configuration
from closeby.report.documents.explanations import explain
from closeby.report.documents.subjects import GANG, Subject
from closeby.scheduling.outcomes import Reservation
from closeby.simulator.runs import Asked, simulate
from tests.crowded import world
from tests.worlds import gang, pods, spec

#: The time, by which the gang has waited for an hour.
WALL = 1_000.0 + 3_600.0
FULL = pods("old", 2, on="n1", needs=spec(gpu=1)), pods("old", 2, prefix="far", on="n3", needs=spec(gpu=1))


def sentences(*messages: str, status: str = "False", reserve_after: float = 3_600.0) -> list[str]:
    """About a gang that waits for a rack, of which the cluster says this."""
    waiting = pods("big", 2, needs=spec(gpu=2), created=1_000.0)
    given = world(
        [gang("big", 2, required="rack"), gang("old")],
        [*waiting, *(pod for some in FULL for pod in some)],
        "a r1 : n1=2 n2=2\na r2 : n3=2 n4=2",
    )
    run = simulate(given, Configuration(reserve_after=reserve_after), Asked(wall=WALL))
    recorded = [
        Recorded(
            object="PodGroup/default/big",
            type="Scheduled",
            status=status,
            reason="Unschedulable",
            message=one,
            since="",
        )
        for one in messages
    ]
    found = explain(run, Subject(GANG, "default/big", "default/big"), recorded)
    return [one for one in found.sentences if "reserved" in one]


def test_worked_out_anew() -> None:
    """Also where the scheduler says nothing of nodes that it keeps free."""
    anew = ["Decided anew, 2 nodes of a/r1 would be reserved for it now."]
    assert sentences() == anew
    assert sentences("no rack of topology fabric holds all 2 pods") == anew
    assert sentences("all members are placed", status="True") == anew


def test_the_same_nodes_since_earlier() -> None:
    assert sentences("no rack …; 2 nodes of a/r1 are reserved for it since 1970-01-01T00:30:00Z") == [
        "The scheduler says that 2 nodes of a/r1 are reserved for it since 1970-01-01T00:30:00Z."
    ]


def test_other_nodes() -> None:
    (found,) = sentences("no rack …; 2 nodes of a/r2 are reserved for it since 1970-01-01T00:30:00Z")
    assert found == (
        "The scheduler says that 2 nodes of a/r2 are reserved for it since 1970-01-01T00:30:00Z; chosen anew "
        "they would be 2 nodes of a/r1."
    )


def test_only_the_scheduler_keeps_nodes_free() -> None:
    written = "no rack …; 1 node of a/r2/n3 are reserved for it since 1970-01-01T00:30:00Z"
    assert sentences(written, reserve_after=0.0) == [
        "The scheduler says that 1 node of a/r2/n3 are reserved for it since 1970-01-01T00:30:00Z."
    ]
    assert sentences("no rack of topology fabric holds all 2 pods", reserve_after=0.0) == []


def test_the_words_are_those_that_the_scheduler_writes() -> None:
    kept = Reservation(
        key="default/big",
        nodes=("n1", "n2"),
        topology="fabric",
        level="rack",
        path=("a", "r1"),
        missing=0,
        since="1970-01-01T00:30:00Z",
    )
    assert sentences(f"TopologyPlacementFailed: no rack holds them; {kept.sentence()}") == [
        f"The scheduler says that {kept.sentence()}."
    ]
