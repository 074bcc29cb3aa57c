from typing import Any

import pytest

from closeby.objects.nodes import Node
from closeby.objects.pods import AttachedDisk, Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.volumes import (
    CSINode,
    NodeDriver,
    PersistentVolume,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from closeby.plugins.node_volume_limits import NodeVolumeLimits
from closeby.scheduling.extension import NoArguments
from tests.plugins.asking import handle_of, place, pod_of, room, why_not
from tests.reading.manifest_text import read_objects, read_pod
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


def test_a_volume_that_is_gone_counts_while_a_pod_runs_with_its_claim() -> None:
    plugin = limits(*disk("a"), *disk("b"), *disk("c"))
    volumes = plugin.handle.cluster.volumes
    for name in ("a", "b"):
        place(plugin.handle.cluster, user(f"with-{name}", name), "n")
    volumes.remove(PersistentVolume, "v-a")
    assert not fits(plugin, user("p", "c"))


def test_the_limit_follows_the_csi_node() -> None:
    plugin = limits(*disk("a"), *disk("b"))
    volumes = plugin.handle.cluster.volumes
    volumes.put(CSINode(name="n", drivers=(NodeDriver(DRIVER, 1),)))
    assert not fits(plugin, user("p", "a", "b"))
    volumes.remove(CSINode, "n")
    assert fits(plugin, user("p", "a", "b"))


def inline(name: str, *handles: str, driver: str = DRIVER) -> Pod:
    disks = tuple(sorted((AttachedDisk(driver, handle) for handle in handles), key=lambda one: one.handle))
    return pod_of(PodSpec(attached_disks=disks), name)


def test_disks_that_the_spec_names_count_with_the_claims() -> None:
    plugin = limits(*disk("a"), *disk("b"))
    cluster = plugin.handle.cluster
    assert fits(plugin, inline("p", "x", "y"))
    assert not fits(plugin, inline("p", "x", "y", "z"))
    place(cluster, inline("q", "x"), "n")
    assert fits(plugin, user("p", "a"))
    assert not fits(plugin, user("p", "a", "b"))
    assert fits(plugin, inline("p", "x", "y"))
    assert not fits(plugin, inline("p", "y", "z"))
    assert why_not(plugin, inline("p", "y", "z"), "n").reason == Reason.VOLUME_LIMIT_REACHED


def test_a_disk_counts_as_long_as_a_pod_uses_it() -> None:
    plugin = limits()
    cluster = plugin.handle.cluster
    for name in ("q", "r"):
        place(cluster, inline(name, "x", "y"), "n")
    assert not fits(plugin, inline("p", "z"))
    cluster.forget_pod("default/q")
    assert not fits(plugin, inline("p", "z"))
    cluster.forget_pod("default/r")
    assert fits(plugin, inline("p", "z", "w"))
    cluster.volumes.validate([])


def test_a_disk_that_a_claim_has_attached_is_one_with_it() -> None:
    plugin = limits(*disk("a"), *disk("b"))
    place(plugin.handle.cluster, user("q", "a"), "n")
    place(plugin.handle.cluster, inline("r", "a"), "n")
    assert fits(plugin, user("p", "b"))


def test_a_driver_without_a_limit_attaches_any_number() -> None:
    plugin = limits()
    assert fits(plugin, inline("p", "x", "y", "z", driver="ebs.csi.aws.com"))


def test_the_disks_of_a_spec_go_by_the_drivers_names() -> None:
    sources: list[dict[str, Any]] = [
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://east/vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://east/snap-1"}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"azureDisk": {"diskName": "d", "diskURI": "/disks/d", "kind": "Managed"}},
        {"azureDisk": {"diskName": "d", "diskURI": "/disks/e"}},
        {"cinder": {"volumeID": "v"}},
        {"portworxVolume": {"volumeID": "v"}},
        {"vsphereVolume": {"volumePath": "v"}},
    ]
    volumes = [{"name": f"v{i}", **one} for i, one in enumerate(sources)]
    spec = read_pod({"containers": [{"name": "main"}], "volumes": volumes}).spec
    assert [(one.driver, one.handle) for one in spec.attached_disks] == [
        ("cinder.csi.openstack.org", "v"),
        ("disk.csi.azure.com", "/disks/d"),
        ("ebs.csi.aws.com", "vol-1"),
        ("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        ("pxd.portworx.com", "v"),
    ]


def disk_of(source: dict[str, Any], **labels: str) -> tuple[str, str, bool]:
    """The driver and its name of a volume's disk, and whether the disk is of an older kind."""
    zoned = {f"topology.kubernetes.io/{key}": value for key, value in labels.items()}
    meta = {"name": "v", "labels": zoned}
    manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": source}
    (found,) = read_objects(manifest).storage
    assert isinstance(found, PersistentVolume)
    return found.driver, found.handle, found.migrated


@pytest.mark.parametrize("name", ["vol-1", "aws://east/vol-1", "aws:///vol-1"])
def test_a_volume_of_an_older_kind_is_the_disk_of_its_driver(name: str) -> None:
    found = disk_of({"awsElasticBlockStore": {"volumeID": name}})
    assert found == ("ebs.csi.aws.com", "vol-1", True)


def test_other_volumes_of_older_kinds() -> None:
    uri = "/subscriptions/s/disks/d"
    azure = disk_of({"azureDisk": {"diskName": "other", "diskURI": uri, "kind": "Managed"}})
    assert azure == ("disk.csi.azure.com", uri, True)
    assert disk_of({"cinder": {"volumeID": "c"}}) == ("cinder.csi.openstack.org", "c", True)
    assert disk_of({"portworxVolume": {"volumeID": "p"}}) == ("pxd.portworx.com", "p", True)
    csi = {"csi": {"driver": DRIVER, "volumeHandle": "h"}}
    assert disk_of(csi) == (DRIVER, "h", False)


@pytest.mark.parametrize(
    ("zone", "where"),
    [
        ("", "zones/UNSPECIFIED"),
        ("us-east1-b", "zones/us-east1-b"),
        ("us-east1-b__us-east1-c", "regions/us-east1"),
    ],
)
def test_a_google_disk_is_named_with_its_zones(zone: str, where: str) -> None:
    found = disk_of({"gcePersistentDisk": {"pdName": "d"}}, zone=zone)
    assert found == ("pd.csi.storage.gke.io", f"projects/UNSPECIFIED/{where}/disks/d", True)


@pytest.mark.parametrize(
    "source",
    [
        {"awsElasticBlockStore": {"volumeID": "aws://east/snap-1"}},
        {"azureDisk": {"diskName": "d", "diskURI": "http://x/vhds/d", "kind": "Shared"}},
        {"azureFile": {"shareName": "s", "secretName": "t"}},
        {"vsphereVolume": {"volumePath": "v"}},
        {"nfs": {"server": "s", "path": "/"}},
    ],
)
def test_what_is_not_translated_has_no_driver(source: dict[str, Any]) -> None:
    assert disk_of(source) == ("", "", False)


EBS = "ebs.csi.aws.com"


def old_disk(name: str, migrated: bool = True) -> tuple[StorageObject, ...]:
    one = volume(f"v-{name}", storage_class="disks", driver=EBS, handle=f"vol-{name}", migrated=migrated)
    return claim(name, "disks", volume=f"v-{name}", bound=True), one


def test_a_disk_of_an_older_kind_counts_with_its_driver() -> None:
    plugin = limits(*old_disk("a"), *old_disk("b"), CSINode(name="n", drivers=(NodeDriver(EBS, 1),)))
    cluster = plugin.handle.cluster
    assert fits(plugin, user("p", "a")) and not fits(plugin, user("p", "a", "b"))
    place(cluster, inline("q", "vol-a", driver=EBS), "n")
    assert not fits(plugin, user("p", "b"))


@pytest.mark.parametrize("migrated", [False, True])
def test_the_attachment_alone_of_a_disk_of_an_older_kind_does_not_count(migrated: bool) -> None:
    attached = VolumeAttachment(name="at", driver=EBS, node="n", volume="v-a")
    node = CSINode(name="n", drivers=(NodeDriver(EBS, 1),))
    plugin = limits(*old_disk("a", migrated), *old_disk("b"), node, attached)
    assert fits(plugin, user("p", "b")) is migrated


@pytest.mark.parametrize(
    ("provisioner", "counts"),
    [("kubernetes.io/aws-ebs", True), (EBS, True), ("kubernetes.io/vsphere-volume", False)],
)
def test_a_class_of_an_older_kind_counts_for_the_driver_of_today(provisioner: str, counts: bool) -> None:
    made = StorageClass(name="old", provisioner=provisioner, waits=True)
    drivers = (NodeDriver(EBS, 1), NodeDriver("csi.vsphere.vmware.com", 1))
    plugin = limits(made, claim("a", "old"), claim("b", "old"), CSINode(name="n", drivers=drivers))
    assert fits(plugin, user("p", "a", "b")) is not counts
