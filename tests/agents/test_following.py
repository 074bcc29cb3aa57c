"""How soon the costs of a network follow it: who asks whom, how long that is told, and medians over a range.

zones x, y, z of n nodes each; at time 0 zone y moves away: x-y and y-z take longer from then on

Prometheus and its query are worked out here, round by round; the rest is what really runs.
"""

from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from closeby.agents.latency.peers import Peer
from closeby.agents.latency.plan import peers_to_probe
from closeby.agents.latency.results import PeerLatency, Results
from closeby.controllers.networks.weights import NetworkPlace, weights_of
from closeby.measurements.links import Latency as Link

INSIDE, NEAR, FAR, AWAY = 500.0, 4_000.0, 12_000.0, 27_000.0
#: As the documentation of the agent has them, in seconds.
FREQUENCY, RANGE = 300, 180
#: How long a round lasts, and an agent tells a latency, unless it is told otherwise.
ROUND, MAX_AGE = 20, 120.0


def latency(origin: str, destination: str, second: int) -> float:
    zones = {origin[0], destination[0]}
    if len(zones) == 1:
        return INSIDE
    if "y" in zones and second >= 0:
        return AWAY
    return NEAR if zones == {"x", "y"} else FAR


def costs_by_round(nodes: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Between nodes, from second 0 on."""
    peers = [Peer(name=f"{zone}-{number}", host="h", zone=zone) for zone in "xyz" for number in range(nodes)]
    places = {peer.name: NetworkPlace("eu", peer.zone) for peer in peers}
    now = 0.0
    results = {peer.name: Results(MAX_AGE, lambda: now) for peer in peers}
    scraped: deque[list[Link]] = deque(maxlen=RANGE // ROUND)
    for number in range(200):
        second = (number - 100) * ROUND
        now = float(second)
        for peer in peers:
            for other in peers_to_probe(peers, peer.name, number):
                figure = latency(peer.name, other.name, second)
                results[peer.name].measured(other.name, PeerLatency(p50=figure, samples=50))
        scraped.append(
            [
                Link(name, other, one.value.p50)
                for name, of in results.items()
                for other, one in of.latencies().items()
            ]
        )
        if second >= 0:
            figures: dict[tuple[str, str], list[float]] = {}
            for link in (link for at_once in scraped for link in at_once):
                figures.setdefault((link.origin, link.destination), []).append(link.microseconds)
            weights = weights_of((Link(*pair, median(known)) for pair, known in figures.items()), places)
            assert weights is not None
            listed = weights.entry["costList"]
            assert isinstance(listed, list)
            yield second, listed


def between(listed: list[dict[str, Any]], *zones: str) -> list[int]:
    return [
        one["cost"] for one in listed if sorted((one["origin"][0], one["destination"][0])) == sorted(zones)
    ]


@pytest.mark.parametrize("nodes", [1, 2, 5, 10, 25])
def test_costs_follow_after_two_refreshes_at_the_latest(nodes: int) -> None:
    """So even when the first of them comes before anything was measured anew."""
    followed = None
    for second, listed in costs_by_round(nodes):
        xy = between(listed, "x", "y")
        assert len(xy) == nodes * nodes
        # No pair is near any more, and no way leads around.
        if min(xy) > FAR + INSIDE:
            followed = second
            break
    assert followed is not None and followed <= FREQUENCY


def test_nodes_that_did_not_ask_each_other_lately_are_two_hops_apart_at_most() -> None:
    _, listed = next(costs_by_round(33))
    inside = between(listed, "x", "x")
    assert len(inside) == 33 * 32 // 2
    assert min(inside) == INSIDE and max(inside) <= 2 * INSIDE
