"""What the pictures of a run say about it: no dates, so that the same run gives the same files."""

from msgspec import UNSET, Struct

from closeby.lab.documents.comparison import ComparisonReport
from closeby.lab.documents.simulation import SimulationReport
from closeby.objects.words import plural
from closeby.report.documents.scheduling import SchedulingReport


class Heading(Struct, frozen=True, kw_only=True):
    """``seren on lingjun, configuration default``, and its numbers."""

    title: str
    details: str


def heading_of_simulation(report: SimulationReport) -> Heading:
    """Workload, cluster and configuration; then size, load, seed and what was asked of the topology."""
    workload, cluster, policy = report.workload, report.cluster, report.policy
    details = [plural(workload.jobs, "job")]
    if workload.load is not None:
        details.append(f"load {workload.load:g}")
    if workload.seed is not None:
        details.append(f"seed {workload.seed}")
    room = plural(cluster.gpus, "GPU") if cluster.gpus else f"{cluster.cores:,.0f} cores"
    details.append(f"{plural(cluster.nodes, 'node')} with {room}")
    for what, level in (("required", policy.required), ("preferred", policy.preferred)):
        if level is not None:
            details.append(f"{what} {level}")
    return Heading(
        title=f"{workload.name} on {cluster.name}, configuration {policy.name}", details=", ".join(details)
    )


def heading_of_scheduling(report: SchedulingReport, nodes: int, policy: str) -> Heading:
    """How many pods have a node, then the size of the cluster, the configuration, and the gangs that wait."""
    placed = sum(pod.node is not None for pod in report.pods)
    details = [plural(nodes, "node"), f"configuration {policy}"]
    waiting = sum(group.reason is not None for group in report.groups)
    if waiting:
        details.append(f"{plural(waiting, 'gang')} waiting")
    return Heading(
        title=f"{placed:,} of {plural(len(report.pods), 'pod')} on nodes", details=", ".join(details)
    )


def heading_of_comparison(report: ComparisonReport) -> Heading:
    """The policies, what they were compared on, and how many runs there are of each."""
    workload, cluster = report.workload, report.cluster
    details = [plural(workload.jobs, "job")]
    if workload.load is not None:
        details.append(f"load {workload.load:g}")
    if workload.seeds:
        details.append(plural(len(workload.seeds), "seed"))
    room = plural(cluster.gpus, "GPU") if cluster.cores is UNSET else f"{cluster.cores:,.0f} cores"
    details.append(f"{plural(cluster.nodes, 'node')} with {room}")
    *others, last = report.policies
    policies = f"{', '.join(others)} and {last}" if others else last
    return Heading(
        title=f"{policies}: {workload.name} on {cluster.name}",
        details=", ".join(details),
    )
