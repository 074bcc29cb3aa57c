from typing import Any

import pytest

from closeby.objects.groups import TopologyConstraint
from closeby.objects.pods import PodSpec, Toleration
from closeby.objects.topologies import ClusterQueue, LocalQueue, ResourceFlavor, ResourceGroup
from closeby.reading.dialects import kai, kueue
from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read_good

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: tas}
spec:
  nodeLabels: {pool: gpu, arch: x86}
  topologyName: network
  tolerations: [{key: gpu, operator: Exists}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain}, {name: tas}]
  - coveredResources: [gpu]
    flavors: [{name: tas}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: ml}
spec: {clusterQueue: cq}
"""


def queues(text: str = QUEUES) -> kueue.Queues:
    manifests = read_good(text)
    return kueue.queues_of(manifests.local_queues, manifests.cluster_queues, manifests.flavors)


def test_queues_and_flavors() -> None:
    manifests = read_good(QUEUES)
    assert manifests.local_queues == (LocalQueue(namespace="ml", name="lq", cluster_queue="cq"),)
    assert manifests.cluster_queues == (
        ClusterQueue(
            name="cq", groups=(ResourceGroup(("plain", "tas"), ("cpu",)), ResourceGroup(("tas",), ("gpu",)))
        ),
    )
    assert manifests.flavors == (
        ResourceFlavor(name="plain"),
        ResourceFlavor(
            name="tas",
            node_labels=(("arch", "x86"), ("pool", "gpu")),
            tolerations=(Toleration("gpu", "Exists"),),
            topology_name="network",
        ),
    )


def names(found: kueue.Choices) -> list[list[str]]:
    return [[flavor.name for flavor in one] for one in found]


def test_pods_that_a_topology_places_get_flavors_with_one() -> None:
    pod = PodSpec(requests=(("cpu", 1000), ("gpu", 1)))
    assert names(queues().choices("ml", "lq", pod, placed=True)) == [["tas"]]


def test_one_flavor_of_each_group_that_gives_a_resource_which_the_pods_request() -> None:
    cpu = PodSpec(requests=(("cpu", 1000),))
    both = PodSpec(requests=(("cpu", 1000), ("gpu", 1)))
    assert names(queues().choices("ml", "lq", cpu, placed=False)) == [["plain"]]
    assert names(queues().choices("ml", "lq", both, placed=False)) == [["plain", "tas"]]


FLAVORS = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a}
spec: {nodeLabels: {pool: a}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: b}
spec: {nodeLabels: {pool: b}, nodeTaints: [{key: spot, effect: NoSchedule}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: c}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: a}, {name: b}, {name: c}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: ml}
spec: {clusterQueue: cq}
"""


@pytest.mark.parametrize(
    ("pod", "right"),
    [
        (PodSpec(), ["a", "c"]),
        (PodSpec(tolerations=(Toleration("spot", "Exists"),)), ["a", "b", "c"]),
        (PodSpec(node_selector=(("pool", "a"),)), ["a"]),
        (PodSpec(node_selector=(("pool", "b"),), tolerations=(Toleration("spot", "Exists"),)), ["b"]),
        (PodSpec(node_selector=(("zone", "x"),)), ["a", "c"]),
    ],
)
def test_flavors_come_in_the_order_of_the_queue_less_those_that_do_not_suit(
    pod: PodSpec, right: list[str]
) -> None:
    assert names(queues(FLAVORS).choices("ml", "lq", pod, placed=False)) == [[name] for name in right]


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        ("LocalQueue", "LocalQueue ml/lq is not in the input"),
        ("ClusterQueue", "ClusterQueue cq is not in the input"),
        ("ResourceFlavor", "ResourceFlavor plain is not in the input"),
    ],
)
def test_a_broken_way_says_where_it_breaks(without: str, missing: str) -> None:
    kept = [part for part in QUEUES.split("---") if f"kind: {without}\n" not in part]
    assert queues("---".join(kept)).missing("ml", "lq") == missing


def test_a_queue_without_topologies_says_so(golden: Golden) -> None:
    found = queues(QUEUES.replace("  topologyName: network\n", ""))
    golden("manifest-problems", found.missing("ml", "lq"))


def test_a_flavors_bad_toleration_names_its_field(golden: Golden) -> None:
    golden(
        "manifest-problems", error_of(QUEUES.replace("operator: Exists}", "operator: Exists, effect: Never}"))
    )


KEY = "kueue.x-k8s.io/podset-{}-topology"


@pytest.mark.parametrize(
    ("annotations", "constraint", "unconstrained"),
    [
        ({"required": "example.com/rack"}, TopologyConstraint(required="example.com/rack"), False),
        ({"preferred": "rack"}, TopologyConstraint(preferred="rack"), False),
        ({"unconstrained": "true"}, None, True),
        ({}, None, False),
    ],
)
def test_what_a_template_asks_for(
    annotations: dict[str, str], constraint: TopologyConstraint | None, unconstrained: bool
) -> None:
    ask = kueue.ask({KEY.format(word): value for word, value in annotations.items()}, "Job/default/j")
    assert (ask.constraint, ask.unconstrained, ask.conditions) == (constraint, unconstrained, ())


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"required": "a", "preferred": "b"}, "exclude one another"),
        ({"preferred": "a", "unconstrained": "true"}, "exclude one another"),
        ({"required": "not a key"}, "'not a key' is not a label key"),
        ({"unconstrained": "yes"}, "'yes' is not true"),
        ({"unconstrained": "false"}, "'false' is not true"),
    ],
)
def test_contradictions_and_nonsense_keep_the_gang_waiting(annotations: dict[str, Any], said: str) -> None:
    ask = kueue.ask(
        {KEY.format(word): value for word, value in annotations.items()}, "Job/default/j", "spec.x"
    )
    (condition,) = ask.conditions
    assert (ask.constraint, condition.reason, condition.blocking) == (None, "InvalidSpec", True)
    assert said in condition.message
    assert condition.field.startswith('spec.x["kueue.x-k8s.io/podset-')


def test_what_kai_reads_at_a_workload() -> None:
    annotations = {
        "kai.scheduler/topology": "network",
        "kai.scheduler/topology-preferred-placement": "rack",
        "kai.scheduler/topology-required-placement": "zone",
    }
    ask = kai.ask(annotations, "Job/default/j")
    assert ask.constraint == TopologyConstraint(topology="network", required="zone", preferred="rack")


def test_kai_with_a_topology_but_no_level() -> None:
    ask = kai.ask({"kai.scheduler/topology": "network"}, "Job/default/j")
    (condition,) = ask.conditions
    assert (ask.constraint, condition.blocking) == (None, False)
