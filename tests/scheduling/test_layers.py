"""Gangs with layers: where their segments go, and what becomes of members that come later."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.groups import (
    MOST_PODS,
    Arrangement,
    Exclusive,
    Layer,
    LayerMode,
    PodGroup,
    Remainder,
    SubGroup,
)
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, PodDeleted, PodUpserted, Tick
from closeby.scheduling.preemption.rule import Preemptible
from closeby.scheduling.reasons.facts import ShortOf
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, subgroup, world

BLOCKS = ("block", "rack")
#: Three blocks of racks of two nodes.
SIX_RACKS = """
a r1 : a1=4 a2=4
a r2 : a3=4 a4=2
b r3 : b1=4 b2=4
b r4 : b3=4 b4=4
c r5 : c1=2
c r6 : c2=3
"""


def layered(minimum: int, *layers: Layer, **fields: Any) -> PodGroup:
    return replace(gang(min_member=minimum, **fields), layers=layers)


def by(found: World, label: str, *names: str) -> list[str]:
    """The value of a label at the node of each pod."""
    cluster = found.engine.cluster
    slots = [cluster.slot(found.where[name]) for name in names]
    return [cluster.node_at(slot).labels[label] for slot in slots if slot is not None]


def racks(found: World, first: int, end: int, prefix: str = "train") -> set[str]:
    return set(by(found, "rack", *(f"{prefix}-{at}" for at in range(first, end))))


@pytest.mark.parametrize(("racks_", "placed"), [(40, True), (31, True), (30, True), (29, False)])
def test_many_unequal_pods_in_segments_with_a_rack_for_themselves(racks_: int, placed: bool) -> None:
    """No two pods are equal, and a rack has room for three segments."""
    nodes = [
        node(f"n{at}", {"block": "b", "rack": f"r{at // 4}"}, {GPU: 8, "cpu": 64_000})
        for at in range(4 * racks_)
    ]
    members = [replace(one, spec=spec(gpu=1, cpu=1000 + at)) for at, one in enumerate(pods("train", 300))]
    layer = Layer(level="rack", size=10, exclusive=Exclusive.KIND)
    found = world(nodes, levels=BLOCKS).run(layered(300, layer), members=members)
    assert len(found.where) == (300 if placed else 0)
    if placed:
        own = [racks(found, at, at + 10) for at in range(0, 300, 10)]
        assert [len(one) for one in own] == [1] * 30
        assert len(set[str]().union(*own)) == 30
    else:
        assert found.reason("train") == Reason.TOPOLOGY_PLACEMENT_FAILED


def test_each_segment_is_in_one_rack() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(
        layered(16, Layer(level="rack", size=4)), members=pods("train", 16)
    )
    assert [racks(found, at, at + 4) for at in range(0, 16, 4)] == [{"r3"}, {"r3"}, {"r4"}, {"r4"}]
    assert [found.rank[f"train-{at}"] for at in range(16)] == list(range(16))


def test_segments_of_racks_within_segments_of_blocks() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(
        layered(24, Layer(level="block", size=8), Layer(level="rack", size=4)), members=pods("train", 24)
    )
    names = [[f"train-{at}" for at in range(first, first + 8)] for first in (0, 8, 16)]
    assert [set(by(found, "block", *own)) for own in names] == [{"a"}, {"b"}, {"b"}]
    assert all(len(racks(found, at, at + 4)) == 1 for at in range(0, 24, 4))


def test_what_fits_pod_by_pod_and_not_by_segments_waits() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(
        layered(35, Layer(level="rack", size=5)), members=pods("train", 35)
    )
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED


def test_a_preferred_layer_is_followed_by_as_many_segments_as_can_be() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(
        layered(35, Layer(level="rack", size=5, mode=LayerMode.PREFERRED)), members=pods("train", 35)
    )
    assert sum(len(racks(found, at, at + 5)) == 1 for at in range(0, 35, 5)) == 4


def test_a_last_segment_may_be_smaller() -> None:
    layer = Layer(level="rack", size=8, remainder=Remainder.ALLOW)
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(19, layer), members=pods("train", 19))
    assert [len(racks(found, 0, 8)), len(racks(found, 8, 16)), racks(found, 16, 19)] == [1, 1, {"r6"}]


def test_spread_segments_use_as_many_racks_as_can_be() -> None:
    layer = Layer(level="rack", size=2, arrangement=Arrangement.SPREAD)
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(8, layer), members=pods("train", 8))
    assert len({*map(frozenset, (racks(found, at, at + 2) for at in range(0, 8, 2)))}) == 4


def test_unequal_segments_use_the_fewest_racks() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(
        layered(16, Layer(level="rack", counts=(1, 3, 4, 5, 3))), members=pods("train", 16)
    )
    assert len(found.used(by="rack")) == 2
    ends = (0, 1, 4, 8, 13, 16)
    assert all(len(racks(found, at, end)) == 1 for at, end in pairwise(ends))


def test_a_replaced_member_returns_to_its_segment() -> None:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 16))]
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(16, Layer(level="rack", size=4)), members=members)
    before = dict(found.where)
    for lost in (5, 14):
        found.tell(PodDeleted(members[lost].uid))
        again = replace(members[lost], name=f"again-{lost}", uid=f"again-{lost}")
        found.run(members=[again])
        assert by(found, "rack", f"again-{lost}") == by(found, "rack", f"train-{lost}")
        assert found.where[f"again-{lost}"] == before[f"train-{lost}"]
        assert found.rank[f"again-{lost}"] == found.rank[f"train-{lost}"]


def test_members_without_an_index_return_to_the_segment_that_lacks_one() -> None:
    members = pods("train", 8, prefix="x")
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(8, Layer(level="rack", size=4)), members=members)
    racks_before = by(found, "rack", *(pod.name for pod in members))
    found.tell(PodDeleted(members[6].uid), PodDeleted(members[1].uid))
    found.run(members=pods("train", 2, prefix="a"))
    assert sorted(by(found, "rack", "a-0", "a-1")) == sorted([racks_before[6], racks_before[1]])


def test_members_without_an_index_return_to_each_of_several_segments_that_lack_one() -> None:
    """So many lack one that those that run need more racks than their number would."""
    members, small = pods("train", 8, prefix="x"), "\n".join(f"a r{at} : a{at}=2" for at in range(4))
    found = world(small, levels=BLOCKS).run(layered(8, Layer(level="rack", size=2)), members=members)
    before = dict(found.where)
    found.tell(*(PodDeleted(members[lost].uid) for lost in (0, 3, 4, 6)))
    found.run(members=pods("train", 4, prefix="a"))
    assert sorted(found.where[f"a-{at}"] for at in range(4)) == sorted(
        before[f"x-{at}"] for at in (0, 3, 4, 6)
    )


def test_a_member_without_an_index_returns_to_the_fullest_segment_that_lacks_one() -> None:
    members = pods("train", 3, prefix="x")
    running = [replace(one, node_name=on) for one, on in zip(members, ("a1", "a2", "a2"), strict=True)]
    found = world("a r1 : a1=3\na r2 : a2=3", levels=BLOCKS)
    found.run(layered(4, Layer(level="rack", size=3)), members=[*running, *pods("train", 1, prefix="a")])
    assert found.where == {"a-0": "a2"}


def test_a_replaced_member_returns_before_the_others_of_its_segment_appear() -> None:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 6))]
    running = [replace(members[at], node_name="a1" if at < 3 else "a2") for at in (0, 3, 4, 5)]
    found = world("a r1 : a1=3\na r2 : a2=3", levels=BLOCKS)
    found.run(layered(3, Layer(level="rack", size=3)), members=[*running, members[1]])
    assert found.where == {"train-1": "a1"}


def test_members_without_an_index_get_the_ranks_of_the_segment_to_which_they_return() -> None:
    """The racks do not stand in the order of the segments: the roomiest comes first in the second one."""
    members = pods("train", 6, prefix="x")
    layers = (Layer(level="rack", counts=(2, 4)),)
    group = replace(gang(min_member=6), layers=layers)
    found = world("a r1 : a1=4\na r2 : a2=2", levels=BLOCKS).run(group, members=members)
    assert racks(found, 0, 2, "x") == {"r2"}
    lost = (0, 5)
    found.tell(*(PodDeleted(members[at].uid) for at in lost))
    found.run(members=pods("train", 2, prefix="a"))
    ranks = {found.where[name]: found.rank[name] for name in ("a-0", "a-1")}
    assert ranks == {"a2": found.rank["x-0"], "a1": found.rank["x-5"]}


@pytest.mark.parametrize("index", [10**9, 2**62])
@pytest.mark.parametrize("size", [1, 2, MOST_PODS])
def test_an_index_beyond_all_gangs_and_sizes_cost_no_memory(index: int, size: int) -> None:
    """A label of a pod says the index, and whoever writes a PodGroup the size."""
    layers = (Layer(level="rack", size=size, remainder=Remainder.ALLOW),)
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    members[3] = replace(members[3], index=index)
    runs = [replace(pod, node_name="a1", phase="Running") for pod in members[:2]]
    found = world("a r1 : a1=8\na r2 : a2=8", levels=BLOCKS)
    found.run(replace(gang(min_member=4), layers=layers), members=[*runs, *members[2:]])
    assert set(found.where) == {"train-2", "train-3"}


def test_a_segment_that_lacks_room_in_its_own_rack_waits() -> None:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 8))]
    small = "a r1 : a1=4\na r2 : a2=4\na r3 : a3=4"
    found = world(small, levels=BLOCKS).run(layered(8, Layer(level="rack", size=4)), members=members)
    node = found.where["train-7"]
    found.tell(PodDeleted(members[7].uid))
    found.run(members=pods(None, 1, prefix="other", on=node))
    found.run(members=[replace(members[7], uid="again")])
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED


#: A layer that need not be followed.
PREFERRED: dict[str, Any] = {"mode": LayerMode.PREFERRED}


@pytest.mark.parametrize(
    ("drawing", "node"),
    [
        ("a r1 : a1=1\na r2 : a2=1 a3=1\nb r3 : b1=2", "b1"),
        ("a r1 : a1=1\na r2 : a2=1 a3=1\na r4 : a4=1\nb r3 : b1=1", "a4"),
        ("a r1 : a1=1 a5=1\na r2 : a2=1 a3=1\na r4 : a4=1\nb r3 : b1=1", "a5"),
    ],
)
def test_a_preferred_layer_stays_preferred_beside_members_that_run(drawing: str, node: str) -> None:
    """The one that is lost goes back to its rack, else as near to it as there is room."""
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    runs = zip((0, 2, 3), ("a1", "a2", "a3"), strict=True)
    running = [replace(members[at], node_name=on, phase="Running") for at, on in runs]
    found = world(drawing, levels=BLOCKS)
    found.run(layered(4, Layer(level="rack", size=2, **PREFERRED)), members=[*running, members[1]])
    assert found.where == {"train-1": node}


def lost_two(second: PodSpec) -> World:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    runs = ((0, "a1"), (3, "a3"))
    running = [replace(members[at], node_name=on, phase="Running") for at, on in runs]
    found = world("a r1 : a1=1\na r2 : a2=1 a3=1\nb r3 : b1=1", levels=BLOCKS)
    waiting = [members[1], replace(members[2], spec=second)]
    return found.run(layered(4, Layer(level="rack", size=2, **PREFERRED)), members=[*running, *waiting])


def test_what_is_lost_does_not_take_the_place_of_others_that_come_back() -> None:
    assert lost_two(spec(gpu=1)).where == {"train-1": "b1", "train-2": "a2"}


def test_unequal_pods_of_preferred_segments_come_back_where_there_is_room() -> None:
    assert set(lost_two(PodSpec(requests=((GPU, 1), ("pods", 1)))).where.values()) == {"a2", "b1"}


def test_what_is_lost_does_not_leave_a_required_layer_for_a_preferred_one() -> None:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    runs = ((0, "a1"), (2, "a2"), (3, "a3"))
    running = [replace(members[at], node_name=on, phase="Running") for at, on in runs]
    layers = (Layer(level="block", size=4), Layer(level="rack", size=2, **PREFERRED))
    full = world("a r1 : a1=1\na r2 : a2=1 a3=1\nb r3 : b1=1", levels=BLOCKS)
    full.run(layered(4, *layers), members=[*running, members[1]])
    assert full.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
    spare = world("a r1 : a1=1\na r2 : a2=1 a3=1\na r3 : a4=1\nb r4 : b1=1", levels=BLOCKS)
    spare.run(layered(4, *layers), members=[*running, members[1]])
    assert spare.where == {"train-1": "a4"}


def test_a_segment_leaves_the_block_that_its_layer_only_prefers() -> None:
    """Of a block's eight the second rack is lost, and the block has no room for it."""
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    running = [replace(members[at], node_name=f"a{at}", phase="Running") for at in (0, 1)]
    layers = (Layer(level="block", size=4, **PREFERRED), Layer(level="rack", size=2))
    found = world("a r1 : a0=1 a1=1\na r2 : a2=1\nb r3 : b1=1\nb r4 : b2=1 b3=1", levels=BLOCKS)
    found.run(layered(4, *layers), members=[*running, *members[2:]])
    assert set(found.where.values()) == {"b2", "b3"}


