"""The report of a run over time as data, field by field as tools may rely on it (kind SimulationReport)."""

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from closeby.objects.labels import API_VERSION
from closeby.quality.summary import Measures
from closeby.report.documents.tables import CsvTable, domain_cell, span_cell
from closeby.whatif.records import DomainPath


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
    #: ``ReservationBudgetSpent`` where that is why; else empty.
    reason: str


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
