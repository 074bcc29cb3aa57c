"""The options of `closeby simulate` and `closeby compare` for runs over time."""

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from closeby.cli.names import FILE_NAME
from closeby.cli.options import Command, Seconds, with_options
from closeby.objects.bounds import quoted, whole_number

if TYPE_CHECKING:
    from closeby.lab.replay.event_queue import Checkpoints
    from closeby.lab.replay.failures import FailureRate

DEFAULT_CLUSTER = "lingjun"
#: Where applications run, which need no GPUs.
APPLICATIONS_CLUSTER = "zones"
JOBS = 1_000
#: Of each workload that is compared. An application takes up to a second to be placed well, a thousand times
#: what a gang takes.
COMPARED_JOBS = 2_000
COMPARED_APPLICATIONS = 100
LOAD = 0.85
SEED = 1

STANDARD_INPUT = "-"


class OverTime(NamedTuple):
    """What the options say; None where they say nothing."""

    workload: str | None = None
    trace: str | None = None
    jobs: int | None = None
    load: float | None = None
    seed: int | None = None
    from_empty: bool = False
    write_trace: str | None = None
    cluster: str | None = None
    resource: str | None = None
    topology: str | None = None
    required: str | None = None
    preferred: str | None = None
    until: float | None = None
    full: bool = False
    priorities: str | None = None
    checkpoint_every: float | None = None
    restart_time: float | None = None
    segment: tuple[tuple[str, int], ...] = ()
    failures: tuple[str, int, float] | None = None
    deadlines: bool = False

    @property
    def wanted(self) -> bool:
        """Whether a run over time was asked for."""
        return self.workload is not None or self.trace is not None

    @property
    def checkpoints(self) -> "Checkpoints":
        """What jobs that are evicted keep."""
        from closeby.lab.replay.event_queue import Checkpoints

        usual = Checkpoints()
        return Checkpoints(
            every=usual.every if self.checkpoint_every is None else self.checkpoint_every,
            restart=usual.restart if self.restart_time is None else self.restart_time,
        )

    @property
    def failure_rate(self) -> "FailureRate | None":
        """How many nodes are out of order at any time."""
        from closeby.lab.replay.failures import FailureRate

        if self.failures is None:
            return None
        level, nodes, repair = self.failures
        return FailureRate(level=level, nodes=nodes, repair=repair)

    def check(self, **others: object) -> None:
        """Says which options contradict each other; ``others`` belong to a made-up workload too.

        Raises:
            UsageError: some do.
        """
        if (self.workload is None) == (self.trace is None):
            raise click.UsageError("--workload makes jobs, --trace reads them: give one of them")
        if self.trace is None:
            return
        of_workload = {"jobs": self.jobs, "load": self.load, "seed": self.seed, **others}
        of_workload["priorities"] = self.priorities
        of_workload["from_empty"] = self.from_empty or None
        for name, given in of_workload.items():
            if given is not None:
                option = name.replace("_", "-")
                raise click.UsageError(f"--{option} belongs to --workload: a trace says what its jobs are")


class PodsOfLevel(click.ParamType[tuple[str, int]]):
    """A level and a number, like ``leaf=16``."""

    name = "level"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        level, _, number = str(value).rpartition("=")
        pods = whole_number(number) or 0
        if not level or not 0 < pods < _GREATEST:
            self.fail(
                f"{quoted(value)} is not a level and how many pods share one; write like leaf=16", param, ctx
            )
        return level, pods


class FailuresOfLevel(click.ParamType[tuple[str, int, float]]):
    """A level, a number of nodes and a span of time, like ``leaf=2:7d``."""

    name = "failures"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, float]:
        level, _, rest = str(value).rpartition("=")
        number, colon, time = rest.partition(":")
        nodes = whole_number(number) or 0
        if not level or not 0 < nodes < _GREATEST:
            self.fail(
                f"{quoted(value)} is not a level and how many nodes of each of its domains are out of order; "
                "write like leaf=2, or leaf=2:7d with how long they are",
                param,
                ctx,
            )
        return level, nodes, Seconds().convert(time, param, ctx) if colon else REPAIR


#: No cluster has as many pods or nodes.
_GREATEST = 10**9
#: Seconds for which a node that failed is out of order on average, if nothing is said.
REPAIR = 7 * 86_400.0


PRIORITY_OPTIONS = (
    click.option(
        "--priorities",
        metavar="CLASSES",
        help="Give the workload's jobs classes of priority: borg, spot-gpu or acme, as published, or name, "
        "priority and share of the GPU time of each, like high=1000:10%,low=0.  [default: one priority]",
    ),
    click.option(
        "--checkpoint-every",
        type=Seconds(),
        help="How much work lies between two checkpoints of a job. A job that is evicted goes on from the "
        "last.  [default: 30m]",
    ),
    click.option(
        "--restart-time",
        type=Seconds(),
        help="What a job takes to get back to its checkpoint after an eviction.  [default: 0]",
    ),
)


