"""Options that several commands share."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, NamedTuple

import click

from closeby.cli.names import CONFIGURATION_NAME, FILE_NAME, OneOf

Command = Callable[..., None]

OUTPUTS = ("table", "json", "yaml")


MANIFESTS_HELP = (
    "A file or folder of manifests (YAML or JSON, also .gz), or - for standard input. May be repeated."
)


POD_GROUPER_HELP = (
    "Hold pods that a workload owns until the pod-grouper (`closeby controllers`) has assigned them to a "
    "gang or ruled one out."
)


class Metrics(NamedTuple):
    """Where a command is to serve its metrics, and to whom."""

    #: None: as the command sees fit.
    address: str | None
    secure: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None


class Sources(NamedTuple):
    """What a command is to read."""

    #: Files, folders, or ``-`` for standard input.
    paths: tuple[str, ...]
    #: A file, or the name of a configuration that comes with closeby.
    config_path: str | None
    keep_going: bool
    #: How to reach the cluster that is read when there are no paths.
    kubeconfig: str | None = None
    context: str | None = None
    #: Whose pending pods are scheduled; None leaves it to the command.
    scheduler_name: str | None = None
    #: Whether a pod-grouper is at work in the cluster that is read; None: as it looks.
    pod_grouper: bool | None = None


def configured(command: Command) -> Command:
    """``--config FILE|NAME``, which the command gets as ``config_path``."""
    return click.option(
        "--config",
        "config_path",
        metavar="FILE|NAME",
        type=CONFIGURATION_NAME,
        help="Scheduler configuration: plugins and their arguments. Either a file or the name of a built-in "
        "configuration, such as kube-scheduler or slurm-tree; a file of that name takes precedence.  "
        "[default: the configuration default]",
    )(command)


def connects(command: Command) -> Command:
    """``--kubeconfig FILE`` and ``--context NAME``."""
    kubeconfig = click.option(
        "--kubeconfig",
        metavar="FILE",
        type=FILE_NAME,
        help="Kubeconfig file.  [default: $KUBECONFIG, else ~/.kube/config, else the service account of this "
        "pod]",
    )
    context = click.option(
        "--context", metavar="NAME", help="Context of the kubeconfig file.  [default: its current context]"
    )
    return kubeconfig(context(command))


class Election(NamedTuple):
    """Whether and how replicas find out which of them leads."""

    wanted: bool
    name: str
    #: None leaves it to the connection.
    namespace: str | None
    #: Of the Lease, in seconds.
    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


#: Options for the times of a Lease, which kube-scheduler has too: name, default and help.
_LEASE_TIMES = (
    ("lease-duration", "15s", "Validity of the Lease after a renewal."),
    ("renew-deadline", "10s", "A leader that can't renew it for so long stands by."),
    ("retry-period", "2s", "Time between two attempts."),
)


class Seconds(click.ParamType[float]):
    """Seconds, or a span of time as Kubernetes writes it, or as reports do: ``3 d 4 h``, ``2 min 5 s``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from closeby.objects.quantities import parse_duration

        if isinstance(value, float):
            return value
        text = "".join(str(value).split()).replace("min", "m")
        days, has_days, rest = text.partition("d")
        if has_days:
            text = rest or "0"
        # A number alone is seconds; in `1h30` it could be either.
        seconds = parse_duration(f"{text}s" if not has_days and _is_number(text) else text)
        if seconds is not None and has_days:
            seconds = seconds + 86_400 * float(days) if _is_number(days) else None
        if seconds is None or seconds == 0:
            self.fail(f"{value!r} is not a span of time; write seconds, or like 36h, 1h30m or 2d", param, ctx)
        return seconds


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def elects(default_name: str) -> Callable[[Command], Command]:
    """``--leader-elect``, the Lease and its times; the command gets them as ``election``."""
    options = [
        click.option(
            "--leader-elect/--no-leader-elect",
            default=True,
            show_default=True,
            help="Of several replicas, only the holder of the Lease writes; the others stand by.",
        ),
        click.option(
            "--lease-name", metavar="NAME", default=default_name, show_default=True, help="Name of the Lease."
        ),
        click.option(
            "--lease-namespace",
            metavar="NAMESPACE",
            help="Namespace of the Lease.  [default: $POD_NAMESPACE, else the context's or the pod's "
            "namespace]",
        ),
        *(
            click.option(
                f"--leader-elect-{name}",
                metavar="TIME",
                type=Seconds(),
                default=default,
                show_default=True,
                help=text,
            )
            for name, default, text in _LEASE_TIMES
        ),
    ]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_election(
            *, leader_elect: bool, lease_name: str, lease_namespace: str | None, **options: Any
        ) -> None:
            times = [options.pop(f"leader_elect_{name.replace('-', '_')}") for name, _, _ in _LEASE_TIMES]
            command(election=Election(leader_elect, lease_name, lease_namespace, *times), **options)

        return with_options(options, with_election)

    return decorate


