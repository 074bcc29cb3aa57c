import numpy as np
import pytest
from hypothesis import given, settings

from closeby.cluster.columns import Cluster
from closeby.objects.pods import PodSpec
from closeby.quality.gangs import EmptyCluster, GangGauge, GangMeasures, Members, gpus_of, node_gpus
from closeby.quality.model import DEFAULT_MODEL
from closeby.quality.summary import job_measures
from closeby.scheduling.gangs.places import place_of
from closeby.topology.tree import Tree
from tests.quality.drawn import cluster_of, on
from tests.quality.worlds_by_chance import World, worlds
from tests.worlds import draw, node, pods, spec


def measured(cluster: Cluster, tree: Tree, *gangs: Members) -> list[GangMeasures]:
    found = GangGauge(cluster).measure(tree, gangs)
    return [one for one in found if one is not None]


def test_a_gang_of_four_nodes_in_two_blocks() -> None:
    #   block-1 ── rack-1 (a b)   rack-2 (c d)          a, b, c and e with 8 GPUs each:
    #   block-2 ── rack-3 (e)     rack-4 (f)            one block and 2 racks would do
    cluster, tree = cluster_of()
    (found,) = measured(cluster, tree, on(cluster, pods("train", 4, spec(gpu=8)), "a b c e"))
    assert found.levels == ("block", "rack", "hostname")
    assert (found.pods, found.ranks) == (4, 32)
    assert found.span == (2, 3, 4)
    assert found.excess_span == (2.0, 1.5, 1.0)
    #   pairs: ab | ac bc | ae be ce -> 3 in different blocks, 5 in different racks, 6 on different nodes
    assert (found.cross_pairs, found.pairs) == ((3, 5, 6), 6)
    assert (found.mean_distance, found.diameter) == (2 * 14 / 6, 6)
    #   ring a-b-c-e-a: b-c, c-e and e-a leave racks, the last two leave blocks
    assert (found.ring_crossings, found.ring_hops, found.least_ring_hops) == ((2, 3, 4), 18, 18)
    assert found.group_spread == (2.0, 3.0, 4.0)
    tiers = DEFAULT_MODEL.tiers
    size = 62 / 32 * 2**30
    assert found.all_reduce == 62 * tiers[3].latency_seconds + size / (8 * 50e9 / 7)
    assert found.ideal_all_reduce == 62 * tiers[2].latency_seconds + size / (8 * 50e9 / 1.2)
    assert found.slowdown == found.all_reduce / found.ideal_all_reduce
    assert found.job_slowdown == (1.0 - 0.3) + 0.3 * found.slowdown


def test_members_outside_the_tree_do_not_count() -> None:
    cluster, tree = cluster_of()
    stranger = cluster.add_node(node("x"))
    gang = [*on(cluster, pods("train", 2, spec(gpu=8)), "a b"), (pods("train", 1)[0], stranger)]
    (found,) = measured(cluster, tree, gang)
    assert found.pods == 2
    assert GangGauge(cluster).measure(tree, [[(pods("train", 1)[0], stranger)], []]) == [None, None]


def test_nodes_without_labels_are_no_domains() -> None:
    #   block-1 ── rack-1 (a), no rack (b)      no block, no rack: x y
    cluster, tree = cluster_of("block-1 rack-1 : a=8\nblock-1 - : b=8\n- - : x=8 y=8")
    gangs = [on(cluster, pods(name, 2, spec(gpu=4)), name) for name in ("x y", "a x", "a b", "x x")]
    found = measured(cluster, tree, *gangs)
    assert [one.span for one in found] == [(0, 0, 2), (1, 1, 2), (1, 1, 2), (0, 0, 1)]
    # Two nodes that nobody knows the place of may be near or far; two pods of one are together.
    assert [one.slowdown is None for one in found] == [True, True, True, False]
    assert [one.job_slowdown is None for one in found] == [True, True, True, False]
    assert [one.excess_span[0] is None for one in found] == [True, True, False, True]
    places = [place_of(tree, gang) for gang in gangs]
    assert [list(one.span.values()) for one in places] == [[0, 0, 2], [1, 1, 2], [1, 1, 2], [0, 0, 1]]
    assert [one.outside for one in places] == [2, 1, 0, 1]


def test_gangs_measured_together_share_links() -> None:
    #   Each pair of hosts is in two blocks: its 8 flows pass uplinks of 16 links that 7 share. 16/7 links
    #   are left to 8 flows, or to 16 of two gangs.
    cluster, tree = cluster_of("block-1 r1 : a=8 b=8\nblock-2 r2 : c=8 d=8")
    one = on(cluster, pods("one", 2, spec(gpu=8)), "a c")
    two = on(cluster, pods("two", 2, spec(gpu=8)), "b d")
    (alone,) = measured(cluster, tree, one)
    first, second = measured(cluster, tree, one, two)
    steps = 30 * DEFAULT_MODEL.tiers[3].latency_seconds
    assert alone.all_reduce == first.all_reduce == second.all_reduce
    assert first.contended_all_reduce == second.contended_all_reduce
    sent_alone, sent = alone.contended_all_reduce - steps, first.contended_all_reduce - steps
    assert abs(sent / sent_alone - 2) < 1e-9


