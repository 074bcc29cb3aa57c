"""What a cluster is told by: the resources that its nodes offer, and which of them matter."""

from msgspec.structs import replace

from closeby.cluster.columns import Cluster, main_resources, offered, taking_pods
from tests.worlds import node, pods, spec

NVIDIA = "nvidia.com/gpu"


def cluster_of(**nodes: dict[str, int]) -> Cluster:
    cluster = Cluster()
    for name, allocatable in nodes.items():
        cluster.add_node(node(name, {}, allocatable))
    return cluster


def test_common_resources_go_first_and_the_number_of_pods_is_none() -> None:
    cluster = cluster_of(a={"amd.com/gpu": 8, "memory": 1, "pods": 9}, b={"cpu": 1, "a.example/nic": 1})
    assert offered(cluster) == ("cpu", "memory", "a.example/nic", "amd.com/gpu")


def test_what_is_asked_for_or_was_once_there_is_not_offered() -> None:
    cluster = cluster_of(a={"cpu": 1}, b={NVIDIA: 8})
    cluster.demand(spec(nic=1))
    cluster.remove_node("b")
    assert offered(cluster) == ("cpu",)


def test_gpus_matter_most_where_there_are_any() -> None:
    assert main_resources(cluster_of(a={"cpu": 1, "memory": 1, NVIDIA: 8})) == (NVIDIA,)
    assert main_resources(cluster_of(a={"memory": 1, "cpu": 1, "nic": 8})) == ("cpu", "memory")
    assert main_resources(cluster_of(a={"memory": 1})) == ("memory",)
    assert main_resources(Cluster()) == ()


def test_who_takes_pods() -> None:
    cluster = cluster_of(a={"cpu": 1}, b={"cpu": 1}, c={"cpu": 1}, d={"cpu": 1})
    cluster.add_node(replace(node("b"), unschedulable=True))
    cluster.add_node(replace(node("c"), ready=False))
    cluster.remove_node("d")
    cluster.place_pod(pods(None, 1)[0], 0)
    assert taking_pods(cluster)[:4].tolist() == [True, False, False, False]
