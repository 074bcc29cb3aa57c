"""The report of a comparison as data, field by field as tools may rely on it (kind ComparisonReport)."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from closeby.lab.comparing.figures import CONFIDENCE, ComparedFigure, paired
from closeby.lab.comparing.running import ComparedRun
from closeby.objects.labels import API_VERSION
from closeby.objects.words import plural, time_text
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


class VerdictEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which policy is best by one measure, and whether that is more than chance."""

    #: The name of the figure.
    figure: str
    #: The policy with the best mean; null where several have the same.
    best: str | None
    #: The next best one, which the difference is from; null with ``best``.
    runner_up: str | None
    #: Mean of the paired differences, best less runner-up, and their confidence interval.
    difference: float | None
    low: float | None
    high: float | None
    #: The difference in parts of the runner-up's mean; null where that is 0.
    share: float | None
    #: Whether the interval excludes 0; null where one run of each says nothing about chance.
    beyond_chance: bool | None
    #: All of this for people.
    sentence: str


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
    #: Which policy is best, by how long jobs wait and by what their places cost them.
    verdict: tuple[VerdictEntry, ...] = ()
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
    entries = tuple(_figure(index, figure, of_policy) for index, figure in enumerate(figures))
    lost = {name: sum(result.unstarted for result in runs) for name, runs in of_policy.items()}
    return ComparisonReport(
        workload=workload,
        cluster=cluster,
        reference=policies[0],
        policies=policies,
        figures=entries,
        model=DEFAULT_MODEL if cluster.cores is UNSET else UNSET,
        unstarted=tuple(UnstartedEntry(name, jobs) for name, jobs in lost.items() if jobs),
        verdict=_verdicts(entries, lost),
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


#: The measures of which the best policy is named, with what they are called in a sentence: how long jobs
#: wait, and what their places cost them. Of all of them less is better.
_JUDGED: Final = {
    "delay": "mean delay until jobs start",
    "slowdown.job": "modelled slowdown of whole jobs",
    "talkCost": "network cost of an application",
}


def _verdicts(figures: Sequence[FigureEntry], lost: Mapping[str, int]) -> tuple[VerdictEntry, ...]:
    judged = [_verdict(figure, lost) for figure in figures if figure.name in _JUDGED]
    return tuple(one for one in judged if one is not None)


def _verdict(figure: FigureEntry, lost: Mapping[str, int]) -> VerdictEntry | None:
    """None where fewer than two policies have a value."""
    known = [(one.mean, one) for one in figure.policies if one.mean is not None]
    if len(known) < 2:
        return None
    (_, best), (next_mean, second) = sorted(known, key=lambda one: one[0])[:2]
    found = paired(best.values, second.values)
    called = _JUDGED[figure.name]
    if not found.difference:
        same = [one.policy for mean, one in known if mean == best.mean]
        names = "all are" if len(same) == len(figure.policies) else f"{_and(same)} are best, and"
        return VerdictEntry(
            figure=figure.name,
            best=None,
            runner_up=None,
            difference=found.difference,
            low=found.low,
            high=found.high,
            share=None,
            beyond_chance=None if found.low is None else False,
            sentence=f"By the {called} {names} alike: {_value(best.mean, figure.unit)}.",
        )
    share = found.difference / abs(next_mean) if next_mean else None
    beyond = None if found.low is None else found.differs
    ours, theirs = (_value(mean, figure.unit) for mean in (best.mean, next_mean))
    if beyond is False:
        both = f"{best.policy} ({ours}) and {second.policy} ({theirs})"
        seeds = f"by what varies between the {found.seeds} seeds"
        said = f"By the {called} {both} do not differ beyond chance, {seeds}"
    else:
        much = "" if share is None else f", {100 * abs(share):.1f} % less than {second.policy} ({theirs})"
        said = f"{best.policy} has the least {called}: {ours}{much}; {_chance(found.seeds)}"
    return VerdictEntry(
        figure=figure.name,
        best=best.policy,
        runner_up=second.policy,
        difference=found.difference,
        low=found.low,
        high=found.high,
        share=share,
        beyond_chance=beyond,
        sentence=f"{said}{_unstarted(best.policy, lost)}.",
    )


def _unstarted(policy: str, lost: Mapping[str, int]) -> str:
    return f"; {plural(lost[policy], 'job')} of {policy} never started" if lost[policy] else ""


def _chance(seeds: int) -> str:
    if seeds < 2:
        return "one run of each says nothing about chance"
    return f"beyond chance, by what varies between the {seeds} seeds ({100 * CONFIDENCE:g} % confidence)"


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _value(mean: float | None, unit: str) -> str:
    if mean is None:
        return "unknown"
    if unit == "seconds":
        return time_text(mean)
    return f"{100 * mean:.2f} %" if unit == "share" else f"{mean:,.3f}"
