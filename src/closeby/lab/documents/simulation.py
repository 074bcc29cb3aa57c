"""The report of a run over time as data, field by field as tools may rely on it (kind SimulationReport)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from closeby.lab.replay.failures import FailureRate
from closeby.lab.replay.history import History
from closeby.lab.workloads.jobs import Jobs
from closeby.objects.labels import API_VERSION
from closeby.quality.placements import level_names
from closeby.quality.preemption import PreemptionMeasures
from closeby.quality.summary import Measures
from closeby.report.documents.tables import CsvTable, domain_cell, span_cell
from closeby.topology.tree import ROOT, Tree
from closeby.whatif.records import DomainPath

#: Samples of a report that does not hold all.
SAMPLES = 200


class ClassEntry(Struct, frozen=True):
    """A class of priority, and how many jobs are in it."""

    name: str
    priority: int
    jobs: int


class WorkloadEntry(Struct, frozen=True, kw_only=True):
    """What was run. ``name`` is a workload's or a trace's; ``load`` and ``seed`` are null for a trace."""

    name: str
    jobs: int
    #: Jobs among them that run from the beginning.
    standing: int
    load: float | None
    seed: int | None
    #: Only there when jobs were given classes of priority; the highest first.
    priorities: tuple[ClassEntry, ...] | UnsetType = UNSET


class RunLevelEntry(Struct, frozen=True):
    """One level of the topology, and how many domains it has."""

    name: str
    domains: int


class ClusterEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What it was run on. ``gpus`` and ``cores`` are what jobs may use; other pods hold ``held_gpus``."""

    name: str
    nodes: int
    gpus: int
    held_gpus: int
    cores: float
    topology: str | None
    levels: tuple[RunLevelEntry, ...]


class SegmentsEntry(Struct, frozen=True):
    """Segments that jobs of several pods asked for: so many pods in one domain of the level."""

    level: str
    size: int


class PolicyEntry(Struct, frozen=True, kw_only=True):
    """The configuration, and what jobs of several pods asked of the topology."""

    name: str
    required: str | None
    preferred: str | None
    #: Only there where they asked for segments; coarse to fine.
    segments: tuple[SegmentsEntry, ...] | UnsetType = UNSET


class FailuresEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that were out of order: so many of each domain of the level at any time; times in seconds."""

    level: str
    nodes: int
    #: For how long a node is out on average.
    repair: float
    #: Nodes that failed in the course of the run, runs of jobs that they ended, and the GPU-time lost so.
    failed: int
    evictions: int
    lost_gpu_hours: float


class SummaryEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Jobs by what became of them; ``until`` in virtual seconds."""

    until: float
    jobs: int
    ended: int
    running: int
    waiting: int
    #: Too large for the cluster even when no other job runs.
    impossible: int
    #: Submitted after the run was stopped.
    to_come: int


class ApplicationsEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How close the pods of applications were when all their pods were placed. Shares are of pairs that
    talk."""

    placed: int
    pairs: int
    #: Null where network costs are unknown.
    cost_per_pair: float | None
    same_node: float | None
    same_zone: float | None
    same_region: float | None


class ReservationEntry(Struct, frozen=True, kw_only=True):
    """Nodes that were kept free for a job that had waited long; times in virtual seconds."""

    job: str
    nodes: int
    begin: float
    end: float
    #: Why it ended; empty when the run did.
    why: str


class EvictionEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run of a job that ended as another job got its room, or a node failed; times in virtual seconds."""

    job: str
    #: Empty where a node failed.
    by: str
    at: float
    gpus: int
    #: How long it had run, and what of that is lost.
    ran: float
    lost: float
    #: The node that failed; only there where one did.
    node: str | UnsetType = UNSET


class RefusalEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why jobs never started: the last thing that was said of them."""

    message: str
    jobs: int
    #: Of the job that asks for the most GPUs, among such for the most pods.
    largest_gpus: int
    largest_pods: int
    example: str


class RunJobEntry(Struct, frozen=True, kw_only=True):
    """What became of one job. Times in virtual seconds; null for what did not happen."""

    name: str
    kind: str
    gpus: int
    pods: int
    submitted: float
    start: float | None
    end: float | None
    wait: float | None
    nodes: int
    #: The tightest domain that holds it; empty when only the whole cluster does.
    domain: DomainPath
    span: Mapping[str, int]
    #: Only there where jobs have several priorities. Of a job that was evicted, start, nodes and domain are
    #: those of its last run, and ``wait`` is all that it waited.
    priority: int | UnsetType = UNSET
    evictions: int | UnsetType = UNSET


class SamplesEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """The state over time, in columns; a value holds until the next time."""

    times: list[float]
    busy_gpus: list[int]
    queued_jobs: list[int]
    queued_gpus: list[int]


class SimulationReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that is reported of one run over time."""

    api_version: str = API_VERSION
    kind: str = "SimulationReport"
    workload: WorkloadEntry
    cluster: ClusterEntry
    policy: PolicyEntry
    summary: SummaryEntry
    measures: Measures
    #: Only there when nodes were out of order.
    failures: FailuresEntry | UnsetType = UNSET
    #: Only there when the workload has applications.
    applications: ApplicationsEntry | UnsetType = UNSET
    refusals: tuple[RefusalEntry, ...]
    reservations: tuple[ReservationEntry, ...]
    samples: SamplesEntry
    #: Only there when it was asked for.
    jobs: tuple[RunJobEntry, ...] | UnsetType = UNSET
    evictions: tuple[EvictionEntry, ...] | UnsetType = UNSET
    #: What was left aside, as sentences.
    notices: tuple[str, ...] = ()

    @property
    def waiting(self) -> bool:
        """Whether jobs never started that were to."""
        return bool(self.summary.waiting or self.summary.impossible)


