"""Random gangs with claims, judged by every way there is to place the members and choose their volumes."""

from collections.abc import Mapping, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.nodes import Node
from closeby.objects.pods import NodeSelectorTerm, Pod
from closeby.objects.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass, StorageObject
from closeby.plugins.volume_zone import VolumeZone
from closeby.scheduling.events import StorageChanged
from closeby.scheduling.extension import NoArguments
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.plugins.asking import handle_of, pod_of
from tests.storage import DISKS, LOCAL, claim, naming, on_label, volume
from tests.worlds import GPU, gang, node, pods, spec, world

ZONES = ("z1", "z2")
BETA = "failure-domain.beta.kubernetes.io/"


class Site(Struct, frozen=True, kw_only=True):
    """Nodes, members with the names of their claims, and what there is to bind these to."""

    nodes: tuple[Node, ...]
    members: tuple[Pod, ...]
    claims: Mapping[str, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    #: The zones in which the class ``disks`` makes volumes; none: everywhere.
    made_in: str | None


def reaches(terms: tuple[NodeSelectorTerm, ...] | None, one: Node) -> bool:
    """Whether one of the terms selects a node; ours ask for one label each."""
    if terms is None:
        return True
    return any(all(one.labels.get(wish.key) in wish.values for wish in term.expressions) for term in terms)


def in_zones(found: PersistentVolume, one: Node) -> bool:
    """Upstream's VolumeZone, label by label."""
    keys = (ZONE, REGION, f"{BETA}zone", f"{BETA}region")
    if not any(key in one.labels for key in keys):
        return True
    for key in keys:
        if key in found.labels:
            newer = key.replace(BETA, "topology.kubernetes.io/")
            value = one.labels.get(key, one.labels.get(newer) if key.startswith(BETA) else None)
            if value not in found.labels[key].split("__"):
                return False
    return True


def placeable(site: Site) -> bool:
    """Whether any assignment of the members to nodes finds room and volumes."""
    return any(allowed(site, where) for where in product(site.nodes, repeat=len(site.members)))


def allowed(site: Site, where: Sequence[Node]) -> bool:
    """Whether the members can be on these nodes."""
    for one in site.nodes:
        if sum(there is one for there in where) > one.allocatable[GPU]:
            return False
    open_claims: list[tuple[PersistentVolumeClaim, Node]] = []
    for member, there in zip(site.members, where, strict=True):
        for name in member.spec.claims:
            found = site.claims[name.name]
            if found.volume:
                bound = site.volumes[found.volume]
                if not (reaches(bound.node_affinity, there) and in_zones(bound, there)):
                    return False
            elif found.request.storage_class == "local":
                open_claims.append((found, there))
            elif site.made_in is not None and there.labels.get(ZONE) != site.made_in:
                return False
    return choose(open_claims, [one for one in site.volumes.values() if not one.claim])


def choose(wanted: list[tuple[PersistentVolumeClaim, Node]], free: list[PersistentVolume]) -> bool:
    """Whether each claim gets a volume of its own."""
    if not wanted:
        return True
    (found, there), *others = wanted
    return any(
        one.size >= found.request.size
        and reaches(one.node_affinity, there)
        and choose(others, [each for each in free if each is not one])
        for one in free
    )


@st.composite
def sites(draw: st.DrawFn, *, one_kind: bool) -> Site:
    """Up to four nodes and members; ``one_kind``: every volume is of one size and of one node."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    nodes = []
    for name in names:
        zone = draw(st.sampled_from([*ZONES, None]))
        labels = {} if zone is None else {ZONE: zone}
        nodes.append(node(name, labels, {GPU: draw(st.integers(1, 3))}))
    volumes: dict[str, PersistentVolume] = {}
    for i in range(draw(st.integers(0, 5))):
        host = draw(st.sampled_from(names))
        zone, size = "", 1
        if not one_kind:
            host, zone = draw(st.sampled_from([(host, ""), ("", "z1"), ("", "z2"), ("", "")]))
            size = draw(st.integers(1, 2))
        volumes[f"v{i}"] = volume(f"v{i}", host, zone, size=size)
    claims: dict[str, PersistentVolumeClaim] = {}
    members = []
    for pod in pods("train", draw(st.integers(1, 4)), spec(gpu=1)):
        mine = []
        for i in range(draw(st.integers(0, 1 if one_kind else 2))):
            name = f"{pod.name}-{i}"
            kind = draw(st.sampled_from(["local", "local", "disks", "bound"]))
            if kind == "bound":
                labels = draw(st.sampled_from([{}, {ZONE: "z1"}, {ZONE: "z1__z2"}, {ZONE: "z2"}]))
                reach = draw(st.sampled_from([None, on_label(ZONE, "z1"), on_label(HOSTNAME, names[0])]))
                key = f"default/{name}"
                volumes[f"of-{name}"] = volume(
                    f"of-{name}", labels=labels, node_affinity=reach, claim=key, available=False
                )
                claims[name] = claim(name, volume=f"of-{name}", bound=True)
            else:
                size = 1 if one_kind else draw(st.integers(1, 2))
                claims[name] = claim(name, kind, size)
            mine.append(name)
        members.append(naming(pod, *mine))
    made_in = draw(st.sampled_from([None, "z1"]))
    return Site(nodes=tuple(nodes), members=tuple(members), claims=claims, volumes=volumes, made_in=made_in)


def placed(site: Site) -> dict[str, str]:
    """Where closeby places the members."""
    made = StorageClass(
        name="disks",
        provisioner=DISKS.provisioner,
        waits=True,
        topologies=() if site.made_in is None else on_label(ZONE, site.made_in),
    )
    drawn = world(site.nodes)
    there: list[StorageObject] = [LOCAL, made, *site.volumes.values(), *site.claims.values()]
    drawn.tell(*map(StorageChanged, there))
    drawn.run(gang(min_member=len(site.members)), members=site.members)
    return drawn.where


def check(site: Site) -> bool:
    """Whether the gang is placed, as is allowed."""
    where = placed(site)
    assert len(where) in (0, len(site.members))
    if where:
        by_name = {one.name: one for one in site.nodes}
        assert allowed(site, [by_name[where[one.name]] for one in site.members]), where
    return bool(where)


@given(sites(one_kind=True))
def test_a_gang_with_local_volumes_is_placed_exactly_when_that_is_possible(site: Site) -> None:
    assert check(site) == placeable(site)


def takes_what_others_need(site: Site) -> bool:
    """Whether a claim may get a volume that more nodes reach, since it is smaller than another one.

    The smallest volume is taken, as upstream does, whatever that leaves to other members.
    """
    free = [one for one in site.volumes.values() if not one.claim]
    reached = {one.name: sum(reaches(one.node_affinity, there) for there in site.nodes) for one in free}
    return any(
        one.size < other.size and reached[one.name] > reached[other.name] for one in free for other in free
    )


@given(sites(one_kind=False))
def test_a_gang_with_volumes_of_all_sizes_and_zones_is_placed_when_that_is_possible(site: Site) -> None:
    is_placed, is_possible = check(site), placeable(site)
    assert is_placed == is_possible or (is_possible and takes_what_others_need(site))


def test_a_claim_leaves_the_volume_that_more_nodes_reach_to_another_member() -> None:
    #: n0 alone reaches v1 to v3, and both nodes v0, the first by name.
    first, second = pods("train", 2, spec(gpu=1))
    names = ("train-0-0", "train-1-0", "train-1-1")
    site = Site(
        nodes=tuple(node(name, {ZONE: "z1"}, {GPU: 1}) for name in ("n0", "n1")),
        members=(naming(first, *names[:1]), naming(second, *names[1:])),
        claims={name: claim(name, "local", 1) for name in names},
        volumes={"v0": volume("v0", "", "z1"), **{f"v{i}": volume(f"v{i}", "n0") for i in (1, 2, 3)}},
        made_in=None,
    )
    assert check(site)


@st.composite
def zone_labels(draw: st.DrawFn, values: Sequence[str]) -> dict[str, str]:
    keys = draw(st.sets(st.sampled_from([ZONE, REGION, f"{BETA}zone", f"{BETA}region"])))
    return {key: draw(st.sampled_from(values)) for key in sorted(keys)}


@given(
    st.lists(zone_labels(("a", "b", "c")), min_size=1, max_size=6),
    st.lists(zone_labels(("a", "b", "a__b", "c__a")), min_size=1, max_size=3),
)
def test_volume_zone_allows_the_nodes_that_the_rule_allows(
    of_nodes: list[dict[str, str]], of_volumes: list[dict[str, str]]
) -> None:
    handle = handle_of([Node(name=f"n{i}", labels=labels) for i, labels in enumerate(of_nodes)])
    there = []
    for i, labels in enumerate(of_volumes):
        key = f"c{i}"
        there.append(volume(f"v{i}", labels=labels, claim=f"default/{key}", available=False))
        handle.cluster.volumes.put(claim(key, volume=f"v{i}", bound=True))
        handle.cluster.volumes.put(there[-1])
    pod = naming(pod_of(spec(), "p"), *(f"c{i}" for i in range(len(there))))
    answer = VolumeZone(NoArguments(), handle).filter(CycleState(), pod, Nodes(handle.cluster))
    for one in handle.cluster.nodes:
        if one is not None:
            slot = handle.cluster.slot(one.name)
            assert slot is not None
            assert bool(answer[slot]) == all(in_zones(each, one) for each in there), one
