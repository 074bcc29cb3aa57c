"""`closeby agent`: measure latencies to other nodes, and advertise this one's bandwidth."""

from typing import TYPE_CHECKING

import click

from closeby.cli.names import OneOf
from closeby.cli.options import connects, logs, serves

if TYPE_CHECKING:
    from closeby.objects.process import Say

_FILE = click.Path(dir_okay=False)
_COUNT = click.IntRange(min=1)
_AMOUNT = click.FloatRange(min=0, min_open=True)
_PORT = click.IntRange(1, 65_535)


@click.command(name="agent", short_help="Measure a node's latencies and bandwidth.")
@connects
@click.option(
    "--node-name",
    metavar="NAME",
    envvar="NODE_NAME",
    help="Name of this node in the cluster.  [default: $NODE_NAME, else the host name]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=":9471",
    show_default=True,
    help="Address to listen on for peers; :PORT for all addresses.",
)
@click.option(
    "--peers",
    "peers_path",
    metavar="FILE",
    type=_FILE,
    help="YAML file that lists the peers, reloaded when it changes.  [default: the cluster's agents]",
)
@click.option(
    "--service",
    metavar="NAME",
    default="closeby-agent",
    show_default=True,
    help="The Service whose ready endpoints are the peers.",
)
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    help="Namespace of that Service.  [default: the context's or the pod's namespace]",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=_FILE,
    help="File with the token that all agents share. If it has several lines, the first is sent to peers and "
    "all are accepted.  [default: $CLOSEBY_AGENT_TOKEN]",
)
@click.option(
    "--tls-cert", metavar="FILE", type=_FILE, help="This agent's certificate (PEM), for mutual TLS."
)
@click.option("--tls-key", metavar="FILE", type=_FILE, help="Private key of that certificate (PEM).")
@click.option("--tls-ca", metavar="FILE", type=_FILE, help="Certificate authority of all agents (PEM).")
@click.option(
    "--tls-peer-name",
    metavar="NAME",
    default="closeby-agent",
    show_default=True,
    help="DNS name that every agent's certificate must contain.",
)
@click.option(
    "--insecure", is_flag=True, help="Allow unauthenticated peers (required without a token or TLS)."
)
@click.option(
    "--probe",
    type=OneOf(("tcp", "qperf", "netperf")),
    default="tcp",
    show_default=True,
    help="How to measure latencies: by the agents themselves (tcp), or by a program, which supports neither "
    "tokens nor TLS and so needs --insecure.",
)
@click.option(
    "--program-port",
    metavar="PORT",
    type=_PORT,
    default=9473,
    show_default=True,
    help="Port of that program's server, on all nodes.",
)
@click.option(
    "--iperf3/--no-iperf3",
    default=False,
    show_default=True,
    help="Also measure bandwidth, to one peer per round (needs --insecure).",
)
@click.option(
    "--iperf3-port",
    metavar="PORT",
    type=_PORT,
    default=9474,
    show_default=True,
    help="Port of iperf3's server, on all nodes.",
)
@click.option(
    "--iperf3-bytes",
    metavar="NUMBER",
    type=click.IntRange(1, 10**11),
    default=10_000_000,
    show_default=True,
    help="Bytes that it sends per measurement.",
)
@click.option(
    "--round",
    "round_seconds",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 86_400),
    default=20.0,
    show_default=True,
    help="Length of a round; must be the same on all nodes.",
)
@click.option(
    "--max-age",
    metavar="SECONDS",
    type=_AMOUNT,
    help="Stop reporting latencies older than this.  [default: twice --round, at least 120]",
)
@click.option(
    "--trips",
    metavar="NUMBER",
    type=click.IntRange(1, 900),
    default=50,
    show_default=True,
    help="Number of round trips timed per probe.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0, 9, min_open=True),
    default=2.0,
    show_default=True,
    help="Deadline for one probe.",
)
@click.option(
    "--most-zones",
    metavar="NUMBER",
    type=_COUNT,
    default=16,
    show_default=True,
    help="Number of other zones to probe in one round; must be the same on all nodes.",
)
@click.option(
    "--probes-per-second",
    metavar="NUMBER",
    type=click.FloatRange(min=0.001),
    default=5.0,
    show_default=True,
    help="Rate limit for starting probes.",
)
@click.option(
    "--bytes-per-second",
    metavar="NUMBER",
    type=click.FloatRange(min=1000),
    default=1_000_000.0,
    show_default=True,
    help="Rate limit for the traffic of probes and iperf3, sent and received.",
)
@click.option(
    "--connections",
    metavar="NUMBER",
    type=_COUNT,
    default=32,
    show_default=True,
    help="Maximum number of peers served at the same time.",
)
@click.option(
    "--advertise/--no-advertise",
    default=None,
    help="Write network.aware.com/bandwidth to the node's status.  [default: on unless --peers is given]",
)
@click.option(
    "--interface",
    metavar="NAME",
    help="Interface whose speed is advertised.  [default: that of the default route]",
)
@click.option(
    "--bandwidth", metavar="QUANTITY", help="Bandwidth to advertise instead, in bits/s, such as 10G."
)
@click.option(
    "--delay",
    "delays",
    metavar="ZONE=MS",
    multiple=True,
    help="For testing: add this many milliseconds to latencies of peers in this zone. May be repeated.",
)
@click.option(
    "--delays",
    "delays_path",
    metavar="FILE",
    type=_FILE,
    help="For testing: YAML file that maps zones to such delays, reloaded every round.",
)
@serves
@logs
def command(*, say: "Say", **options: object) -> None:
    """Measure latencies to the other nodes of a cluster until SIGTERM or Ctrl-C.

    Runs on every node. Each round, every agent probes a few peers, so that about one probe per node covers
    all pairs of zones; /metrics exposes the results. Peers must present the same token, or a certificate of
    the same authority. Advertises this node's bandwidth as the resource network.aware.com/bandwidth, if the
    speed of its interface is known.

    \b
    Example:
      closeby agent --peers peers.yaml --token-file token --metrics-address :9472
    """
    import msgspec

    from closeby.cli.operating.agent_settings import AgentOptions, checked
    from closeby.cli.operating.agent_work import run

    given = msgspec.convert(options, AgentOptions)
    run(checked(given, say), say)
