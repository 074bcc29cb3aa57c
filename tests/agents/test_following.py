"""How soon the costs of a network follow it: who asks whom, how long that is told, and medians over a range.

zones x, y, z of n nodes each; at time 0 zone y moves away: x-y and y-z take longer from then on

Prometheus and its query are worked out here, minute by minute; the rest is what really runs.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median

import pytest

from closeby.agents.latency.peers import Peer
from closeby.agents.latency.plan import asked
from closeby.agents.latency.results import Latency, Results
from closeby.controllers.networks.weights import Place, weights_of
from closeby.measurements.latencies import Latency as Link

INSIDE, NEAR, FAR, AWAY = 500.0, 4_000.0, 12_000.0, 27_000.0
#: As the documentation of the agent has them, in minutes; a round is one.
FREQUENCY, RANGE = 5, 3
#: Seconds that an agent tells a latency: two rounds.
MAX_AGE = 120.0


def latency(origin: str, destination: str, minute: int) -> float:
    zones = {origin[0], destination[0]}
    if len(zones) == 1:
        return INSIDE
    if "y" in zones and minute >= 0:
        return AWAY
    return NEAR if zones == {"x", "y"} else FAR


def costs_by_minute(nodes: int) -> Iterator[tuple[int, Mapping[str, object]]]:
    """From minute 0 on."""
    peers = [Peer(name=f"{zone}-{number}", host="h", zone=zone) for zone in "xyz" for number in range(nodes)]
    places = {peer.name: Place("eu", peer.zone) for peer in peers}
    now = 0.0
    results = {peer.name: Results(MAX_AGE, lambda: now) for peer in peers}
    scraped: deque[list[Link]] = deque(maxlen=RANGE)
    for minute in range(-40, 40):
        now = minute * 60.0
        for peer in peers:
            for other in asked(peers, peer.name, minute + 40):
                figure = latency(peer.name, other.name, minute)
                results[peer.name].measured(other.name, Latency(p50=figure, samples=50))
        scraped.append(
            [
                Link(name, other, one.value.p50)
                for name, of in results.items()
                for other, one in of.latencies().items()
            ]
        )
        if minute >= 0:
            figures: dict[tuple[str, str], list[float]] = {}
            for link in (link for at_once in scraped for link in at_once):
                figures.setdefault((link.origin, link.destination), []).append(link.microseconds)
            weights = weights_of((Link(*pair, median(known)) for pair, known in figures.items()), places)
            assert weights is not None
            yield minute, weights.entry


@pytest.mark.parametrize("nodes", [1, 2, 5, 10])
def test_costs_follow_after_two_refreshes_at_the_latest(nodes: int) -> None:
    """So even the refresh before which nothing was measured anew leaves one in time."""
    followed = None
    for minute, entry in costs_by_minute(nodes):
        listed = entry["costList"]
        assert isinstance(listed, list)
        xy = [one["cost"] for one in listed if {one["origin"][0], one["destination"][0]} == {"x", "y"}]
        assert len(xy) == nodes * nodes
        if min(xy) > FAR + INSIDE:
            followed = minute
            break
    assert followed is not None and followed <= FREQUENCY