class AskedRun(Struct, frozen=True, kw_only=True):
    """What the run was asked to do, as far as its history does not know."""

    workload: str
    load: float | None = None
    #: Jobs that a made-up workload begins with.
    standing: int = 0
    cluster: str
    held_gpus: int = 0
    cores: float = 0.0
    required: str | None = None
    preferred: str | None = None
    segments: tuple[tuple[str, int], ...] = ()
    failures: FailureRate | None = None
    notices: tuple[str, ...] = ()


def simulation_report(
    history: History, measures: Measures, asked: AskedRun, *, full: bool = False
) -> SimulationReport:
    """The report of a run; ``full`` adds every job and every sample."""
    tree = history.tree
    names = level_names(tree)
    prioritised = isinstance(measures.preemption, PreemptionMeasures)
    return SimulationReport(
        workload=WorkloadEntry(
            name=asked.workload,
            jobs=len(history.jobs),
            standing=asked.standing,
            load=asked.load,
            seed=history.seed,
            priorities=_classes(history.jobs) if history.jobs.classes else UNSET,
        ),
        cluster=ClusterEntry(
            name=asked.cluster,
            nodes=tree.size,
            gpus=int(history.node_gpus.sum()),
            held_gpus=asked.held_gpus,
            cores=asked.cores,
            topology=tree.name or None,
            levels=tuple(
                RunLevelEntry(name, int(tree.labelled[level].sum())) for level, name in enumerate(names)
            ),
        ),
        policy=PolicyEntry(
            name=history.policy,
            required=asked.required,
            preferred=asked.preferred,
            segments=tuple(SegmentsEntry(*one) for one in asked.segments) or UNSET,
        ),
        summary=_summary(history),
        measures=measures,
        failures=UNSET if asked.failures is None else _failures(history, asked.failures),
        applications=_applications(history) if history.jobs.graphs else UNSET,
        refusals=_refusals(history),
        reservations=tuple(
            ReservationEntry(
                job=history.jobs.names[kept.job],
                nodes=kept.nodes,
                begin=kept.begin,
                end=kept.end,
                why=kept.why,
            )
            for kept in history.reservations
        ),
        samples=_samples(history, full),
        jobs=tuple(_jobs(history, names, prioritised=prioritised)) if full else UNSET,
        evictions=tuple(_evictions(history)) if full and (prioritised or asked.failures) else UNSET,
        notices=asked.notices,
    )


def jobs_table(report: SimulationReport) -> CsvTable:
    """The jobs of a report that has them, in its order. Times in virtual seconds."""
    columns = (
        "name",
        "kind",
        "gpus",
        "pods",
        "submitted",
        "start",
        "end",
        "wait",
        "nodes",
        "domain",
        "span",
    )
    jobs = report.jobs if isinstance(report.jobs, tuple) else ()
    return CsvTable(
        columns,
        [
            (
                job.name,
                job.kind,
                job.gpus,
                job.pods,
                job.submitted,
                job.start,
                job.end,
                job.wait,
                job.nodes,
                domain_cell(job.domain),
                span_cell(job.span),
            )
            for job in jobs
        ],
    )


def _summary(history: History) -> SummaryEntry:
    started, ended = ~np.isnan(history.started), ~np.isnan(history.ended)
    impossible = np.zeros(len(started), dtype=np.bool_)
    impossible[list(history.impossible)] = True
    to_come = (history.jobs.submitted > history.until) & ~impossible
    return SummaryEntry(
        until=history.until,
        jobs=len(started),
        ended=int(ended.sum()),
        running=int((started & ~ended).sum()),
        waiting=int((~started & ~impossible & ~to_come).sum()),
        impossible=int(impossible.sum()),
        to_come=int(to_come.sum()),
    )


def _applications(history: History) -> ApplicationsEntry:
    talk = list(history.talk.values())
    pairs = sum(one.pairs for one in talk)
    costs = [one.cost for one in talk if one.cost is not None]

    def share(shares: list[float | None]) -> float | None:
        pairs_sharing = (
            one.pairs * value for one, value in zip(talk, shares, strict=True) if value is not None
        )
        return sum(pairs_sharing) / pairs if pairs else None

    return ApplicationsEntry(
        placed=len(talk),
        pairs=pairs,
        cost_per_pair=sum(costs) / pairs if pairs and len(costs) == len(talk) else None,
        same_node=share([one.same_node for one in talk]),
        same_zone=share([one.same_zone for one in talk]),
        same_region=share([one.same_region for one in talk]),
    )


