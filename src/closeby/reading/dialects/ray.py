"""Reads ``RayCluster`` (``ray.io``): a head and groups of workers.

Those of a RayJob or a RayService are made by its controller as RayClusters of their own.
"""

from closeby.objects.workloads import Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.owners import Owner, at_most, count, numbered, with_role
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec

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
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: TemplateWire | None = None


class SpecWire(Wire):
    """``spec``."""

    suspend: bool | None = None
    head_group_spec: HeadWire | None = None
    worker_group_specs: list[WorkersWire] | None = None


def read_ray_cluster(document: Document, reading: DocumentReading) -> Workload:
    """A RayCluster with one pod set for the head and one for each group of workers, called like the group.

    A replica of a group is ``numOfHosts`` pods; without ``replicas`` there are as many as ``minReplicas``.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    head = (spec.head_group_spec or HeadWire()).template
    names = [f"{owner.name}-head"]
    pod_sets = [with_role(owner.pod_set(HEAD_GROUP, names, head, ("spec", "headGroupSpec", "template")))]
    for i, group in enumerate(spec.worker_group_specs or ()):
        path = ("spec", "workerGroupSpecs", i)
        least = count(group.min_replicas, (*path, "minReplicas"), default=0)
        replicas = 0 if group.suspend else count(group.replicas, (*path, "replicas"), default=least)
        hosts = count(group.num_of_hosts, (*path, "numOfHosts"))
        pods = at_most(replicas * hosts, (*path, "replicas"))
        names = [*numbered(f"{owner.name}-{group.group_name}-worker", pods)]
        pod_sets.append(
            with_role(owner.pod_set(group.group_name, names, group.template, (*path, "template")))
        )
    at_most(sum(one.replicas for one in pod_sets), ("spec", "workerGroupSpecs"))
    return owner.workload(pod_sets, suspended=bool(spec.suspend))
