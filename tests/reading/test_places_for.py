"""What a PodGroup asks for pod sets of a Workload: Kueue's ``topologyRequest``, and how pods are numbered."""

from typing import Any

import msgspec
import pytest

from closeby.objects.groups import Layer, PodGroup, Remainder, TopologyConstraint
from closeby.objects.pods import ClaimName, ClaimRequest, PodClaim
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PlacesAsked, Tick
from closeby.scheduling.outcomes import Decision
from tests.reading.manifest_text import read
from tests.worlds import world

BLOCK = "cloud.provider.com/topology-block"
RACK = "cloud.provider.com/topology-rack"
HOST = "kubernetes.io/hostname"
KAI: Any = {"kai.scheduler/topology-required-placement": RACK}
KUEUE: Any = {"kueue.x-k8s.io/podset-required-topology": RACK}


def pod_set(name: str = "main", count: int = 8, request: object = None, **annotations: str) -> Any:
    container = {"name": "main", "image": "none"}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    asked = {} if request is None else {"topologyRequest": request, "size": count}
    return {"name": name, "count": count, "template": template, **asked}


def question(*sets: object) -> PodGroup:
    """The PodGroup as it is read that asks for these places."""
    workload = {"namespace": "team", "name": "train", "uid": "0123"}
    body = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "workload-0123", "namespace": "closeby-system"},
        "spec": {"placesFor": {"workload": workload, "podSets": sets}},
    }
    (found,) = read(msgspec.json.encode(body).decode()).groups
    return found


def test_a_request_says_what_annotations_would() -> None:
    for request, asked in (
        ({"required": RACK}, TopologyConstraint(required=RACK)),
        ({"preferred": RACK}, TopologyConstraint(preferred=RACK)),
        ({"unconstrained": True}, None),
    ):
        group = question(pod_set(request=request))
        assert (group.constraint, group.conditions) == (asked, ())
    assert not question(pod_set(request={"unconstrained": True})).wants_closeness


def test_a_workload_of_too_many_pods_gets_no_places() -> None:
    """One place of each set stands for all, so that there is something to refuse."""
    group = question(pod_set("few", 3), pod_set("many", 2**31 - 1))
    (condition,) = group.conditions
    assert (condition.reason, condition.blocking) == (Reason.INVALID_SPEC, True)
    assert group.places is not None and [one.count for one in group.places.sets] == [1, 1]
    decisions = world("a r1 : a1=8").engine.handle(PlacesAsked(group), Tick())
    reasons = [one.outcome.reason for one in decisions if isinstance(one, Decision)]
    assert reasons == [Reason.INVALID_SPEC]


