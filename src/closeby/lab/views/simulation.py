"""The report of a run over time on a terminal: what ran on what, who waited how long, and where jobs were."""

from collections.abc import Iterator, Sequence
from math import ceil, inf

from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from closeby.lab.documents.simulation import (
    ApplicationsEntry,
    FailuresEntry,
    RefusalEntry,
    SamplesEntry,
    SimulationReport,
)
from closeby.lab.views.measures import MODELLED, PLACES, SEGMENTS, USE, by_layer, by_level, of_run
from closeby.objects.words import plural, plural_noun, time_text
from closeby.quality.delays import PreemptionMeasures, SizeUnit
from closeby.quality.moments import Window
from closeby.quality.summary import Measures
from closeby.report.views.layout import Indented, plain_table, section
from closeby.report.views.quality import constants

#: Reasons that a table lists.
_REASONS = 5
#: Heights of the queue and of use over time.
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 64
#: Room for the name at the left of a line of bars.
_NAME = 10


def simulation_views(report: SimulationReport, *, quality: bool = False) -> Iterator[RenderableType]:
    """All sections that have something to say.

    ``quality`` adds every measure with its definition, and the constants of what is modelled.
    """
    measures = report.measures
    yield _what_ran(report)
    yield _what_came_of_it(report)
    yield section(
        "Waiting, by size of job", Group(_delays(report), *(_waiting_words(report) if quality else ()))
    )
    if isinstance(measures.preemption, PreemptionMeasures):
        yield section("Waiting and evictions, by priority", _by_priority(report, measures.preemption))
    if report.cluster.gpus and measures.size_unit is SizeUnit.GPU:
        yield section("Use of the GPUs", _use(report, quality=quality))
    if isinstance(report.failures, FailuresEntry):
        yield section("Nodes out of order", _failures(report.failures))
    if isinstance(measures.segments, tuple):
        yield section("Segments of jobs of several pods", by_layer(measures.segments, SEGMENTS))
    if isinstance(report.applications, ApplicationsEntry):
        yield section("How close the pods of applications were", _applications(report.applications))
    elif any(level.span is not None for level in measures.levels):
        if quality:
            tables = (by_level(measures.levels), Text(), of_run(measures, PLACES))
            yield section("Where jobs ran", Group(*tables))
            modelled = (of_run(measures, MODELLED), Text(), constants(measures.model))
            yield section("What that costs: modelled, not measured", Group(*modelled))
        else:
            yield section("Where jobs ran", _places(measures))
    if report.reservations:
        yield section("Kept free for jobs that had waited long", _reservations(report))
    if report.refusals:
        yield section("Never started", Group(*_never(report.refusals)))
    for notice in report.notices:
        yield Text(f"\nnote: {notice}", style="dim")


def _what_ran(report: SimulationReport) -> Text:
    workload, cluster, policy = report.workload, report.cluster, report.policy
    room = plural(cluster.gpus, "GPU") if cluster.gpus else f"{cluster.cores:,.0f} cores"
    text = Text.assemble(
        f"{plural(workload.jobs, 'job')} of ",
        (workload.name, "bold"),
        f" on {cluster.name}: {plural(cluster.nodes, 'node')} with {room}",
    )
    above = [plural(level.domains, level.name) for level in reversed(cluster.levels[:-1])]
    if above:
        text.append(f" in {', '.join(above)}")
    if cluster.held_gpus:
        text.append(f" (and {cluster.held_gpus:,} that other pods hold)")
    details = []
    if workload.standing:
        details.append(f"{workload.standing:,} of the jobs run at the start")
    if workload.load is not None:
        details.append(f"load {workload.load:g}")
    if workload.seed is not None:
        details.append(f"seed {workload.seed}")
    details.append(f"configuration {policy.name}")
    asked = [f"{what} {level}" for what in ("required", "preferred") if (level := getattr(policy, what))]
    segments = policy.segments if isinstance(policy.segments, tuple) else ()
    asked += [f"segments of {one.size:,} in one {one.level}" for one in segments]
    if asked:
        details.append(f"jobs of several pods: {' and '.join(asked)}")
    return text.append(f"\n{', '.join(details)}", style="dim")


def _what_came_of_it(report: SimulationReport) -> Text:
    summary, required = report.summary, report.policy.required
    done = summary.ended == summary.jobs
    text = Text()
    text.append(
        f"Ended {summary.ended:,} of {plural(summary.jobs, 'job')}",
        style=f"bold {'green' if done else 'yellow'}",
    )
    text.append(f" in {time_text(summary.until)} of virtual time")
    rest = (
        (summary.running, "still running"),
        (summary.waiting, "waiting"),
        (summary.impossible, f"too large for {f'any {required} of ' if required else ''}the cluster"),
        (summary.to_come, "not submitted yet"),
    )
    parts = [f"{count:,} {what}" for count, what in rest if count]
    return text.append(f"; {', '.join(parts)}." if parts else ".")


