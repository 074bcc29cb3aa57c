"""The report of a comparison as data, field by field as tools may rely on it (kind ComparisonReport)."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from closeby.lab.comparing.figures import CONFIDENCE, ComparedFigure, paired
from closeby.lab.comparing.running import ComparedRun
from closeby.objects.labels import API_VERSION
from closeby.objects.words import plural
from closeby.quality.model import DEFAULT_MODEL, Model


class ComparedWorkload(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was run. For a trace ``load`` is null, and there are no seeds."""

    name: str
    #: Of one seed, without those that run already when the clock begins.
    jobs: int
    load: float | None
    seeds: tuple[int, ...]
    #: Whether the workload begins with the jobs that such a cluster would be running.
    standing: bool


class ComparedCluster(Struct, frozen=True, kw_only=True):
    """What it was run on; ``gpus`` are those that jobs may use, and so are ``cores``."""

    name: str
    nodes: int
    gpus: int
    #: Only there for applications, which ask for no GPUs.
    cores: float | UnsetType = UNSET


class PolicyFigure(Struct, frozen=True, kw_only=True, rename="camel"):
    """One figure of one policy; null where nothing tells."""

    policy: str
    #: By seed, in their order.
    values: tuple[float | None, ...]
    mean: float | None
    #: Seeds for which the figure is known, and those for which the reference's is too.
    seeds: int
    paired_seeds: int
    #: Mean of the paired differences from the reference, and their confidence interval.
    difference: float | None
    low: float | None
    high: float | None
    #: Whether the interval excludes 0, and whether the policy is then better than the reference.
    differs: bool
    better: bool | None


class FigureEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One figure for all policies, in their order."""

    name: str
    title: str
    section: str
    #: ``seconds``, ``share`` (of 1), ``ratio`` or ``number``.
    unit: str
    more_is_better: bool
    policies: tuple[PolicyFigure, ...]


class UnstartedEntry(Struct, frozen=True):
    """Jobs of a policy that never started, over all seeds."""

    policy: str
    jobs: int


class ComparisonReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that is reported of a comparison."""

    api_version: str = API_VERSION
    kind: str = "ComparisonReport"
    workload: ComparedWorkload
    cluster: ComparedCluster
    #: The policy that the others are compared with.
    reference: str
    policies: tuple[str, ...]
    confidence: float = CONFIDENCE
    method: str = "paired t"
    figures: tuple[FigureEntry, ...]
    #: The constants of what is modelled; not there for applications, of which nothing is.
    model: Model | UnsetType = UNSET
    unstarted: tuple[UnstartedEntry, ...] = ()
    notices: tuple[str, ...] = ()


def comparison_report(
    results: Sequence[ComparedRun],
    policies: tuple[str, ...],
    workload: ComparedWorkload,
    cluster: ComparedCluster,
    notices: tuple[str, ...] = (),
) -> ComparisonReport:
    """The report of all runs of an experiment; the first policy is the reference."""
    of_policy = {name: [result for result in results if result.policy == name] for name in policies}
    figures = tuple(figure for figure, _ in results[0].figures)
    too_large = sum(result.impossible for result in of_policy[policies[0]])
    if too_large:
        count = (
            f"{plural(too_large, 'job')} of all seeds"
            if len(workload.seeds) > 1
            else plural(too_large, "job")
        )
        notices = (*notices, f"too large for this cluster, and in no figure: {count}")
    lost = {name: sum(result.unstarted for result in runs) for name, runs in of_policy.items()}
    return ComparisonReport(
        workload=workload,
        cluster=cluster,
        reference=policies[0],
        policies=policies,
        figures=tuple(_figure(index, figure, of_policy) for index, figure in enumerate(figures)),
        model=DEFAULT_MODEL if cluster.cores is UNSET else UNSET,
        unstarted=tuple(UnstartedEntry(name, jobs) for name, jobs in lost.items() if jobs),
        notices=notices,
    )


def _figure(index: int, figure: ComparedFigure, of_policy: dict[str, list[ComparedRun]]) -> FigureEntry:
    values = {name: tuple(run.figures[index][1] for run in runs) for name, runs in of_policy.items()}
    reference = next(iter(values.values()))
    return FigureEntry(
        name=figure.name,
        title=figure.title,
        section=figure.section,
        unit=figure.unit,
        more_is_better=figure.more_is_better,
        policies=tuple(_policy(name, own, reference, figure) for name, own in values.items()),
    )


def _policy(
    name: str, values: tuple[float | None, ...], reference: tuple[float | None, ...], figure: ComparedFigure
) -> PolicyFigure:
    found = paired(values, reference)
    better = found.difference is not None and (found.difference > 0) is figure.more_is_better
    return PolicyFigure(
        policy=name,
        values=values,
        mean=found.mean,
        seeds=found.known,
        paired_seeds=found.seeds,
        difference=found.difference,
        low=found.low,
        high=found.high,
        differs=found.differs,
        better=better if found.differs else None,
    )
