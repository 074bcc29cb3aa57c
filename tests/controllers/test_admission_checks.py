"""What the admission check says to Kueue, and what it asks of the scheduler: pure functions."""

import msgspec
import pytest

from closeby.controllers.admission.kueue_objects import (
    ConditionWire,
    Flavor,
    MetaWire,
    QueuedWorkload,
    read_flavor,
    read_workload,
)
from closeby.controllers.admission.place_requests import places_for, pod_set_updates
from closeby.controllers.admission.verdicts import AdmissionLimits, verdict_on, verdict_without_request
from tests.control_plane.api import Object

LIMITS = AdmissionLimits(deadline=60, retry_after=30)
PLACED = ConditionWire(type="Scheduled", status="True", reason="Placed", message="4 places held in z1/r1")
FULL = ConditionWire(type="Scheduled", status="False", reason="TopologyPlacementFailed", message="no rack")
WRONG = ConditionWire(type="Scheduled", status="False", reason="InvalidSpec", message="no such field")


@pytest.mark.parametrize(
    ("before", "answer", "waited", "after"),
    [
        ("Pending", None, 1, None),
        ("Pending", PLACED, 1, "Ready"),
        ("Pending", FULL, 59, "Pending"),
        ("Pending", FULL, 60, "Retry"),
        ("Pending", None, 60, "Retry"),
        ("Pending", WRONG, 1, "Rejected"),
        ("Ready", PLACED, 1000, "Ready"),
        # What the scheduler has not looked at yet changes nothing.
        ("Ready", None, 1000, None),
        ("Ready", FULL, 1000, "Retry"),
        # Kueue sets these back itself.
        ("Retry", PLACED, 1, None),
        ("Rejected", PLACED, 1, None),
    ],
)
def test_a_check_says(before: str, answer: ConditionWire | None, waited: float, after: str | None) -> None:
    verdict = verdict_on(before, answer, waited, LIMITS)
    assert (None if verdict is None else verdict.state) == after
    if verdict is not None and after == "Retry":
        assert verdict.requeue_after == 30


@pytest.mark.parametrize(
    ("before", "waited", "after"), [("Pending", 1, "Pending"), ("Pending", 60, "Retry"), ("Ready", 60, None)]
)
def test_a_question_that_can_not_be_asked_holds_no_quota_for_ever(
    before: str, waited: float, after: str | None
) -> None:
    verdict = verdict_without_request(before, "Forbidden (403): no right", waited, LIMITS)
    assert (None if verdict is None else verdict.state) == after
    assert verdict is None or "Forbidden (403): no right" in verdict.message


def workload(**status: object) -> QueuedWorkload:
    """Two pod sets with their quota."""
    template: Object = {"spec": {"nodeSelector": {"own": "1"}, "schedulingGates": [{"name": "x"}], "x": None}}
    sets = [{"name": name, "count": 4, "template": template} for name in ("lead", "work")]
    body = {
        "metadata": {"name": "train", "namespace": "team", "uid": "u1"},
        "spec": {"podSets": sets},
        "status": status,
    }
    return read_workload(msgspec.json.encode(body))


def flavor(name: str) -> Flavor:
    spec = {"nodeLabels": {"pool": name, "own": "2"}, "tolerations": [{"key": name}]}
    return read_flavor(msgspec.json.encode({"metadata": {"name": name}, "spec": spec}))


@pytest.mark.parametrize(
    ("admitted", "done", "count"),
    [
        (4, 1, 3),
        # Evicted after one was done, and admitted again without that one.
        (3, 1, 3),
        # Fewer were admitted than there are.
        (2, 0, 2),
        (2, 1, 2),
        (None, 1, 3),
        (4, 4, 0),
    ],
)
def test_counts_are_as_kueue_counts_what_it_admitted_and_what_is_done(
    admitted: int | None, done: int, count: int
) -> None:
    status: Object = {"reclaimablePods": [{"name": "work", "count": done}]}
    if admitted is not None:
        status["admission"] = {"podSetAssignments": [{"name": "work", "count": admitted}]}
    _, asked = places_for(workload(**status), {}, {})["podSets"]
    assert (asked["name"], asked["count"], asked.get("size", 4)) == ("work", count, 4)


def test_what_the_pod_set_asks_for_goes_with_it_and_with_its_size() -> None:
    request = {"required": "rack", "podIndexLabel": None}
    done = [{"name": "main", "count": 3}]
    body = {
        "metadata": {"name": "train", "namespace": "team", "uid": "u1"},
        "spec": {"podSets": [{"name": "main", "count": 8, "template": {}, "topologyRequest": request}]},
        "status": {"reclaimablePods": done},
    }
    (asked,) = places_for(read_workload(msgspec.json.encode(body)), {}, {})["podSets"]
    assert (asked["count"], asked["size"], asked["topologyRequest"]) == (5, 8, {"required": "rack"})


def test_templates_get_what_kueue_will_give_to_the_pods() -> None:
    admission = {"podSetAssignments": [{"name": "lead", "flavors": {"cpu": "fast", "gpu": "fast"}}]}
    checks = [
        {"name": "other", "podSetUpdates": [{"name": "lead", "nodeSelector": {"zone": "z1"}}]},
        {"name": "ours", "podSetUpdates": [{"name": "lead", "nodeSelector": {"ignored": "1"}}]},
    ]
    given = workload(admission=admission, admissionChecks=checks)
    asked = places_for(given, {"fast": flavor("fast")}, {"ours": None})
    lead, work = (one["template"]["spec"] for one in asked["podSets"])
    # What the pod itself selects is not overruled.
    assert lead["nodeSelector"] == {"pool": "fast", "own": "1", "zone": "z1"}
    assert lead["tolerations"] == [{"key": "fast"}]
    assert work == {"nodeSelector": {"own": "1"}}


def test_the_pods_find_their_places_by_the_uid() -> None:
    updates = pod_set_updates(QueuedWorkload(metadata=MetaWire(uid="u1"), spec=workload().spec))
    assert [(one["name"], one["annotations"]) for one in updates] == [
        ("lead", {"closeby.dev/workload": "u1"}),
        ("work", {"closeby.dev/workload": "u1"}),
    ]