def test_segments_beyond_the_minimum_come_as_a_whole() -> None:
    members = pods("train", 20)
    layer = Layer(level="rack", size=8, min_segments=1)
    found = world("a r1 : a1=8\na r2 : a2=12\na r3 : a3=4", levels=BLOCKS).run(
        layered(8, layer), members=members
    )
    assert [len(racks(found, 0, 8)), len(racks(found, 8, 16))] == [1, 1]
    assert found.left("train") == {f"train-{at}": Reason.GANG_INCOMPLETE for at in range(16, 20)}
    found.run(
        members=[replace(pod, name=f"l-{at}", uid=f"l-{at}") for at, pod in enumerate(pods("train", 4))]
    )
    assert set(found.left("train").values()) == {Reason.TOPOLOGY_PLACEMENT_FAILED}


def test_a_gang_waits_until_enough_segments_have_their_members() -> None:
    asked = layered(4, Layer(level="rack", size=4, min_segments=2))
    found = world(SIX_RACKS, levels=BLOCKS).run(asked, members=pods("train", 7))
    assert found.reason("train") is Reason.GANG_INCOMPLETE
    found.run(members=pods("train", 8)[7:])
    assert found.reason("train") is None


def test_a_required_level_bounds_the_whole() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(
        layered(12, Layer(level="rack", size=4), required="block"), members=pods("train", 12)
    )
    assert set(found.used(by="block")) == {"a"}
    more = world(SIX_RACKS, levels=BLOCKS).run(
        layered(20, Layer(level="rack", size=4), required="block"), members=pods("train", 20)
    )
    assert more.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED


