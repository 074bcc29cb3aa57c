import contextlib
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.nodes import Node
from closeby.objects.pods import ClaimName, NodeSelectorTerm, Pod, PodClaim, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.selectors import selector_of
from closeby.objects.volumes import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    PersistentVolume,
    StorageObject,
)
from closeby.plugins.volume_binding import VolumeBinding, VolumeBindingArguments
from closeby.scheduling.plugin_view import CycleState
from tests.plugins.asking import allowed, handle_of, place, pod_of, room, why_not
from tests.storage import AT_ONCE, DISKS, LOCAL, claim, naming, on_label, volume

NODES = [
    Node(name=name, labels={HOSTNAME: name, ZONE: zone})
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))
]


def binding(*there: StorageObject, running: Sequence[tuple[Pod, str]] = ()) -> VolumeBinding:
    handle = handle_of(NODES)
    for one in (LOCAL, DISKS, AT_ONCE, *there):
        handle.cluster.volumes.put(one)
    for pod, node in running:
        place(handle.cluster, pod, node)
    return VolumeBinding(VolumeBindingArguments(), handle)


POD = naming(pod_of(PodSpec()), "data")


@pytest.mark.parametrize(
    ("what", "there", "nodes"),
    [
        ("all nodes reach the volume", [volume("v")], "a1 a2 b1"),
        ("those of a zone reach it", [volume("v", zone="a")], "a1 a2"),
        ("one node reaches it", [volume("v", "b1")], "b1"),
        (
            "one by its name",
            [
                volume(
                    "v",
                    node_affinity=(NodeSelectorTerm(fields=on_label("metadata.name", "a2")[0].expressions),),
                )
            ],
            "a2",
        ),
        ("none", [volume("v", zone="z")], ""),
    ],
)
def test_a_claim_that_is_bound_takes_its_pod_to_its_volume(
    what: str, there: list[PersistentVolume], nodes: str
) -> None:
    plugin = binding(claim("data", volume="v", bound=True), *there)
    assert allowed(plugin, POD) == nodes, what


@pytest.mark.parametrize(
    ("what", "there", "nodes"),
    [
        ("a free volume", [volume("v", "a1")], "a1"),
        ("one is too small", [volume("v", "a1", size=4)], ""),
        ("one is of another class", [volume("v", "a1", size=9, storage_class="disks")], ""),
        ("one has not the access mode", [volume("v", "a1", access_modes=("ReadOnlyMany",))], ""),
        ("one is raw", [volume("v", "a1", volume_mode="Block")], ""),
        ("one is kept for another claim", [volume("v", "a1", claim="default/other")], ""),
        ("one is being deleted", [volume("v", "a1", terminating=True)], ""),
        ("one was released", [volume("v", "a1", available=False)], ""),
        (
            "kept for this claim, at one of two nodes",
            [volume("u", "a2"), volume("v", "b1", claim="default/data")],
            "b1",
        ),
        (
            "kept for an earlier claim of the name",
            [volume("v", "b1", claim="default/data", claim_uid="older")],
            "",
        ),
    ],
)
def test_a_claim_that_waits_for_its_pod_needs_a_free_volume_where_nothing_is_made(
    what: str, there: list[PersistentVolume], nodes: str
) -> None:
    big = [one if one.size != 1 else replace(one, size=5) for one in there]
    plugin = binding(claim("data", size=5), *big)
    assert allowed(plugin, POD) == nodes, what


def test_a_volume_is_made_where_the_class_and_the_driver_say() -> None:
    only_b = replace(DISKS, topologies=on_label(ZONE, "b"))
    assert allowed(binding(claim("data", "disks")), POD) == "a1 a2 b1"
    assert allowed(binding(only_b, claim("data", "disks")), POD) == "b1"
    told = CSIDriver(name="disk.example.com", storage_capacity=True)
    silent = CSIDriver(name="disk.example.com")
    here = CSIStorageCapacity(
        namespace="x", name="c", storage_class="disks", nodes=selector_of({ZONE: "a"}), largest=4
    )
    assert allowed(binding(told, here, claim("data", "disks", size=4)), POD) == "a1 a2"
    assert allowed(binding(told, here, claim("data", "disks", size=5)), POD) == ""
    assert allowed(binding(told, claim("data", "disks")), POD) == ""
    assert allowed(binding(silent, here, claim("data", "disks", size=5)), POD) == "a1 a2 b1"


def test_the_selected_node_pins() -> None:
    assert allowed(binding(claim("data", "disks", selected_node="a2")), POD) == "a2"
    assert allowed(binding(claim("data", "disks", selected_node="gone")), POD) == ""


@pytest.mark.parametrize(
    ("what", "there", "reason", "says"),
    [
        ("no such claim", [], Reason.CLAIM_NOT_FOUND, "default/data is not there"),
        ("misspelt", [claim("datta")], Reason.CLAIM_NOT_FOUND, "did you mean datta?"),
        ("deleted", [claim("data", terminating=True)], Reason.VOLUME_NOT_BINDABLE, "is being deleted"),
        ("lost", [claim("data", volume="v", lost=True)], Reason.VOLUME_NOT_BINDABLE, "lost its volume"),
        (
            "no volume",
            [claim("data", volume="v", bound=True)],
            Reason.VOLUME_NOT_BINDABLE,
            "volume v, which is not there",
        ),
        ("binds at once", [claim("data", "at-once")], Reason.VOLUME_NOT_BINDABLE, "at-once binds at once"),
        ("no class", [claim("data", None)], Reason.VOLUME_NOT_BINDABLE, "names no storage class"),
        ("class not there", [claim("data", "fast")], Reason.VOLUME_NOT_BINDABLE, "'fast' is not there"),
        ("names its volume", [claim("data", volume="v")], Reason.VOLUME_NOT_BINDABLE, "that it names, v"),
    ],
)
def test_other_claims_keep_their_pod_waiting_by_name(
    what: str, there: list[StorageObject], reason: Reason, says: str
) -> None:
    plugin = binding(*there)
    assert allowed(plugin, POD) == "", what
    refusal = plugin.pre_filter(CycleState(), (POD,))
    assert refusal is not None and refusal.reason == reason, what
    assert says in f"{refusal.message}; {refusal.remedy}".replace('"', "'"), what


