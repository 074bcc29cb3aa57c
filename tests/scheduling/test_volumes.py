"""Gangs and plain pods with claims, decided by the engine."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from closeby.objects.labels import ZONE
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.volumes import (
    CSINode,
    NodeDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from closeby.scheduling.events import PodDeleted, PodUpserted, StorageChanged, StorageDeleted, Tick
from closeby.scheduling.fork import Change
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from closeby.scheduling.reasons.facts import ShortOf
from tests.storage import AT_ONCE, DISKS, LOCAL, claim, naming, on_label, volume, with_claims
from tests.worlds import World, draw, gang, node, pods, spec, world

RACKS = """
a r1 : a1=4 a2=4
a r2 : b1=4 b2=4
"""


def stocked(drawn: World, *there: StorageObject) -> World:
    return drawn.tell(*(StorageChanged(one) for one in (LOCAL, DISKS, AT_ONCE, *there)))


def claims_of(prefix: str, count: int, storage_class: str = "local") -> list[PersistentVolumeClaim]:
    return [claim(f"data-{prefix}-{i}", storage_class) for i in range(count)]


def test_a_gang_goes_where_its_local_volumes_are() -> None:
    there = [volume(f"v{i}", name) for i, name in enumerate(("a1", "b1", "b1", "b2"))]
    drawn = stocked(world(RACKS), *there, *claims_of("train", 3))
    drawn.run(gang(min_member=3, required="rack"), members=pods("train", 3, with_claims(spec(gpu=1), "data")))
    assert drawn.used() == {"b1": 2, "b2": 1}


def test_a_domain_without_the_volumes_is_passed_over_and_says_so() -> None:
    there = [volume(f"v{i}", name) for i, name in enumerate(("a1", "b1", "b1", "b2"))]
    drawn = stocked(world(RACKS, explain=True), *there, *claims_of("train", 3))
    drawn.run(gang(min_member=3, required="rack"), members=pods("train", 3, with_claims(spec(gpu=1), "data")))
    fits = {fit.path[-1]: (fit.fits, dict(fit.blocked_by)) for fit in drawn.outcome("train").domains}
    assert fits == {"r1": (1, {Reason.VOLUME_NOT_BINDABLE: 1}), "r2": (3, {})}


def test_a_gang_without_enough_volumes_waits_for_them() -> None:
    drawn = stocked(world(RACKS), volume("v0", "a1"), *claims_of("train", 2))
    drawn.run(gang(min_member=2), members=pods("train", 2, with_claims(spec(gpu=1), "data")))
    assert drawn.reason("train") == Reason.GANG_DOES_NOT_FIT
    drawn.tell(StorageChanged(volume("v1", "a2"))).run()
    assert drawn.used() == {"a1": 1, "a2": 1}


def test_volumes_that_many_nodes_reach_are_given_to_one_member_each() -> None:
    labelled = [replace(one, labels={**one.labels, ZONE: one.labels["rack"]}) for one in draw(RACKS)]
    there = [volume("v0", zone="r1"), volume("v1", zone="r1"), volume("v2", zone="r2")]
    drawn = stocked(world(labelled), *there, *claims_of("train", 3))
    drawn.run(gang(min_member=3), members=pods("train", 3, with_claims(spec(gpu=1), "data")))
    assert drawn.used(by="rack") == {"r1": 2, "r2": 1}
    found = drawn.engine.cluster.volumes
    chosen = [one.volume for pod, _ in drawn.engine.cluster.placed_pods() for one in found.chosen(pod)]
    assert sorted(map(str, chosen)) == ["v0", "v1", "v2"]


def test_members_that_share_a_claim_stay_where_its_volume_will_be() -> None:
    driver = NodeDriver("disk.example.com", None, ("rack",))
    said = [CSINode(name=name, drivers=(driver,)) for name in ("a1", "a2", "b1", "b2")]
    drawn = stocked(world(RACKS), claim("data", "disks"), *said)
    drawn.run(gang(min_member=6), members=pods("train", 6, with_claims(spec(gpu=1), "data", own=False)))
    assert set(drawn.used(by="rack").values()) == {6}


def test_of_two_members_with_a_claim_for_one_pod_one_has_to_wait() -> None:
    drawn = stocked(world(RACKS), claim("data", "disks", modes=("ReadWriteOncePod",)))
    drawn.run(gang(min_member=2), members=pods("train", 2, with_claims(spec(gpu=1), "data", own=False)))
    assert drawn.reason("train") == Reason.VOLUME_IN_USE
    assert (drawn.shortfall("train").what, drawn.shortfall("train").claim) == (ShortOf.CLAIM, "default/data")
    assert drawn.used() == {}


def test_members_that_share_a_claim_for_one_pod_are_named_wherever_room_lacks() -> None:
    modes = ("ReadWriteOncePod",)
    drawn = stocked(world(RACKS), claim("data", "disks", modes=modes), *claims_of("train", 2, "disks"))
    (full,) = pods(None, 1, spec(gpu=4), prefix="full")
    drawn.tell(PodUpserted(replace(full, node_name="a1")))
    names = ("data-train-0", "data"), ("data-train-1", "data")
    members = pods("train", 2, spec(gpu=1))
    drawn.run(
        gang(min_member=2, required="rack"),
        members=[naming(pod, *own) for pod, own in zip(members, names, strict=True)],
    )
    assert drawn.reason("train") == Reason.VOLUME_IN_USE
    for part in ("train-0..1", "default/data", "ReadWriteOncePod", "a claim of its own"):
        assert part in said(drawn)


def said(drawn: World) -> str:
    return drawn.outcome("train").message or ""


def bound(name: str, *, node: str = "", zone: str = "") -> list[StorageObject]:
    """A claim that is bound to a volume of one node or zone."""
    there = volume(f"v-{name}", node, zone, claim=f"default/{name}", available=False)
    return [there, claim(name, volume=there.name, bound=True)]


def zoned() -> World:
    return world([replace(one, labels={**one.labels, ZONE: one.labels["rack"]}) for one in draw(RACKS)])


def test_members_whose_volumes_are_in_other_racks_say_which_and_where() -> None:
    drawn = stocked(zoned(), *bound("here", zone="r1"), *bound("there", zone="r2"))
    one, other, *rest = pods("train", 4, spec(gpu=1))
    drawn.run(
        gang(min_member=4, required="rack"), members=[naming(one, "here"), naming(other, "there"), *rest]
    )
    assert drawn.reason("train") == Reason.TOPOLOGY_PLACEMENT_FAILED
    for part in (other.name, "2 VolumeNotBindable", "v-there", "default/there", f"{ZONE}=r2"):
        assert part in said(drawn)


def test_a_member_whose_volume_is_on_no_node_says_which_and_where() -> None:
    drawn = stocked(world(RACKS), *bound("lost", node="gone"))
    one, *rest = pods("train", 3, spec(gpu=1))
    drawn.run(gang(min_member=3), members=[naming(one, "lost"), *rest])
    assert drawn.reason("train") == Reason.GANG_DOES_NOT_FIT
    for part in (one.name, "4 nodes VolumeNotBindable", "default/lost", "kubernetes.io/hostname=gone"):
        assert part in said(drawn)


@pytest.mark.parametrize("shelf", [0, 20])
def test_more_members_are_bound_to_a_zone_than_it_has_room_for(shelf: int) -> None:
    """Nine of ten are to be where eight fit, each with another claim that many volumes suit: sums tell."""
    free = [volume(f"free-{i}", zone=f"r{i % 2 + 1}") for i in range(shelf)]
    members = pods("train", 10, spec(gpu=1))
    more = [claim(f"more-{one.name}") for one in members] if shelf else []
    drawn = stocked(zoned(), *bound("here", zone="r1"), *bound("there", zone="r2"), *free, *more)
    claims = [
        ["there" if i else "here", *([f"more-{one.name}"] if shelf else [])] for i, one in enumerate(members)
    ]
    drawn.run(
        gang(min_member=10), members=[naming(one, *own) for one, own in zip(members, claims, strict=True)]
    )
    assert drawn.reason("train") == Reason.GANG_DOES_NOT_FIT
    for part in ("VolumeNotBindable", "default/there", f"{ZONE}=r2"):
        assert part in said(drawn)


@pytest.mark.parametrize(
    ("nodes", "reason", "other"),
    [
        ("a r1 : a1=4 a2=4\nb r2 : b1=4", Reason.VOLUME_ZONE_MISMATCH, Reason.NODE_AFFINITY_MISMATCH),
        ("a r1 : a1=4\nb r2 : b1=4 b2=4", Reason.NODE_AFFINITY_MISMATCH, Reason.VOLUME_ZONE_MISMATCH),
    ],
)
def test_a_pod_names_the_claim_also_where_most_nodes_refuse_it_for_another_reason(
    nodes: str, reason: Reason, other: Reason
) -> None:
    drawn = stocked(
        world([replace(one, labels={**one.labels, ZONE: one.labels["zone"]}) for one in draw(nodes)]),
        claim("data", volume="v", bound=True),
        volume("v", claim="default/data", labels={ZONE: "b"}),
    )
    pod = naming(pods(None, 1, prefix="w")[0], "data")
    drawn.run(members=[replace(pod, spec=replace(pod.spec, node_selector=(("zone", "a"),)))])
    outcome = drawn.outcome("w-0")
    assert outcome.reason == reason
    short = drawn.shortfall("w-0")
    assert short.blocked_by == {reason: 2, other: 1}
    assert any("default/data" in one.message for one in short.examples)


def test_members_take_volumes_from_each_other_until_none_is_left() -> None:
    """Each alone finds a volume of its size; the large one takes what the small ones need."""
    drawn = stocked(
        world(RACKS),
        *(volume(f"v{i}", size=2) for i in range(2)),
        *(claim(f"data-train-{i}", size=1 + i % 2) for i in range(3)),
    )
    drawn.run(gang(min_member=3), members=pods("train", 3, with_claims(spec(gpu=1), "data")))
    assert drawn.reason("train") == Reason.VOLUME_NOT_BINDABLE
    short = drawn.shortfall("train")
    assert (short.what, len(short.pods), short.fits) == (ShortOf.VOLUMES, 1, 2)
    drawn.tell(StorageChanged(volume("v2", "b2", size=2))).run()
    assert len(drawn.where) == 3


def test_a_member_beyond_the_minimum_waits_alone_for_its_claim() -> None:
    drawn = stocked(world(RACKS), *claims_of("train", 2, "disks"))
    drawn.run(gang(min_member=2), members=pods("train", 3, with_claims(spec(gpu=1), "data")))
    assert len(drawn.where) == 2
    assert drawn.left("train") == {"train-2": Reason.VOLUME_NOT_BINDABLE}
    drawn.tell(StorageChanged(claim("data-train-2", "disks"))).run()
    assert len(drawn.where) == 3


def test_what_each_claim_gets_is_in_the_binding() -> None:
    drawn = stocked(world(RACKS), claim("mine"), claim("made", "disks"), volume("v", "b1"))
    (pod,) = (naming(one, "mine", "made") for one in pods(None, 1))
    (binding,) = bindings_of(drawn.engine.handle(PodUpserted(pod), Tick()))
    found = {one.claim: (one.volume, one.storage_class, one.bound) for one in binding.volumes}
    assert binding.node == "b1"
    assert found == {"default/made": (None, "disks", False), "default/mine": ("v", "local", False)}


# Queueing hints


def decided(drawn: World) -> set[str]:
    return {one.key.partition("/")[2] for one in outcomes_of(drawn.engine.handle(Tick()))}


def test_a_change_wakes_what_it_may_cure_and_nothing_else() -> None:
    full = [naming(one, "bound") for one in pods(None, 1, spec(gpu=9), prefix="full")]
    lost = [naming(one, "nowhere") for one in pods(None, 1, prefix="lost")]
    shelf = [naming(one, "shelf") for one in pods(None, 1, prefix="shelf")]
    away = [naming(one, "away") for one in pods(None, 1, prefix="away")]
    many = [naming(one, "made") for one in pods(None, 1, prefix="many")]
    none = NodeDriver("disk.example.com", 0)
    here: list[StorageObject] = [
        claim("bound", volume="b", bound=True),
        volume("b", claim="default/bound"),
        claim("shelf"),
        claim("away", "elsewhere"),
        replace(DISKS, name="elsewhere", provisioner="other.example.com", topologies=on_label("rack", "x")),
        claim("made", "disks"),
        *(CSINode(name=name, drivers=(none,)) for name in ("a1", "a2", "b1", "b2")),
    ]
    drawn = stocked(world(RACKS), *here).run(members=[*full, *lost, *shelf, *away, *many])
    assert drawn.where == {}

    def wakes(*events: StorageChanged | StorageDeleted) -> set[str]:
        drawn.tell(*events)
        return decided(drawn)

    assert wakes(StorageChanged(claim("nobody"))) == set()
    assert wakes(StorageChanged(volume("w", "a1", size=0))) == {"shelf-0"}
    assert wakes(StorageChanged(claim("nowhere", "at-once"))) == {"lost-0"}
    assert wakes(StorageChanged(replace(AT_ONCE, default=True))) == {"lost-0"}
    narrower = replace(
        DISKS, name="elsewhere", provisioner="other.example.com", topologies=on_label("rack", "y")
    )
    assert wakes(StorageChanged(narrower)) == {"away-0"}
    assert wakes(StorageChanged(CSINode(name="a1", drivers=(NodeDriver("other", 1),)))) == {"many-0"}
    assert wakes(StorageDeleted(PersistentVolume, "w")) == {"shelf-0"}


def test_what_concerns_no_pod_that_waits_wakes_none() -> None:
    """Claims, volumes and attachments of pods that run; only a volume that leaves a full node makes room."""
    one = NodeDriver("disk.example.com", 1)
    here: list[StorageObject] = [
        *(claim(name, "disks", volume=f"pv-{name}", bound=True) for name in ("theirs", "ours")),
        *(
            volume(f"pv-{name}", storage_class="disks", claim=f"default/{name}", driver=one.name, handle=name)
            for name in ("theirs", "ours", "other")
        ),
        *(CSINode(name=name, drivers=(one,)) for name in ("a1", "a2", "b1", "b2")),
        *(
            VolumeAttachment(name=f"to-{name}", driver=one.name, node=name, volume="pv-other")
            for name in ("a2", "b1", "b2")
        ),
    ]
    drawn = stocked(world(RACKS), *here)
    (theirs,) = (naming(pod, "theirs") for pod in pods(None, 1, prefix="theirs"))
    drawn.tell(PodUpserted(replace(theirs, node_name="a1")))
    ours = [naming(pod, "ours") for pod in pods(None, 1, prefix="ours")]
    drawn.run(members=ours)
    assert drawn.reason("ours-0") == Reason.VOLUME_LIMIT_REACHED

    def wakes(*events: StorageChanged | StorageDeleted) -> set[str]:
        drawn.tell(*events)
        return decided(drawn)

    attached = VolumeAttachment(name="new", driver=one.name, node="a1", volume="pv-theirs")
    assert wakes(StorageChanged(attached)) == set()
    assert wakes(StorageChanged(replace(claim("theirs", "disks", volume="pv-theirs"), uid="new"))) == set()
    assert wakes(StorageChanged(volume("pv-theirs", storage_class="disks", claim="default/theirs"))) == set()
    assert wakes(StorageChanged(CSINode(name="a1", drivers=(one,)))) == set()
    elsewhere = VolumeAttachment(name="free", driver="other", node="a1", volume="pv-x")
    assert wakes(StorageChanged(elsewhere), StorageDeleted(VolumeAttachment, "free")) == set()
    assert wakes(StorageDeleted(VolumeAttachment, "to-b1")) == {"ours-0"}


@pytest.mark.parametrize(
    "gone", [(VolumeAttachment, "at"), (PersistentVolume, "pv-old")], ids=["it", "volume"]
)
def test_what_leaves_a_full_node_wakes_those_alone_that_would_go_there(
    gone: tuple[type[StorageObject], str],
) -> None:
    """Most nodes lack GPUs, and one has all the volumes attached that it can have.

    An attachment whose volume is deleted counts no more, as in kube-scheduler.
    """
    one = NodeDriver("disk.example.com", 2)
    names = ("theirs", "ours", *(f"large-{i}" for i in range(20)))
    here: list[StorageObject] = [
        *(claim(name, "disks", volume=f"pv-{name}", bound=True) for name in names),
        *(
            volume(f"pv-{name}", storage_class="disks", claim=f"default/{name}", driver=one.name, handle=name)
            for name in (*names, "old")
        ),
        CSINode(name="a1", drivers=(one,)),
        VolumeAttachment(name="at", driver=one.name, node="a1", volume="pv-old"),
    ]
    drawn = stocked(world(RACKS), *here)
    full = zip(pods(None, 3, spec(gpu=4), prefix="full"), ("a2", "b1", "b2"), strict=True)
    (theirs,) = (replace(naming(pod, "theirs"), node_name="a1") for pod in pods(None, 1, prefix="theirs"))
    drawn.tell(PodUpserted(theirs), *(PodUpserted(replace(pod, node_name=name)) for pod, name in full))
    large = [naming(pod, pod.name) for pod in pods(None, 20, spec(gpu=5), prefix="large")]
    (ours,) = (naming(pod, "ours") for pod in pods(None, 1, prefix="ours"))
    drawn.run(members=[*large, *pods(None, 20, spec(gpu=6), prefix="none"), ours])
    assert drawn.reason("ours-0") == Reason.INSUFFICIENT_RESOURCES
    drawn.tell(StorageDeleted(*gone))
    assert decided(drawn) == {"ours-0"}
    assert drawn.engine.cluster.placement(ours.uid) is not None


def test_a_pod_with_volumes_that_leaves_a_full_node_wakes_whom_it_kept_off() -> None:
    one = NodeDriver("disk.example.com", 1)
    said = [CSINode(name=name, drivers=(one,)) for name in ("a1", "a2")]
    drawn = stocked(
        world("a r1 : a1=4 a2=4"), *said, *claims_of("theirs", 1, "disks"), claim("ours", "disks")
    )
    theirs = [
        replace(one, node_name="a1") for one in pods(None, 1, with_claims(spec(), "data"), prefix="theirs")
    ]
    full = [replace(one, node_name="a2") for one in pods(None, 1, spec(gpu=4), prefix="full")]
    drawn.tell(*map(PodUpserted, (*theirs, *full)))
    drawn.run(members=[naming(one, "ours") for one in pods(None, 1, prefix="ours")])
    assert drawn.reason("ours-0") in (Reason.INSUFFICIENT_RESOURCES, Reason.VOLUME_LIMIT_REACHED)
    drawn.tell(PodDeleted(theirs[0].uid))
    assert decided(drawn) == {"ours-0"}


def test_a_pod_that_leaves_wakes_those_alone_whom_it_kept_off() -> None:
    """The one that waits for its claim, for its volume, or for its attachment; none of the 40 others."""
    modes = ("ReadWriteOncePod",)
    most = {"a1": 1, "a2": 0, "b1": 0, "b2": 0}
    here: list[StorageObject] = [
        *(CSINode(name=on, drivers=(NodeDriver("disk.example.com", n),)) for on, n in most.items()),
        claim("once", volume="v-once", bound=True, modes=modes),
        volume("v-once", claim="default/once", access_modes=modes),
        volume("shelf"),
        *(claim(name) for name in ("taken", "free")),
        *(claim(name, "disks") for name in ("attached", "attaches")),
        *(claim(f"none-{i}", size=50) for i in range(20)),
        *(claim(f"unbound-{i}", "at-once") for i in range(20)),
    ]
    drawn = stocked(world(RACKS), *here)

    def runs(name: str, *claims: str) -> str:
        (pod,) = (replace(naming(one, *claims), node_name="a1") for one in pods(None, 1, prefix=name))
        drawn.tell(PodUpserted(pod))
        return pod.uid

    used, had, filled, plain = runs("u", "once"), runs("h", "taken"), runs("f", "attached"), runs("p")
    waits = {"ours": "once", "shelved": "free", "attaching": "attaches"}
    waits |= {name: name for i in range(20) for name in (f"none-{i}", f"unbound-{i}")}
    drawn.run(members=[naming(pod, own) for name, own in waits.items() for pod in pods(None, 1, prefix=name)])
    assert len(decided(drawn)) == 0

    def leaves(uid: str) -> set[str]:
        drawn.tell(PodDeleted(uid))
        return decided(drawn)

    assert leaves(plain) == set()
    assert leaves(used) == {"ours-0"}
    assert leaves(had) == {"shelved-0"}
    assert leaves(filled) == {"attaching-0"}


def test_a_pod_that_leaves_wakes_the_gang_alone_whose_claim_it_used() -> None:
    modes = ("ReadWriteOncePod",)
    shared = [
        one
        for name in ("once", "other")
        for one in (
            claim(name, volume=f"v-{name}", bound=True, modes=modes),
            volume(f"v-{name}", claim=f"default/{name}", access_modes=modes),
        )
    ]
    drawn = stocked(world(RACKS), *shared)
    users = [naming(pod, name) for name in ("once", "other") for pod in pods(None, 1, prefix=f"by-{name}")]
    drawn.tell(*(PodUpserted(replace(pod, node_name="a1")) for pod in users))
    (plain,) = pods(None, 1, prefix="plain")
    drawn.tell(PodUpserted(replace(plain, node_name="a1")))
    for name in ("once", "other"):
        leader, *rest = pods(name, 3, spec(gpu=1))
        drawn.run(gang(min_member=3, name=name), members=[naming(leader, name), *rest])
    drawn.tell(PodDeleted(plain.uid))
    assert decided(drawn) == set()
    drawn.tell(PodDeleted(users[0].uid))
    assert decided(drawn) == {"once"}


# Random worlds


def drawn_world(seed: int) -> tuple[list[StorageObject], list[Pod], World]:
    draws = random.Random(seed)
    nodes = [
        node(f"n{i}", {"rack": f"r{i % 2}", ZONE: f"z{i % 3}"}, {"example.com/gpu": draws.randint(1, 4)})
        for i in range(draws.randint(2, 5))
    ]
    names = [one.name for one in nodes]
    there: list[StorageObject] = [LOCAL]
    made = draws.choice([(), on_label(ZONE, "z0", "z1"), on_label("rack", "r1")])
    there.append(replace(DISKS, topologies=made))
    for i in range(draws.randint(0, 6)):
        where = draws.choice([{"node": draws.choice(names)}, {"zone": f"z{draws.randint(0, 2)}"}, {}])
        owner = draws.choice(["local", "local", "disks"])
        there.append(volume(f"v{i}", storage_class=owner, size=draws.randint(1, 3), **where))
    if draws.random() < 0.5:
        there += [
            CSINode(name=name, drivers=(NodeDriver(DISKS.provisioner, draws.randint(0, 2)),))
            for name in names
        ]
    members = []
    for pod in pods(None, draws.randint(1, 6)):
        wanted = [f"c{pod.name}-{i}" for i in range(draws.randint(0, 2))]
        for name in wanted:
            there.append(claim(name, draws.choice(["local", "disks"]), draws.randint(1, 3)))
        if draws.random() < 0.2:
            wanted.append("shared")
        members.append(naming(pod, *wanted))
    there.append(claim("shared", "disks", modes=("ReadWriteOncePod",)))
    return there, members, stocked(world(nodes, levels=("rack",)), *there)


def allowed_by_hand(
    drawn: World, there: Sequence[StorageObject], pod: Pod, before: Sequence[Pod]
) -> set[str]:
    """The nodes for a pod by upstream's rules, one claim and one volume after another."""
    volumes = drawn.engine.cluster.volumes
    claims = {one.key: one for one in there if isinstance(one, PersistentVolumeClaim)}
    classes = {one.name: one for one in there if isinstance(one, StorageClass)}
    limits = {one.name: one.drivers[0].limit for one in there if isinstance(one, CSINode)}
    used = {key for other in before for key in keys(other)}
    taken = {one.volume for other in before for one in volumes.chosen(other) if one.volume}
    found = set()
    for candidate in (one for one in drawn.engine.cluster.nodes if one is not None):
        free = [
            one
            for one in there
            if isinstance(one, PersistentVolume) and one.name not in taken and reaches(one, candidate.labels)
        ]
        fits = True
        for key in sorted(keys(pod), key=lambda key: claims[key].request.size):
            wanted = claims[key].request
            if key in used and "ReadWriteOncePod" in wanted.access_modes:
                fits = False
                continue
            modes = set(wanted.access_modes)
            usable = [
                one
                for one in free
                if one.storage_class == wanted.storage_class
                and one.size >= wanted.size
                and modes <= set(one.access_modes)
            ]
            if usable:
                free.remove(min(usable, key=lambda one: (one.size, one.name)))
                continue
            made = classes[wanted.storage_class or ""]
            terms = made.topologies
            here = not terms or any(
                candidate.labels.get(one.key) in one.values for term in terms for one in term.expressions
            )
            fits = fits and made.provisions and here
        of_driver = {
            key for other in before if drawn.where[other.name] == candidate.name for key in keys(other)
        }
        limit = limits.get(candidate.name)
        new = {key for key in keys(pod) if claims[key].request.storage_class == "disks"} - of_driver
        old = {key for key in of_driver if claims[key].request.storage_class == "disks"}
        if limit is not None and new and len(new | old) > limit:
            fits = False
        if fits:
            found.add(candidate.name)
    return found