def test_a_subgroup_has_segments_of_its_own() -> None:
    workers = replace(subgroup("workers", 8), layers=(Layer(level="rack", size=4),))
    asked = gang(min_member=9, subgroups=[subgroup("driver"), workers], required="block")
    found = world(SIX_RACKS, levels=BLOCKS).run(
        asked, members=[*pods("train", 1, subgroup="driver"), *pods("train", 8, subgroup="workers")]
    )
    assert [len(racks(found, at, at + 4, "workers")) for at in (0, 4)] == [1, 1]
    assert len(found.used(by="block")) == 1


def unequal() -> list[Pod]:
    """Four segments, each of a leader of two GPUs and two workers."""
    found = []
    for at in range(4):
        found += [
            *pods("train", 1, spec(gpu=2), prefix=f"t-{at}a-leader"),
            *pods("train", 2, prefix=f"t-{at}b-worker"),
        ]
    return found


def test_leader_and_workers_of_a_segment_are_together() -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(12, Layer(level="rack", size=3)), members=unequal())
    assert len(found.where) == 12
    for at in range(4):
        names = (f"t-{at}a-leader-0", f"t-{at}b-worker-0", f"t-{at}b-worker-1")
        assert len(set(by(found, "rack", *names))) == 1


def test_unequal_pods_whose_segments_certainly_have_no_room_hear_no() -> None:
    two = "a r1 : a1=3 a2=3\na r2 : a3=3 a4=3"
    group = layered(12, Layer(level="rack", size=3))
    found = world(f"{two}\na r3 : a5=3 a6=3", levels=BLOCKS).run(group, members=unequal())
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
    short = found.shortfall("train")
    assert (short.what, short.fits, short.wanted, short.size) == (ShortOf.SEGMENT, 3, 4, 3)
    found = world(two, levels=BLOCKS).run(group, members=unequal())
    assert found.reason("train") is Reason.GANG_DOES_NOT_FIT


