"""What `closeby agent` does: its parts, joined to the cluster's client and the HTTP server."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from msgspec import Struct

from closeby import full_version
from closeby.agents.bandwidth.advertising import AdvertisedNode, Advertiser, Operation
from closeby.agents.bandwidth.interfaces import Speed, speed_of
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.probing import Probe, TcpProbe
from closeby.agents.latency.programs import ProgramRunner, iperf3_probe, netperf_probe, qperf_probe
from closeby.agents.latency.responder import Responder
from closeby.agents.latency.results import Results
from closeby.agents.latency.rounds import LatencyRounds, RoundInputs, RoundSettings
from closeby.agents.latency.servers import ProgramServer
from closeby.agents.meters import AgentMeters, AgentStatus
from closeby.cli.operating.agent_settings import CheckedSettings
from closeby.cli.operating.long_running import reach, run_alone, run_until_told
from closeby.cli.operating.serving import serving
from closeby.cli.reading.inputs import Unusable
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.state.endpoints import Endpoints
from closeby.kube.state.own_node import OwnNode
from closeby.kube.watch.changes import Troubled
from closeby.kube.writing.node_status import patch_node_status
from closeby.objects.process import Say
from closeby.objects.reasons import Problem
from closeby.reading.decoding.bandwidth import BANDWIDTH

#: Name of the Service's port.
PORT_NAME: Final = "probe"
#: Seconds that a thread with an answer may wait for one that computes: who is late seems to be far away.
_SWITCH_WITHIN: Final = 0.0005
#: Seconds to wait for what was begun.
_FAREWELL: Final = 0.3


class _Parts(Struct, frozen=True):
    """Of one agent."""

    responder: Responder
    rounds: LatencyRounds
    results: Results
    tcp: TcpProbe
    runner: ProgramRunner
    servers: tuple[ProgramServer, ...]

    def open(self, checked: CheckedSettings, say: Say) -> None:
        """Begins. Raises Unusable: something can't be listened on, or a program is missing."""
        port = self.responder.open(checked.listen.host, checked.listen.port)
        if isinstance(port, Problem):
            raise Unusable(port.sentence())
        for server in self.servers:
            problem = server.open()
            if problem is not None:
                raise Unusable(problem.sentence())
        say("answering peers", host=checked.listen.host or None, port=port, node=checked.name)
        self.rounds.start()

    def close(self) -> None:
        """Ends all that was begun, without waiting for a peer that does not answer."""
        self.rounds.stop()
        self.tcp.close()
        self.runner.close()
        self.responder.close()
        for server in self.servers:
            server.close()
        self.rounds.join(_FAREWELL)


class _Heard:
    """What the cluster says of peers."""

    def __init__(self) -> None:
        self.peers: Sequence[Peer] | Problem = Problem(
            "the cluster has not listed them yet", reason="PeersUnknown"
        )

    def now(self) -> Sequence[Peer] | Problem:
        """The peers that are known."""
        return self.peers


def run(checked: CheckedSettings, say: Say) -> None:
    """Does all that the options ask for, until SIGTERM or Ctrl-C.

    Raises:
        Unusable: something can't be listened on, or there is no cluster to talk to.
    """
    sys.setswitchinterval(_SWITCH_WITHIN)
    meters, health = Meters(), Health()
    if not checked.connects:

        async def alone(stop: asyncio.Event) -> None:
            await _work(checked, None, stop, (meters, health), say)

        run_alone(alone)
        return

    connection = reach(checked.options.kubeconfig, checked.options.context)

    async def work(transport: Transport, stop: asyncio.Event) -> ApiError | None:
        await _work(checked, transport, stop, (meters, health), say)
        return None

    transport = Transport(connection, on_request=meters.requests(connection.host))
    run_until_told(connection, transport, work)


async def _work(
    checked: CheckedSettings,
    transport: Transport | None,
    stop: asyncio.Event,
    told: tuple[Meters, Health],
    say: Say,
) -> None:
    meters, health = told
    heard = _Heard()
    parts = _parts(checked, heard, say)
    advertiser = _advertiser(checked, transport, say) if checked.advertises and transport else None
    meters.registry.register(AgentMeters(checked.name, parts.results, lambda: _standing(parts, advertiser)))
    health.alive("rounds", lambda: None if parts.rounds.broken is None else repr(parts.rounds.broken))
    health.alive(
        "responder", lambda: None if parts.responder.broken is None else repr(parts.responder.broken)
    )
    health.ready("shutdown", lambda: "it is stopping" if stop.is_set() else None)
    if checked.peers is None:
        health.ready("peers", lambda: str(heard.peers) if isinstance(heard.peers, Problem) else None)
    say("starting", version=full_version(), node=checked.name)
    if checked.delays:
        say("adding delays to what is measured: for testing only", warning=True)
    if not checked.credentials.proves:
        say("answering unauthenticated peers: there is neither a token nor a certificate", warning=True)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(checked.options.metrics, health, meters, say, transport))
        stack.callback(parts.close)
        parts.open(checked, say)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        following = []
        if transport is not None and checked.peers is None:
            following.append(tasks.create_task(_follow_peers(checked, transport, heard, meters, say)))
        if transport is not None and advertiser is not None:
            following.append(tasks.create_task(_follow_node(checked, transport, advertiser, meters, say)))
            following.append(tasks.create_task(advertiser.run()))
        await stop.wait()
        say("stopping")
        for task in following:
            task.cancel()
    say("stopped")


