"""Pods with ResourceClaims are placed by the nodes of what is allocated; without an allocation they wait."""

from typing import Any

import pytest

from closeby.objects.pods import NodeSelectorTerm, Pod, Requirement
from closeby.objects.reasons import Reason
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import Run, simulate
from tests.reading.manifest_text import read_objects

HERE: dict[str, Any] = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]
}
TERM = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n2",)),))


def claim(name: str = "gpu", version: str = "v1", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {},
        "status": status,
    }


def pod(*claims: dict[str, str], statuses: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": list(claims)},
        "status": {"resourceClaimStatuses": statuses or []},
    }


def node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4"}},
    }


def read(*objects: dict[str, Any]) -> Pod:
    manifests = read_objects(*objects)
    assert manifests.errors == ()
    (found,) = manifests.pods
    return found


def run(*objects: dict[str, Any]) -> Run:
    return simulate(read_objects(node("n1"), node("n2"), node("n3"), *objects), Configuration())


NAMED = {"name": "device", "resourceClaimName": "gpu"}
MADE = {"name": "device", "resourceClaimTemplateName": "gpus"}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_an_allocated_claim_brings_its_nodes(version: str) -> None:
    allocated = claim(version=version, allocation={"nodeSelector": HERE})
    assert read(pod(NAMED), allocated).spec.claimed_nodes == ((TERM,),)
    assert run(pod(NAMED), allocated).bindings["u"].node == "n2"
    assert run(allocated, pod(NAMED)).bindings["u"].node == "n2"


def test_an_allocated_claim_without_a_node_selector_is_usable_everywhere() -> None:
    found = read(pod(NAMED), claim(allocation={}))
    assert (found.spec.unsupported, found.spec.claimed_nodes) == ((), ())


def test_a_pod_waits_for_each_claim_that_is_not_allocated() -> None:
    other = {"name": "other", "resourceClaimName": "nic"}
    found = run(pod(NAMED, other), claim(allocation={"nodeSelector": HERE}), claim("nic"))
    leftover = found.leftovers["u"]
    assert leftover.reason == Reason.UNSUPPORTED
    assert "spec.resourceClaims[1]" in leftover.message
    assert "spec.resourceClaims[0]" not in leftover.message
    assert run(pod(NAMED)).leftovers["u"].reason == Reason.UNSUPPORTED


def test_the_status_names_the_claim_that_was_made_of_a_template() -> None:
    allocated = claim("p-device-x", allocation={"nodeSelector": HERE})
    assert read(pod(MADE), allocated).spec.unsupported == ("spec.resourceClaims[0]",)
    made = [{"name": "device", "resourceClaimName": "p-device-x"}]
    assert read(pod(MADE, statuses=made), allocated).spec.claimed_nodes == ((TERM,),)
    # The controller found that this pod needs none.
    assert read(pod(MADE, statuses=[{"name": "device"}])).spec.unsupported == ()


@pytest.mark.parametrize(
    ("others", "own", "waits"), [(255, False, False), (256, False, True), (256, True, False)]
)
def test_a_claim_is_shared_by_256_pods(others: int, own: bool, waits: bool) -> None:
    users = [{"resource": "pods", "name": f"o{i}", "uid": f"o{i}"} for i in range(others)]
    if own:
        users[0]["uid"] = "u"
    found = read(pod(NAMED), claim(allocation={}, reservedFor=users))
    assert bool(found.spec.unsupported) is waits


def test_a_claim_is_shared_by_no_more_pods_than_it_can_be_reserved_for() -> None:
    """Those that have their nodes come first, then the others as they stand in the input."""
    users = [{"resource": "pods", "name": f"o{i}", "uid": f"o{i}"} for i in range(253)]
    placed = pod(NAMED) | {"metadata": {"name": "placed", "uid": "placed"}}
    placed["spec"] = {**placed["spec"], "nodeName": "n1"}
    pods = [pod(NAMED) | {"metadata": {"name": f"p{i}", "uid": f"p{i}"}} for i in range(4)]
    found = run(*pods, placed, claim(allocation={}, reservedFor=users))
    assert found.bindings.keys() == {"p0", "p1"}
    assert {found.leftovers[uid].reason for uid in ("p2", "p3")} == {Reason.UNSUPPORTED}