@pytest.mark.parametrize(
    ("layers", "field"),
    [
        ((Layer(level="cage", size=4),), "spec.layers[0].level"),
        ((Layer(level="rack", size=4), Layer(level="block", size=4)), "spec.layers[1].level"),
    ],
)
def test_layers_that_the_topology_does_not_have_so_keep_the_gang_waiting(
    layers: tuple[Layer, ...], field: str
) -> None:
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(4, *layers), members=pods("train", 4))
    (condition,) = found.outcome("train").conditions
    assert (condition.field, condition.blocking) == (field, True)
    assert found.reason("train") is condition.reason


FOUR_RACKS = "a r1 : a1=4 a2=4\na r2 : a3=4 a4=4\nb r3 : b1=4 b2=4\nb r4 : b3=4 b4=4"


def alone(name: str, exclusive: Exclusive, count: int = 4, size: int = 4) -> tuple[PodGroup, list[Pod]]:
    layer = Layer(level="rack", size=size, exclusive=exclusive)
    return layered(count, layer, name=name), pods(name, count)


def test_segments_of_one_kind_each_have_a_rack() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS)
    for name, count in (("x", 8), ("y", 4), ("z", 4), ("full", 4)):
        asked, members = alone(name, Exclusive.KIND, count)
        found.run(asked, members=members)
    first = [racks(found, at, at + 4, "x") for at in (0, 4)]
    assert first[0] != first[1]
    used = {*first[0], *first[1], *racks(found, 0, 4, "y"), *racks(found, 0, 4, "z")}
    assert used == {"r1", "r2", "r3", "r4"}
    assert found.reason("full") is Reason.DOMAIN_EXCLUSIVE
    # Pods of other kinds may come.
    found.run(members=pods(None, 8, prefix="plain"))
    assert len(found.used("plain")) == 2
    gone = racks(found, 0, 4, "y")
    found.tell(*(PodDeleted(pod.uid) for pod in pods("y", 4))).run()
    assert racks(found, 0, 4, "full") == gone


def test_a_gang_that_wants_a_rack_for_itself_keeps_all_others_out() -> None:
    found = world("a r1 : a1=4 a2=4\na r2 : a3=1", levels=BLOCKS)
    asked, members = alone("x", Exclusive.ALL)
    found.run(asked, members=members)
    assert racks(found, 0, 4, "x") == {"r1"}
    found.run(members=pods(None, 2, prefix="plain"))
    assert set(found.used("plain", by="rack")) == {"r2"}
    assert found.reason("plain-1") is Reason.DOMAIN_EXCLUSIVE
    daemon = replace(pods(None, 1, prefix="agent")[0], owner="DaemonSet/agent")
    found.run(members=[daemon])
    assert set(found.used("agent", by="rack")) == {"r1"}
    found.tell(*(PodDeleted(pod.uid) for pod in members)).run()
    assert set(found.used("plain", by="rack")) == {"r1", "r2"}


def owned(owner: str, members: list[Pod]) -> list[Pod]:
    return [replace(pod, owner=owner) for pod in members]


@pytest.mark.parametrize(
    ("first", "second", "enters"),
    [
        ("JobSet/x", "JobSet/y", False),
        ("LeaderWorkerSet/x", "LeaderWorkerSet/y", False),
        ("JobSet/x", "LeaderWorkerSet/y", True),
        ("JobSet/x", "Job/y", True),
    ],
)
@pytest.mark.parametrize("gangs", [True, False])
def test_of_job_sets_and_leader_worker_sets_none_enters_whether_it_has_such_a_layer_or_not(
    first: str, second: str, enters: bool, gangs: bool
) -> None:
    found = world("a r1 : a1=4 a2=4", levels=BLOCKS)
    asked, members = alone("x", Exclusive.KIND)
    found.run(asked, members=owned(first, members))
    if gangs:
        found.run(gang("y", 2), members=owned(second, pods("y", 2)))
    else:
        found.run(members=owned(second, pods(None, 2, prefix="y")))
    assert bool(found.used("y")) is enters
    assert enters or found.reason("y" if gangs else "y-0") is Reason.DOMAIN_EXCLUSIVE


@pytest.mark.parametrize("group", ["y", None])
def test_a_rack_with_another_job_of_a_job_set_can_not_be_had_alone(group: str | None) -> None:
    found = world("a r1 : a1=4 a2=4\na r2 : a3=2 a4=2", levels=BLOCKS)
    found.run(gang("y", 1), members=owned("JobSet/y", pods(group, 1, spec(gpu=4), prefix="y")))
    assert found.used("y", by="rack") == {"r1": 1}
    asked, members = alone("x", Exclusive.KIND)
    found.run(asked, members=owned("JobSet/x", members))
    assert racks(found, 0, 4, "x") == {"r2"}