def _parts(checked: CheckedSettings, heard: _Heard, say: Say) -> _Parts:
    options = checked.options
    tcp = TcpProbe(checked.name, checked.credentials, checked.delays, checked.limits)
    runner = ProgramRunner()
    probe: Probe = tcp
    servers = []
    if options.probe != "tcp":
        port = options.program_port
        probe = qperf_probe(runner, port) if options.probe == "qperf" else netperf_probe(runner, port)
        servers.append(ProgramServer(options.probe, port, say))
    throughput = None
    if options.iperf3:
        throughput = iperf3_probe(runner, options.iperf3_port, options.iperf3_bytes)
        servers.append(ProgramServer("iperf3", options.iperf3_port, say))
    results = Results(checked.max_age)
    rounds = LatencyRounds(
        RoundSettings(name=checked.name, seconds=options.round_seconds, most=options.most_zones),
        RoundInputs(
            peers=heard.now if checked.peers is None else checked.peers.read,
            probe=probe,
            bytes=tcp.bytes if probe is tcp else 0,
            throughput=throughput,
            carried=options.iperf3_bytes,
            before=checked.delays.read,
        ),
        results,
        say,
        checked.limits,
    )
    responder = Responder(checked.name, checked.credentials, say, checked.limits)
    return _Parts(responder, rounds, results, tcp, runner, tuple(servers))


def _standing(parts: _Parts, advertiser: Advertiser | None) -> AgentStatus:
    return AgentStatus(
        peers=parts.rounds.known,
        rounds=parts.rounds.rounds,
        outcomes=dict(parts.responder.outcomes),
        connections=parts.responder.connections,
        speed=None if advertiser is None else advertiser.speed,
        advertised=None if advertiser is None else advertiser.advertised,
    )


def _advertiser(checked: CheckedSettings, transport: Transport, say: Say) -> Advertiser:
    bits = checked.bandwidth

    def speed() -> Speed | Problem:
        if bits is not None:
            return Speed("--bandwidth", bits)
        return speed_of(checked.options.interface)

    async def patch(operations: Sequence[Operation]) -> Problem | None:
        error = await patch_node_status(transport, checked.name, operations)
        return None if error is None else Problem(error.message, reason=error.reason)

    return Advertiser(speed, patch, say)


async def _follow_peers(
    checked: CheckedSettings, transport: Transport, heard: _Heard, meters: Meters, say: Say
) -> None:
    options = checked.options
    endpoints = Endpoints(transport, options.namespace or transport.namespace, options.service, PORT_NAME)
    meters.follows(endpoints.reflector)
    async for places in endpoints.changes():
        if isinstance(places, Troubled):
            _not_heard(places, "EndpointSlice", say)
            continue
        heard.peers = tuple(
            Peer(name=one.node, host=one.address, port=one.port, zone=one.zone) for one in places
        )


async def _follow_node(
    checked: CheckedSettings, transport: Transport, advertiser: Advertiser, meters: Meters, say: Say
) -> None:
    own = OwnNode(transport, checked.name)
    meters.follows(own.reflector)
    async for node in own.changes():
        if isinstance(node, Troubled):
            _not_heard(node, "Node", say)
        elif node is None:
            say("the cluster has no such node", warning=True, node=checked.name)
            advertiser.heard(None)
        else:
            capacity, allocatable = node.capacity, node.allocatable
            advertiser.heard(
                AdvertisedNode(
                    uid=node.uid,
                    capacity=(capacity or {}).get(BANDWIDTH),
                    allocatable=(allocatable or {}).get(BANDWIDTH),
                    has_capacity=capacity is not None,
                    has_allocatable=allocatable is not None,
                )
            )


def _not_heard(trouble: Troubled, kind: str, say: Say) -> None:
    say("watch failed", warning=True, kind=kind, error=trouble.error, retry_seconds=round(trouble.wait, 1))
