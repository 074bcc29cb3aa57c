"""Reads ``JobSet`` (``jobset.x-k8s.io``): jobs of several kinds that belong together."""

import msgspec

from closeby.objects.groups import SizeField
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.owners import (
    CLAIMS,
    Owner,
    StatusWire,
    at_most,
    count,
    finished,
    with_role,
)
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec
from closeby.reading.decoding.workloads import JobSpecWire, pods_of_job


class DependencyWire(Wire, gc=False):
    """``dependsOn[]``: the job is created when another one is ready or complete."""

    name: str = ""


class StartupPolicyWire(Wire, gc=False):
    """``startupPolicy``."""

    startup_policy_order: str | None = None


class ReplicatedJobWire(Wire):
    """``replicatedJobs[]``."""

    name: str = ""
    replicas: int | None = None
    depends_on: list[DependencyWire] | None = None
    template: WithSpec[JobSpecWire] | None = None


class SpecWire(Wire):
    """``spec``."""

    replicated_jobs: list[ReplicatedJobWire] | None = None
    suspend: bool | None = None
    startup_policy: StartupPolicyWire | None = None
    volume_claim_policies: list[Present] | None = None


class JobSetWire(ObjectWire):
    """The object."""

    spec: SpecWire | None = None
    status: StatusWire | None = None


def read_job_set(document: Document, reading: DocumentReading) -> Workload:
    """A JobSet with one pod set for each replicated job; pods are called ``jobset-job-index-index``.

    Jobs that depend on others start later, and in order all but the first one.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(JobSetWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    over = finished(wire.status)
    in_order = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    claims = [CLAIMS] if spec.volume_claim_policies else []
    pod_sets: list[PodSet] = []
    for i, job in enumerate(spec.replicated_jobs or ()):
        path = ("spec", "replicatedJobs", i)
        template = job.template or WithSpec[JobSpecWire]()
        job_spec = template.spec or JobSpecWire()
        jobs = count(job.replicas, (*path, "replicas"))
        size = pods_of_job(job_spec, (*path, "template", "spec"))
        at_most(jobs * size, (*path, "replicas"))
        prefix = f"{owner.name}-{job.name}"
        names = () if over else [f"{prefix}-{j}-{pod}" for j in range(jobs) for pod in range(size)]
        pods = owner.pod_set(
            job.name,
            names,
            job_spec.template,
            (*path, "template", "spec", "template"),
            inherited=template.meta.annotation_map,
            unsupported=claims,
        )
        later = job.depends_on or (in_order and any(one.replicas for one in pod_sets))
        at_start = 0 if later else None
        pods = msgspec.structs.replace(with_role(pods), part=i, indexed=True, at_start=at_start)
        if at_start is None:
            role, at = pods.template.role, f"replicatedJobs[{i}]"
            sizes = (
                SizeField(path=f"{at}.replicas", value=jobs, each=size, role=role),
                SizeField(path=f"{at}.template.spec.parallelism", value=size, each=jobs, role=role),
            )
            pods = msgspec.structs.replace(pods, sizes=sizes)
        pod_sets.append(pods)
    return owner.workload(pod_sets, suspended=bool(spec.suspend))
