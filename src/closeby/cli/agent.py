"""`closeby agent`: measure latencies to other nodes, and advertise this one's bandwidth."""

from typing import TYPE_CHECKING

import click

from closeby.cli.options import connects, logs, serves

if TYPE_CHECKING:
    from closeby.kube.client.saying import Say

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
    help="The node that this is, as the cluster calls it.  [default: $NODE_NAME, else the host's name]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=":9471",
    show_default=True,
    help="Where peers are answered; :PORT for all addresses.",
)
@click.option(
    "--peers",
    "peers_path",
    metavar="FILE",
    type=_FILE,
    help="Peers as a YAML file lists them, followed as it changes.  [default: as the cluster has them]",
)
@click.option(
    "--service",
    metavar="NAME",
    default="closeby-agent",
    show_default=True,
    help="The Service whose ready pods are the peers.",
)
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    help="Where that Service is.  [default: the context's or the pod's namespace]",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=_FILE,
    help="The token that all agents share, else $CLOSEBY_AGENT_TOKEN; of several lines the first is shown to "
    "peers, and all are taken.",
)
@click.option(
    "--tls-cert", metavar="FILE", type=_FILE, help="This agent's certificate (PEM), for mutual TLS."
)
@click.option("--tls-key", metavar="FILE", type=_FILE, help="The key of that certificate (PEM).")
@click.option("--tls-ca", metavar="FILE", type=_FILE, help="The authority of all agents' certificates.")
@click.option(
    "--tls-peer-name",
    metavar="NAME",
    default="closeby-agent",
    show_default=True,
    help="DNS name that every agent's certificate must have.",
)
@click.option("--insecure", is_flag=True, help="Talk to anybody: without token and TLS nothing else will do.")
@click.option(
    "--probe",
    type=click.Choice(("tcp", "qperf", "netperf")),
    default="tcp",
    show_default=True,
    help="What measures latencies: the agents themselves, or a program (which knows no token and no TLS, and "
    "so needs --insecure).",
)
@click.option(
    "--program-port",
    metavar="PORT",
    type=_PORT,
    default=9473,
    show_default=True,
    help="Where that program's server listens, on all nodes.",
)
@click.option(
    "--iperf3/--no-iperf3",
    default=False,
    show_default=True,
    help="Measure bandwidth too, to one peer a round (needs --insecure).",
)
@click.option(
    "--iperf3-port",
    metavar="PORT",
    type=_PORT,
    default=9474,
    show_default=True,
    help="The port of iperf3's server, on all nodes.",
)
@click.option(
    "--iperf3-bytes",
    metavar="NUMBER",
    type=click.IntRange(1, 10**11),
    default=10_000_000,
    show_default=True,
    help="What it sends each time.",
)
@click.option(
    "--round",
    "round_seconds",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 86_400),
    default=20.0,
    show_default=True,
    help="How long a round lasts, alike on all nodes.",
)
@click.option(
    "--max-age",
    metavar="SECONDS",
    type=_AMOUNT,
    help="Latencies older than this are told no more.  [default: twice --round, 120 at least]",
)
@click.option(
    "--trips",
    metavar="NUMBER",
    type=click.IntRange(1, 900),
    default=50,
    show_default=True,
    help="Questions timed in a probe.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0, 9, min_open=True),
    default=2.0,
    show_default=True,
    help="How long one probe may take.",
)
@click.option(
    "--most-zones",
    metavar="NUMBER",
    type=_COUNT,
    default=16,
    show_default=True,
    help="Other zones that this node asks in one round, alike on all nodes.",
)
@click.option(
    "--probes-per-second",
    metavar="NUMBER",
    type=click.FloatRange(min=0.001),
    default=5.0,
    show_default=True,
    help="Probes that are begun, at most.",
)
@click.option(
    "--bytes-per-second",
    metavar="NUMBER",
    type=click.FloatRange(min=1000),
    default=1_000_000.0,
    show_default=True,
    help="What they and iperf3 send and receive, at most.",
)
@click.option(
    "--connections",
    metavar="NUMBER",
    type=_COUNT,
    default=32,
    show_default=True,
    help="Peers that are answered at the same time.",
)
@click.option(
    "--advertise/--no-advertise",
    default=None,
    help="Write network.aware.com/bandwidth into the node's status.  [default: unless --peers is given]",
)
@click.option(
    "--interface", metavar="NAME", help="Whose speed is advertised.  [default: the default route's]"
)
@click.option("--bandwidth", metavar="QUANTITY", help="What is advertised instead, in bits/s, such as 10G.")
@click.option(
    "--delay",
    "delays",
    metavar="ZONE=MS",
    multiple=True,
    help="For trials: peers in this zone seem to answer so many milliseconds later. May be repeated.",
)
@click.option(
    "--delays",
    "delays_path",
    metavar="FILE",
    type=_FILE,
    help="For trials: delays as a YAML file maps zones to them, read again with every round.",
)
@serves
@logs
def command(*, say: "Say", **options: object) -> None:
    """Measure latencies to the other nodes of a cluster, until SIGTERM or Ctrl-C.

    Runs on every node. Asks a few peers each round, so that all pairs of zones are covered by about as many
    probes as there are nodes, and tells on /metrics what came of it. Peers must show the same token, or a
    certificate of the same authority. Advertises this node's bandwidth as the resource
    network.aware.com/bandwidth, if the speed of its interface is known.

    \b
    Example:
      closeby agent --peers peers.yaml --token-file token --metrics-address :9472
    """
    import msgspec

    from closeby.cli.operating.agent_settings import Options, checked
    from closeby.cli.operating.agent_work import run

    given = msgspec.convert(options, Options)
    run(checked(given, say), say)
