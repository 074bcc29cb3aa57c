"""Reads ``RayCluster`` and ``RayJob`` (``ray.io``): a head and groups of workers.

The cluster of a RayJob or a RayService is made by its controller as a RayCluster of its own.
"""

from typing import Final

import msgspec

from closeby.objects.groups import SizeField
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.owners import MOST_PODS, Owner, at_most, count, numbered, with_role
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec

#: What KubeRay calls the group of the head in its label ``ray.io/group``.
HEAD_GROUP = "headgroup"


class HeadWire(Wire):
    """``headGroupSpec``."""

    template: TemplateWire | None = None


class WorkersWire(Wire):
    """``workerGroupSpecs[]``."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: TemplateWire | None = None


class SpecWire(Wire):
    """``spec`` of a RayCluster."""

    suspend: bool | None = None
    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: HeadWire | None = None
    worker_group_specs: list[WorkersWire] | None = None


class JobSpecWire(Wire):
    """``spec`` of a RayJob."""

    suspend: bool | None = None
    ray_cluster_spec: SpecWire | None = None


class JobStatusWire(Wire, gc=False):
    """``status`` of a RayJob."""

    job_deployment_status: str | None = None
    ray_cluster_name: str | None = None


class RayJobWire(ObjectWire):
    """A RayJob."""

    spec: JobSpecWire | None = None
    status: JobStatusWire | None = None


_OVER: Final = frozenset({"Complete", "Failed", "ValidationFailed"})


def read_ray_cluster(document: Document, reading: DocumentReading) -> Workload:
    """A RayCluster with one pod set for the head and one for each group of workers, called like the group.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    return owner.workload(_pod_sets(owner, spec, ("spec",)), suspended=bool(spec.suspend))


def read_ray_job(document: Document, reading: DocumentReading) -> Workload:
    """A RayJob: the pods of its cluster. One that runs on a cluster that is there already has none.

    The pod that submits the job is left out: it is created when the cluster is ready.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(RayJobWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or JobSpecWire()
    status, cluster = wire.status or JobStatusWire(), spec.ray_cluster_spec
    sets = [] if cluster is None else _pod_sets(owner, cluster, ("spec", "rayClusterSpec"))
    workload = owner.workload(sets, suspended=bool(spec.suspend))
    return msgspec.structs.replace(
        workload,
        over=workload.over or status.job_deployment_status in _OVER,
        made=(f"RayCluster/{status.ray_cluster_name}",) if sets and status.ray_cluster_name else (),
    )


def _pod_sets(owner: Owner, spec: SpecWire, path: Path) -> list[PodSet]:
    """The head and the groups of workers of a cluster.

    A replica of a group is ``numOfHosts`` pods; there are no fewer than ``minReplicas``, nor more than
    ``maxReplicas``, whatever ``replicas`` says.
    The cluster starts with ``minReplicas``. The server writes 0 where none is given, so 0 means a minimum of
    0 only where an autoscaler adds the workers.
    """
    head = (spec.head_group_spec or HeadWire()).template
    names = [f"{owner.name}-head"]
    groups = [one.group_name for one in spec.worker_group_specs or ()]
    owner.distinct(groups, (*path, "workerGroupSpecs"), "groupName")
    pod_sets = [with_role(owner.pod_set(HEAD_GROUP, names, head, (*path, "headGroupSpec", "template")))]
    for i, group in enumerate(spec.worker_group_specs or ()):
        place = (*path, "workerGroupSpecs", i)
        least = count(group.min_replicas, (*place, "minReplicas"), default=0)
        # The server writes the greatest number that it knows where none is given.
        most = None if group.max_replicas is None else min(group.max_replicas, MOST_PODS)
        most = count(most, (*place, "maxReplicas"), default=MOST_PODS)
        replicas = count(group.replicas, (*place, "replicas"), default=least)
        replicas = 0 if group.suspend else max(least, min(replicas, most))
        hosts = count(group.num_of_hosts, (*place, "numOfHosts"))
        pods = at_most(replicas * hosts, (*place, "replicas"))
        names = [*numbered(f"{owner.name}-{group.group_name}-worker", pods)]
        workers = with_role(owner.pod_set(group.group_name, names, group.template, (*place, "template")))
        at_start = least * hosts if least or spec.enable_in_tree_autoscaling else None
        at = field_path(place[1:])
        size = SizeField(path=f"{at}.replicas", value=replicas, each=hosts, role=workers.template.role)
        if at_start is not None:
            size = SizeField(path=f"{at}.minReplicas", value=least, each=hosts)
        sizes = (size,) if replicas and at_start != 0 else ()
        pod_sets.append(msgspec.structs.replace(workers, part=1, at_start=at_start, sizes=sizes))
    at_most(sum(one.replicas for one in pod_sets), (*path, "workerGroupSpecs"))
    return pod_sets
