from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.volumes import CSINode, NodeDriver, StorageObject, VolumeAttachment
from closeby.plugins.node_volume_limits import NodeVolumeLimits
from closeby.scheduling.extension import NoArguments
from tests.plugins.asking import handle_of, place, pod_of, room, why_not
from tests.storage import DISKS, claim, naming, volume

DRIVER = "disk.example.com"


def limits(*there: StorageObject) -> NodeVolumeLimits:
    handle = handle_of([Node(name="n"), Node(name="m")])
    for one in (DISKS, CSINode(name="n", drivers=(NodeDriver(DRIVER, 2),)), *there):
        handle.cluster.volumes.put(one)
    return NodeVolumeLimits(NoArguments(), handle)


def disk(name: str) -> tuple[StorageObject, ...]:
    """A claim with its volume of the driver."""
    return (
        claim(name, "disks", volume=f"v-{name}", bound=True),
        volume(f"v-{name}", storage_class="disks", driver=DRIVER, handle=name),
    )


def user(name: str, *claims: str) -> Pod:
    return naming(pod_of(PodSpec(), name), *claims)


def fits(plugin: NodeVolumeLimits, pod: Pod) -> bool:
    found = room(plugin, pod)
    assert found["m"] > 1000, "a node that says nothing takes any number"
    return found["n"] > 0


def test_a_node_attaches_so_many_volumes() -> None:
    plugin = limits(*disk("a"), *disk("b"), *disk("c"))
    assert fits(plugin, user("p", "a", "b"))
    assert not fits(plugin, user("p", "a", "b", "c"))
    place(plugin.handle.cluster, user("q", "a"), "n")
    assert fits(plugin, user("p", "b"))
    place(plugin.handle.cluster, user("r", "b"), "n")
    refused = why_not(plugin, user("p", "c"), "n")
    assert refused.reason == Reason.VOLUME_LIMIT_REACHED
    assert "attaches 2 volumes" in refused.message and "brings 1 more" in refused.message


def test_a_volume_counts_once_however_many_pods_use_it() -> None:
    plugin = limits(*disk("a"), *disk("b"))
    for name in ("q", "r", "s"):
        place(plugin.handle.cluster, user(name, "a"), "n")
    assert fits(plugin, user("p", "a", "b"))
    assert room(plugin, user("p", "a"))["n"] > 1000


def test_an_attachment_counts_until_its_pod_is_known() -> None:
    plugin = limits(*disk("a"), *disk("b"), *disk("c"))
    volumes = plugin.handle.cluster.volumes
    for name in ("a", "b"):
        volumes.put(VolumeAttachment(name=f"at-{name}", driver=DRIVER, node="n", volume=f"v-{name}"))
    assert not fits(plugin, user("p", "c"))
    assert fits(plugin, user("p", "a"))
    place(plugin.handle.cluster, user("q", "a"), "n")
    assert not fits(plugin, user("p", "c"))
    volumes.remove(VolumeAttachment, "at-b")
    assert fits(plugin, user("p", "c"))


def test_a_claim_without_a_volume_counts_for_the_driver_of_its_class() -> None:
    plugin = limits(claim("a", "disks"), claim("b", "disks"), claim("c", "disks"))
    place(plugin.handle.cluster, user("q", "a"), "n")
    assert fits(plugin, user("p", "b"))
    assert not fits(plugin, user("p", "b", "c"))


def test_pods_with_claims_of_their_own_are_counted() -> None:
    pods = [naming(pod_of(PodSpec(), name), "data", own=True) for name in ("p", "q", "r")]
    plugin = limits(*(claim(f"data-{pod.name}", "disks") for pod in pods))
    assert room(plugin, pods[0])["n"] == 2
    place(plugin.handle.cluster, pods[0], "n")
    assert room(plugin, pods[1])["n"] == 1


def test_the_limit_follows_the_csi_node() -> None:
    plugin = limits(*disk("a"), *disk("b"))
    volumes = plugin.handle.cluster.volumes
    volumes.put(CSINode(name="n", drivers=(NodeDriver(DRIVER, 1),)))
    assert not fits(plugin, user("p", "a", "b"))
    volumes.remove(CSINode, "n")
    assert fits(plugin, user("p", "a", "b"))
