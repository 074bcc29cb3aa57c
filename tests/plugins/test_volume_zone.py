import pytest

from closeby.objects.labels import REGION, ZONE
from closeby.objects.nodes import Node
from closeby.objects.pods import PodSpec
from closeby.objects.reasons import Reason
from closeby.plugins.volume_zone import VolumeZone
from closeby.scheduling.extension import NoArguments
from tests.plugins.asking import allowed, handle_of, pod_of, why_not
from tests.storage import claim, naming, volume

OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
NODES = [
    Node(name="a", labels={ZONE: "a", REGION: "r"}),
    Node(name="b", labels={ZONE: "b", REGION: "r"}),
    Node(name="old", labels={OLD_ZONE: "a"}),
    Node(name="bare"),
]
POD = naming(pod_of(PodSpec()), "data")


@pytest.mark.parametrize(
    ("labels", "nodes"),
    [
        ({}, "a b old bare"),
        ({ZONE: "a"}, "a bare"),
        ({ZONE: "a__b"}, "a b bare"),
        ({REGION: "r"}, "a b bare"),
        ({ZONE: "b", REGION: "other"}, "bare"),
        ({OLD_ZONE: "a"}, "a old bare"),
        ({"example.com/zone": "z"}, "a b old bare"),
    ],
)
def test_a_node_is_in_the_zone_of_the_volume_or_names_none(labels: dict[str, str], nodes: str) -> None:
    plugin = VolumeZone(NoArguments(), handle_of(NODES))
    volumes = plugin.handle.cluster.volumes
    volumes.put(claim("data", volume="v", bound=True))
    volumes.put(volume("v", labels=labels))
    assert allowed(plugin, POD) == nodes


def test_the_refusal_names_claim_and_zone() -> None:
    plugin = VolumeZone(NoArguments(), handle_of(NODES))
    volumes = plugin.handle.cluster.volumes
    volumes.put(claim("data", volume="v", bound=True))
    volumes.put(volume("v", labels={ZONE: "a"}))
    found = why_not(plugin, POD, "b")
    assert found.reason == Reason.VOLUME_ZONE_MISMATCH
    assert "default/data" in found.message and f"{ZONE}=b" in found.message
