"""Reads ``LeaderWorkerSet`` (``leaderworkerset.x-k8s.io``): each replica is a gang, a leader and workers."""

from collections.abc import Iterable

import msgspec

from closeby.objects.pods import PodClaim
from closeby.objects.workloads import Workload
from closeby.reading.decoding.claims import ClaimWire, templates_of
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.owners import Owner, at_most, count
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec


class GroupTemplateWire(Wire):
    """``leaderWorkerTemplate``."""

    leader_template: TemplateWire | None = None
    worker_template: TemplateWire | None = None
    size: int | None = None
    volume_claim_templates: list[ClaimWire] | None = None


class SpecWire(Wire):
    """``spec``."""

    replicas: int | None = None
    leader_worker_template: GroupTemplateWire | None = None
    startup_policy: str | None = None


def read_leader_worker_set(document: Document, reading: DocumentReading) -> Workload:
    """A LeaderWorkerSet. Replica 2 is the gang ``name-2``: leader ``name-2``, workers ``name-2-1`` and on.

    With ``startupPolicy: LeaderReady`` the workers are created when their leader is ready.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or SpecWire()
    group = spec.leader_worker_template or GroupTemplateWire()
    path = ("spec", "leaderWorkerTemplate")
    replicas = count(spec.replicas, ("spec", "replicas"))
    size = count(group.size, (*path, "size"))
    at_most(replicas * size, ("spec", "replicas"))
    claims = _forwarded(templates_of(group.volume_claim_templates, (*path, "volumeClaimTemplates")))
    has_leader = group.leader_template is not None
    leader = owner.pod_set(
        "leader",
        (),
        group.leader_template if has_leader else group.worker_template,
        (*path, "leaderTemplate" if has_leader else "workerTemplate"),
        claims=claims,
    )
    worker = owner.pod_set("worker", (), group.worker_template, (*path, "workerTemplate"), claims=claims)
    later = 0 if spec.startup_policy == "LeaderReady" else None
    pod_sets = []
    for replica in range(replicas if size else 0):
        gang = f"{owner.name}-{replica}"
        workers = tuple(f"{gang}-{i}" for i in range(1, size))
        pod_sets.append(
            msgspec.structs.replace(leader, replicas=1, pod_names=(gang,), gang=gang, indexed=True)
        )
        if workers:
            worker = msgspec.structs.replace(
                worker,
                replicas=size - 1,
                pod_names=workers,
                gang=gang,
                indexed=True,
                first_index=1,
                at_start=later,
            )
            pod_sets.append(worker)
    return owner.workload(pod_sets)


def _forwarded(templates: Iterable[PodClaim]) -> tuple[PodClaim, ...]:
    """The templates that leaders and workers get as a StatefulSet's: its controller hands on the class, the
    size and the modes, and leaves out selectors and attributes.
    """
    return tuple(
        msgspec.structs.replace(
            one, request=msgspec.structs.replace(one.request, selector=None, attributes_class="")
        )
        for one in templates
        if one.request is not None
    )