@pytest.mark.parametrize("falls", [None, 600.0])
def test_domains_for_a_gang_alone_are_for_trusted_namespaces(falls: float | None) -> None:
    configuration = Configuration(trust_exclusive=("good",))
    engine = Engine(lambda handle: profile_for(configuration, handle))
    found = World(engine, draw("a r1 : a1=4 a2=4", BLOCKS), fabric(*BLOCKS, HOSTNAME))
    _, members = alone("x", Exclusive.ALL)
    layer = Layer(level="rack", size=4, exclusive=Exclusive.ALL, relax_after=falls)
    found.tell(GroupChanged(layered(4, layer, name="x")), *map(PodUpserted, members), Tick(wall=1.0))
    found.tell(Tick(wall=2000.0))
    assert found.reason("x") is Reason.UNSUPPORTED
    # Nor does it keep anybody out of where it runs.
    found.tell(*(PodUpserted(replace(pod, node_name="a1")) for pod in members))
    found.run(members=pods(None, 2, prefix="plain"))
    assert sum(found.used("plain").values()) == 2


def test_a_gang_whose_node_is_gone_has_no_domain_to_be_named() -> None:
    found = world("a r1 : a1=4", levels=BLOCKS)
    for name, at in (("lost", "gone"), ("there", "a1")):
        asked, (member,) = alone(name, Exclusive.ALL, 1, 1)
        found.run(asked, members=[replace(member, node_name=at)])
    found.run(members=pods(None, 1, prefix="plain"))
    assert found.reason("plain-0") is Reason.DOMAIN_EXCLUSIVE


@pytest.mark.parametrize("required", [None, "rack"])
def test_a_gang_hears_of_the_domain_with_the_room_that_it_lacks(required: str | None) -> None:
    found = world("a r1 : a1=2\na r2 : a2=9", levels=BLOCKS)
    for name, at in (("small", "a1"), ("big", "a2")):
        asked, (member,) = alone(name, Exclusive.ALL, 1, 1)
        found.run(asked, members=[replace(member, node_name=at)])
    size = 1 if required else 2
    found.run(gang("late", 4, required=required), members=pods("late", 4, spec(gpu=size)))
    assert found.reason("late") is Reason.DOMAIN_EXCLUSIVE
    message = found.outcome("late").message or ""
    assert "1 node in" in message and "default/big" in message


def test_a_rack_is_not_free_before_the_last_member_has_gone() -> None:
    found = world("a r1 : n1=4\na r2 : n2=1", levels=("block", "rack"))
    alone = replace(gang(), layers=(Layer(level="rack", size=1, exclusive=Exclusive.ALL),))
    (member,) = pods("train", 1, spec(gpu=2))
    found.run(alone, members=[member])
    found.tell(PodUpserted(replace(member, node_name="n1", terminating=True)))
    found.run(members=pods(None, 3, prefix="other"))
    assert found.used("other") == {"n2": 1}
    found.tell(PodDeleted(member.uid))
    found.run()
    assert found.used("other") == {"n1": 2, "n2": 1}


def test_a_rack_in_which_others_run_can_not_be_had_alone() -> None:
    found = world("a r1 : a1=4 a2=4\na r2 : a3=4 a4=4", levels=BLOCKS)
    found.run(members=pods(None, 1, prefix="plain", on="a1"))
    asked, members = alone("x", Exclusive.ALL)
    found.run(asked, members=members)
    assert racks(found, 0, 4, "x") == {"r2"}
    again, more = alone("y", Exclusive.ALL)
    found.run(again, members=more)
    assert found.reason("y") is Reason.TOPOLOGY_PLACEMENT_FAILED


def test_unequal_segments_of_a_kind_each_have_a_rack() -> None:
    layer = Layer(level="rack", size=3, exclusive=Exclusive.KIND)
    found = world(FOUR_RACKS, levels=BLOCKS).run(layered(12, layer), members=unequal())
    assert len(found.used(by="rack")) == 4


def test_a_replaced_worker_returns_to_its_segment_where_its_leader_has_none() -> None:
    #   A LeaderWorkerSet counts its leader as 0, so that segments of two are 1 and 2, 3 and 4.
    below = [subgroup("leader"), replace(subgroup("worker", 4), layers=(Layer(level="rack", size=2),))]
    (leader,) = pods("train", 1, subgroup="leader", on="b1")
    workers = [
        replace(one, index=at, node_name=node_)
        for at, node_, one in zip(
            range(1, 5), ("a1", "a2", "a3", "a3"), pods("train", 4, subgroup="worker", on="a1"), strict=True
        )
    ]
    found = world(FOUR_RACKS, levels=BLOCKS)
    members = [replace(leader, index=0), *workers]
    found.run(gang(min_member=5, subgroups=below), members=members)
    found.tell(PodDeleted(workers[1].uid))
    again = replace(workers[1], name="again", uid="again", node_name=None, phase="Pending")
    found.run(members=[again])
    assert by(found, "rack", "again") == ["r1"]


def halves(*layers: Layer, minimum: int = 4, **fields: Any) -> PodGroup:
    """A gang of two subgroups with these layers each."""
    below = [replace(subgroup(name, minimum), layers=layers) for name in ("x", "y")]
    return gang(min_member=2 * minimum, subgroups=below, **fields)


HALVES = [pod for name in ("x", "y") for pod in pods("train", 4, subgroup=name)]