def _delays(report: SimulationReport) -> Table:
    measures = report.measures
    times = ("mean", "p50", "p95", "p99")
    compared = any(delay.topology is not None for delay in measures.delays)
    numbers = ("jobs", "not started", *times, *(("mean for topology",) if compared else ()))
    table = plain_table(plural_noun(measures.size_unit), *numbers, right=numbers)
    for delay in measures.delays:
        if delay.jobs:
            values = (time_text(time or 0.0) for time in (delay.mean, delay.p50, delay.p95, delay.p99))
            caused = (_signed(delay.topology or 0.0),) if compared else ()
            table.add_row(delay.size, f"{delay.jobs:,}", f"{delay.unstarted or ''}", *values, *caused)
    return table


def _waiting_words(report: SimulationReport) -> Iterator[Text]:
    note = "From submission to start; a job that never started counts with what it had waited in the end."
    if any(delay.topology is not None for delay in report.measures.delays):
        note += " For topology: more than in the same run in which nothing is required of it."
    yield Text(note, style="dim")


def _by_priority(report: SimulationReport, found: PreemptionMeasures) -> RenderableType:
    columns = ("jobs", "mean", "p50", "p99", "evictions", "lost")
    table = plain_table("priority", *columns, right=columns)
    classes = report.workload.priorities
    names = {one.priority: one.name for one in classes} if isinstance(classes, tuple) else {}
    for one in found.priorities:
        title = f"{names[one.priority]} ({one.priority})" if one.priority in names else f"{one.priority}"
        waits = ("–" if value is None else time_text(value) for value in (one.mean, one.p50, one.p99))
        lost = f"{one.lost_gpu_hours:,.1f} GPU-h"
        table.add_row(title, f"{one.jobs:,}", *waits, f"{one.evictions:,}", lost)
    said = "no job was evicted"
    if found.evictions:
        most = "once" if found.most_evictions == 1 else f"{found.most_evictions} times"
        said = (
            f"{plural(found.evictions, 'eviction')} of {plural(found.evicted_jobs, 'job')} "
            f"({found.gang_evictions:,} of gangs), one job {most} "
            f"at most; {found.lost_gpu_hours:,.1f} GPU-hours lost since checkpoints and at restarts"
        )
    return Group(table, Text(said, style="dim"))


def _signed(seconds: float) -> str:
    return f"-{time_text(-seconds)}" if seconds < 0 else time_text(seconds)


def _use(report: SimulationReport, *, quality: bool) -> RenderableType:
    measures, samples = report.measures, report.samples
    lines: list[RenderableType] = [
        Text(
            f"utilisation {_percent(measures.utilisation)}, goodput {_percent(measures.goodput)}, "
            f"over the {time_text(measures.window.length)} in which jobs came"
        )
    ]
    if quality:
        lines = [of_run(measures, USE), Text()]
    shown = Window(measures.window.begin, max(measures.window.end, _queue_empties(report)))
    if shown.length > 0:
        use = [busy / report.cluster.gpus for busy in samples.busy_gpus]
        most = max(samples.queued_gpus)
        lines.append(_Curve(name="in use", window=shown, times=samples.times, shares=use))
        if most:
            queue = [queued / most for queued in samples.queued_gpus]
            lines.append(_Curve(name="queue", window=shown, times=samples.times, shares=queue))
            lines.append(_aside(f"at its largest {_deepest(samples)} for {plural(most, 'GPU')}"))
        if shown != measures.window:
            lines.append(_aside(f"over the {time_text(shown.length)} in which jobs came or waited"))
    return Group(*lines)


def _failures(found: FailuresEntry) -> RenderableType:
    return Text(
        f"{found.nodes:,} of each {found.level} at any time, for {time_text(found.repair)} on average: "
        f"{plural(found.failed, 'node')} failed and ended {plural(found.evictions, 'run')} of jobs, with "
        f"{found.lost_gpu_hours:,.1f} GPU-hours lost since checkpoints"
    )


def _aside(text: str) -> RenderableType:
    """A remark below the bars of a line."""
    return Indented(Text(text, style="dim"), (0, 0, 0, _NAME))


def _queue_empties(report: SimulationReport) -> float:
    """When the last job leaves the queue: the end of the run, if one never does; 0 if none waits."""
    samples = report.samples
    ends = (*samples.times[1:], report.summary.until)
    waits = [end for end, queued in zip(ends, samples.queued_jobs, strict=True) if queued]
    return max(waits, default=0.0)


def _deepest(samples: SamplesEntry) -> str:
    """Who waited when the most GPUs were asked for."""
    jobs = samples.queued_jobs[samples.queued_gpus.index(max(samples.queued_gpus))]
    return f"{plural(jobs, 'job')} that {'asks' if jobs == 1 else 'ask'}"


