"""Reads ``JobSet`` (``jobset.x-k8s.io``): jobs of several kinds that belong together."""

from collections.abc import Iterator

import msgspec

from closeby.objects.bounds import quoted
from closeby.objects.groups import Layer, SizeField
from closeby.objects.pods import ClaimName, PodClaim
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.exclusive import exclusive_layer
from closeby.reading.decoding.claims import ClaimWire, templates_of
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import JOBSET_EXCLUSIVE, JOBSET_NODE_SELECTOR
from closeby.reading.decoding.owners import (
    CountsWire,
    Owner,
    StatusWire,
    at_most,
    count,
    finished,
    with_role,
)
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Meta, ObjectWire, Wire, WithSpec, object_id
from closeby.reading.decoding.workloads import JobSpecWire, pods_of_job, replaces_at_once


class DependencyWire(Wire, gc=False):
    """``dependsOn[]``: the job is created when another one is ready or complete."""

    name: str = ""
    status: str | None = None


class StartupPolicyWire(Wire, gc=False):
    """``startupPolicy``."""

    startup_policy_order: str | None = None


class ReplicatedJobWire(Wire):
    """``replicatedJobs[]``."""

    name: str = ""
    replicas: int | None = None
    depends_on: list[DependencyWire] | None = None
    template: WithSpec[JobSpecWire] | None = None


class ClaimPolicyWire(Wire):
    """``volumeClaimPolicies[]``: claims that the jobs share."""

    templates: list[ClaimWire] | None = None


class SpecWire(Wire):
    """``spec``."""

    replicated_jobs: list[ReplicatedJobWire] | None = None
    suspend: bool | None = None
    startup_policy: StartupPolicyWire | None = None
    volume_claim_policies: list[ClaimPolicyWire] | None = None


class JobSetWire(ObjectWire):
    """The object."""

    spec: SpecWire | None = None
    status: StatusWire | None = None


class MountWire(Wire, gc=False):
    """``volumeMounts[]``."""

    name: str = ""


class MountingWire(Wire):
    """A container that mounts volumes."""

    volume_mounts: list[MountWire] | None = None


class MountingPodWire(Wire):
    """``spec`` of a pod template, of which the mounts are read."""

    containers: list[MountingWire] | None = None
    init_containers: list[MountingWire] | None = None


class MountingTemplateWire(Wire):
    """``spec`` of a Job template."""

    template: WithSpec[MountingPodWire] | None = None


class MountingJobWire(Wire):
    """``replicatedJobs[]``."""

    template: WithSpec[MountingTemplateWire] | None = None


class MountingSpecWire(Wire):
    """``spec``."""

    replicated_jobs: list[MountingJobWire] | None = None


