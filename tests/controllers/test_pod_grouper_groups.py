"""Which PodGroups are the pod-grouper's, whatever order its answers and the watch's events come in."""

from collections.abc import Callable

import msgspec
import pytest

from closeby.controllers.grouping.groups import Groups, Key
from closeby.controllers.grouping.objects import POD_GROUPS, Object, object_of
from closeby.controllers.grouping.owners import Ref
from closeby.controllers.grouping.pods import Pods
from closeby.kube.watch.changes import Deleted, Upserted
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Condition, Reason

JOB = Ref("ns", "batch/v1", "Job", "train", "job-1")
GANG = PodGroup(namespace="ns", name="train", min_member=2)
KEY, NEXT = Key("ns", "train"), Key("ns", "train-job")
OURS = object_of(GANG, KEY.name, [JOB])
USERS: Object = {"metadata": {"name": "train"}, "spec": {"minMember": 3}}
Step = Callable[[Groups], object]


def made(uid: str, what: Object = OURS) -> Step:
    """The watch tells of a PodGroup of that name."""
    meta = {"name": KEY.name, **msgspec.convert(what["metadata"], Object), "uid": uid}
    raw = msgspec.json.encode({**what, "metadata": meta})
    return lambda it: it.observe(POD_GROUPS, Upserted("ns/train", uid, "1", raw))


def gone(uid: str) -> Step:
    """The watch tells of its end."""
    return lambda it: it.observe(POD_GROUPS, Deleted("ns/train", uid))


def answered(uid: str) -> Step:
    """The server agrees to our writing it."""
    return lambda it: it.wrote(KEY, OURS, uid)


def refused(it: Groups) -> None:
    """The server says that there is one of that name already."""
    it.disclaim(KEY)


@pytest.mark.parametrize(
    ("steps", "stands"),
    [
        ((answered("1"), made("1")), True),
        ((made("1"), answered("1")), True),
        ((answered("1"), made("1"), gone("1")), False),
        ((made("1"), answered("1"), gone("1")), False),
        ((made("1"), gone("1"), answered("1")), False),
        ((answered("1"), made("1"), gone("1"), made("2"), answered("2")), True),
        # Of the one before it the watch tells late.
        ((made("1"), answered("2"), gone("1"), made("2")), True),
        # Somebody has made the very same under that name.
        ((answered("1"), made("2", {**OURS, "metadata": {"name": "train"}})), False),
    ],
)
def test_what_is_gone_is_written_again_however_late_the_answer_comes(
    steps: tuple[Step, ...], stands: bool
) -> None:
    it = Groups(lambda: 0.0)
    it.claim(GANG, JOB, [JOB])
    for step in steps:
        step(it)
    assert it.stands(KEY, OURS) is stands


def test_a_write_that_no_event_confirms_is_repeated_after_a_while() -> None:
    """It may be gone since, and be told of by no watch."""
    now = 0.0
    it = Groups(lambda: now)
    it.claim(GANG, JOB, [JOB])
    it.wrote(KEY, OURS, "1")
    now = 5.0
    assert it.stands(KEY, OURS)
    now = 60.0
    assert not it.stands(KEY, OURS) and it.uid(KEY) == "1"
    assert it.lost(KEY, "1") and it.uid(KEY) is None


def test_a_condition_that_was_written_stands_before_the_watch_reports_the_group() -> None:
    it = Groups(lambda: 0.0)
    it.claim(GANG, JOB, [JOB])
    problem = Condition(reason=Reason.INVALID_SPEC, object="Job/train", field="spec", message="m", remedy="r")
    condition = it.verdict(KEY, [problem])
    assert condition is not None
    it.judged(KEY, condition)
    assert it.verdict(KEY, [problem]) is None


@pytest.mark.parametrize(
    "steps",
    [
        (refused, made("7", USERS)),
        (made("7", USERS), refused),
        (answered("1"), made("1"), gone("1"), made("7", USERS)),
        # Of ours the watch told nothing, and the server says that it is gone.
        (answered("1"), made("7", USERS), lambda it: it.lost(KEY, "1")),
    ],
)
def test_a_name_that_another_writer_owns_is_given_up(steps: tuple[Step, ...]) -> None:
    it = Groups(lambda: 0.0)
    assert it.claim(GANG, JOB, [JOB]) == KEY
    for step in steps:
        step(it)
    assert it.claim(GANG, JOB, [JOB]) == NEXT
    assert not it.ours("ns", "train")
    assert it.of(JOB) == {NEXT}


def test_a_pod_that_names_another_group_names_the_old_one_no_more() -> None:
    known, raw = Pods("closeby-scheduler"), msgspec.json.encode({"metadata": {}})
    for group in ("old", "new"):
        known.put(Pod(namespace="ns", name="p", uid="p", spec=PodSpec(), group=group), raw)
    assert [known.naming("ns", group) for group in ("old", "new")] == [False, True]
