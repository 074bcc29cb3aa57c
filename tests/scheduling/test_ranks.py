"""Ranks follow topology order: consecutive ranks are neighbours."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from closeby.objects.pods import Pod, PodSpec
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import BindFailed, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of
from tests.worlds import THREE_ZONES, World, gang, pods, spec, world


def walk(drawn: World) -> list[str]:
    """The nodes in the order of the ranks."""
    ranked = sorted((rank, pod) for pod, rank in drawn.rank.items() if rank is not None)
    assert [rank for rank, _ in ranked] == list(range(len(ranked)))
    return [drawn.where[pod] for _, pod in ranked]


def indexed(count: int, shuffled: list[int]) -> list[Pod]:
    """Members that carry an index, under names that say nothing, in another order."""
    named = [
        replace(pod, name=f"x{(index * 7) % count}", uid=f"u{index}", index=index)
        for index, pod in enumerate(pods("train", count))
    ]
    return [named[at] for at in shuffled]


def test_ranks_walk_through_the_tree() -> None:
    drawn = world(THREE_ZONES).run(gang(min_member=12, preferred="rack"), members=pods("train", 12))
    assert walk(drawn) == [f"na{number}" for number in (1, 1, 2, 2, 3, 3, 5, 5, 6, 6, 7, 7)]


def test_natural_order_of_names_not_that_of_letters() -> None:
    drawing = "zone-a rack-2 : n2=1\nzone-a rack-10 : n10=1\nzone-a rack-1 : n1=1"
    drawn = world(drawing).run(gang(min_member=3, preferred="rack"), members=pods("train", 3))
    assert walk(drawn) == ["n1", "n2", "n10"]


def test_each_domain_is_visited_once() -> None:
    drawn = world(THREE_ZONES).run(gang(min_member=25, preferred="rack"), members=pods("train", 25))
    for label in ("zone", "rack"):
        nodes = [drawn.engine.cluster.slot(name) for name in walk(drawn)]
        path = [drawn.engine.cluster.node_at(slot).labels[label] for slot in nodes if slot is not None]
        changes = sum(one != other for one, other in pairwise(path))
        assert changes == len(set(path)) - 1


def test_members_with_an_index_keep_their_order() -> None:
    drawn = world(THREE_ZONES)
    members = indexed(8, [5, 2, 7, 0, 1, 6, 3, 4])
    drawn.run(gang(min_member=8, required="rack"), members=members)
    assert {pod.name: drawn.rank[pod.name] for pod in members} == {pod.name: pod.index for pod in members}


def test_members_without_one_go_by_their_names_with_numbers_as_numbers() -> None:
    drawn = world(THREE_ZONES).run(gang(min_member=12, required="zone"), members=pods("train", 12))
    assert [drawn.rank[f"train-{number}"] for number in range(12)] == list(range(12))


def test_members_that_fill_several_steps_keep_their_order_too() -> None:
    drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4\nzone-a rack-3 : c1=2")
    running = pods("train", 1, prefix="old", on="b1", rank=0)
    drawn.run(gang(min_member=6, preferred="rack"), members=[*running, *indexed(5, [4, 3, 2, 1, 0])])
    order = sorted(drawn.rank, key=lambda name: drawn.rank[name] or 0)
    assert [drawn.where[name] for name in order] == sorted(drawn.where.values())
    assert sorted(rank for rank in drawn.rank.values() if rank is not None) == [1, 2, 3, 4, 5]


def test_ranks_of_running_members_are_kept() -> None:
    drawn = world("zone-a rack-1 : a1=8")
    one, other = pods("train", 2, prefix="old", on="a1")
    running = [replace(one, rank=1), replace(other, rank=4)]
    drawn.run(gang(min_member=5, required="rack"), members=[*running, *pods("train", 3)])
    assert [drawn.rank[f"train-{number}"] for number in range(3)] == [0, 2, 3]


def test_running_members_without_a_rank_hold_the_lowest() -> None:
    drawn = world("zone-a rack-1 : a1=8")
    running = pods("train", 2, prefix="old", on="a1")
    drawn.run(gang(min_member=4, required="rack"), members=[*running, *pods("train", 2)])
    assert [drawn.rank[f"train-{number}"] for number in range(2)] == [2, 3]


def test_a_label_beyond_the_number_of_members_is_no_rank() -> None:
    drawn = world("zone-a rack-1 : a1=8")
    [running] = pods("train", 1, prefix="old", on="a1", labelled_rank=2)
    drawn.run(gang(min_member=2, required="rack"), members=[running, *pods("train", 1)])
    assert drawn.rank == {"train-0": 1}


def test_a_recreated_member_gets_the_rank_that_is_free() -> None:
    drawn = world("zone-a rack-1 : a1=8")
    members = pods("train", 4)
    drawn.run(gang(min_member=4, required="rack"), members=members)
    bound = [replace(pod, node_name="a1", rank=drawn.rank[pod.name], phase="Running") for pod in members]
    drawn.run(members=bound).tell(PodDeleted(members[1].uid))
    drawn.run(members=pods("train", 1, prefix="again"))
    assert drawn.rank["again-0"] == 1


def test_a_member_whose_binding_failed_gets_a_free_rank() -> None:
    drawn = world("zone-a rack-1 : a1=8")
    members = pods("train", 4)
    drawn.run(gang(min_member=4, required="rack"), members=members)
    drawn.tell(BindFailed(members[1].uid, "conflict"))
    [again] = bindings_of(drawn.engine.handle(Tick()))
    assert again.pod.name == "train-1"
    assert again.rank == 1


def test_unequal_pods_are_ranked_by_their_place() -> None:
    drawn = world("zone-a rack-1 : a1=5 a2=4")
    unequal = [*pods("train", 1, spec(gpu=5), prefix="big"), *pods("train", 4, prefix="small")]
    drawn.run(gang(min_member=5, required="rack"), members=unequal)
    assert walk(drawn) == ["a1", "a2", "a2", "a2", "a2"]


def job_set(part: int, jobs: int, size: int, needs: PodSpec | None = None) -> list[Pod]:
    """The pods of a replicated job as a cluster has them, under names that say nothing."""
    equal = iter(pods("train", jobs * size, needs, prefix=f"p{9 - part}"))
    return [
        replace(next(equal), part=part, job=job, index=index) for job in range(jobs) for index in range(size)
    ]


@pytest.mark.parametrize("shuffled", [False, True])
def test_ranks_of_a_job_set_follow_its_spec(shuffled: bool) -> None:
    #  The driver fits on the last node alone.
    drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=2 b2=3")
    members = [*job_set(0, 1, 1, spec(gpu=3)), *job_set(1, 2, 2), *job_set(3, 1, 2)]
    drawn.run(gang(min_member=7), members=members[::-1] if shuffled else members)
    assert [drawn.rank[pod.name] for pod in members] == list(range(7))
    assert walk(drawn) == ["b2", "a1", "a1", "a2", "a2", "b1", "b1"]


def test_equal_members_of_one_part_are_ranked_by_their_place() -> None:
    near = PluginEntry(name="network-topology", arguments={"network-topology.keys": "rack"})
    drawn = world(THREE_ZONES, plugins=[near])
    driver, workers = job_set(0, 1, 1), job_set(1, 2, 3)
    drawn.run(gang(min_member=7, required="rack"), members=[*workers, *driver])
    assert drawn.rank[driver[0].name] == 0
    assert walk(drawn)[1:] == sorted(drawn.where[pod.name] for pod in workers)


def test_pods_placed_one_by_one_are_ranked_by_their_place() -> None:
    near = PluginEntry(name="network-topology", arguments={"network-topology.keys": "rack"})
    drawn = world(THREE_ZONES, plugins=[near])
    drawn.run(gang(min_member=7, required="rack"), members=pods("train", 7))
    assert walk(drawn) == sorted(drawn.where.values())


def test_members_that_are_placed_outward_are_ranked_by_their_place() -> None:
    #   The first member runs on b1; the others fill that node first, then the rack before it.
    drawn = world("zone-a rack-1 : a1=1\nzone-a rack-2 : b1=2")
    [running] = pods("train", 1, prefix="first", on="b1")
    drawn.run(gang(min_member=3, preferred="rack"), members=[running, *pods("train", 2)])
    assert drawn.where == {"train-0": "a1", "train-1": "b1"}


def test_plain_pods_have_no_rank() -> None:
    drawn = world(THREE_ZONES).run(members=pods(None, 2))
    assert set(drawn.rank.values()) == {None}


def test_a_binding_says_rank_and_domain() -> None:
    drawn = world(THREE_ZONES)
    drawn.run(gang(min_member=8, required="rack"))
    decisions = drawn.engine.handle(*(PodUpserted(pod) for pod in pods("train", 8)), Tick())
    bindings = bindings_of(decisions)
    assert {one.domain for one in bindings} == {("zone-b", "rack-b1")}
    assert bindings[0].pod_labels == {"closeby.dev/rank": "0"}
    assert bindings[0].pod_annotations == {"closeby.dev/topology-domain": "zone-b/rack-b1"}
