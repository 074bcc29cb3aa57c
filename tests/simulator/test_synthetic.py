"""Made-up clusters have the shape they are said to have."""

from collections import Counter

from closeby.simulator.demo import demo_manifests
from closeby.simulator.synthetic import LINGJUN, gpu_hosts, leaf_sizes


def test_the_cluster_has_the_published_shape() -> None:
    """847 hosts, 3 pods with 48, 42 and 29 leaves, mostly 8 hosts a leaf, 2 to 8 in all."""
    sizes = [leaf_sizes(pod) for pod in LINGJUN]
    assert [len(leaves) for leaves in sizes] == [48, 42, 29]
    assert [sum(leaves) for leaves in sizes] == [362, 306, 179]
    every = Counter(size for leaves in sizes for size in leaves)
    assert (min(every), max(every)) == (2, 8)
    assert every.most_common(1)[0][0] == 8
    assert every[8] > 119 / 2


def test_hosts_have_names_of_their_own_and_leaves_lie_in_one_pod() -> None:
    leaves = list(gpu_hosts())
    names = [host.name for leaf in leaves for host in leaf]
    assert len(leaves) == 119
    assert len(set(names)) == len(names) == 847
    assert all(len({tuple(sorted(host.labels.items()))[:2] for host in leaf}) == 1 for leaf in leaves)


def test_the_demo_starts_part_way_full_and_without_overcommit() -> None:
    manifests = demo_manifests()
    used: Counter[str] = Counter()
    for pod in manifests.pods:
        if pod.node_name is not None:
            used[pod.node_name] += dict(pod.spec.requests)["nvidia.com/gpu"]
    assert max(used.values()) == 8
    assert 0.6 < sum(used.values()) / (847 * 8) < 0.9
    assert len({id(pod.spec) for pod in manifests.pods}) == 3