def read_job_set(document: Document, reading: DocumentReading) -> Workload:
    """A JobSet with one pod set for each replicated job; pods are called ``jobset-job-index-index``.

    Jobs that depend on others start later, and in order all but the first one: those that start with the same
    step are a gang of their own.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(JobSetWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    status = wire.status or StatusWire()
    over = finished(status)
    counts = {one.name: one for one in status.replicated_jobs_status or ()}
    in_order = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    claims = _claims(owner.name, spec)
    mounts = _mounts(document) if claims else [frozenset[str]()] * len(spec.replicated_jobs or ())
    owner.distinct([one.name for one in spec.replicated_jobs or ()], ("spec", "replicatedJobs"))
    pod_sets: list[PodSet] = []
    for i, job in enumerate(spec.replicated_jobs or ()):
        path = ("spec", "replicatedJobs", i)
        for j, one in enumerate(job.depends_on or ()):
            if one.name not in {before.name for before in pod_sets}:
                owner.refuse(
                    (*path, "dependsOn", j, "name"), f"is {quoted(one.name)}, which no job before is"
                )
        template = job.template or WithSpec[JobSpecWire]()
        job_spec = template.spec or JobSpecWire()
        jobs = count(job.replicas, (*path, "replicas"))
        size = pods_of_job(job_spec, (*path, "template", "spec"))
        # All that a job has in its life, of which ``size`` are there at a time.
        each = max(size, job_spec.completions or 0)
        at_most(jobs * each, (*path, "replicas"))
        prefix = f"{owner.name}-{job.name}"
        names = () if over else [f"{prefix}-{j}-{pod}" for j in range(jobs) for pod in range(each)]
        pod_meta = job_spec.template.meta if job_spec.template else Meta()
        layers, unsupported = _exclusive(owner, i, template.meta, pod_meta, size)
        pods = owner.pod_set(
            job.name,
            names,
            job_spec.template,
            (*path, "template", "spec", "template"),
            inherited=template.meta.annotation_map,
            unsupported=unsupported,
            # A job that mounts no volume of that name does not get it.
            claims=[claim for name, claim in claims.items() if name in mounts[i]],
        )
        if layers and not unsupported:
            # The first pod of each job says where the others go, which JobSet's webhook refuses until then.
            pods = msgspec.structs.replace(pods, layers=layers, follow=jobs * max(0, size - 1))
        after = tuple((one.name, one.status == "Complete") for one in job.depends_on or ())
        if in_order:
            after += tuple((one.name, False) for one in pod_sets if one.replicas)[-1:]
        now, pods, at = counts.get(job.name, CountsWire()), with_role(pods), f"replicatedJobs[{i}]"
        role = pods.template.role
        sizes = (
            SizeField(path=f"{at}.replicas", value=jobs, each=size, role=role),
            SizeField(path=f"{at}.template.spec.parallelism", value=size, each=jobs, role=role),
        )
        pods = msgspec.structs.replace(
            pods,
            replicas=0 if over else jobs * size,
            part=i,
            indexed=True,
            completions=jobs * each,
            completed=((now.succeeded or 0) + (now.failed or 0)) * each,
            active=(now.ready or 0) * size,
            kept=("Succeeded",),
            replaced=replaces_at_once(job_spec),
            each=each,
            after=after,
            gang=next((one.gang for one in pod_sets if one.after == after), prefix) if after else "",
            sizes=sizes,
        )
        pod_sets.append(pods)
        at_most(sum(one.replicas for one in pod_sets), ("spec", "replicatedJobs"))
    return owner.workload(pod_sets, suspended=bool(spec.suspend))


def _exclusive(
    owner: Owner, index: int, template: Meta, pods: Meta, size: int
) -> tuple[tuple[Layer, ...], list[str]]:
    """The layer of jobs that have a domain each, and what can't be honoured: where nodes are labelled by hand
    for each job, the controller alone knows the pods' node selectors.

    JobSet's webhook reads the annotation of the pods, to which the controller gives those of the others.
    """
    called = object_id("JobSet", owner.namespace, owner.name)
    part = f"spec.replicatedJobs[{index}].template"
    places = {
        f"{part}.metadata.annotations": template.annotation_map,
        "metadata.annotations": owner.meta.annotation_map,
        f"{part}.spec.template.metadata.annotations": pods.annotation_map,
    }
    for part, annotations in places.items():
        layers = exclusive_layer(annotations, JOBSET_EXCLUSIVE, called, part, size=size)
        if layers:
            by_hand = any(JOBSET_NODE_SELECTOR in one for one in places.values())
            return layers, [f'JobSet/{owner.name} {part}["{JOBSET_NODE_SELECTOR}"]'] if by_hand else []
    return (), []


def _claims(name: str, spec: SpecWire) -> dict[str, PodClaim]:
    """The claims that the controller makes, one of each for all pods, by the name of their volume.

    Raises:
        FieldError: a value that can't be read.
    """
    found = {}
    for i, policy in enumerate(spec.volume_claim_policies or ()):
        for one in templates_of(policy.templates, ("spec", "volumeClaimPolicies", i, "templates")):
            found[one.name] = PodClaim(f"{one.name}-{name}", ClaimName.GIVEN, one.request)
    return found


def _mounts(document: Document) -> list[frozenset[str]]:
    """The volumes that the containers of each replicated job mount, by name."""
    spec = document.decode(WithSpec[MountingSpecWire]).spec or MountingSpecWire()
    return [frozenset(_mounted(job)) for job in spec.replicated_jobs or ()]


def _mounted(job: MountingJobWire) -> Iterator[str]:
    template = job.template.spec.template if job.template and job.template.spec else None
    pod = template.spec if template else None
    for container in (*(pod.containers or ()), *(pod.init_containers or ())) if pod else ():
        yield from (mount.name for mount in container.volume_mounts or ())
