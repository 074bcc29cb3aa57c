"""Which topology a cluster has without a Topology object, by the labels that its nodes carry."""

from collections.abc import Mapping, Sequence

import pytest

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.topology.finding import Carried, choose, found_topologies

ZONES = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
GKE = {
    "cloud.google.com/gce-topology-block": "b",
    "cloud.google.com/gce-topology-subblock": "s",
    "cloud.google.com/gce-topology-host": "h",
}
EKS = {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (1, 2, 3)}
ULTRASERVER = {"topology.k8s.aws/ultraserver-id": "u"}
NETWORK = {"network.topology.kubernetes.io/block": "b"}


def nodes(*labels: Mapping[str, str], gpus: Sequence[int] = ()) -> list[Node]:
    return [
        Node(
            name=f"n{number}",
            labels={**own, HOSTNAME: f"n{number}"},
            allocatable={"nvidia.com/gpu": gpus[number]} if gpus else {},
        )
        for number, own in enumerate(labels)
    ]


def main(given: Sequence[Node], *, declared: bool = False) -> str | None:
    """The family that counts."""
    found = [one for one in found_topologies(given, declared=declared).topologies if one.found]
    return next((one.name for one in found if one.found and one.found.main), None)


@pytest.mark.parametrize(
    ("labels", "family"),
    [
        ({}, None),
        (ZONES, "zones"),
        (GKE, "gke"),
        ({**ZONES, **GKE}, "gke"),
        ({**ZONES, **EKS}, "eks"),
        ({**ZONES, **EKS, **ULTRASERVER}, "eks-ultraserver"),
        ({**ZONES, **GKE, **NETWORK}, "network-labels"),
        ({"nvidia.com/gpu.clique": "uuid.1", **ZONES}, "gpu-clique"),
        ({"topology.kubernetes.io/zone": ""}, None),
        ({"example.com/rack": "r"}, None),
    ],
)
def test_the_labels_that_describe_the_network_most_finely_count(
    labels: Mapping[str, str], family: str | None
) -> None:
    assert main(nodes(labels, labels)) == family


def test_levels_are_those_of_one_family_and_the_node() -> None:
    [found] = found_topologies(nodes({**ZONES, **GKE}), declared=False).topologies

    assert [level.node_label for level in found.levels] == [*GKE, HOSTNAME]


def test_a_family_that_few_nodes_carry_gives_way_to_one_that_most_carry() -> None:
    assert main(nodes({**ZONES, **GKE}, ZONES, ZONES)) == "zones"
    assert main(nodes({**ZONES, **GKE}, {**ZONES, **GKE}, ZONES, ZONES)) == "gke", "half is enough"
    assert main(nodes(GKE, {}, {})) is None


def test_nodes_with_accelerators_say_which_family_counts() -> None:
    given = nodes({**ZONES, **GKE}, ZONES, ZONES, gpus=[8, 0, 0])

    assert main(given) == "gke"


def test_network_labels_of_few_nodes_count_where_there_are_no_others() -> None:
    assert main(nodes(NETWORK, {}, {})) == "network-labels"
    assert main(nodes({**NETWORK, **ZONES}, ZONES, ZONES)) == "zones"


def test_an_object_goes_before_labels_and_network_labels_stay_a_topology_of_their_name() -> None:
    assert found_topologies(nodes({**ZONES, **GKE}), declared=True).topologies == ()
    [network] = found_topologies(nodes({**ZONES, **NETWORK}), declared=True).topologies
    assert network.name == "network-labels"


def test_what_is_found_does_not_depend_on_the_order_of_the_nodes() -> None:
    given = nodes({**ZONES, **GKE}, {**ZONES, **EKS}, {**EKS}, {**GKE})

    assert found_topologies(given, declared=False) == found_topologies(given[::-1], declared=False)


def test_nodes_that_go_do_not_count_any_more() -> None:
    given = nodes(GKE, ZONES, ZONES)
    carried = Carried.none()
    for one in given:
        carried.count(one)
    for one in given[1:]:
        carried.count(one, -1)

    assert choose(carried) == choose_of(given[:1])


def choose_of(given: Sequence[Node]) -> object:
    carried = Carried.none()
    for one in given:
        carried.count(one)
    return choose(carried)
