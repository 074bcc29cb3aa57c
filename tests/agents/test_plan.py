"""Who asks whom: few questions, every pair of zones in every round, and all pairs of nodes in time.

zone a: a-0 a-1 a-2     round 0: a-0 -> a-1 -> a-2 -> a-0, b-0 -> b-1 -> b-0
zone b: b-0 b-1                  and one of a asks one of b, one of b asks one of a
zone c: c-0                      and so with c, which has nobody to make a ring of
"""

import random
from collections import Counter
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from closeby.agents.latency.peers import Peer
from closeby.agents.latency.plan import MOST, peers_to_probe


def cluster(*sizes: int, region: str = "") -> list[Peer]:
    """Zones a, b, ... of these sizes."""
    return [
        Peer(name=f"z{zone}-{number}", host="192.0.2.1", zone=f"z{zone}", region=region)
        for zone, size in enumerate(sizes)
        for number in range(size)
    ]


def pairs(peers: list[Peer], number: int, most: int = MOST) -> list[tuple[Peer, Peer]]:
    """All questions of a round."""
    return [(one, other) for one in peers for other in peers_to_probe(peers, one.name, number, most)]


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def test_three_zones() -> None:
    peers = cluster(3, 2, 1)
    found = {(one.name, other.name) for one, other in pairs(peers, 0)}
    assert {("z0-0", "z0-1"), ("z0-1", "z0-2"), ("z0-2", "z0-0"), ("z1-0", "z1-1"), ("z1-1", "z1-0")} <= found
    zones = Counter((one.zone, other.zone) for one, other in pairs(peers, 0))
    assert zones["z0", "z1"] == zones["z1", "z0"] == zones["z2", "z0"] == zones["z1", "z2"] == 1
    assert len(found) == 5 + 3 * 2


@given(SIZES, st.integers(0, 10**10))
def test_every_pair_of_zones_is_covered_in_every_round(sizes: list[int], number: int) -> None:
    peers = cluster(*sizes)
    found = pairs(peers, number)
    zones = {one.zone for one in peers}
    assert {(one.zone, other.zone) for one, other in found if one.zone != other.zone} == set(
        permutations(zones, 2)
    )
    assert all(one.name != other.name for one, other in found)
    assert len(found) == len(set(found))


@given(SIZES, st.integers(0, 10**10), st.integers(1, 3))
def test_questions_are_bounded(sizes: list[int], number: int, most: int) -> None:
    peers = cluster(*sizes)
    found = pairs(peers, number, most)
    zones = len(sizes)
    assert len(found) <= len(peers) + zones * (zones - 1)
    assert len(found) <= len(peers) * (most + 1)
    asking = Counter(one.name for one, _ in found)
    answering = Counter(other.name for _, other in found)
    for peer in peers:
        here = sizes[int(peer.zone[1:])]
        assert asking[peer.name] <= 1 + min(most, -(-(zones - 1) // here))
        assert answering[peer.name] <= 1 + (zones - 1)


@given(SIZES, st.integers(0, 10**10), st.integers(1, 3))
def test_all_pairs_are_covered_in_time(sizes: list[int], start: int, most: int) -> None:
    """Inside a zone of n nodes after n - 1 rounds, between zones of n and m after n m, if a round holds all
    zones; else after so many times that as it takes.
    """
    peers = cluster(*sizes)
    zones = len(sizes)
    windows = max(1, *(-(-(zones - 1) // (size * most)) for size in sizes))
    # A number of rounds that holds one whole cycle of each window, wherever it begins.
    rounds = (max(sizes) ** 2 + 1) * windows
    found = {pair for number in range(start, start + rounds) for pair in pairs(peers, number, most)}
    assert found == set(permutations(peers, 2))


@given(SIZES, st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_all_agents_come_to_the_same_plan(sizes: list[int], number: int, chance: random.Random) -> None:
    peers = cluster(*sizes)
    shuffled = peers.copy()
    chance.shuffle(shuffled)
    for peer in peers:
        assert peers_to_probe(peers, peer.name, number) == peers_to_probe(shuffled, peer.name, number)


def test_every_node_in_a_zone_of_its_own_is_no_case_of_all_pairs() -> None:
    """100 zones of one node: 16 questions a node and round rather than 99, and all in 7 rounds."""
    peers = cluster(*[1] * 100)
    found: set[tuple[Peer, Peer]] = set()
    for number in range(7):
        one_round = pairs(peers, number)
        assert len(one_round) <= 16 * 100
        found |= set(one_round)
    assert len(found) == 100 * 99


def test_questions_of_a_big_cluster() -> None:
    """5,000 nodes in 20 zones: one question a node, and 380 between zones."""
    peers = cluster(*[250] * 20)
    chosen = peers[::250] + peers[1::250]
    counts = [len(peers_to_probe(peers, one.name, 12345)) for one in chosen]
    assert max(counts) <= 2
    assert 250 * 20 + 20 * 19 < 0.0003 * 5000 * 4999


def test_regions_are_distinguished_where_zones_have_the_same_name() -> None:
    peers = [
        Peer(name=f"{region}-{number}", host="192.0.2.1", zone="1", region=region)
        for region in ("east", "west")
        for number in range(2)
    ]
    found = {(one.region, other.region) for one, other in pairs(peers, 3)}
    assert found == {("east", "east"), ("west", "west"), ("east", "west"), ("west", "east")}


def test_an_agent_alone_or_not_among_the_peers_asks_no_peer() -> None:
    assert peers_to_probe(cluster(1), "z0-0", 5) == ()
    assert peers_to_probe(cluster(3, 2), "stranger", 5) == ()
    assert peers_to_probe([], "stranger", 5) == ()