def test_slices_are_layers() -> None:
    one = question(pod_set(request={"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 4}))
    assert one.layers == (Layer(level=RACK, size=4, remainder=Remainder.ALLOW),)
    slices = [{"topology": BLOCK, "size": 4}, {"topology": RACK, "size": 2}]
    several = question(pod_set(request={"required": BLOCK, "podsetSliceRequiredTopologyConstraints": slices}))
    assert several.layers == (Layer(level=BLOCK, size=4), Layer(level=RACK, size=2))
    assert several.constraint == TopologyConstraint(required=BLOCK)


@pytest.mark.parametrize(
    ("request_", "annotations"),
    [
        ({"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 4}, {}),
        (
            None,
            {"kai.scheduler/segment-size": "4", "kai.scheduler/segment-topology-required-placement": RACK},
        ),
    ],
)
@pytest.mark.parametrize("count", [7, 2, 0])
def test_pods_that_are_done_leave_segments_that_may_be_smaller(
    request_: Any, annotations: dict[str, str], count: int
) -> None:
    asked = pod_set(count=count, request=request_, **annotations) | {"size": 8}
    group = question(asked)
    assert (group.layers, group.conditions) == ((Layer(level=RACK, size=4, remainder=Remainder.ALLOW),), ())
    assert group.places is not None and group.places.sets[0].count == count


def test_a_leader_that_is_done_leaves_its_workers_together() -> None:
    request = {"required": RACK, "podSetGroupName": "together"}
    leader = pod_set("leader", 0, request) | {"size": 1}
    group = question(leader, pod_set("workers", 4, request))
    assert (group.constraint, group.conditions) == (TopologyConstraint(required=RACK), ())


def test_pod_sets_of_one_group_are_together() -> None:
    request = {"required": RACK, "podSetGroupName": "together"}
    group = question(pod_set("leader", 1, request), pod_set("workers", 4, request))
    assert group.constraint == TopologyConstraint(required=RACK)
    assert (group.subgroups, group.conditions) == ((), ())


def test_the_request_counts_where_annotations_ask_for_something_else() -> None:
    group = question(pod_set(request={"required": BLOCK}, **KAI))
    assert group.constraint == TopologyConstraint(required=BLOCK)
    (condition,) = group.conditions
    assert (condition.object, condition.field, condition.blocking) == (
        "Workload/team/train",
        "spec.podSets[0].topologyRequest",
        False,
    )
    # What both say alike is not worth a word.
    assert question(pod_set(request={"required": RACK}, **KUEUE)).conditions == ()


def test_a_request_that_only_numbers_the_pods_leaves_the_annotations() -> None:
    request = {"podIndexLabel": "i", "subGroupIndexLabel": "j", "subGroupCount": 2}
    group = question(pod_set(request=request, **KAI))
    assert group.constraint == TopologyConstraint(required=RACK)
    assert group.conditions == ()
    assert group.places is not None
    (places,) = group.places.sets
    assert (places.index_label, places.group_label, places.group_size) == ("i", "j", 4)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"required": RACK, "preferred": RACK}, "required"),
        ({"required": "no label"}, "required"),
        ({"podSetSliceSize": 4}, "podSetSliceSize"),
        ({"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 9}, "podSetSliceRequiredTopology"),
        ({"required": RACK, "podSetGroupName": "1"}, "podSetGroupName"),
    ],
)
def test_a_request_that_makes_no_sense_waits(request_: object, field: str) -> None:
    first, *_ = question(pod_set(request=request_)).conditions
    assert (first.reason, first.blocking) == (Reason.INVALID_SPEC, True)
    assert first.field == f"spec.podSets[0].topologyRequest.{field}"


def test_a_field_that_a_newer_kueue_has_is_said_and_waits_if_it_requires_something() -> None:
    wish, hard = (question(pod_set(request={name: "x"}, **KAI)) for name in ("newWish", "newRequiredLevel"))
    for group, name, blocking in ((wish, "newWish", False), (hard, "newRequiredLevel", True)):
        (condition,) = [one for one in group.conditions if one.reason is Reason.UNSUPPORTED]
        assert condition.field == f"spec.podSets[0].topologyRequest.{name}"
        assert condition.blocking is blocking
    assert wish.constraint == TopologyConstraint(required=RACK)


def test_places_go_by_the_claims_that_a_template_names() -> None:
    one = pod_set(**KAI)
    one["template"]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    group = question(one)
    assert group.conditions == ()
    assert group.places is not None
    assert group.places.sets[0].template.spec.claims == (PodClaim("data"),)


def test_claims_of_ephemeral_volumes_are_those_of_pods_to_come() -> None:
    one = pod_set(**KAI)
    claim = {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}
    one["template"]["spec"]["volumes"] = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
    ]
    group = question(one)
    assert group.conditions == ()
    assert group.places is not None
    given, scratch = group.places.sets[0].template.spec.claims
    assert given == PodClaim("data")
    assert (scratch.volume, scratch.naming) == ("scratch", ClaimName.TO_COME)
    assert scratch.request == ClaimRequest(storage_class="local", size=1 << 30)
    # No claim of a cluster is called so, nor one of another Workload of the same name.
    assert scratch.of("train-main-0") == "train-main-0:scratch:0123"


@pytest.mark.parametrize(
    "named",
    [
        {"metadata": {"labels": {"closeby.dev/pod-group": "together"}}},
        {"spec": {"schedulingGroup": {"podGroupName": "together"}}},
    ],
)
def test_a_podgroup_that_a_template_names_is_said_and_not_followed(named: Any) -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    template = {key: {**template.get(key, {}), **named.get(key, {})} for key in ("metadata", "spec")}
    group = question({"name": "main", "count": 2, "template": template})
    (said,) = group.conditions
    assert (said.reason, said.blocking, "together" in said.message) == (Reason.UNSUPPORTED, False, True)
    assert group.places is not None
    assert [one.template.group for one in group.places.sets] == [group.places.group]
