"""The runs that `closeby compare` asks for."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from msgspec import UNSET, Struct
from msgspec.structs import replace

from closeby.cli.options import Sources
from closeby.cli.reading.inputs import Unusable
from closeby.cli.simulating.given import policy_of, progress_of, read_given
from closeby.cli.simulating.over_time import COMPARED_APPLICATIONS, COMPARED_JOBS, OverTime
from closeby.errors import UnrunnableError
from closeby.lab.comparing.running import Experiment, run_all
from closeby.lab.documents.comparison import (
    ComparedCluster,
    ComparedWorkload,
    ComparisonReport,
    comparison_report,
)
from closeby.lab.replay.driver import Policy
from closeby.lab.replay.given import asks_for_cores
from closeby.lab.replay.history import History
from closeby.lab.workloads.jobs import Jobs
from closeby.plugins.configurations import FOR_GANGS_ONLY, NAMED


class Wanted(Struct, frozen=True, kw_only=True, eq=False):
    """What is to be run."""

    configs: tuple[str, ...]
    sources: Sources
    over_time: OverTime
    #: Seeds 1, 2, ... up to this one; there are none of a trace.
    seeds: int
    #: Runs beside each other; None: one a core.
    processes: int | None
    #: Whether there will be pictures.
    with_histories: bool


class Compared(Struct, frozen=True, kw_only=True, eq=False):
    """What came of it; the histories by policy and seed only where they are wanted."""

    report: ComparisonReport
    histories: Mapping[str, Sequence[History]]


def compare(wanted: Wanted) -> Compared:
    """Run every configuration on the same jobs.

    Raises:
        Unusable: something of it can't be used.
    """
    over_time = wanted.over_time
    over_time.check()
    applications = asks_for_cores(over_time.workload)
    policies = _policies(wanted.configs)
    given = read_given(wanted.sources, over_time, policies, (COMPARED_JOBS, COMPARED_APPLICATIONS))
    load = None if isinstance(given.jobs, Jobs) else given.jobs
    experiment = Experiment(
        policies=given.policies,
        seeds=(None,) if load is None else tuple(range(1, wanted.seeds + 1)),
        source=given.jobs,
        cluster=given.cluster,
        wishes=given.wishes,
        checkpoints=over_time.checkpoints,
        failures=over_time.failure_rate,
        deadlines=over_time.deadlines,
        with_histories=wanted.with_histories,
    )
    try:
        with progress_of("runs", len(experiment.seeds) * len(policies)) as progress:
            results = run_all(experiment, processes=wanted.processes, progress=progress)
    except UnrunnableError as error:
        raise Unusable(str(error)) from error
    report = comparison_report(
        results,
        tuple(policy.name for policy in policies),
        ComparedWorkload(
            name=given.workload,
            jobs=len(given.jobs) if isinstance(given.jobs, Jobs) else given.jobs.jobs,
            load=None if load is None else load.load,
            seeds=tuple(seed for seed in experiment.seeds if seed is not None),
            standing=load is not None and load.options.standing,
        ),
        ComparedCluster(
            name=given.cluster.name,
            nodes=len(given.cluster.nodes),
            gpus=int(given.room.free.sum()),
            cores=given.cores if applications else UNSET,
        ),
        (*given.notices, *_equal(policies), *(_silent(policies) if applications else ())),
    )
    histories: dict[str, list[History]] = {policy.name: [] for policy in policies}
    for result in results:
        if result.history is not None:
            histories[result.policy].append(result.history)
    return Compared(report=report, histories=histories)


def _policies(configs: Sequence[str]) -> tuple[Policy, ...]:
    """The configurations by the names of their files, or by their whole paths where those are equal."""
    if len(configs) < 2:
        raise click.UsageError("a comparison takes at least two configurations: give --config again")
    places = [str(Path(one).resolve()) for one in configs]
    twice = next((one for index, one in enumerate(configs) if places[index] in places[:index]), None)
    if twice is not None:
        raise click.UsageError(f"--config {twice} is given twice")
    short = [Path(config).stem for config in configs]
    return tuple(
        policy_of(config, name if short.count(name) == 1 else config)
        for name, config in zip(short, configs, strict=True)
    )


def _equal(policies: Sequence[Policy]) -> Iterator[str]:
    """Says which policies are one configuration by two names."""
    plain = [replace(policy.configuration, source="", notices=()) for policy in policies]
    for index, policy in enumerate(policies):
        if plain[index] in plain[:index]:
            other = policies[plain.index(plain[index])].name
            yield f"{other} and {policy.name} are the same configuration: their figures are equal"


def _silent(policies: Sequence[Policy]) -> Iterator[str]:
    """Says which policies are no different from each other where nothing is a gang."""
    names = [policy.name for policy in policies if policy.configuration in map(NAMED.get, FOR_GANGS_ONLY)]
    if names:
        are = "is a baseline" if len(names) == 1 else "are baselines"
        yield f"{', '.join(names)} {are} for gangs: pods of applications go to the fullest node"
