"""The options of `closeby agent`, checked before anything begins."""

import math
import os
import socket
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from closeby.agents.bandwidth.interfaces import parse_bandwidth
from closeby.agents.latency.credentials import VARIABLE, PeerCredentials, TlsFiles, from_environment
from closeby.agents.latency.delays import Delays, parse_delays
from closeby.agents.latency.limits import ResponderLimits
from closeby.agents.latency.peers import LONGEST_NAME, PeerFile
from closeby.cli.options import Metrics
from closeby.cli.reading.inputs import Unusable
from closeby.kube.metrics.serving import ListenAddress, read_address
from closeby.objects.process import Say
from closeby.objects.reasons import Problem

T = TypeVar("T")

#: Seconds that a latency is exposed at least, so that every scraper sees it.
_TOLD: Final = 120.0


class AgentOptions(Struct, frozen=True, kw_only=True):
    """As on the command line."""

    kubeconfig: str | None
    context: str | None
    node_name: str | None
    listen: str
    peers_path: str | None
    service: str
    namespace: str | None
    token_file: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_ca: str | None
    tls_peer_name: str
    insecure: bool
    probe: str
    program_port: int
    iperf3: bool
    iperf3_port: int
    iperf3_bytes: int
    round_seconds: float
    max_age: float | None
    trips: int
    timeout: float
    most_zones: int
    probes_per_second: float
    bytes_per_second: float
    connections: int
    advertise: bool | None
    interface: str | None
    bandwidth: str | None
    delays: tuple[str, ...]
    delays_path: str | None
    metrics: Metrics


class CheckedSettings(Struct, frozen=True, kw_only=True):
    """What can be done with that."""

    options: AgentOptions
    name: str
    listen: ListenAddress
    credentials: PeerCredentials
    delays: Delays
    limits: ResponderLimits
    #: None: as the cluster has them.
    peers: PeerFile | None
    #: What is advertised whatever the interface says, in bits/s.
    bandwidth: int | None

    @property
    def max_age(self) -> float:
        """Seconds that a latency is exposed; Prometheus keeps what is older."""
        return (
            max(_TOLD, 2 * self.options.round_seconds)
            if self.options.max_age is None
            else self.options.max_age
        )

    @property
    def advertises(self) -> bool:
        """Whether the node's status is written."""
        asked = self.options.advertise
        return self.peers is None if asked is None else asked

    @property
    def connects(self) -> bool:
        """Whether a cluster is needed."""
        return self.peers is None or self.advertises


def checked(options: AgentOptions, say: Say) -> CheckedSettings:
    """Reads what was named.

    Raises:
        Unusable: something can't be used.
    """
    name = options.node_name or socket.gethostname().lower()
    if len(name.encode()) > LONGEST_NAME:
        raise Unusable(
            f"--node-name: {name[:60]}… is not a node's name; give at most {LONGEST_NAME} characters"
        )
    for field, amount in msgspec.structs.asdict(options).items():
        # Neither is less or more than any limit.
        if isinstance(amount, float) and not math.isfinite(amount):
            raise Unusable(f"{field} is {amount}; give a number")
    listen = read_address(options.listen)
    if isinstance(listen, Problem):
        raise Unusable(f"--listen: {listen}")
    peers = None if options.peers_path is None else PeerFile(options.peers_path)
    if peers is not None:
        _usable(peers.read())
    given = _usable(parse_delays(options.delays))
    delays = Delays(given, options.delays_path, say)
    problem = delays.read()
    if problem is not None:
        raise Unusable(problem.sentence())
    return CheckedSettings(
        options=options,
        name=name,
        listen=listen,
        credentials=_credentials(options, say),
        delays=delays,
        limits=ResponderLimits(
            trips=options.trips,
            within=options.timeout,
            least=min(options.trips, ResponderLimits().least),
            probes=options.probes_per_second,
            bytes=options.bytes_per_second,
            connections=options.connections,
        ),
        peers=peers,
        bandwidth=None if options.bandwidth is None else _usable(parse_bandwidth(options.bandwidth)),
    )


def _credentials(options: AgentOptions, say: Say) -> PeerCredentials:
    files = (options.tls_cert, options.tls_key, options.tls_ca)
    token = None if options.token_file else from_environment(os.environ)
    tls = None
    if options.tls_cert and options.tls_key and options.tls_ca:
        tls = TlsFiles(
            certificate=options.tls_cert,
            key=options.tls_key,
            authority=options.tls_ca,
            peer_name=options.tls_peer_name,
        )
    elif any(files):
        raise Unusable("mutual TLS needs all of --tls-cert, --tls-key and --tls-ca; give the missing ones")
    if not options.insecure:
        if not (options.token_file or token or tls):
            raise Unusable(
                "peers can't be authenticated: there is neither a token nor a certificate",
                f"give --token-file (or {VARIABLE}), or --tls-cert, --tls-key and --tls-ca; "
                "on a network where everybody may ask, --insecure",
            )
        if options.probe != "tcp" or options.iperf3:
            program = options.probe if options.probe != "tcp" else "iperf3"
            raise Unusable(
                f"{program} accepts unauthenticated clients, whatever the agents do; add --insecure to allow "
                "that"
            )
    credentials = PeerCredentials(token_file=options.token_file, token=token, tls=tls, say=say)
    problem = credentials.problem()
    if problem is not None:
        raise Unusable(problem.sentence())
    return credentials


def _usable(found: T | Problem) -> T:
    if isinstance(found, Problem):
        raise Unusable(found.sentence())
    return found