class LoadRange(click.FloatRange):
    """A load above 0; click's own range lets ``nan`` pass, which is in no range."""

    def __init__(self) -> None:
        super().__init__(0, 100, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        load = super().convert(value, param, ctx)
        if math.isnan(load):
            self.fail(f"{value!r} is not a number", param, ctx)
        return load


WORKLOAD_OPTION = click.option(
    "--workload",
    metavar="NAME",
    help="Simulate the jobs of a synthetic workload, such as seren, philly or microservices; an unknown name "
    "lists all of them.",
)
TRACE_OPTION = click.option(
    "--trace",
    metavar="FILE",
    type=FILE_NAME,
    help="Simulate the jobs of a CSV file, or - for standard input.",
)
LOAD_OPTION = click.option(
    "--load",
    type=LoadRange(),
    metavar="NUMBER",
    help="Offered load: requested GPU time divided by available GPU time; for applications, core time.  "
    f"[default: {LOAD}]",
)
FROM_EMPTY_OPTION = click.option(
    "--from-empty",
    is_flag=True,
    help="Start with an empty cluster, which takes days to fill up, instead of one with running jobs.",
)
CLUSTER_OPTION = click.option(
    "--cluster",
    metavar="NAME",
    help="The synthetic cluster to run on if -f gives none: lingjun, small, superpod, nvl72, zones or "
    f"racks.  [default: {DEFAULT_CLUSTER}; {APPLICATIONS_CLUSTER} for applications]",
)


def jobs_option(of: str, default: str) -> Callable[[Command], Command]:
    """``--jobs``, of one workload or of each."""
    return click.option(
        "--jobs",
        type=click.IntRange(1, 10_000_000),
        metavar="NUMBER",
        help=f"How many jobs {of} workload has.  [default: {default}]",
    )


def says_where(command: Command) -> Command:
    """The options of whatever runs jobs over time: what they ask for, where, and how close."""
    options = (
        click.option(
            "--resource",
            metavar="NAME",
            help="The device resource that jobs request.  [default: nvidia.com/gpu]",
        ),
        click.option(
            "--topology",
            metavar="NAME",
            help="The topology for measures and for --required and --preferred, if there are several.",
        ),
        click.option(
            "--required",
            metavar="LEVEL",
            help="Place each job of several pods within one domain of this level (label, alias, short "
            "name or its last word), such as leaf, or not at all.",
        ),
        click.option(
            "--preferred",
            metavar="LEVEL",
            help="Place each job of several pods within one domain of this level (label, alias, short "
            "name or its last word) if possible.",
        ),
        click.option(
            "--segment",
            type=PodsOfLevel(),
            multiple=True,
            metavar="LEVEL=PODS",
            help="Place each job of several pods in segments of so many pods, each within one domain of this "
            "level, such as leaf=16; the last may be smaller. May be repeated, coarse to fine.",
        ),
        click.option(
            "--failures",
            type=FailuresOfLevel(),
            metavar="LEVEL=NODES[:TIME]",
            help="Let so many nodes of each domain of this level be out of order at any time, such as "
            "leaf=2:7d: which ones changes at random, each is out for that long on average (7d), and jobs "
            "that run there are evicted.  [default: none]",
        ),
        click.option(
            "--deadlines",
            is_flag=True,
            help="Give the pods of each job a deadline as long as the job takes, so that short jobs may use "
            "nodes that are kept free for a large one.",
        ),
    )
    return with_options(options, command)


def takes_over_time(command: Command) -> Command:
    """Gathers the options that a command has of a run over time; it gets them as ``over_time``."""

    @wraps(command)
    def with_over_time(**options: Any) -> None:
        asked = {name: options.pop(name) for name in OverTime._fields if name in options}
        command(over_time=OverTime(**asked), **options)

    return with_over_time


def runs_over_time(command: Command) -> Command:
    """Adds the options; the command gets them as ``over_time``."""
    jobs = (
        WORKLOAD_OPTION,
        TRACE_OPTION,
        jobs_option("the", f"{JOBS}"),
        click.option(
            "--seed",
            type=click.IntRange(0),
            metavar="NUMBER",
            help=f"Seed of the workload; the same seed gives the same jobs.  [default: {SEED}]",
        ),
        LOAD_OPTION,
        FROM_EMPTY_OPTION,
        click.option(
            "--write-trace",
            metavar="FILE",
            type=FILE_NAME,
            help="Write the jobs to a CSV file that --trace can read.",
        ),
        CLUSTER_OPTION,
    )
    extent = (
        *PRIORITY_OPTIONS,
        click.option(
            "--until",
            type=Seconds(),
            help="Stop after this much virtual time, such as 36h, 2d, or 7200 for seconds.",
        ),
        click.option("--full", is_flag=True, help="Include every job and every sample in JSON and YAML."),
    )
    return with_options(jobs, says_where(with_options(extent, takes_over_time(command))))
