"""What has to be written so that a status says what it should, and nothing else."""

from typing import Any

import msgspec
import pytest

from closeby.controllers.statuses import VALID, Fields, WantedStatus, changes_of, seen, validity
from closeby.kube.watch.changes import upserted
from closeby.kube.writing.writer import StatusCondition
from closeby.objects.quantities import utc
from closeby.objects.reasons import Condition, Reason
from tests.controllers.custom import KEP, PUBLISHED_APP, resource
from tests.golden.fixture import Golden

NOW = 1_700_000_000.7
THEN, STAMP = "2023-01-01T00:00:00Z", "2023-11-14T22:13:20Z"
GOOD = StatusCondition(type="Valid", status="True", reason="Valid")
BAD = StatusCondition(type="Valid", status="False", reason="InvalidSpec", message="no")


def listed(status: str, time: str = THEN, **more: object) -> dict[str, object]:
    return {"type": "Valid", "status": status, **more, "lastTransitionTime": time}


@pytest.mark.parametrize(
    ("before", "fields", "changes"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "theirs": 2}, {"a": 1}, {}),
        ({"a": 1, "theirs": 2}, {"a": 3}, {"a": 3}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": None}, {}),
    ],
)
def test_fields_that_differ(
    before: dict[str, object], fields: dict[str, object], changes: dict[str, object]
) -> None:
    assert changes_of(before, WantedStatus(fields=fields), NOW) == changes


FOREIGN = {"type": "Pretty", "status": "True"}
WAS_GOOD = listed("True", reason="Valid")
WAS_BAD = listed("False", reason="InvalidSpec", message="no")


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        (None, [], None),
        (None, [GOOD], [listed("True", STAMP, reason="Valid")]),
        ([FOREIGN], [GOOD], [FOREIGN, listed("True", STAMP, reason="Valid")]),
        ([WAS_GOOD, FOREIGN], [BAD], [listed("False", STAMP, reason="InvalidSpec", message="no"), FOREIGN]),
        ([WAS_BAD, FOREIGN], [], [FOREIGN]),
        ([WAS_BAD], [], []),
        ([listed("False", message="other")], [BAD], [WAS_BAD]),
        ([listed("True", time="", reason="Valid")], [GOOD], [listed("True", STAMP, reason="Valid")]),
    ],
    ids=[
        "nothing to say",
        "the first",
        "beside another's",
        "its status changes, and so does its time",
        "no more to be said",
        "the last one goes",
        "another message at the old time",
        "a time that was taken away",
    ],
)
def test_conditions(before: Any, wanted: list[StatusCondition], after: Any) -> None:
    it = WantedStatus(conditions=wanted, types=frozenset((VALID,)))
    status = {} if before is None else {"conditions": before}
    changes = changes_of(status, it, NOW)
    assert (status | changes).get("conditions") == after
    # What was written is as wanted.
    assert changes_of(status | changes, it, NOW + 99) == {}


@pytest.mark.parametrize("before", [[WAS_GOOD], [WAS_GOOD, FOREIGN], [FOREIGN, WAS_GOOD]])
def test_conditions_that_stand_there_are_not_written(before: Any) -> None:
    it = WantedStatus(conditions=[GOOD], types=frozenset((VALID,)))
    assert changes_of({"conditions": before}, it, NOW) == {}


def test_the_conditions_of_others_are_left_alone_by_who_has_none() -> None:
    assert changes_of({"conditions": [FOREIGN, WAS_BAD]}, WantedStatus(fields={}), NOW) == {}


def test_what_is_no_list_of_conditions_is_left_alone_too() -> None:
    assert changes_of({"conditions": "odd"}, WantedStatus(fields={}), NOW) == {}


def test_an_object_as_it_was_seen() -> None:
    content = {
        "metadata": {"name": "g", "namespace": "a", "uid": "u", "resourceVersion": "5", "generation": 2}
    }
    raw = msgspec.json.encode(content | {"spec": {"b": 1}, "status": None})
    counted = seen(resource(KEP, "AppGroup"), upserted(msgspec.Raw(raw)))
    assert (counted.key, counted.uid, counted.version, counted.size) == ("a/g", "u", "5", len(raw))
    assert (dict(counted.spec), dict(counted.status), counted.generation) == ({"b": 1}, {}, 2)
    # Where the status is not a resource of its own, the generation counts its changes too.
    assert seen(resource(PUBLISHED_APP, "AppGroup"), upserted(msgspec.Raw(raw))).generation is None


def test_fields_are_those_of_an_object() -> None:
    assert dict(Fields(b' \n{"a": [1], "b": null}')) == {"a": [1], "b": None}
    assert [dict(Fields(raw)) for raw in (b"null", b"[1]", b'"a"', b"")] == [{}] * 4
    assert Fields(b'{"a": 1}') == Fields(b'{"a": 1}') != Fields(b'{"a": 2}')


def test_validity_gathers_all_that_is_wrong(golden: Golden) -> None:
    one = Condition(
        reason=Reason.INVALID_SPEC, object="X/a/b", field="spec.a", message="is odd", remedy="mend it"
    )
    other = Condition(reason=Reason.UNSUPPORTED, object="X/a/b", message="can't be read")
    told = validity((one, other), 7)
    assert (told.status, told.reason, told.observed_generation) == ("False", "InvalidSpec", 7)
    golden("controllers", told.message)
    assert validity((), 7) == StatusCondition(
        type="Valid", status="True", reason="Valid", observed_generation=7
    )


def test_a_long_story_is_cut() -> None:
    one = Condition(reason=Reason.INVALID_SPEC, object="X/a/b", message="ä" * 5000)
    assert len(validity((one,), None).message.encode()) <= 1024


def test_times_have_whole_seconds() -> None:
    assert utc(NOW) == STAMP
