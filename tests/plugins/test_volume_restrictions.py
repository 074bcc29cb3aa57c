from typing import Any

import pytest

from closeby.objects.nodes import Node
from closeby.objects.pods import InlineDisk, PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.volume_restrictions import VolumeRestrictions
from closeby.scheduling.extension import NoArguments
from tests.plugins.asking import handle_of, place, pod_of, room, why_not
from tests.reading.manifest_text import read_pod
from tests.storage import LOCAL, claim, naming
from tests.worlds import gang, pods, spec, world


def with_disk(kind: str, **disk: Any) -> PodSpec:
    volumes = [{"name": "data", kind: disk}, {"name": "tmp", "emptyDir": {}}]
    return read_pod({"containers": [{"name": "main"}], "volumes": volumes}).spec


def rbd(image: str, *monitors: str, pool: str = "rbd", read_only: bool = False) -> PodSpec:
    return with_disk("rbd", image=image, pool=pool, monitors=list(monitors), readOnly=read_only)


@pytest.mark.parametrize(
    ("what", "there", "wanted", "fits"),
    [
        (
            "the same disk",
            with_disk("gcePersistentDisk", pdName="d"),
            with_disk("gcePersistentDisk", pdName="d"),
            False,
        ),
        (
            "another disk",
            with_disk("gcePersistentDisk", pdName="d"),
            with_disk("gcePersistentDisk", pdName="e"),
            True,
        ),
        (
            "both read it",
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            True,
        ),
        (
            "one writes it",
            with_disk("gcePersistentDisk", pdName="d"),
            with_disk("gcePersistentDisk", pdName="d", readOnly=True),
            False,
        ),
        (
            "a disk of AWS is not even shared by readers",
            with_disk("awsElasticBlockStore", volumeID="v", readOnly=True),
            with_disk("awsElasticBlockStore", volumeID="v", readOnly=True),
            False,
        ),
        (
            "iSCSI goes by the IQN",
            with_disk("iscsi", iqn="q", lun=0),
            with_disk("iscsi", iqn="q", lun=1),
            False,
        ),
        ("RBD: pool, image and a monitor in common", rbd("i", "a", "b"), rbd("i", "b", "c"), False),
        (
            "RBD: the pool is called rbd by default",
            rbd("i", "a"),
            with_disk("rbd", image="i", monitors=["a"]),
            False,
        ),
        ("RBD: no monitor in common", rbd("i", "a"), rbd("i", "b"), True),
        ("RBD: another pool", rbd("i", "a"), rbd("i", "a", pool="other"), True),
        ("RBD: another image", rbd("i", "a"), rbd("j", "a"), True),
        ("another kind", with_disk("gcePersistentDisk", pdName="d"), with_disk("iscsi", iqn="d"), True),
    ],
)
def test_a_disk_is_attached_to_a_node_for_one_pod(
    what: str, there: PodSpec, wanted: PodSpec, fits: bool
) -> None:
    handle = handle_of([Node(name="free"), Node(name="used")], [(pod_of(there, "there"), "used")])
    found = room(VolumeRestrictions(NoArguments(), handle), pod_of(wanted))
    assert (found["free"] > 0, found["used"] > 0) == (True, fits), what


def test_of_pods_that_write_a_disk_one_fits_on_a_node_and_of_readers_any_number() -> None:
    handle = handle_of([Node(name="n")])
    plugin = VolumeRestrictions(NoArguments(), handle)
    assert room(plugin, pod_of(with_disk("gcePersistentDisk", pdName="d"))) == {"n": 1}
    assert room(plugin, pod_of(with_disk("gcePersistentDisk", pdName="d", readOnly=True)))["n"] > 100


def test_a_disk_is_free_again_when_its_pod_is_gone() -> None:
    handle = handle_of([Node(name="n")])
    plugin = VolumeRestrictions(NoArguments(), handle)
    user = pod_of(with_disk("iscsi", iqn="q"))
    place(handle.cluster, user, "n")
    assert room(plugin, user) == {"n": 0}
    assert why_not(plugin, user, "n") == Rejection(
        Reason.VOLUME_IN_USE, "disk q (iscsi) in use by another pod on the node"
    )
    handle.cluster.forget_pod(user.uid)
    assert room(plugin, user) == {"n": 1}


def test_members_of_a_gang_with_one_disk_go_to_different_nodes() -> None:
    disk = (InlineDisk("gcePersistentDisk", "d"),)
    drawn = world("z r1 : a1=2 a2=2\nz r2 : b1=4")
    needs = PodSpec(requests=spec(gpu=1).requests, inline_disks=disk)
    drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2, needs))
    assert drawn.used() == {"a1": 1, "a2": 1}


def test_a_claim_for_one_pod_is_used_by_one_at_a_time() -> None:
    handle = handle_of([Node(name="m"), Node(name="n")])
    handle.cluster.volumes.put(LOCAL)
    handle.cluster.volumes.put(claim("data", modes=("ReadWriteOncePod",)))
    plugin = VolumeRestrictions(NoArguments(), handle)
    first, second = (naming(pod_of(PodSpec(), name), "data") for name in ("first", "second"))
    assert room(plugin, second) == {"m": 1, "n": 1}
    place(handle.cluster, first, "m")
    assert room(plugin, second) == {"m": 0, "n": 0}
    assert why_not(plugin, second, "n").reason == Reason.VOLUME_IN_USE
    handle.cluster.forget_pod(first.uid)
    assert room(plugin, second) == {"m": 1, "n": 1}