def _refusals(history: History) -> tuple[RefusalEntry, ...]:
    """By message, those of the largest jobs first."""
    by_message: dict[str, list[int]] = {}
    for job, message in history.refusals.items():
        by_message.setdefault(message, []).append(job)
    gpus, pods = history.jobs.sizes.tolist(), history.jobs.pods.tolist()
    entries = []
    for message, jobs in by_message.items():
        largest = max(jobs, key=lambda job: (gpus[job], pods[job]))
        entries.append(
            RefusalEntry(
                message=message,
                jobs=len(jobs),
                largest_gpus=gpus[largest],
                largest_pods=pods[largest],
                example=history.jobs.names[largest],
            )
        )
    return tuple(sorted(entries, key=lambda one: (-one.largest_gpus, -one.largest_pods, one.message)))


def _samples(history: History, full: bool) -> SamplesEntry:
    samples = history.samples
    count = len(samples.times)
    # Evenly over what happened rather than over time, which has long ends in which little does.
    chosen = np.linspace(0, count - 1, count if full else min(count, SAMPLES)).round().astype(np.intp)
    # The exact time when all was quiet is sampled, else the next sample may be hours later.
    quiet = int(np.searchsorted(samples.times, history.quiet_from, side="right")) - 1
    nearest = int(np.abs(chosen - quiet).argmin())
    if 0 < nearest < len(chosen) - 1:
        chosen[nearest] = quiet
    return SamplesEntry(
        times=samples.times[chosen].tolist(),
        busy_gpus=samples.busy[chosen].tolist(),
        queued_jobs=samples.queued[chosen].tolist(),
        queued_gpus=samples.queued_gpus[chosen].tolist(),
    )


def _failures(history: History, rate: FailureRate) -> FailuresEntry:
    cut = history.cut
    by_failure = cut.failed >= 0
    return FailuresEntry(
        level=rate.level,
        nodes=rate.nodes,
        repair=rate.repair,
        failed=int((history.outages.begin > 0).sum()),
        evictions=int(by_failure.sum()),
        lost_gpu_hours=float((history.jobs.sizes[cut.job] * cut.lost)[by_failure].sum()) / 3_600.0,
    )


def _classes(jobs: Jobs) -> tuple[ClassEntry, ...]:
    return tuple(
        ClassEntry(one.name, one.priority, int((jobs.priorities == one.priority).sum()))
        for one in jobs.classes
    )


def _evictions(history: History) -> Iterator[EvictionEntry]:
    names, sizes, cut = history.jobs.names, history.jobs.sizes, history.cut
    for row, (job, by) in enumerate(zip(cut.job.tolist(), cut.by.tolist(), strict=True)):
        yield EvictionEntry(
            job=names[job],
            by=names[by] if by >= 0 else "",
            at=float(cut.ended[row]),
            gpus=int(sizes[job]),
            ran=float(cut.ended[row] - cut.started[row]),
            lost=float(cut.lost[row]),
            node=history.nodes[failed] if (failed := int(cut.failed[row])) >= 0 else UNSET,
        )


def _jobs(history: History, names: tuple[str, ...], *, prioritised: bool) -> list[RunJobEntry]:
    jobs, tree = history.jobs, history.tree
    submitted, sizes, pods = jobs.submitted.tolist(), jobs.sizes.tolist(), jobs.pods.tolist()
    started, ended, waited = history.started.tolist(), history.ended.tolist(), history.waited.tolist()
    evictions = history.evictions.tolist()
    return [
        RunJobEntry(
            name=name,
            kind=jobs.kinds[job],
            gpus=sizes[job],
            pods=pods[job],
            submitted=submitted[job],
            start=_known(started[job]),
            end=_known(ended[job]),
            wait=None if np.isnan(started[job]) else waited[job],
            **_place(history, job, tree, names),
            priority=int(jobs.priorities[job]) if prioritised else UNSET,
            evictions=evictions[job] if prioritised else UNSET,
        )
        for job, name in enumerate(jobs.names)
    ]


def _place(history: History, job: int, tree: Tree, names: tuple[str, ...]) -> dict[str, Any]:
    positions = tree.position_of[history.slots_of(job)]
    if not len(positions):
        return {"nodes": 0, "domain": (), "span": {}}
    domain = tree.tightest(positions)
    owners = [*(at[positions] for at in tree.domain_at), positions]
    span = {name: len(np.unique(owner)) for name, owner in zip(names, owners, strict=True)}
    return {
        "nodes": len(np.unique(positions)),
        "domain": () if domain == ROOT else tree.path(domain),
        "span": span,
    }


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