def keys(pod: Pod) -> list[str]:
    return [f"{pod.namespace}/{one.of(pod.name)}" for one in pod.spec.claims]


def reaches(one: PersistentVolume, labels: object) -> bool:
    assert isinstance(labels, dict)
    if one.node_affinity is None:
        return True
    return any(
        all(labels.get(part.key) in part.values for part in term.expressions) for term in one.node_affinity
    )


@pytest.mark.parametrize("seed", range(120))
def test_pods_go_where_a_search_by_hand_lets_them(seed: int) -> None:
    there, members, drawn = drawn_world(seed)
    before: list[Pod] = []
    for pod in members:
        by_hand = allowed_by_hand(drawn, there, pod, before)
        room = {
            name
            for name, left in zip(drawn.engine.cluster.names, drawn.engine.diagnosis.room(pod), strict=False)
            if name and left > 0
        }
        count = Counter(drawn.where[other.name] for other in before)
        nodes = [one for one in drawn.engine.cluster.nodes if one is not None]
        free = {one.name for one in nodes if count[one.name] < one.allocatable["example.com/gpu"]}
        assert room == by_hand & free, f"seed {seed}, {pod.name}"
        drawn.run(members=[pod])
        if pod.name in drawn.where:
            before.append(pod)
            assert drawn.where[pod.name] in room, f"seed {seed}, {pod.name}"


