"""What a PodGroup says about a start: where it was begun, and what becomes of it if it does not end."""

import msgspec
import pytest

from closeby.objects.groups import OnPartial, PodGroup
from closeby.objects.quantities import parse_duration
from closeby.reading.common.plans import PlanWire, planned_nodes, rank_list, read_plan, read_ranks
from tests.reading.manifest_text import read_good
from tests.worlds import pods

OWN = """
apiVersion: closeby.dev/v1alpha1
kind: PodGroup
metadata: {name: train}
"""


def group(text: str) -> PodGroup:
    """The only PodGroup of a manifest."""
    [found] = read_good(text).groups
    return found


def test_what_is_written_is_read() -> None:
    first, second, third = pods("train", 3)
    plan = PlanWire(topology="fabric", nodes=planned_nodes([(first, "n2"), (second, "n1"), (third, "n2")]))
    written = msgspec.to_builtins(plan)
    assert [(one["name"], len(one["pods"])) for one in written["nodes"]] == [("n2", 2), ("n1", 1)]
    expected = {first.uid: "n2", second.uid: "n1", third.uid: "n2"}
    assert read_plan(written) == expected


@pytest.mark.parametrize("value", [None, 7, [], {"nodes": 3}, {"nodes": [{"pods": "x"}]}, {}])
def test_what_is_no_plan_is_none(value: object) -> None:
    assert read_plan(value) == {}


@pytest.mark.parametrize("value", [None, 7, {}, ["a", 1]])
def test_what_is_no_rank_is_none(value: object) -> None:
    assert read_ranks(value) == {}


def test_ranks_that_are_written_are_read() -> None:
    assert rank_list({"b": 3, "a": 0}) == ["a", "", "", "b"]
    assert read_ranks(rank_list({"b": 3, "a": 0})) == {"b": 3, "a": 0}
    assert rank_list({}) == []


def test_ours_is_in_the_status() -> None:
    status = "status: {plan: {nodes: [{name: n1, pods: [{name: train-0, uid: a}]}]}, conditions: []}\n"
    assert group(OWN + status).plan == {"a": "n1"}


def test_no_annotation_is_a_plan() -> None:
    """Who may write a PodGroup may annotate it."""
    text = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: train
  annotations: {closeby.dev/plan: '{"nodes": {"n1": ["a"]}}', mine: x}
spec: {minMember: 2}
"""
    found = group(text)
    assert found.plan == {}
    assert dict(found.annotations) == {"mine": "x"}


def test_policy_and_patience() -> None:
    found = group(OWN + "spec: {placement: {onPartial: Evict, completionTimeout: 1m30s}}\n")
    assert (found.on_partial, found.completion_timeout, found.conditions) == (OnPartial.EVICT, 90.0, ())


def test_nothing_is_evicted_by_default() -> None:
    found = group(OWN)
    assert (found.on_partial, found.completion_timeout) == (OnPartial.KEEP, 300.0)


def test_an_unknown_policy_evicts_no_pod_and_is_reported() -> None:
    found = group(OWN + "spec: {placement: {onPartial: evict, completionTimeout: 0s}}\n")
    assert (found.on_partial, found.completion_timeout) == (OnPartial.KEEP, 300.0)
    assert [one.field for one in found.conditions] == [
        "spec.placement.onPartial",
        "spec.placement.completionTimeout",
    ]
    assert not any(one.blocking for one in found.conditions)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("0", 0.0),
        ("", None),
        ("5", None),
        ("5 m", None),
        ("-5m", None),
        ("m5", None),
        ("5mm", None),
    ],
)
def test_spans_of_time(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds
