"""Bandwidth: the extended resource of nodes and pods, and the annotations that limit a pod's traffic."""

import pytest

from closeby.objects.pods import BandwidthLimits
from closeby.objects.reasons import Condition
from tests.golden.fixture import Golden
from tests.reading.manifest_text import read_good, read_objects, read_pod

INGRESS = "kubernetes.io/ingress-bandwidth"
EGRESS = "kubernetes.io/egress-bandwidth"
BANDWIDTH = "network.aware.com/bandwidth"


def test_the_keps_example() -> None:
    manifests = read_good(
        f"""
        apiVersion: v1
        kind: Pod
        metadata:
          name: network-aware-bandwidth-example
          annotations:
              {INGRESS}: 10M
              {EGRESS}: 10M
        spec:
          containers:
          - name: network-aware-bandwidth-example
            image: example
            resources:
              requests:
                {BANDWIDTH}: 10000000 # 10M
              limits:
                {BANDWIDTH}: 10000000 # 10M
        ---
        apiVersion: v1
        kind: Node
        metadata: {{name: worker-1}}
        status:
          capacity: {{cpu: "2", {BANDWIDTH}: "10000000000"}}
          allocatable: {{cpu: "2", {BANDWIDTH}: "10000000000"}}
        """
    )
    (pod,), (node,) = manifests.pods, manifests.nodes
    assert pod.bandwidth_limits == BandwidthLimits(ingress=10_000_000, egress=10_000_000)
    assert pod.spec.requests == ((BANDWIDTH, 10_000_000),)
    assert node.allocatable[BANDWIDTH] == 10_000_000_000
    assert manifests.notices == ()


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({}, None),
        ({"app": "x"}, None),
        ({INGRESS: "1M"}, BandwidthLimits(ingress=10**6)),
        ({EGRESS: "1k"}, BandwidthLimits(egress=1000)),
        ({INGRESS: "1P", EGRESS: "1Mi"}, BandwidthLimits(ingress=10**15, egress=2**20)),
        ({INGRESS: "1500.5"}, BandwidthLimits(ingress=1500)),
    ],
)
def test_limits(annotations: dict[str, str], limits: BandwidthLimits | None) -> None:
    assert read_pod({}, annotations=annotations).bandwidth_limits == limits


def pod(name: str, annotations: dict[str, str], request: int = 0) -> dict[str, object]:
    amounts = {BANDWIDTH: request}
    containers = [{"resources": {"requests": amounts, "limits": amounts}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": containers},
    }


def the_notice(*pods: dict[str, object]) -> Condition:
    (notice,) = read_objects(*pods).notices
    return notice


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "999",
            "999 is less than 1k bit/s, which Kubernetes refuses; give 1k or more; it counts as no limit",
        ),
        ("0", "0 is less than 1k bit/s, which Kubernetes refuses; give 1k or more; it counts as no limit"),
        ("2P", "2P is more than 1P bit/s, which Kubernetes refuses; give 1P or less; it counts as no limit"),
        ("-1M", "'-1M' is negative; give zero or more; it counts as no limit"),
        ("10Mbit", "'10Mbit' has an unknown suffix 'Mbit'; did you mean M or Mi?; it counts as no limit"),
    ],
)
def test_limits_that_make_no_sense(text: str, said: str) -> None:
    manifests = read_objects(pod("p", {INGRESS: text, EGRESS: "5M"}))
    (notice,) = manifests.notices
    assert (notice.reason, notice.object, notice.blocking) == ("InvalidSpec", "Pod/default/p", False)
    assert notice.field == f'metadata.annotations["{INGRESS}"]'
    assert notice.sentence() == said
    assert manifests.pods[0].bandwidth_limits == BandwidthLimits(egress=5 * 10**6)


def test_a_limit_below_the_pods_own_request(golden: Golden) -> None:
    notice = the_notice(pod("p", {INGRESS: "10M", EGRESS: "9M"}, request=10_000_000))
    assert notice.field == f'metadata.annotations["{EGRESS}"]'
    golden("manifest-problems", notice.sentence())


def test_many_pods_with_the_same_slip_are_reported_once(golden: Golden) -> None:
    notice = the_notice(*(pod(name, {INGRESS: "1"}) for name in "ba"))
    golden("manifest-problems", (notice.object, notice.message))


def test_equal_limits_are_one_object() -> None:
    first, second = read_objects(*(pod(name, {INGRESS: "3M"}) for name in "ab")).pods
    assert first.bandwidth_limits is second.bandwidth_limits


def test_limits_of_a_template() -> None:
    manifests = read_good(
        f"""
        apiVersion: apps/v1
        kind: Deployment
        metadata: {{name: web}}
        spec:
          template:
            metadata: {{annotations: {{{INGRESS}: 1M, {EGRESS}: fast}}}}
        """
    )
    assert manifests.workloads[0].pod_sets[0].template.bandwidth_limits == BandwidthLimits(ingress=10**6)
    (notice,) = manifests.notices
    assert (notice.object, notice.field) == (
        "Deployment/default/web",
        f'spec.template.metadata.annotations["{EGRESS}"]',
    )