@pytest.mark.parametrize(
    "sizes", [{"size": 2}, {"counts": (2, 2)}, {"counts": (1, 3)}], ids=["equal", "counted", "uneven"]
)
def test_segments_of_subgroups_each_have_a_rack(sizes: dict[str, Any]) -> None:
    #   Each rack has room for both subgroups, and the gang wants to be close.
    found = world(FOUR_RACKS, levels=BLOCKS)
    found.run(halves(Layer(level="rack", exclusive=Exclusive.KIND, **sizes)), members=HALVES)
    cut = sizes["counts"][0] if "counts" in sizes else 2
    own = [racks(found, at, end, name) for name in "xy" for at, end in ((0, cut), (cut, 4))]
    assert sorted(own, key=min) == [{"r1"}, {"r2"}, {"r3"}, {"r4"}]


def test_subgroups_that_want_racks_for_themselves_can_not_be_in_one() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS)
    asked = halves(Layer(level="rack", size=4, exclusive=Exclusive.KIND), required="rack")
    found.run(asked, members=HALVES)
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED


@pytest.mark.parametrize("sizes", [{"size": 2}, {"counts": (1, 3)}], ids=["equal", "uneven"])
def test_subgroups_keep_out_of_a_rack_in_which_others_run(sizes: dict[str, Any]) -> None:
    #   Rack r1 is the tightest that has room for all.
    found = world("a r1 : a1=9\na r2 : a2=12", levels=BLOCKS)
    found.run(members=pods(None, 1, prefix="plain", on="a1"))
    found.run(halves(Layer(level="rack", exclusive=Exclusive.ALL, **sizes)), members=HALVES)
    assert racks(found, 0, 4, "x") == racks(found, 0, 4, "y") == {"r2"}


def test_segments_of_subgroups_are_not_on_a_node_without_their_level() -> None:
    found = world("a - : a1=8\na r1 : a2=6 a3=6", levels=BLOCKS)
    found.run(halves(Layer(level="rack", size=2)), members=HALVES)
    assert racks(found, 0, 4, "x") == racks(found, 0, 4, "y") == {"r1"}


def workers_beside(level: str, other: tuple[Layer, ...], *inner: Layer) -> tuple[PodGroup, list[Pod]]:
    """Workers in one segment that has a domain for itself, and a larger subgroup, which is placed first."""
    layers = (Layer(level=level, size=2, exclusive=Exclusive.KIND), *inner)
    below = [replace(subgroup("worker", 2), layers=layers), replace(subgroup("other", 3), layers=other)]
    sizes = {"worker": 2, "other": 3}
    members = [pod for name, count in sizes.items() for pod in pods("train", count, subgroup=name)]
    return gang(min_member=5, subgroups=below), members


@pytest.mark.parametrize("other", [(), (Layer(level="rack", size=3),)], ids=["no layers", "another layer"])
@pytest.mark.parametrize("inner", [(), (Layer(level=HOSTNAME, counts=(1, 1)),)], ids=["counted", "searched"])
def test_segments_of_a_kind_may_be_beside_a_subgroup_that_has_none(
    inner: tuple[Layer, ...], other: tuple[Layer, ...]
) -> None:
    asked, members = workers_beside("rack", other, *inner)
    found = world("a r1 : a1=3 a2=2", levels=BLOCKS).run(asked, members=members)
    assert racks(found, 0, 2, "worker") == racks(found, 0, 3, "other") == {"r1"}
    # One that is replaced returns to it.
    found.tell(PodDeleted(members[0].uid))
    del found.where["worker-0"]
    found.run(members=[replace(members[0], uid="again")])
    assert racks(found, 0, 2, "worker") == {"r1"}


@pytest.mark.parametrize("level", ["block", "rack"])
def test_segments_of_a_kind_keep_apart_whatever_the_level_of_each(level: str) -> None:
    other = Layer(level="rack" if level == "block" else "block", size=3, exclusive=Exclusive.KIND)
    asked, members = workers_beside(level, (other,))
    found = world("a r1 : a1=4\na r2 : a2=5\nb r3 : b1=5", levels=BLOCKS).run(asked, members=members)
    assert len(found.where) == 5
    assert not found.used("worker", by="block").keys() & found.used("other", by="block").keys()
    alone = world("a r1 : a1=4\na r2 : a2=5", levels=BLOCKS).run(asked, members=members)
    assert (alone.where, alone.reason("train")) == ({}, Reason.TOPOLOGY_PLACEMENT_FAILED)


@pytest.mark.parametrize("parent", [None, "both"])
def test_a_gang_starts_without_a_subgroup_whose_members_have_not_all_appeared(parent: str | None) -> None:
    layers = (Layer(level="rack", size=2),)
    below = [replace(subgroup(name, 2, parent=parent), layers=layers) for name in ("x", "y")]
    whole = [subgroup("both"), subgroup("z")] if parent else []
    asked = replace(gang(min_member=1, subgroups=[*whole, *below]), min_subgroups=1)
    present = [
        *pods("train", 2, subgroup="x"),
        *pods("train", 1, subgroup="y"),
        *pods("train", 1, subgroup="z"),
    ]
    found = world(FOUR_RACKS, levels=BLOCKS).run(asked, members=present if parent else present[:3])
    assert found.where.keys() == ({"z-0"} if parent else {"x-0", "x-1"})
    found.run(members=pods("train", 2, subgroup="y")[1:])
    assert len(found.where) == (5 if parent else 4)