@pytest.mark.parametrize("existing", [0, 1])
def test_each_pod_that_is_made_of_a_workload_counts_as_a_user_of_its_claim(existing: int) -> None:
    users = [{"resource": "pods", "name": f"o{i}", "uid": f"o{i}"} for i in range(253)]
    template = {"metadata": {"labels": {"app": "s"}}, "spec": pod(NAMED)["spec"]}
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "s"}}, "template": template},
    }
    pods = [pod(NAMED) | {"metadata": {"name": f"p{i}", "uid": f"p{i}"}} for i in range(existing)]
    found = run(stateful, *pods, claim(allocation={}, reservedFor=users))
    served = {"default/s-0", "default/s-1", "default/s-2"}
    if existing:
        served = {"p0", "default/s-0", "default/s-1"}
    assert found.bindings.keys() == served
    assert {one.reason for one in found.leftovers.values()} == {Reason.UNSUPPORTED}
    assert len(found.bindings) + len(found.leftovers) == 5 + existing


@pytest.mark.parametrize(("group", "waits"), [("g", False), ("other", True)])
def test_a_claim_that_is_reserved_for_a_podgroup_serves_its_pods(group: str, waits: bool) -> None:
    users = [{"resource": "pods", "name": f"o{i}", "uid": f"o{i}"} for i in range(255)]
    users.append(
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "of-the-group"}
    )
    member = pod(NAMED)
    member["spec"]["schedulingGroup"] = {"podGroupName": group}
    assert bool(read(member, claim(allocation={}, reservedFor=users)).spec.unsupported) is waits


def test_a_claim_that_is_being_deleted_serves_no_pod() -> None:
    going = claim(allocation={})
    going["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert read(pod(NAMED), going).spec.unsupported == ("spec.resourceClaims[0]",)


def test_all_nodes_refused_say_where_the_devices_are() -> None:
    gone = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r9"]}]}]
    }
    leftover = run(pod(NAMED), claim(allocation={"nodeSelector": gone})).leftovers["u"]
    assert leftover.reason == Reason.NODE_AFFINITY_MISMATCH


@pytest.mark.parametrize("terms", [None, []])
def test_an_allocation_whose_node_selector_has_no_terms_says_so(terms: list[Any] | None) -> None:
    nowhere = {"nodeSelectorTerms": terms}
    leftover = run(pod(NAMED), claim(allocation={"nodeSelector": nowhere})).leftovers["u"]
    assert leftover.reason == Reason.NODE_AFFINITY_MISMATCH
    assert "no terms" in leftover.message


def test_an_allocation_with_a_number_of_endless_digits_is_somewhere_else() -> None:
    for operator in ("Gt", "Lt"):
        terms = [{"matchExpressions": [{"key": "cores", "operator": operator, "values": ["9" * 5000]}]}]
        allocated = claim(allocation={"nodeSelector": {"nodeSelectorTerms": terms}})
        assert run(pod(NAMED), allocated).leftovers["u"].reason == Reason.NODE_AFFINITY_MISMATCH


def test_a_runtime_class_is_applied_as_admission_does() -> None:
    heavy = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "heavy"},
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "1Ki"}},
        "scheduling": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
    }
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]

    def with_class(**spec: Any) -> Pod:
        spec = {"runtimeClassName": "heavy", "containers": containers, **spec}
        return read({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, heavy)

    applied = with_class(nodeSelector={"arch": "arm64"}).spec
    assert applied.requests == (("cpu", 1250), ("memory", 1024))
    assert applied.node_selector == (("arch", "arm64"), ("disk", "ssd"))
    assert [one.key for one in applied.tolerations] == ["a"]
    # One that was admitted has the overhead already.
    assert with_class(overhead={"cpu": "100m"}).spec.requests == (("cpu", 1100),)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"runtimeClassName": "heavy", "containers": containers}}},
    }
    (workload,) = read_objects(job, heavy).workloads
    assert workload.pod_sets[0].template.spec.requests == (("cpu", 1250), ("memory", 1024))
