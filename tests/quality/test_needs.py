"""The fewest domains that could hold a gang are never more than a search over all placements finds."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.objects.pods import Pod
from closeby.quality.gangs import EmptyCluster
from closeby.topology.tree import Tree
from tests.quality.drawn import cluster_of
from tests.worlds import pods, spec

Hosts = list[tuple[str, str, int]]
hosts = st.lists(
    st.tuples(st.sampled_from(("x", "y")), st.sampled_from(("r", "s", "-")), st.integers(0, 8)),
    min_size=1,
    max_size=4,
)


def drawing(nodes: Hosts) -> str:
    return "\n".join(f"{block} {rack} : n{at}={gpus}" for at, (block, rack, gpus) in enumerate(nodes))


def domains(nodes: Hosts, level: int) -> list[object]:
    """Of each node, by its labels; a node without a rack is one of its own."""
    paths = [(block, at if rack == "-" else rack, at) for at, (block, rack, _) in enumerate(nodes)]
    return [path[: level + 1] for path in paths]


def ways(nodes: Hosts, sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to put pods of such sizes on nodes that hold them."""
    for way in product(range(len(nodes)), repeat=len(sizes)):
        taken = [0] * len(nodes)
        for at, size in zip(way, sizes, strict=True):
            taken[at] += size
        if all(amount <= gpus for amount, (_, _, gpus) in zip(taken, nodes, strict=True)):
            yield way


def told(nodes: Hosts, sizes: list[int]) -> list[float]:
    """What is worked out: the fewest domains by level, coarse to fine."""
    cluster, tree = cluster_of(drawing(nodes))
    assert isinstance(tree, Tree)
    members: list[Pod] = [
        pod for number, size in enumerate(sizes) for pod in pods("g", 1, spec(gpu=size), prefix=f"p{number}-")
    ]
    found: list[float] = EmptyCluster(cluster).fewest(tree, members).tolist()
    return found


@settings(deadline=None)
@given(hosts, st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_a_lower_bound_for_any_gang(nodes: Hosts, sizes: list[int]) -> None:
    fitting = list(ways(nodes, sizes))
    for level, least in enumerate(told(nodes, sizes)):
        at = domains(nodes, level)
        for way in fitting:
            assert least <= len({at[host] for host in way})


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 8), st.integers(1, 6))
def test_exact_for_equal_pods_on_equal_racks(racks: int, width: int, size: int, count: int) -> None:
    nodes = [("x", f"r{rack}", 8) for rack in range(racks) for _ in range(width)]
    room = 8 // size
    if racks * width * room < count:
        return
    at = domains(nodes, 1)
    best = min(
        len({at[host] for host in way})
        for way in combinations_with_replacement(range(len(nodes)), count)
        if all(way.count(host) <= room for host in set(way))
    )
    assert told(nodes, [size] * count)[1] == best