class _Curve(Struct, frozen=True, kw_only=True):
    """A line of bars, as long as there is room: the greatest value in each of equal parts of the window."""

    name: str
    window: Window
    times: Sequence[float]
    shares: Sequence[float]

    def line(self, count: int) -> Text:
        """The line with so many bars."""
        window, times = self.window, self.times
        heights = [0.0] * count
        for index, (time, share) in enumerate(zip(times, self.shares, strict=True)):
            until = times[index + 1] if index + 1 < len(times) else inf
            first = max((time - window.begin) / window.length * count, 0.0)
            last = min((until - window.begin) / window.length * count, float(count))
            for column in range(int(first), ceil(last)):
                heights[column] = max(heights[column], share)
        top = len(_BARS) - 1
        bars = "".join(_BARS[min(top, max(round(share * top), 1 if share > 0 else 0))] for share in heights)
        return Text.assemble((f"{self.name:{_NAME}}", "dim"), (bars, "cyan"))

    def __str__(self) -> str:
        return self.line(_WIDTH).plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.line(max(min(_WIDTH, options.max_width - _NAME), 1))


def _places(measures: Measures) -> RenderableType:
    columns = ("span", "excess span", "greatest", "of large jobs", "group spread", "largest gang")
    table = plain_table("level", *columns, right=columns)
    for level in measures.levels:
        values = (
            *(level.span, level.excess_span, level.greatest_excess_span, level.weighted_excess_span),
            level.group_spread,
        )
        numbers = ["–" if value is None else f"{value:.2f}" for value in values]
        largest = "–" if level.largest_gang is None else f"{100 * level.largest_gang:.0f} % of free"
        table.add_row(level.level, *numbers, largest)
    note = Text(
        "Means over jobs. Span: domains that a job touches; excess: over the fewest that could hold it, 1 is "
        "ideal; of large jobs: those larger than a node, weighted by GPU-time; group spread: domains that a "
        "data- or pipeline-parallel group of theirs touches; largest gang: what one domain could still hold.",
        style="dim",
    )
    return Group(table, note, *_modelled(measures))


def _modelled(measures: Measures) -> Iterator[RenderableType]:
    if measures.all_reduce is None or measures.contended_all_reduce is None:
        return
    yield Text(
        f"Modelled, not measured: an all-reduce of {measures.model.message_bytes / (1 << 20):,.0f} MiB takes "
        f"{measures.all_reduce * 1000:,.1f} ms on average while all nodes send, "
        f"{measures.contended_all_reduce * 1000:,.1f} ms among the flows that were there; jobs take "
        f"{measures.job_slowdown or 1.0:.3f} times as long as on ideal places, weighted by GPU-time. "
        "--quality adds all measures, and the constants of the model."
    )


def _applications(found: ApplicationsEntry) -> RenderableType:
    """Over the pairs of pods that talk."""
    shares = (
        ("on one node", found.same_node),
        ("in one zone", found.same_zone),
        ("in one region", found.same_region),
    )
    shown = [f"{100 * value:.0f} % {where}" for where, value in shares if value is not None]
    cost = "unknown" if found.cost_per_pair is None else f"{found.cost_per_pair:.2f} on average"
    return Text(
        f"{plural(found.placed, 'application')} with {plural(found.pairs, 'pair')} of dependent pods: "
        f"{', '.join((*shown, f'cost {cost}'))}"
    )


def _reservations(report: SimulationReport) -> RenderableType:
    kept = report.reservations
    seconds = sum(one.end - one.begin for one in kept)
    node_seconds = sum(one.nodes * (one.end - one.begin) for one in kept)
    mean = node_seconds / seconds if seconds else 0.0
    jobs = plural(len({one.job for one in kept}), "job")
    return Text(f"{jobs} kept {mean:,.0f} nodes on average from later ones, for {time_text(seconds)} in all")


def _never(refusals: Sequence[RefusalEntry]) -> Iterator[RenderableType]:
    for refusal in refusals[:_REASONS]:
        count, gpus = plural(refusal.jobs, "job"), refusal.largest_gpus
        largest = plural(gpus, SizeUnit.GPU) if gpus else plural(refusal.largest_pods, SizeUnit.POD)
        size = f"of up to {largest}" if refusal.jobs > 1 else f"of {largest}"
        example = f"such as {refusal.example}" if refusal.jobs > 1 else refusal.example
        yield Text.assemble(("✗ ", "red"), (f"{count} {size}", "bold"), (f"  {example}", "dim"))
        yield Indented(Text(refusal.message), (0, 0, 0, 4))
    left = sum(refusal.jobs for refusal in refusals[_REASONS:])
    if left:
        yield Text(f"and {plural(left, 'job')} for other reasons (-o json lists them)", style="dim")


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"
