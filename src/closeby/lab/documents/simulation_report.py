"""Makes the report of a run over time from its history."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import UNSET, Struct

from closeby.lab.documents.simulation import (
    ApplicationsEntry,
    ClassEntry,
    ClusterEntry,
    EvictionEntry,
    FailuresEntry,
    PolicyEntry,
    RefusalEntry,
    ReservationEntry,
    RunJobEntry,
    RunLevelEntry,
    SamplesEntry,
    SegmentsEntry,
    SimulationReport,
    SummaryEntry,
    WorkloadEntry,
)
from closeby.lab.replay.failures import FailureRate
from closeby.lab.replay.history import History
from closeby.lab.workloads.jobs import Jobs
from closeby.quality.delays import PreemptionMeasures
from closeby.quality.placements import level_names
from closeby.quality.summary import Measures
from closeby.topology.tree import ROOT, Tree

#: Samples of a report that does not hold all.
SAMPLES = 200


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
                reason=kept.reason,
            )
            for kept in history.reservations
        ),
        samples=_samples(history, full),
        jobs=tuple(_jobs(history, names, prioritised=prioritised)) if full else UNSET,
        evictions=tuple(_evictions(history)) if full and (prioritised or asked.failures) else UNSET,
        notices=asked.notices,
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