def serves(command: Command) -> Command:
    """``--metrics-address``, ``--metrics-secure`` and its files; the command gets them as ``metrics``."""

    @click.option(
        "--metrics-address",
        metavar="HOST:PORT",
        help="Address that serves /metrics, /healthz, /livez and /readyz: HOST:PORT, :PORT for all "
        "addresses, or off.  [default: 127.0.0.1:10251, if it is free]",
    )
    @click.option(
        "--metrics-secure",
        is_flag=True,
        help="Serve over TLS, and serve /metrics only to bearer tokens that the API server authorizes.",
    )
    @click.option(
        "--metrics-tls-cert",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Certificate for --metrics-secure (PEM), reloaded when it changes.  [default: a self-signed "
        "one, created at startup]",
    )
    @click.option(
        "--metrics-tls-key",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Private key of that certificate (PEM).",
    )
    @wraps(command)
    def with_metrics(
        *,
        metrics_address: str | None,
        metrics_secure: bool,
        metrics_tls_cert: str | None,
        metrics_tls_key: str | None,
        **options: object,
    ) -> None:
        metrics = Metrics(metrics_address, metrics_secure, metrics_tls_cert, metrics_tls_key)
        command(metrics=metrics, **options)

    return with_metrics


def excludes(command: Command) -> Command:
    """``--exclude-namespace NAME``, repeated; the command gets them as ``excluded_namespaces``."""

    @click.option(
        "--exclude-namespace",
        "excluded",
        metavar="NAME",
        multiple=True,
        default=("kube-system",),
        show_default=True,
        help="Ignore the pods of this namespace. May be repeated; '' excludes no namespace.",
    )
    @wraps(command)
    def with_exclusion(*, excluded: tuple[str, ...], **options: object) -> None:
        command(excluded_namespaces=tuple(filter(None, excluded)), **options)

    return with_exclusion


def gates(command: Command) -> Command:
    """``--mode bind|gate``; the command gets ``gates``, whether it is the latter."""

    @click.option(
        "--mode",
        type=OneOf(("bind", "gate")),
        default="bind",
        show_default=True,
        help="Which pods closeby places. bind: the scheduler binds the pods that name it. gate: it chooses "
        "the nodes of pods with the scheduling gate closeby.dev/placement, and whatever scheduler they name "
        "then binds them.",
    )
    @wraps(command)
    def with_mode(*, mode: str, **options: object) -> None:
        command(gates=mode == "gate", **options)

    return with_mode


def logs(command: Command) -> Command:
    """``--log-format text|json``; the command gets the writer of lines as ``say``."""

    @click.option(
        "--log-format",
        type=OneOf(("text", "json")),
        default="text",
        show_default=True,
        help="Format of the log lines on standard error.",
    )
    @wraps(command)
    def with_log(*, log_format: str, **options: object) -> None:
        from closeby.cli.operating.log_lines import FORMATS, take_over_logging

        write = FORMATS[log_format]
        take_over_logging(write)
        command(say=write, **options)

    return with_log


def manifests_option(help_text: str) -> Callable[[Command], Command]:
    """``-f``, as often as there are files; the command gets them as ``paths``."""
    return click.option(
        "-f",
        "--filename",
        "paths",
        metavar="PATH",
        type=FILE_NAME,
        multiple=True,
        help=help_text,
    )


def may_read_manifests(command: Command) -> Command:
    """Adds ``-f``, ``--config`` and ``--keep-going``; the command gets them as ``sources``.

    ``-f`` may be left out: the command says when it needs it.
    """

    @manifests_option(MANIFESTS_HELP)
    @configured
    @keeps_going
    @wraps(command)
    def with_sources(
        *, paths: tuple[str, ...], config_path: str | None, keep_going: bool, **options: object
    ) -> None:
        command(sources=Sources(paths, config_path, keep_going), **options)

    return with_sources


def reads_cluster_or_manifests(command: Command) -> Command:
    """The same with options about a cluster: without ``-f`` the live one is read."""

    @manifests_option(f"{MANIFESTS_HELP}  [default: the live cluster]")
    @connects
    @configured
    @click.option(
        "--scheduler-name",
        metavar="NAME",
        help="Schedule only pending pods whose spec.schedulerName is NAME.  [default: all in files; in a "
        "cluster the configuration's name, else closeby]",
    )
    @click.option(
        "--pod-grouper/--no-pod-grouper",
        default=None,
        help=f"{POD_GROUPER_HELP} Live cluster only.  [default: on if the pod-grouper has marked any pod of "
        "the scheduler]",
    )
    @keeps_going
    @wraps(command)
    def with_sources(
        *,
        paths: tuple[str, ...],
        kubeconfig: str | None,
        context: str | None,
        config_path: str | None,
        scheduler_name: str | None,
        pod_grouper: bool | None,
        keep_going: bool,
        **options: object,
    ) -> None:
        if paths and (kubeconfig is not None or context is not None):
            raise click.UsageError("-f reads files, --kubeconfig and --context a cluster: give one of them")
        if paths and pod_grouper is not None:
            raise click.UsageError("--pod-grouper is about a cluster: files need none, nothing waits for one")
        sources = Sources(paths, config_path, keep_going, kubeconfig, context, scheduler_name, pod_grouper)
        command(sources=sources, **options)

    return with_sources


def keeps_going(command: Command) -> Command:
    """``--keep-going``, which the command gets as ``keep_going``."""
    return click.option(
        "--keep-going", is_flag=True, help="Skip documents or kinds that can't be read, and report them."
    )(command)


class SchedulerOptions(NamedTuple):
    """Where a command asks the running scheduler what it decided."""

    #: A URL, a namespace, or ``off``; None leaves it to the command.
    where: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False


def asks_scheduler(command: Command) -> Command:
    """``--scheduler`` with its token and TLS; the command gets them as ``scheduler``."""

    @click.option(
        "--scheduler",
        "where",
        metavar="URL|NAMESPACE|off",
        help="Where to ask the running scheduler what it decided: its metrics' URL, or the namespace of its "
        "pods, which are asked through the API server (with the right to get pods/proxy). Live cluster only."
        "  [default: closeby-system]",
    )
    @click.option(
        "--scheduler-token-file",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Bearer token for a scheduler with --metrics-secure, of a user who may get /stories. It "
        "is sent over HTTPS only, or to this machine.",
    )
    @click.option(
        "--scheduler-ca-file",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Certificate authority of the scheduler's URL (PEM).  [default: the system's]",
    )
    @click.option("--scheduler-insecure", is_flag=True, help="Accept any certificate at the scheduler's URL.")
    @wraps(command)
    def with_scheduler(
        *,
        where: str | None,
        scheduler_token_file: str | None,
        scheduler_ca_file: str | None,
        scheduler_insecure: bool,
        **options: object,
    ) -> None:
        asked = SchedulerOptions(where, scheduler_token_file, scheduler_ca_file, scheduler_insecure)
        command(scheduler=asked, **options)

    return with_scheduler


class _Moment(click.ParamType[float]):
    """Seconds since the epoch, of a time as Kubernetes writes it."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
        except ValueError:
            self.fail(f"{value!r} is not a time; write it like 2030-01-31T12:00:00Z, in UTC", param, ctx)


def counts_lost_work(command: Command) -> Command:
    """Add ``--now``, the time of manifests; ``now`` is in seconds since the epoch, or None."""
    option = click.option(
        "--now",
        metavar="TIME",
        type=_Moment(),
        help="The time by which the work of victims counts as lost.  [default: the latest in the manifests]",
    )
    return option(command)


def output_option(command: Command) -> Command:
    """``-o table|json|yaml``."""
    return _output_option(OUTPUTS, "Output format.")(command)


def output_or_csv_option(command: Command) -> Command:
    """``-o table|json|yaml|csv``."""
    return _output_option((*OUTPUTS, "csv"), "Output format. csv has a line for each gang, or job.")(command)


def _output_option(forms: Sequence[str], sentence: str) -> Callable[[Command], Command]:
    return click.option(
        "-o", "--output", type=OneOf(forms), default="table", show_default=True, help=sentence
    )


def with_options(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    """A command with these options, in the order in which its help lists them."""
    for option in reversed(options):
        command = option(command)
    return command
