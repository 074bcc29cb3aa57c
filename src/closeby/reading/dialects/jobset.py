"""Reads ``JobSet`` (``jobset.x-k8s.io``): jobs of several kinds that belong together."""

import msgspec

from closeby.objects.workloads import Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.owners import Owner, StatusWire, at_most, count, finished, with_role
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec
from closeby.reading.decoding.workloads import JobSpecWire, pods_of_job


class ReplicatedJobWire(Wire):
    """``replicatedJobs[]``."""

    name: str = ""
    replicas: int | None = None
    template: WithSpec[JobSpecWire] | None = None


class SpecWire(Wire):
    """``spec``."""

    replicated_jobs: list[ReplicatedJobWire] | None = None
    suspend: bool | None = None


class JobSetWire(ObjectWire):
    """The object."""

    spec: SpecWire | None = None
    status: StatusWire | None = None


def read_job_set(document: Document, reading: DocumentReading) -> Workload:
    """A JobSet with one pod set for each replicated job; pods are called ``jobset-job-index-index``.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(JobSetWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    over = finished(wire.status)
    pod_sets = []
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
        )
        pod_sets.append(msgspec.structs.replace(with_role(pods), indexed=True))
    return owner.workload(pod_sets, suspended=bool(spec.suspend))
