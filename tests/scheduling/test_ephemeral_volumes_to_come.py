"""Places are held where the ephemeral volumes of the pods to come can be had."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import ClaimName, ClaimRequest, Pod, PodClaim
from closeby.objects.reasons import Reason
from closeby.objects.selectors import LabelRequirement, LabelSelector
from closeby.objects.volumes import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from closeby.scheduling.events import (
    NodeDeleted,
    NodeUpserted,
    PlacesAsked,
    PlacesWithdrawn,
    PodDeleted,
    PodUpserted,
    StorageChanged,
    StorageDeleted,
)
from tests.scheduling.test_places_for_pods_to_come import Site, asked, real
from tests.storage import AT_ONCE, DISKS, LOCAL, ONCE, on_label, volume


def with_scratch(group: PodGroup, storage_class: str | None = "local", size: int = 1) -> PodGroup:
    """The same places for pods with an ephemeral volume each."""
    assert group.places is not None
    (one,) = group.places.sets
    claim = PodClaim(f"scratch:{group.places.uid}", ClaimName.TO_COME, request(storage_class, size))
    template = replace(one.template, spec=replace(one.template.spec, claims=(claim,)))
    return replace(group, places=replace(group.places, sets=(replace(one, template=template),)))


def request(storage_class: str | None, size: int = 1) -> ClaimRequest:
    return ClaimRequest(storage_class=storage_class, size=size, access_modes=ONCE)


def came(count: int, storage_class: str = "local") -> tuple[list[Pod], list[StorageChanged]]:
    """The pods of that Workload, and the claims that were made with them."""
    scratch = PodClaim("scratch", ClaimName.AFTER_POD, request(storage_class))
    pods = [replace(pod, spec=replace(pod.spec, claims=(scratch,))) for pod in real(count)]
    claims = [
        PersistentVolumeClaim(
            namespace="default",
            name=scratch.of(pod.name),
            uid=f"uid-{pod.name}",
            request=request(storage_class),
            controller=pod.uid,
        )
        for pod in pods
    ]
    return pods, [StorageChanged(one) for one in claims]


def stored(site: Site) -> set[str]:
    """The claims that there are, to come or not."""
    return set(site.engine.cluster.volumes.storage.claims)


def local(*nodes: str) -> list[StorageChanged]:
    """A class of volumes made by hand, and one of them on each of these nodes."""
    made = [volume(f"v{i}", node) for i, node in enumerate(nodes)]
    return [StorageChanged(LOCAL), *map(StorageChanged, made)]


def test_each_pod_has_a_volume_of_its_own() -> None:
    site = Site()
    site.take(*local("a1", "a1", "b1", "b2", "b2"))
    # The first rack has two volumes, and room for four pods.
    site.take(PlacesAsked(with_scratch(asked(3))))
    assert sorted(site.where().values()) == ["b1", "b2", "b2"]


def test_too_few_volumes_in_each_rack_say_so_until_one_more_is_there() -> None:
    site = Site()
    site.take(*local("a1", "a2", "b1", "b2"))
    (refused,) = site.take(PlacesAsked(with_scratch(asked(3))))
    assert refused.reason == Reason.TOPOLOGY_PLACEMENT_FAILED
    assert site.where() == {}
    site.take(StorageChanged(volume("more", "a2")))
    assert sorted(site.where().values()) == ["a1", "a2", "a2"]


def test_the_reason_names_the_volume_and_no_claim() -> None:
    site = Site()
    (refused,) = site.take(StorageChanged(LOCAL), PlacesAsked(with_scratch(asked(2, constraint=None))))
    assert refused.reason == Reason.GANG_DOES_NOT_FIT
    assert refused.message is not None
    assert "ephemeral volume scratch" in refused.message
    assert "train-main" not in refused.message


def test_a_class_makes_volumes_where_its_topologies_and_its_capacity_let_it() -> None:
    racks = replace(DISKS, topologies=on_label("rack", "rack-2"))
    site = Site()
    site.take(StorageChanged(racks), PlacesAsked(with_scratch(asked(2), "disks")))
    assert set(site.where().values()) <= {"b1", "b2"}
    site = Site()
    there = LabelSelector((LabelRequirement("rack", "In", ("rack-1",)),))
    room = CSIStorageCapacity(namespace="x", name="c", storage_class="disks", nodes=there, largest=10)
    site.take(
        StorageChanged(DISKS),
        StorageChanged(CSIDriver(name=DISKS.provisioner, storage_capacity=True)),
        StorageChanged(room),
        PlacesAsked(with_scratch(asked(2), "disks", size=10)),
        PlacesAsked(with_scratch(asked(2, name="large"), "disks", size=11)),
    )
    assert set(site.where()) == {"train-main-0", "train-main-1"}
    assert set(site.where().values()) <= {"a1", "a2"}


def test_the_limit_of_a_driver_counts() -> None:
    site = Site()
    only_one = NodeDriver(DISKS.provisioner, limit=1)
    limits = [StorageChanged(CSINode(name=name, drivers=(only_one,))) for name in site.nodes]
    site.take(StorageChanged(DISKS), *limits, PlacesAsked(with_scratch(asked(2), "disks")))
    assert len(set(site.where().values())) == 2


@pytest.mark.parametrize("name", ["absent", None, ""])
def test_a_class_that_is_not_there_keeps_the_places_waiting(name: str | None) -> None:
    site = Site()
    (refused,) = site.take(PlacesAsked(with_scratch(asked(2), name)))
    assert refused.reason == Reason.VOLUME_NOT_BINDABLE
    assert refused.message is not None and "scratch" in refused.message
    assert site.where() == {}
    # What was made by hand is bound without an object of its class.
    by_hand = volume("v", "b1", storage_class=name or "")
    if name is not None:
        site.take(StorageChanged(by_hand))
    else:
        site.take(StorageChanged(replace(DISKS, default=True, topologies=on_label(HOSTNAME, "b1"))))
    assert len(site.where()) == 2


def test_a_volume_without_a_class_gets_the_default_as_it_is_then() -> None:
    first = replace(DISKS, name="first", default=True, created=1.0, topologies=on_label(HOSTNAME, "a1"))
    newer = replace(DISKS, name="newer", default=True, created=2.0, topologies=on_label(HOSTNAME, "b2"))
    site = Site()
    site.take(StorageChanged(first), StorageChanged(newer), PlacesAsked(with_scratch(asked(2), None)))
    assert set(site.where().values()) == {"b2"}
    site.take(StorageDeleted(StorageClass, "newer"))
    assert set(site.where().values()) == {"a1"}


def test_a_class_that_binds_at_once_restricts_nothing() -> None:
    site = Site()
    site.take(StorageChanged(AT_ONCE), PlacesAsked(with_scratch(asked(4), AT_ONCE.name)))
    assert len(site.where()) == 4
    (group,) = [one for one in site.engine.state.groups.values() if one.places]
    assert group.places is not None
    to_come = site.engine.cluster.volumes.to_come
    assert to_come.bound_at_once(group.places.sets[0].template) == ("scratch",)


def test_pods_take_their_places_and_volumes_with_the_claims_of_their_own() -> None:
    site = Site()
    site.take(*local("b1", "b2"), PlacesAsked(with_scratch(asked(2))))
    before = site.where()
    assert set(before.values()) == {"b1", "b2"}
    pods, claims = came(2)
    site.take(*claims, *map(PodUpserted, pods))
    assert site.where() == {f"train-pod-{i}": before[f"train-main-{i}"] for i in range(2)}
    assert stored(site) == {f"default/{pod.name}-scratch" for pod in pods}
    site.take(*(PodDeleted(pod.uid) for pod in pods))
    assert site.where() == before
    site.take(PlacesWithdrawn(asked().key))
    assert stored(site) == {f"default/{pod.name}-scratch" for pod in pods}


def test_other_pods_get_none_of_the_volumes() -> None:
    site = Site()
    site.take(*local("a1", "a1"), PlacesAsked(with_scratch(asked(2))))
    (other, *_), (claim, *_) = came(1)
    free = replace(other, name="other", uid="other", annotations={}, labels={})
    assert isinstance(claim.one, PersistentVolumeClaim)
    theirs = replace(claim.one, name="other-scratch", controller="other")
    (refused,) = site.take(StorageChanged(theirs), PodUpserted(free))
    assert refused.reason == Reason.VOLUME_NOT_BINDABLE
    site.take(PlacesWithdrawn(asked().key))
    assert site.where() == {"other": "a1"}


def test_a_volume_that_others_took_is_no_place_any_more() -> None:
    site = Site()
    site.take(*local("a1", "a2", "b1", "b2"), PlacesAsked(with_scratch(asked(2))))
    held = site.where()
    taken = next(f"v{i}" for i, node in enumerate(("a1", "a2", "b1", "b2")) if node == held["train-main-0"])
    site.take(StorageChanged(volume(taken, held["train-main-0"], claim="default/foreign")))
    assert set(site.where().values()) == {"a1", "a2", "b1", "b2"} - set(held.values())


def test_a_volume_that_others_took_is_replaced_by_another_of_the_node() -> None:
    site = Site()
    site.take(*local("a1", "a1"), PlacesAsked(with_scratch(asked(1))))
    volumes = site.engine.cluster.volumes
    (stand_in,) = [pod for pod, _ in site.engine.cluster.placed_pods()]
    assert [one.volume for one in volumes.chosen(stand_in)] == ["v0"]
    site.take(StorageChanged(volume("v0", "a1", claim="default/foreign")))
    assert site.where() == {"train-main-0": "a1"}
    assert [one.volume for one in volumes.chosen(stand_in)] == ["v1"]


def test_written_places_are_believed_where_their_volumes_are() -> None:
    plan = {"uid-train/main/0": "b1", "uid-train/main/1": "b2"}
    site = Site()
    site.take(*local("a1", "a2", "b1", "b2"), PlacesAsked(with_scratch(asked(2, plan=plan))))
    assert site.where() == {"train-main-0": "b1", "train-main-1": "b2"}


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "withdraw", "pod", "end", "volume", "taken", "gone", "node", "class"]),
        st.integers(0, 7),
    ),
    max_size=24,
)


@settings(max_examples=100)
@given(_STEPS)
def test_whatever_happens_each_pod_and_place_has_a_volume_of_its_own(steps: list[tuple[str, int]]) -> None:
    """The engine asserts after each step that no volume is chosen twice, and forgets all in the end."""
    site = Site()
    nodes = ("a1", "a2", "b1", "b2")
    site.take(*local("a1", "a2", "b1", "b2"))
    pods, claims = came(4)
    site.take(*claims)
    there: set[str] = set()
    for step, number in steps:
        pod, node, name = pods[number % 4], nodes[number % 4], f"v{number}"
        match step:
            case "ask":
                site.take(PlacesAsked(with_scratch(asked(count=number % 4 + 1))))
            case "withdraw":
                site.take(PlacesWithdrawn(asked().key))
            case "pod":
                there.add(pod.uid)
                site.take(PodUpserted(pod))
            case "end":
                there.discard(pod.uid)
                site.take(PodDeleted(pod.uid))
            case "volume":
                site.take(StorageChanged(volume(name, node)))
            case "taken":
                site.take(StorageChanged(volume(name, node, claim="default/foreign")))
            case "gone":
                site.take(StorageDeleted(PersistentVolume, name))
            case "node":
                site.take(NodeDeleted(node) if number < 4 else NodeUpserted(site.nodes[node]))
            case "class":
                site.take(StorageDeleted(StorageClass, "local") if number < 4 else StorageChanged(LOCAL))
    site.take(PlacesWithdrawn(asked().key), *(PodDeleted(uid) for uid in there))
    assert site.where() == {}
    assert stored(site) == {f"default/{pod.name}-scratch" for pod in pods}