def test_a_leader_that_starts_alone_goes_where_its_workers_fit_too() -> None:
    """As with a LeaderWorkerSet: the workers come once the leader has a node."""
    layer = Layer(level="rack", size=8, remainder=Remainder.ALLOW, exclusive=Exclusive.KIND)
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 8))]
    found = world("a r1 : a1=4\na r2 : a3=4 a4=4\na r3 : a5=7", levels=BLOCKS)
    found.run(layered(1, layer), members=members[:1])
    assert racks(found, 0, 1) == {"r2"}
    found.run(members=members[1:])
    assert racks(found, 0, 8) == {"r2"}


def test_layers_with_the_same_counts_may_follow_each_other() -> None:
    layers = (Layer(level="block", counts=(1, 3, 4)), Layer(level="rack", counts=(1, 3, 4)))
    found = world(SIX_RACKS, levels=BLOCKS).run(layered(8, *layers), members=pods("train", 8))
    assert [len(racks(found, at, end)) for at, end in ((0, 1), (1, 4), (4, 8))] == [1, 1, 1]


def test_preemption_clears_a_domain_for_whole_segments() -> None:
    low = replace(spec(gpu=1), priority=0)
    high = replace(spec(gpu=1), priority=100)
    found = world("a r1 : a1=4 a2=4\na r2 : a3=4 a4=4", levels=BLOCKS)
    for name in ("a1", "a3"):
        found.run(members=pods(None, 4, low, prefix=f"low-{name}", on=name))
    for name in ("a2", "a4"):
        found.run(members=pods(None, 2, low, prefix=f"low-{name}", on=name))
    found.engine.preempt(Preemptible())
    asked = layered(6, Layer(level="rack", size=6))
    found.run(asked, members=pods("train", 6, high))
    (plan,) = found.outcome("train").preemptions
    assert (
        len({found.engine.cluster.node_at(slot_of(found, node)).labels["rack"] for node in plan.nodes}) == 1
    )
    assert len(plan.victims) == 4


def slot_of(found: World, name: str) -> int:
    slot = found.engine.cluster.slot(name)
    assert slot is not None
    return slot


@pytest.mark.parametrize("sizes", [{"size": 10**30}, {"counts": (1, 10**30)}], ids=["size", "counts"])
def test_sizes_beyond_any_gang_are_refused_without_counting(sizes: dict[str, Any]) -> None:
    wrong = Condition(reason=Reason.INVALID_SPEC, object="PodGroup/default/train", message="", blocking=True)
    group = replace(gang(min_member=1), layers=(Layer(level="rack", **sizes),), conditions=(wrong,))
    drawn = world("z r1 : a1=4").run(group, members=pods("train", 1))
    assert drawn.reason("train") is Reason.INVALID_SPEC


def test_a_member_that_comes_again_joins_the_zone_of_a_rack_that_runs_whole() -> None:
    # The zone of the first two is that of train-0, though c1 would be tighter.
    found = world("a r1 : a1=1\na r2 : a2=2\nb r3 : b1=2\nb r4 : b2=1\nc r5 : c1=1")
    first, second, *others = pods("train", 4)
    running = replace(first, node_name="a1", phase="Running")
    others = [replace(pod, spec=spec(gpu=2 - at)) for at, pod in enumerate(others)]
    asked = layered(4, Layer(level="zone", size=2), Layer(level="rack", size=1))
    found.run(asked, members=[running, second, *others])
    assert found.where == {"train-1": "a2", "train-2": "b1", "train-3": "b2"}


def in_layers(name: str, count: int, layer: Layer, **fields: Any) -> SubGroup:
    return replace(subgroup(name, count, **fields), layers=(layer,))


def test_a_member_that_comes_again_stays_in_its_parents_rack_though_its_segment_may_have_the_block() -> None:
    found = world("a r1 : a1=3\na r2 : a2=1", levels=BLOCKS)
    inner = in_layers("work", 2, Layer(level="block", size=2, topology="fabric"), parent="p")
    first, second = pods("train", 2, subgroup="work")
    running = replace(first, node_name="a1", phase="Running")
    found.run(gang(subgroups=[subgroup("p", required="rack"), inner]), members=[running, second])
    assert found.where == {"work-1": "a1"}


def test_segments_leave_a_node_to_the_segment_of_a_sibling_that_runs_there() -> None:
    found = world("a r1 : a1=2 a2=1", levels=BLOCKS)
    first = in_layers("first", 1, Layer(level=HOSTNAME, size=1), required="rack")
    second = in_layers("second", 2, Layer(level=HOSTNAME, size=2), required="rack")
    there, late = pods("train", 2, subgroup="second")
    running = replace(there, node_name="a1", phase="Running")
    members = [*pods("train", 1, subgroup="first"), running, late]
    found.run(gang(min_member=3, subgroups=[first, second]), members=members)
    assert found.where == {"first-0": "a2", "second-1": "a1"}


@pytest.mark.parametrize("fast", ["a1", "a2"])
def test_segments_leave_a_node_to_a_sibling_with_other_pods(fast: str) -> None:
    nodes = [node(name, {"rack": "r"}, {GPU: 1, "cpu": int(name == fast)}) for name in ("a1", "a2")]
    found = world(nodes, levels=("rack",))
    first = in_layers("first", 1, Layer(level=HOSTNAME, size=1, topology="fabric"))
    members = [*pods("train", 1, subgroup="first"), *pods("train", 1, spec(gpu=1, cpu=1), "second")]
    found.run(gang(min_member=2, subgroups=[first, subgroup("second")]), members=members)
    assert found.where.get("second-0") == fast