@pytest.mark.parametrize(
    ("with_claim", "minimum", "running", "named"),
    [
        # Members p, q and r each have a claim of their own, of which only some exist.
        ("p q r", 3, 0, None),
        ("p q", 2, 0, None),
        ("p q", 3, 0, "r"),
        ("r", 2, 0, "p"),
        ("r", 2, 1, None),
        ("r", 3, 1, "p"),
        ("", 1, 1, "p"),
    ],
)
def test_a_gang_waits_where_too_few_members_have_their_claims(
    with_claim: str, minimum: int, running: int, named: str | None
) -> None:
    """``running``: members that have their node already."""
    pods = tuple(naming(pod_of(PodSpec(), name), "data", own=True) for name in ("p", "q", "r"))
    plugin = binding(*(claim(f"data-{name}", "disks") for name in with_claim.split()))
    group = PodGroup(namespace="default", name="gang", min_member=minimum)
    refusal = plugin.pre_filter(CycleState(group, anchors=tuple(range(running))), pods)
    assert (refusal and (refusal.reason, refusal.object)) == (
        named and (Reason.CLAIM_NOT_FOUND, f"Pod/default/{named}")
    )


@pytest.mark.parametrize(("there", "waits"), [("p q r", False), ("q", False), ("", True)])
def test_an_application_waits_where_no_pod_has_its_claim(there: str, waits: bool) -> None:
    pods = tuple(naming(pod_of(PodSpec(), name), "data", own=True) for name in ("p", "q", "r"))
    plugin = binding(*(claim(f"data-{name}", "disks") for name in there.split()))
    assert (plugin.pre_filter(CycleState(), pods) is not None) == waits


@pytest.mark.parametrize(("seconds", "good"), [(0, True), (0.5, True), (-1, False), (float("nan"), False)])
def test_the_time_to_bind_is_a_number_of_seconds(seconds: float, good: bool) -> None:
    with contextlib.nullcontext() if good else pytest.raises(ValueError, match="bindTimeoutSeconds"):
        made = VolumeBinding(VolumeBindingArguments(bind_timeout=seconds), handle_of(NODES))
        assert made.bind_timeout == seconds


def test_an_ephemeral_volume_of_a_former_pod_is_not_taken() -> None:
    pod = pod_of(PodSpec(claims=(PodClaim("tmp", ClaimName.AFTER_POD),)))
    own = claim("p-tmp", "disks", controller=pod.uid)
    assert allowed(binding(own), pod) == "a1 a2 b1"
    assert allowed(binding(claim("p-tmp", "disks", controller="older")), pod) == ""
    by_hand = claim("p-tmp", "disks")
    assert allowed(binding(by_hand), pod) == ""
    assert allowed(binding(replace(by_hand, uid="")), pod) == "a1 a2 b1"


def test_volumes_of_one_node_are_counted_and_given_smallest_first() -> None:
    there = [volume("big", "a1", size=9), volume("small", "a1", size=2), volume("other", "a2", size=2)]
    claims = [claim(f"data-{name}", size=2) for name in ("p", "q", "r")]
    pods = [naming(pod_of(PodSpec(), name), "data", own=True) for name in ("p", "q", "r")]
    plugin = binding(*there, *claims)
    assert room(plugin, pods[0]) == {"a1": 2, "a2": 1, "b1": 0}
    cluster = plugin.handle.cluster
    place(cluster, pods[0], "a1")
    assert [one.volume for one in cluster.volumes.chosen(pods[0])] == ["small"]
    assert room(plugin, pods[1]) == {"a1": 1, "a2": 1, "b1": 0}
    place(cluster, pods[1], "a1")
    assert room(plugin, pods[2]) == {"a1": 0, "a2": 1, "b1": 0}
    assert why_not(plugin, pods[2], "a1").reason == Reason.VOLUME_NOT_BINDABLE
    cluster.forget_pod(pods[0].uid)
    assert room(plugin, pods[2]) == {"a1": 1, "a2": 1, "b1": 0}


def test_several_claims_of_a_pod_take_several_volumes() -> None:
    there = [volume("s", "a1", size=1), volume("l", "a1", size=5), volume("m", "a2", size=3)]
    pod = naming(pod_of(PodSpec()), "one", "two")
    plugin = binding(claim("one", size=4), claim("two", size=1), *there)
    assert allowed(plugin, pod) == "a1"


def test_pods_that_share_a_claim_follow_the_first() -> None:
    first, second = (naming(pod_of(PodSpec(), name), "data") for name in ("first", "second"))
    plugin = binding(claim("data", "disks"))
    place(plugin.handle.cluster, first, "a1")
    assert allowed(plugin, second) == "a1"
    for name in ("a1", "a2", "b1"):
        plugin.handle.cluster.volumes.put(
            CSINode(name=name, drivers=(NodeDriver("disk.example.com", None, (ZONE,)),))
        )
    assert allowed(plugin, second) == "a1 a2"
    plugin.handle.cluster.forget_pod(first.uid)
    assert allowed(plugin, second) == "a1 a2 b1"
