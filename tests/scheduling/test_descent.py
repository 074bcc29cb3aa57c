"""Which domains of a level a gang fills: the fewest, near each other, the last of them as tight as can be."""

from collections.abc import Iterable
from itertools import accumulate
from random import Random

import pytest

from closeby.objects.groups import Strategy
from closeby.objects.labels import HOSTNAME
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.placing.descent import descend
from closeby.topology.tree import ROOT
from tests.worlds import GPU, world

LEVELS = ("zone", "block", "rack")


def filled(
    drawing: str, wanted: int, fill: str | None = "rack", strategy: Strategy = Strategy.BINPACK
) -> dict[str, int]:
    """How many pods of one GPU each node gets when the whole cluster is the domain."""
    drawn = world(drawing, levels=LEVELS)
    tree = drawn.engine.topologies.tree("fabric")
    assert tree is not None
    cluster = drawn.engine.cluster
    room = DomainCounts(tree, cluster.free(cluster.row_of[GPU], slice(0, cluster.capacity)))
    level = None if fill is None else [*LEVELS, HOSTNAME].index(fill)
    positions, takes = descend(room, ROOT, wanted, strategy, None, level).in_topology_order()
    assert int(takes.sum()) == wanted
    names = [cluster.node_at(int(slot)).name for slot in tree.slot_at[positions]]
    return dict(zip(names, takes.tolist(), strict=True))


def test_one_domain_that_holds_all_is_enough() -> None:
    assert filled("z b r1 : a=4\nz b r2 : b=3\nz b r3 : c=9", 3) == {"b": 3}


def test_of_two_domains_the_last_is_the_tightest() -> None:
    assert filled("z b r1 : a=4\nz b r2 : b=3\nz b r3 : c=2\nz b r4 : d=1", 6) == {"a": 4, "c": 2}


def test_of_equally_tight_ones_the_last_is_the_nearest_to_the_first() -> None:
    drawing = """
    z1 b1 r1 : far=2
    z2 b2 r2 : apart=2
    z2 b3 r3 : large=4
    z2 b3 r4 : near=2
    """
    assert filled(drawing, 6) == {"large": 4, "near": 2}


@pytest.mark.parametrize("fill", ["block", "rack"])
def test_of_three_domains_the_second_is_near_the_first(fill: str) -> None:
    drawing = """
    z1 b1 r1 : far=3
    z2 b2 r2 : large=4
    z2 b3 r3 : near=3
    """
    assert filled(drawing, 9, fill) == {"far": 2, "large": 4, "near": 3}


def test_a_near_domain_may_be_smaller_as_long_as_three_suffice() -> None:
    #   4 + 3 + 3 are two more than the eight that are wanted: r2, where only one fits, may take the place of
    #   a 3 just so. Without it the 2 of r3 would, which is further away.
    drawing = """
    z1 b1 r1 : large=4
    z1 b1 r2 : near=1
    z1 b2 r3 : next=2
    z2 b3 r4 : far=3
    z2 b3 r5 : more=3
    """
    assert filled(drawing, 8) == {"far": 3, "large": 4, "near": 1}
    #   One pod more, and r2 is too small.
    assert filled(drawing, 9) == {"far": 3, "large": 4, "next": 2}


def test_spread_goes_to_the_emptiest() -> None:
    drawing = "z b r1 : a=4\nz b r2 : b=6\nz b r3 : c=5"
    assert filled(drawing, 3, strategy=Strategy.SPREAD) == {"b": 3}
    assert filled(drawing, 8, strategy=Strategy.SPREAD) == {"b": 6, "c": 2}


def test_level_by_level_only_the_last_domain_is_used_in_part() -> None:
    #   The fewest zones are z2 as a whole and then z1, in it the rack that is left with the least.
    drawing = """
    z1 b1 r1 : a=3 b=2
    z1 b1 r2 : c=2
    z2 b2 r3 : d=4
    z2 b2 r4 : e=4
    """
    assert filled(drawing, 10, fill=None) == {"c": 2, "d": 4, "e": 4}


@pytest.mark.parametrize("wanted", [1, 5, 7])
def test_a_domain_that_is_wanted_whole_is_used_whole(wanted: int) -> None:
    drawing = "z1 b1 r1 : a=1\nz1 b1 r2 : b=3 c=2\nz2 b2 r3 : d=7"
    expected = {1: {"a": 1}, 5: {"b": 3, "c": 2}, 7: {"d": 7}}
    assert filled(drawing, wanted) == expected[wanted]


def test_more_than_there_is_room_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not hold 6 pods"):
        filled("z b r1 : a=2\nz b r2 : b=3", 6)


def test_two_racks_that_are_needed_are_used_with_the_fewest_nodes() -> None:
    """As a whole the first one would take three nodes, and what is left one more."""
    drawing = "z b r1 : a=1 b=3 c=2\nz b r2 : d=4 e=1"
    assert filled(drawing, 7, fill=None) == filled(drawing, 7) == {"b": 3, "d": 4}


def test_two_blocks_that_are_needed_are_used_with_the_fewest_racks() -> None:
    drawing = "z b1 r1 : a=1\nz b1 r2 : b=1\nz b1 r3 : c=4\nz b2 r4 : d=5"
    assert filled(drawing, 9, fill=None) == {"c": 4, "d": 5}
    assert filled(drawing, 9, fill="block") == {"a": 1, "b": 1, "c": 4, "d": 3}


def test_where_racks_that_are_needed_are_known_no_fewer_nodes_of_them_would_do() -> None:
    for seed in range(300):
        random = Random(seed)
        racks = [
            [random.randint(1, 5) for _ in range(random.randint(1, 5))] for _ in range(random.randint(1, 5))
        ]
        lines = [
            f"z b r{rack} : " + " ".join(f"n{rack}{at}={room}" for at, room in enumerate(nodes))
            for rack, nodes in enumerate(racks)
        ]
        wanted = random.randint(1, sum(map(sum, racks)))
        used = filled("\n".join(lines), wanted)
        chosen = {int(name[1]) for name in used}
        assert len(chosen) == _fewest(map(sum, racks), wanted), f"seed {seed}"
        assert len(used) == _fewest((room for rack in chosen for room in racks[rack]), wanted), f"seed {seed}"


def _fewest(rooms: Iterable[int], wanted: int) -> int:
    return 1 + sum(held < wanted for held in accumulate(sorted(rooms, reverse=True)))
