"""Nodes for which the volume of a claim could not be had are left alone for a while."""

from typing import Any

import pytest
from msgspec.structs import replace

from closeby.cluster.volumes_by_class import VolumeFailure
from closeby.objects.labels import ZONE
from closeby.objects.reasons import Reason
from closeby.objects.selectors import LabelRequirement, LabelSelector
from closeby.objects.volumes import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    PersistentVolume,
    StorageObject,
)
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupChanged,
    PodUpserted,
    StorageChanged,
    StorageDeleted,
    Tick,
    VolumeRefused,
)
from closeby.scheduling.outcomes import bindings_of
from tests.storage import DISKS, LOCAL, claim, naming, volume, with_claims
from tests.worlds import GPU, World, gang, node, pods, spec, world

DRIVER = DISKS.provisioner
NODES = {"n1": "z1", "n2": "z1", "n3": "z2"}


def site(*there: StorageObject) -> World:
    """Three nodes in two zones; ``disks`` are made in the zone of a node."""
    drawn = world([node(name, {ZONE: zone}, {GPU: 4}) for name, zone in NODES.items()])
    said = [CSINode(name=name, drivers=(NodeDriver(DRIVER, None, (ZONE,)),)) for name in NODES]
    return drawn.tell(*(StorageChanged(one) for one in (LOCAL, DISKS, *said, *there)))


def waiting(*there: StorageObject, storage_class: str = "disks") -> World:
    """One pod with a claim."""
    drawn = site(claim("data", storage_class), *there)
    return drawn.tell(PodUpserted(naming(pods(None, 1)[0], "data")))


def decide(drawn: World, now: float, *events: Event) -> dict[str, str]:
    """Where pods go by what is decided at that time."""
    found = bindings_of(drawn.engine.handle(*events, Tick(now)))
    drawn.engine.validate_state()
    return {one.pod.name: one.node for one in found}


def refused(where: str, **fields: Any) -> tuple[Event, ...]:
    """The volume of the pod's claim could not be had there, and the pod waits again."""
    fields = {"claim": "default/data", "why": "nothing is made", **fields}
    failure = VolumeFailure(node=where, **fields)
    return VolumeRefused(failure), BindFailed("default/pod-0", "no volume")


def test_each_node_is_tried_once_then_all_rest() -> None:
    drawn = waiting()
    tried = [decide(drawn, 0.0)["pod-0"]]
    for now in (1.0, 2.0):
        tried.append(decide(drawn, now, *refused(tried[-1]))["pod-0"])
    assert sorted(tried) == ["n1", "n2", "n3"]
    assert decide(drawn, 3.0, *refused(tried[-1])) == {}
    assert drawn.reason("pod-0") == Reason.VOLUME_NOT_BINDABLE
    # The first was refused at second 1, and rests for 10; the others for 20 and 40.
    assert drawn.engine.next_backoff_end == pytest.approx(11.0)
    assert decide(drawn, 10.9) == {}
    assert decide(drawn, 11.0) == {"pod-0": tried[0]}


def test_what_took_long_rests_as_long() -> None:
    drawn = waiting()
    first = decide(drawn, 0.0)["pod-0"]
    other = decide(drawn, 600.0, *refused(first, took=600.0))["pod-0"]
    assert other != first
    assert decide(drawn, 1199.0, BindFailed("default/pod-0", "no room"))["pod-0"] != first
    assert drawn.engine.next_backoff_end == pytest.approx(1200.0)


def test_what_a_provisioner_refuses_holds_for_all_nodes_alike() -> None:
    drawn = waiting()
    first = decide(drawn, 0.0)["pod-0"]
    second = decide(drawn, 1.0, *refused(first, near=True))["pod-0"]
    assert NODES[first] != NODES[second]
    assert decide(drawn, 2.0, *refused(second, near=True)) == {}
    assert f"{ZONE}={NODES[first]}" in (drawn.outcome("pod-0").message or "")


def capacity(name: str, zone: str, largest: int) -> CSIStorageCapacity:
    nodes = LabelSelector((LabelRequirement(ZONE, "In", (zone,)),))
    return CSIStorageCapacity(
        namespace="default", name=name, storage_class="disks", nodes=nodes, largest=largest
    )