def test_unequal_pods_need_what_their_sums_need() -> None:
    #   Nodes with 8 GPUs. 3 pods of 5 need a node each; 3 of 3 two to a node, 2 nodes; together 24 GPUs: 3.
    cluster, tree = cluster_of()
    gang = [*pods("train", 3, spec(gpu=5)), *pods("train", 3, spec(gpu=3), prefix="small")]
    assert EmptyCluster(cluster).fewest(tree, gang).tolist() == [1, 2, 3]
    #   4 of 5 and 4 of 4: 4 nodes for the first, 2 for the others, 36 GPUs: 5 nodes, 3 racks, 2 blocks.
    gang = [*pods("train", 4, spec(gpu=5)), *pods("train", 4, spec(gpu=4), prefix="small")]
    assert EmptyCluster(cluster).fewest(tree, gang).tolist() == [2, 3, 5]


def test_the_member_with_the_fewest_gpus_sets_the_pace() -> None:
    #   8 GPUs on a, 2 on c in another block: 10 ranks, and the ring runs over the 2 links of c.
    cluster, tree = cluster_of()
    gang = [*pods("train", 1, spec(gpu=8)), *pods("train", 1, spec(gpu=2), prefix="small")]
    slots = [cluster.slot_of("a"), cluster.slot_of("e")]
    (found,) = measured(cluster, tree, list(zip(gang, slots, strict=True)))
    assert found.ranks == 10
    tier = DEFAULT_MODEL.tiers[3]
    assert found.all_reduce == pytest.approx(18 * tier.latency_seconds + 18 / 10 * 2**30 / (2 * 50e9 / 7))


def test_what_fits_nowhere_has_no_ideal() -> None:
    cluster, tree = cluster_of()
    (found,) = measured(cluster, tree, on(cluster, pods("train", 2, spec(gpu=9)), "a b"))
    assert found.excess_span == (None, None, None)
    assert (found.slowdown, found.job_slowdown, found.ideal_all_reduce) == (None, None, None)


def test_nothing_is_better_than_ideal_where_a_node_holds_more_than_it_has() -> None:
    #   Four pods of 4 GPUs on c, which has 8: two nodes would be needed for them, and yet one holds them.
    cluster, tree = cluster_of()
    (found,) = measured(cluster, tree, on(cluster, pods("train", 4, spec(gpu=4)), "c c c c"))
    assert found.excess_span == (1.0, 1.0, 1.0)
    assert (found.slowdown, found.job_slowdown) == (1.0, 1.0)


def test_a_changed_node_changes_what_is_ideal() -> None:
    cluster, tree = cluster_of()
    empty = EmptyCluster(cluster)
    gang = pods("train", 2, spec(gpu=8))
    assert empty.fewest(tree, gang).tolist() == [1, 1, 2]
    cluster.add_node(draw("block-2 rack-4 : f=16", ("block", "rack"))[0])
    assert empty.fewest(tree, gang).tolist() == [1, 1, 1]


def test_gpus_are_counted_whatever_their_vendor() -> None:
    wanted = PodSpec(requests=(("amd.com/gpu", 2), ("cpu", 4000), ("nvidia.com/mig-1g.5gb", 1)))
    assert gpus_of(wanted) == 3
    cluster = Cluster()
    cluster.add_node(node("a", allocatable={"nvidia.com/gpu": 8, "cpu": 64000}))
    cluster.add_node(node("b", allocatable={"cpu": 64000}))
    assert node_gpus(cluster)[:2].tolist() == [8, 0]


@settings(deadline=None)
@given(worlds())
def test_the_same_live_and_simulated(world: World) -> None:
    """Gangs of a cluster, measured together, and jobs of a run that all start and end at one time."""
    jobs = tuple(job._replace(started=0.0, ended=1.0) for job in world.jobs if job.on)
    cluster, tree = cluster_of(world.drawing())
    gangs = [
        on(cluster, pods(f"g{number}", job.pods, spec(gpu=job.each)), " ".join(f"n{host}" for host in job.on))
        for number, job in enumerate(jobs)
    ]
    live = GangGauge(cluster).measure(tree, gangs)
    run = job_measures(world._replace(jobs=jobs).columns())
    for row, one in enumerate(live):
        assert one is not None
        where = [world.hosts[host] for host in jobs[row].on]
        if all(host.block and host.rack for host in where):
            assert one.span == tuple(run.span[row])
        assert one.ring_hops == run.ring_hops[row]
        assert one.group_spread == tuple(run.spreads.greatest[row])
        for told, figure in (
            (one.mean_distance, run.mean_distance[row]),
            (one.all_reduce, run.all_reduce[row]),
            (one.contended_all_reduce, run.contended_all_reduce[row]),
            (one.job_slowdown, run.job_slowdown[row]),
            *zip(one.excess_span, run.excess_span[row], strict=True),
        ):
            # What a gang outside of the topology is told as unknown, a run counts as apart.
            if told is None and not all(host.block and host.rack for host in where):
                continue
            assert told == (None if np.isnan(figure) else figure)
