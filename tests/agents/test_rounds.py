"""Rounds of one agent: whom it asks when peers come and go, and what is told of them afterwards."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.agents.latency.delays import Delays
from closeby.agents.latency.limits import Bucket, ResponderLimits
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.probing import TcpProbe
from closeby.agents.latency.responder import Responder
from closeby.agents.latency.results import PeerLatency, Results, latency_of
from closeby.agents.latency.rounds import LatencyRounds, RoundInputs, RoundSettings
from closeby.agents.meters import AgentMeters, AgentStatus
from closeby.kube.metrics.meters import Meters
from closeby.objects.reasons import Problem
from tests.agents.talking import PATIENT, Lines, shared, soon
from tests.kube.scraping import Scrape, scrape

ANSWER = PeerLatency(p50=100.0, p90=200.0, p99=300.0, samples=50)
NO_LIMITS = ResponderLimits(probes=1e9, bytes=1e12)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class World:
    """One agent, a-0, whose peers answer as they are told to."""

    def __init__(self, *peers: str, limits: ResponderLimits = NO_LIMITS, seconds: float = 60.0) -> None:
        self.peers: Sequence[Peer] | Problem = [peer(one) for one in peers]
        self.answers: dict[str, PeerLatency | Problem] = {}
        self.asked: list[str] = []
        #: Peers that bring a fault of ours to light.
        self.odd: set[str] = set()
        self.lines = Lines()
        self.clock, self.now = Clock(), Clock()
        self.results = Results(900.0, self.clock)
        self.takes = 0.0
        asking = RoundInputs(peers=lambda: self.peers, probe=self._probe, bytes=1000)
        course = RoundSettings(name="a-0", seconds=seconds)
        self.rounds = LatencyRounds(course, asking, self.results, self.lines.say, limits, self.now)

    def _probe(self, peer: Peer) -> PeerLatency | Problem:
        self.asked.append(peer.name)
        self.now.time += self.takes
        if peer.name in self.odd:
            raise KeyError("nobody thought of this")
        return self.answers.get(peer.name, ANSWER)

    def round(self, number: int) -> list[str]:
        """Whom it asks in a round."""
        self.asked.clear()
        self.now.time = number * 60.0
        self.rounds.one_round(number)
        return self.asked.copy()

    def told(self) -> Scrape:
        """What is on /metrics."""
        meters = Meters()
        standing = AgentStatus(peers=self.rounds.known, rounds=self.rounds.rounds)
        meters.registry.register(AgentMeters("a-0", self.results, lambda: standing))
        return scrape(meters)


def peer(name: str) -> Peer:
    return Peer(name=name, host="192.0.2.1", zone=name.partition("-")[0])


def test_figures_have_the_names_of_the_kep() -> None:
    world = World("a-0", "a-1", "b-0")
    assert set(world.round(0)) == {"a-1", "b-0"}
    told = world.told()
    for share, value in ((50, 100.0), (90, 200.0), (99, 300.0)):
        name = f"netperf_p{share}_latency_microseconds"
        assert told.value(name, origin="a-0", destination="b-0") == value
    assert told.value("closeby_agent_latency_samples", origin="a-0", destination="a-1") == 50
    assert told.value("closeby_agent_peers") == 3
    assert told.value("closeby_agent_probes_total") == 2
    assert told.value("closeby_agent_rounds_total") == 1


def test_a_fault_of_ours_with_one_peer_leaves_the_others_alone() -> None:
    world = World("a-0", "a-1", "b-0", "c-0")
    world.odd.add(odd := world.round(0)[0])
    asked = world.round(1)
    assert odd in asked and len(asked) == 2
    told = world.told()
    assert told.value("closeby_agent_probe_failures_total", reason="Unexpected") == 1
    assert told.value("closeby_agent_probes_total") == 3
    (line,) = world.lines.said("no latency")
    assert line["peer"] == odd
    assert "a fault of closeby: KeyError: 'nobody thought of this' (test_rounds.py:" in str(line["error"])
    world.odd.clear()
    world.round(2)
    assert [one["peer"] for one in world.lines.said("latency recovered")] == [odd]


def test_a_mean_is_reported_without_percentiles() -> None:
    world = World("a-0", "a-1")
    world.answers["a-1"] = PeerLatency(p50=100.0, samples=9)
    world.round(0)
    told = world.told()
    assert told.value("netperf_p50_latency_microseconds", origin="a-0", destination="a-1") == 100.0
    assert told.all("netperf_p90_latency_microseconds") == {}


def test_a_peer_that_is_gone_is_no_longer_reported() -> None:
    world = World("a-0", "a-1", "b-0")
    world.round(0)
    world.peers = [peer("a-0"), peer("a-1")]
    assert world.round(1) == ["a-1"]
    assert set(world.told().all("netperf_p50_latency_microseconds")) == {("a-1", "a-0")}
    world.peers = [peer(one) for one in ("a-0", "a-1", "c-0")]
    assert set(world.round(2)) == {"a-1", "c-0"}


def test_what_is_too_old_is_no_longer_reported() -> None:
    world = World("a-0", "a-1")
    world.round(0)
    world.answers["a-1"] = Problem("no answer came in time", reason="NoAnswerInTime")
    world.clock.time = 890.0
    world.round(1)
    told = world.told()
    assert told.value("closeby_agent_latency_age_seconds", origin="a-0", destination="a-1") == 890.0
    assert told.value("closeby_agent_probe_failures_total", reason="NoAnswerInTime") == 1
    world.clock.time = 901.0
    assert world.told().all("netperf_p50_latency_microseconds") == {}


def test_a_peer_that_fails_is_said_once_and_so_is_its_return() -> None:
    world = World("a-0", "a-1")
    for failing in (True, True, False, False, True):
        world.answers["a-1"] = Problem("no route", reason="Unreachable") if failing else ANSWER
        world.round(0)
    assert [one["peer"] for one in world.lines.said("no latency")] == ["a-1", "a-1"]
    assert len(world.lines.said("latency recovered")) == 1


def test_while_peers_are_unknown_no_peer_is_asked() -> None:
    world = World("a-0", "a-1")
    world.round(0)
    world.peers = Problem("not told yet", reason="PeersUnknown")
    assert world.round(1) == world.round(2) == []
    assert len(world.lines.said("peers unknown")) == 1
    # What was measured stands until it is too old.
    assert world.told().all("netperf_p50_latency_microseconds") != {}


def test_a_node_that_is_not_among_the_peers_says_so() -> None:
    world = World("b-0", "b-1")
    assert world.round(0) == []
    (said,) = world.lines.said("peers unknown")
    assert "a-0 is not among the 2 peers" in str(said)


def test_a_round_that_takes_too_long_leaves_the_rest_out() -> None:
    """Ten zones that need 40 s each do not fit into a minute and a half."""
    world = World("a-0", *(f"z{number}-0" for number in range(10)))
    world.takes = 40.0
    assert len(world.round(0)) == 3
    assert world.told().value("closeby_agent_probe_failures_total", reason="RoundOver") == 7


def test_a_bucket_grants_no_more_than_its_rate() -> None:
    clock = Clock()
    bucket = Bucket(5.0, clock)
    assert [bucket.take() for _ in range(7)] == [True] * 5 + [False] * 2
    clock.time = 0.4
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    # Whoever waits is told how long.
    assert bucket.wait() == 0.2
    assert round(bucket.wait(10.0), 6) == 2.2


@given(st.floats(0.1, 1e6), st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 1e6)), max_size=30))
def test_over_any_time_a_bucket_grants_its_rate_at_most(
    rate: float, steps: list[tuple[float, float]]
) -> None:
    """Those who wait as long as they are told: their sum is at most the rate times the time, and one second's
    worth (or the greatest amount) at once.
    """
    clock = Clock()
    bucket = Bucket(rate, clock)
    used = 0.0
    for pause, amount in steps:
        clock.time += pause
        clock.time += bucket.wait(amount)
        used += amount
        most = max(rate, *(one for _, one in steps))
        assert used <= rate * clock.time + most + 1e-6 * used + amount


def test_percentiles() -> None:
    found = latency_of([float(number) for number in range(100, 0, -1)])
    assert (found.p50, found.p90, found.p99, found.samples) == (50.0, 90.0, 99.0, 100)
    assert latency_of([7.0]) == PeerLatency(p50=7.0, p90=7.0, p99=7.0, samples=1)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_of_anything(times: list[float]) -> None:
    found = latency_of(times)
    assert found.p90 is not None and found.p99 is not None
    assert min(times) <= found.p50 <= found.p90 <= found.p99 <= max(times)
    for share, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        assert value in times
        assert sum(one <= value for one in times) >= share * len(times)


def test_a_cluster_that_really_talks() -> None:
    """30 nodes in four zones, one round: N + Z (Z - 1) conversations, less that of who has no neighbour; each
    pair of zones is among them.
    """
    sizes = {"a": 12, "b": 9, "c": 8, "d": 1}
    names = [f"{zone}-{number}" for zone, size in sizes.items() for number in range(size)]
    responders = {name: Responder(name, shared(), Lines().say, PATIENT) for name in names}
    peers = []
    try:
        for name, responder in responders.items():
            port = responder.open("127.0.0.1", 0)
            assert isinstance(port, int), port
            peers.append(Peer(name=name, host="127.0.0.1", port=port, zone=name[0]))
        limits = replace(PATIENT, trips=2, warm=0, least=1, probes=1e9, bytes=1e12)
        measured: dict[str, Results] = {}
        agents = {}
        for name in names:
            probe = TcpProbe(name, shared(), Delays({}, None, Lines().say), limits)
            results = measured[name] = Results(900.0)
            asking = RoundInputs(peers=lambda: peers, probe=probe)
            agents[name] = LatencyRounds(
                RoundSettings(name=name), asking, results, Lines().say, limits, lambda: 0.0
            )
        for one in agents.values():
            one.one_round(5)
        assert sum(results.probes for results in measured.values()) == 29 + 4 * 3
        assert all(not results.failures() for results in measured.values())
        pairs = {(name[0], other[0]) for name in names for other in measured[name].latencies()}
        assert {pair for pair in pairs if pair[0] != pair[1]} == set(permutations(sizes, 2))
        soon(lambda: sum(one.outcomes["Answered"] for one in responders.values()) == 41)
    finally:
        for responder in responders.values():
            responder.close()


def test_what_a_program_sends_is_held_to_the_limit_too() -> None:
    ended: list[float] = []

    def carries(peer: Peer) -> float:
        ended.append(time.monotonic())
        return 1e9

    asking = RoundInputs(
        peers=lambda: [peer("a-0"), peer("a-1")],
        probe=lambda _: ANSWER,
        throughput=carries,
        carried=12_000,
    )
    limits = ResponderLimits(probes=1e9, bytes=10_000.0)
    rounds = LatencyRounds(RoundSettings(name="a-0"), asking, Results(900.0), Lines().say, limits)
    began = time.monotonic()
    for number in range(2):
        rounds.one_round(number)
    # 24,000 bytes, of which the first 10,000 are free.
    assert ended[1] - began >= 1.0


def test_a_clock_that_is_set_far_forward_and_back_again_holds_nothing_up() -> None:
    world = World("a-0", "b-0", seconds=0.05)

    def later(number: int) -> bool:
        return world.rounds.rounds > number

    world.rounds.start()
    try:
        for moment in (1e9, 2e9, 0.0, 1e9 - 3600.0):
            world.now.time = moment
            soon(partial(later, world.rounds.rounds + 2))
    finally:
        world.rounds.stop()
        world.rounds.join(60.0)
    assert world.rounds.broken is None
    assert world.results.failures() == {}