ENDS: dict[str, tuple[StorageObject, bool]] = {
    "another class": (replace(DISKS, default=True), True),
    "more capacity there": (capacity("there", "z2", 20), True),
    "less capacity there": (capacity("there", "z2", 5), False),
    "more capacity elsewhere": (capacity("elsewhere", "z1", 20), False),
    "another size": (claim("data", "disks", size=2), True),
    "its annotation": (claim("data", "disks", selected_node="n3"), False),
}


@pytest.mark.parametrize(("change", "ends"), ENDS.values(), ids=ENDS)
def test_what_ends_it(change: StorageObject, ends: bool) -> None:
    """Only ``n3`` has room, and the pod waits for it."""
    full = [replace(one, node_name=name) for name in ("n1", "n2") for one in pods(None, 4, prefix=name)]
    there = CSIDriver(name=DRIVER, storage_capacity=True), capacity("there", "z2", 10)
    drawn = waiting(*there, capacity("elsewhere", "z1", 10)).tell(*(PodUpserted(one) for one in full))
    assert decide(drawn, 0.0) == {"pod-0": "n3"}
    assert decide(drawn, 1.0, *refused("n3", near=True)) == {}
    assert bool(decide(drawn, 5.0, StorageChanged(change))) is ends


def test_a_volume_that_another_claim_took() -> None:
    """What others wrote of it may be known only later."""
    there = [volume("v1", "n1", size=1), volume("v2", "n1", size=2)]
    drawn = waiting(*there, storage_class="local")
    assert decide(drawn, 0.0) == {"pod-0": "n1"}
    assert decide(drawn, 1.0, *refused("n1", volume="v1")) == {}
    taken = replace(there[0], claim="default/other", claim_uid="other")
    assert decide(drawn, 5.0, StorageChanged(taken)) == {"pod-0": "n1"}
    (chosen,) = drawn.engine.cluster.volumes.claimed(drawn.engine.state.pods["default/pod-0"])
    assert chosen.volume == "v2"


GONE: dict[str, Event] = {
    "taken": StorageChanged(volume("v1", "n1", size=1, claim="default/other")),
    "deleted": StorageDeleted(PersistentVolume, "v1"),
    "about to be deleted": StorageChanged(replace(volume("v1", "n1", size=1), terminating=True)),
}


@pytest.mark.parametrize("change", GONE.values(), ids=GONE)
def test_a_volume_that_is_known_to_be_gone_when_it_is_refused_keeps_no_node_from_the_claim(
    change: Event,
) -> None:
    drawn = waiting(volume("v1", "n1", size=1), volume("v2", "n1", size=2), storage_class="local")
    assert decide(drawn, 0.0) == {"pod-0": "n1"}
    assert decide(drawn, 1.0, change, *refused("n1", volume="v1")) == {"pod-0": "n1"}


def test_a_claim_that_has_its_volume_is_judged_by_that() -> None:
    drawn = waiting()
    first = decide(drawn, 0.0)["pod-0"]
    others = {*NODES} - {first}
    assert set(decide(drawn, 1.0, *refused(first)).values()) <= others
    bound = claim("data", "disks", volume="made", bound=True)
    made = volume("made", zone=NODES[first], storage_class="disks", claim="default/data")
    drawn.tell(StorageChanged(made), StorageChanged(bound), BindFailed("default/pod-0", "no room"))
    assert NODES[decide(drawn, 2.0)["pod-0"]] == NODES[first]


def test_only_the_member_with_that_claim_goes_elsewhere() -> None:
    drawn = site(*(claim(f"data-train-{i}", "disks") for i in range(12)))
    members = pods("train", 12, with_claims(spec(gpu=1), "data"))
    drawn.tell(GroupChanged(gang(min_member=12)), *(PodUpserted(one) for one in members))
    first = decide(drawn, 0.0)
    assert len(first) == 12
    key, where = "default/data-train-3", first["train-3"]
    back = BindingsWithdrawn(tuple(one.uid for one in members), "no volume", "default/train")
    again = decide(
        drawn, 1.0, VolumeRefused(VolumeFailure(claim=key, node=where, why="nothing is made")), back
    )
    assert len(again) == 12 and again["train-3"] != where and where in again.values()