def test_a_search_that_comes_back_to_a_subgroup_judges_nodes_by_what_is_free_now() -> None:
    """Two racks; only with the four unequal pods in the first one all subgroups find a rack."""
    has = {"n1": (7, 3), "n2": (8, 2), "n3": (8, 2), "n4": (8, 2), "n5": (8, 2)}
    nodes = [
        node(name, {"block": "b", "rack": "r0" if name < "n3" else "r1"}, {"cpu": cpu, GPU: gpus})
        for name, (cpu, gpus) in has.items()
    ]
    asked = [
        subgroup("p0", required="block"),
        in_layers("s0", 2, Layer(level="rack", size=2), required="rack", parent="p0"),
        in_layers("s1", 2, Layer(level=HOSTNAME, size=1), required="rack"),
        in_layers("s2", 2, Layer(level="rack", size=1), required="rack"),
        subgroup("s3", 4, required="rack", parent="p0"),
    ]
    members = [one for name in ("s0", "s1", "s2") for one in pods("train", 2, spec(cpu=4, gpu=1), name)]
    members += pods("train", 3, spec(cpu=4, gpu=1), "s3")
    members += pods("train", 1, spec(cpu=3, gpu=2), "s3", prefix="s3-large")
    found = world(nodes, levels=BLOCKS).run(gang(min_member=10, subgroups=asked), members=members)
    assert set(by(found, "rack", "s3-0", "s3-1", "s3-2", "s3-large-0")) == {"r0"}
    assert len(found.where) == len(members)


@pytest.mark.parametrize("busy", ["a1", "a2"])
def test_a_subgroup_leaves_a_node_to_segments_of_which_a_member_runs_there(busy: str) -> None:
    """Both nodes have room for one more pod."""
    nodes = [node(name, {"rack": "r"}, {GPU: 2, "cpu": 2}) for name in ("a1", "a2")]
    second = in_layers("second", 2, Layer(level=HOSTNAME, size=2, topology="fabric"))
    there, late = pods("train", 2, subgroup="second")
    members = [
        *pods("train", 1, spec(gpu=1, cpu=1), "first"),
        replace(there, node_name=busy, phase="Running"),
        *pods(None, 1, prefix="other", on="a2" if busy == "a1" else "a1"),
        late,
    ]
    found = world(nodes, levels=("rack",)).run(
        gang(min_member=3, subgroups=[subgroup("first", required="rack"), second]), members=members
    )
    assert found.where == {"first-0": "a2" if busy == "a1" else "a1", "second-1": busy}


#: A job of a JobSet that has a rack for itself.
JOB = in_layers("job", 4, Layer(level="rack", size=4, exclusive=Exclusive.KIND))


@pytest.mark.parametrize("mode", [None, LayerMode.REQUIRED, LayerMode.PREFERRED])
def test_segments_of_another_job_keep_off_a_rack_that_a_job_has_for_itself(mode: LayerMode | None) -> None:
    layers = () if mode is None else (Layer(level="rack", size=2, mode=mode),)
    other = replace(subgroup("other", 2), layers=layers)
    members = owned("JobSet/x", [*pods("train", 4, subgroup="job"), *pods("train", 2, subgroup="other")])
    found = world("a r1 : a1=4 a2=4\na r2 : b1=4 b2=4", levels=BLOCKS)
    found.run(gang(min_member=6, subgroups=[JOB, other]), members=members)
    assert len(racks(found, 0, 4, "job")) == len(racks(found, 0, 2, "other")) == 1
    assert racks(found, 0, 4, "job") != racks(found, 0, 2, "other")


@pytest.mark.parametrize("runs", [True, False])
def test_members_beyond_the_minimum_keep_off_a_rack_that_a_job_has_for_itself(runs: bool) -> None:
    members = owned("JobSet/x", [*pods("train", 4, subgroup="job"), *pods("train", 2, subgroup="other")])
    if runs:
        nodes = ["a1"] * 4 + ["b1", None]
        members = [replace(pod, node_name=at) for pod, at in zip(members, nodes, strict=True)]
    found = world("a r1 : a1=4 a2=4\na r2 : b1=1", levels=BLOCKS)
    found.run(gang(min_member=5, subgroups=[JOB, subgroup("other")]), members=members)
    assert found.where.get("other-0") == (None if runs else "b1")
    assert found.left("train") == {"other-1": Reason.TOPOLOGY_PLACEMENT_FAILED}


def test_a_job_with_unequal_pods_comes_back_to_the_rack_that_it_has_for_itself() -> None:
    there, *late = [*pods("train", 2, subgroup="job"), *pods("train", 2, spec(gpu=3), "job", prefix="large")]
    members = owned("JobSet/x", [replace(there, node_name="a1", phase="Running"), *late])
    found = world("a r1 : a1=4 a2=4\na r2 : b1=4 b2=4", levels=BLOCKS)
    found.run(gang(min_member=4, subgroups=[JOB]), members=members)
    assert found.used(by="rack") == {"r1": 3}


def test_a_job_has_no_rack_for_itself_in_which_segments_of_another_job_run() -> None:
    other = in_layers("other", 2, Layer(level="rack", size=2))
    members = owned("JobSet/x", [*pods("train", 4, subgroup="job"), *pods("train", 2, subgroup="other")])
    members[4:] = [replace(pod, node_name="a1", phase="Running") for pod in members[4:]]
    found = world("a r1 : a1=4 a2=4\na r2 : b1=8 b2=4", levels=BLOCKS)
    found.run(gang(min_member=6, subgroups=[JOB, other]), members=members)
    assert racks(found, 0, 4, "job") == {"r2"}
