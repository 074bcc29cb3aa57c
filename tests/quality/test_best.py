import numpy as np

from closeby.cluster.columns import Batch, Cluster
from closeby.quality.best import BestPlace, best_place
from closeby.quality.gangs import Members
from closeby.quality.optimum import MOST_PODS
from tests.quality.drawn import cluster_of, on
from tests.worlds import draw, node, pods, spec

#   block-1 ── rack-1 (a b)   rack-2 (c d)
#   block-2 ── rack-3 (e)     rack-4 (f)      8 GPUs a node


def held(cluster: Cluster, members: Members) -> Members:
    for pod, slot in members:
        cluster.assume(Batch(spec=pod.spec, pods=(pod,), slots=np.asarray([slot], dtype=np.intp)))
    return members


def test_a_gang_could_have_lain_closer() -> None:
    #   somebody holds b; the gang is on a, c and e. On c, d and a it would be in one block and two racks:
    #   c-d 2 edges, a-c and a-d 4: 10/3.
    cluster, tree = cluster_of()
    held(cluster, on(cluster, pods("other", 1, spec(gpu=8)), "b"))
    gang = held(cluster, on(cluster, pods("train", 3, spec(gpu=8)), "a c e"))
    assert best_place(cluster, tree, gang) == BestPlace(span=(1, 2, 3), mean_distance=10 / 3)


def test_nodes_that_take_no_pods_serve_only_those_they_have() -> None:
    cluster, tree = cluster_of()
    gang = held(cluster, on(cluster, pods("train", 2, spec(gpu=8)), "a e"))
    assert best_place(cluster, tree, gang) == BestPlace(span=(1, 1, 2), mean_distance=2.0)
    for name, rack in (("b", "rack-1"), ("c", "rack-2"), ("d", "rack-2")):
        closed = draw(f"block-1 {rack} : {name}=8", ("block", "rack"))[0]
        cluster.add_node(node(name, closed.labels, closed.allocatable, unschedulable=True))
    #   a and e stay theirs, and f is free: e and f share a block.
    assert best_place(cluster, tree, gang) == BestPlace(span=(1, 2, 2), mean_distance=4.0)


def test_what_is_not_worked_out() -> None:
    cluster, tree = cluster_of()
    uneven = [*pods("train", 1, spec(gpu=8)), *pods("train", 1, spec(gpu=4), prefix="small")]
    assert best_place(cluster, tree, held(cluster, on(cluster, uneven, "a b"))) is None
    assert best_place(cluster, tree, []) is None
    many = held(cluster, on(cluster, pods("many", MOST_PODS + 1, spec()), " ".join("c" * (MOST_PODS + 1))))
    found = best_place(cluster, tree, many)
    assert found is not None
    assert (found.span, found.mean_distance) == ((1, 1, 1), None)