@pytest.mark.parametrize("seed", range(40))
def test_leaving_and_coming_back_changes_nothing(seed: int) -> None:
    _, members, drawn = drawn_world(seed)
    drawn.run(members=members)
    state = drawn.engine.cluster.volumes
    placed = list(drawn.engine.cluster.placed_pods())
    before = {pod.uid: state.chosen(pod) for pod, _ in placed}
    with drawn.engine.fork() as fork:
        fork.apply(Change(gone=tuple(pod for pod, _ in placed[::2])))
        fork.decide()
    drawn.engine.validate_state()
    assert {pod.uid: state.chosen(pod) for pod, _ in drawn.engine.cluster.placed_pods()} == before, seed
    drawn.tell(*(PodDeleted(pod.uid) for pod, _ in placed))
    assert all(not state.chosen(pod) for pod, _ in placed)


@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_objects_changes_nothing(seed: int) -> None:
    there, members, drawn = drawn_world(seed)
    other = world([one for one in drawn.engine.cluster.nodes if one is not None], levels=("rack",))
    random.Random(seed).shuffle(there)
    stocked(other, *there)
    assert drawn.run(members=members).where == other.run(members=members).where, seed


def test_a_chain_of_claims_is_bound_one_after_another() -> None:
    sizes = [claim(f"data-p-{i}", size=i + 1) for i in range(4)]
    there = [volume(f"v{i}", "a1", size=i + 1) for i in range(4)]
    drawn = stocked(world(RACKS), *sizes, *there)
    drawn.run(members=pods(None, 4, with_claims(spec(gpu=1), "data"), prefix="p"))
    assert drawn.used() == {"a1": 4}
    chosen = [
        one.volume
        for pod, _ in drawn.engine.cluster.placed_pods()
        for one in drawn.engine.cluster.volumes.chosen(pod)
    ]
    assert all(one < other for one, other in pairwise(sorted(map(str, chosen))))
