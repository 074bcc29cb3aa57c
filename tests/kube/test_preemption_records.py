"""A plan of preemption as it is written in a status, and read again."""

import msgspec
import pytest
from msgspec.structs import replace

from closeby.kube.preempting.history import EvictionHistory
from closeby.kube.preempting.nominated import NominatedPods
from closeby.kube.preempting.records import (
    PREEMPTING,
    PodPlan,
    gang_plan,
    message_of,
    pod_plan,
    read_message,
    status_of,
)
from closeby.kube.watch.changes import Change, Deleted, Upserted
from closeby.kube.watch.resources import PODS
from closeby.objects.recorded import PreemptionStatus
from closeby.scheduling.events import PodUpserted
from closeby.scheduling.outcomes import Preemption
from tests.control_plane.api import Object
from tests.preempting.site import Site

MADE = "2026-11-23T12:00:00Z"


def site_with_a_plan() -> tuple[Site, Preemption]:
    """A gang of four clears a rack."""
    site = Site("zone-a rack-1 : a1=2 a2=2")
    site.running("low", ["a1", "a1", "a2", "a2"], priority=1)
    site.waiting("train", 4)
    [plan] = site.tick()
    return site, plan


def test_a_gangs_plan_is_read_as_it_was_written() -> None:
    site, plan = site_with_a_plan()
    state = site.engine.state
    written = msgspec.json.encode(status_of(plan, "1234abcd", MADE, state.pods))
    read = gang_plan("default/train", msgspec.json.decode(written, type=PreemptionStatus), state)
    assert read == replace(plan, cost=read.cost)
    # Nodes that are left partly free are not written.
    assert read.cost == plan.cost._replace(partly_free=0)


def test_the_plan_of_a_gang_that_has_its_place_has_its_priority() -> None:
    site = Site("zone-a rack-1 : a1=2")
    site.running("low", ["a1"], priority=1)
    [train] = site.running("train", ["a1"], priority=100)
    written = PreemptionStatus(id="1234abcd", made=MADE)
    state = site.engine.state
    assert gang_plan("default/train", written, state).priority == 100
    site.tell(PodUpserted(replace(train, terminating=True)))
    assert gang_plan("default/train", written, state).priority == 0


def test_victims_that_are_gone_are_left_out() -> None:
    site, plan = site_with_a_plan()
    state = site.engine.state
    written = status_of(plan, "1234abcd", MADE, state.pods)
    pods = {one.uid for one in plan.victims[1:]}
    state.pods.pop(plan.victims[0].uid)
    assert {one.uid for one in gang_plan("default/train", written, state).victims} == pods


def test_victims_of_other_namespaces_are_written_without_their_names() -> None:
    site, plan = site_with_a_plan()
    other = replace(plan.victims[0], namespace="other")
    status = status_of(replace(plan, victims=(other, *plan.victims[1:])), "1", MADE, site.engine.state.pods)
    assert [bool(one.name) for one in status.victims] == [False, True, True, True]


def test_a_plain_pods_plan_is_read_as_it_was_written() -> None:
    site = Site("zone-a rack-1 : a1=1")
    site.alone("low", "a1", priority=1)
    high = site.alone("high", priority=100)
    [plan] = site.tick()
    message = message_of("1234abcd", "a1", (one.uid for one in plan.victims))
    said = read_message(message)
    assert said == ("1234abcd", tuple(one.uid for one in plan.victims))
    written = PodPlan(node="a1", id=said[0], made=MADE, victims=said[1])
    read = pod_plan(high, written, site.engine.state)
    assert (read.item, read.node, read.places, read.victims) == (
        plan.item,
        plan.node,
        plan.places,
        plan.victims,
    )


@pytest.mark.parametrize("message", ["", "plan", "plan 1", "it waits: a, b"])
def test_other_messages_name_no_plan(message: str) -> None:
    assert read_message(message) is None


def pod(
    nominated: str | None = "n1", bound: str | None = None, manager: str = "", **condition: str
) -> Change:
    """A pod as a watch reports it."""
    status: Object = {"conditions": [{"type": PREEMPTING, **condition}] if condition else []}
    if nominated:
        status["nominatedNodeName"] = nominated
    managed = [{"manager": manager, "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}] if manager else []
    raw = {"metadata": {"managedFields": managed}, "spec": {"nodeName": bound}, "status": status}
    return Upserted("default/p", "u", "1", msgspec.json.encode(raw))


def seen(*changes: Change) -> PodPlan | None:
    """What is known after these."""
    nominated = NominatedPods()
    nominated.take((PODS, one) for one in changes)
    return nominated.plans.get("u")


def test_what_a_pods_status_says_of_its_plan() -> None:
    said = {"status": "True", "message": message_of("ab", "n1", ["v1", "v2"]), "lastTransitionTime": MADE}
    whole = PodPlan(node="n1", id="ab", made=MADE, victims=("v1", "v2"))
    assert seen(pod(**said)) == whole
    assert seen(pod(manager="closeby", **said)) == replace(whole, ours=True)
    assert seen(pod(**{**said, "status": "False"})) == PodPlan(node="n1")
    assert seen(pod()) == PodPlan(node="n1")


@pytest.mark.parametrize("later", [pod(nominated=None), pod(bound="n1"), Deleted("default/p", "u")])
def test_a_pod_that_is_bound_or_gone_is_nominated_no_more(later: Change) -> None:
    assert seen(pod(), later) is None


def test_a_gang_counts_once_for_a_plan() -> None:
    site, plan = site_with_a_plan()
    history = EvictionHistory()
    first, second = plan.victims[:2]
    assert history.note(first, "a", 100) == "default/low"
    assert history.note(second, "a", 100) is None
    assert history.note(second, "b", 200) == "default/low"
    assert [(one.plan, one.priority) for one in history.of("default/low")] == [("a", 100), ("b", 200)]
    assert history.counted("b") == ("default/low",)
    assert history.note(site.alone("other", "a1"), "b", 200) is None
