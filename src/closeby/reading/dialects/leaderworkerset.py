"""Reads ``LeaderWorkerSet`` (``leaderworkerset.x-k8s.io``): each replica is a gang, a leader and workers."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from closeby.objects.groups import Layer
from closeby.objects.pods import PodClaim
from closeby.objects.workloads import Workload
from closeby.reading.common.exclusive import exclusive_layer
from closeby.reading.decoding.claims import ClaimWire, templates_of
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import (
    KAI_SEGMENT,
    KAI_SEGMENT_PREFERRED,
    KAI_SEGMENT_REQUIRED,
    KAI_TOPOLOGY,
    LWS_EXCLUSIVE,
    LWS_SUBGROUP_EXCLUSIVE,
)
from closeby.reading.decoding.owners import Owner, at_most, count
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec, object_id
from closeby.reading.dialects import kai

_LEADER_EXCLUDED: Final = "LeaderExcluded"
#: KAI's segments of a LeaderWorkerSet; their size and topology may stand at the object too.
_SEGMENT_LEVELS: Final = frozenset({KAI_SEGMENT_REQUIRED, KAI_SEGMENT_PREFERRED})
_SEGMENT_KEYS: Final = _SEGMENT_LEVELS | {KAI_SEGMENT, KAI_TOPOLOGY}
_OF_OWNER: Final = (KAI_SEGMENT, KAI_TOPOLOGY)


class SubGroupPolicyWire(Wire, gc=False):
    """``subGroupPolicy``: subgroups of one size, without the leader or with it in the first one."""

    sub_group_size: int | None = None
    sub_group_policy_type: str | None = None


class GroupTemplateWire(Wire):
    """``leaderWorkerTemplate``."""

    leader_template: TemplateWire | None = None
    worker_template: TemplateWire | None = None
    size: int | None = None
    sub_group_policy: SubGroupPolicyWire | None = None
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
    subgroups = _SubGroups(owner, group, size)
    has_leader = group.leader_template is not None
    leader = owner.pod_set(
        "leader",
        (),
        group.leader_template if has_leader else group.worker_template,
        (*path, "leaderTemplate" if has_leader else "workerTemplate"),
        claims=claims,
        unsupported=subgroups.unsupported,
    )
    worker = owner.pod_set(
        "worker",
        (),
        group.worker_template,
        (*path, "workerTemplate"),
        claims=claims,
        unsupported=subgroups.unsupported,
    )
    layers, own, annotations = subgroups.layers(worker.template_annotations)
    worker = msgspec.structs.replace(worker, template_annotations=annotations, layers=own)
    if not has_leader:
        leader = msgspec.structs.replace(leader, template_annotations=annotations)
    # Where each group has a domain, the workers are made when their leader has a node.
    follow = size - 1 if owner.meta.annotation_map.get(LWS_EXCLUSIVE) else 0
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
                part=1,
                indexed=True,
                first_index=1,
                at_start=later,
                follow=follow,
            )
            pod_sets.append(worker)
    return msgspec.structs.replace(owner.workload(pod_sets), layers=layers)


class _SubGroups:
    """What a LeaderWorkerSet asks for the places of each group, and of its subgroups."""

    def __init__(self, owner: Owner, group: GroupTemplateWire, size: int) -> None:
        policy = group.sub_group_policy or SubGroupPolicyWire()
        self._annotations = owner.meta.annotation_map
        self._called = object_id("LeaderWorkerSet", owner.namespace, owner.name)
        self._size = size
        self._each = policy.sub_group_size or 0
        if self._each > size or (self._each > 0 and size % self._each > 1 % self._each):
            owner.refuse(
                ("spec", "leaderWorkerTemplate", "subGroupPolicy", "subGroupSize"),
                f"is {self._each}, which divides neither the size, {size}, nor that without the leader",
            )
        self._whole = exclusive_layer(self._annotations, LWS_EXCLUSIVE, self._called, size=size)
        self._without_leader = policy.sub_group_policy_type == _LEADER_EXCLUDED
        both = self._whole and self._without_leader and self._annotations.get(LWS_SUBGROUP_EXCLUSIVE)
        field = f"LeaderWorkerSet/{owner.name} spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType"
        #: Exclusive subgroups without their leader, in an exclusive group.
        self.unsupported = [field] if both else []

    def layers(
        self, template: Mapping[str, str]
    ) -> tuple[tuple[Layer, ...], tuple[Layer, ...], Mapping[str, str]]:
        """The layers of each group as a whole and those of the workers alone, and the annotations of their
        template (``template``) that are still to be read.
        """
        of_subgroups = exclusive_layer(
            self._annotations, LWS_SUBGROUP_EXCLUSIVE, self._called, size=self._each
        )
        if not of_subgroups and not _SEGMENT_LEVELS.isdisjoint(template):
            segments = {key: one for key, one in self._annotations.items() if key in _OF_OWNER}
            segments.update(template)
            if self._each:
                segments[KAI_SEGMENT] = str(self._each)
            part = "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations"
            of_subgroups = kai.ask(segments, self._called, part).layers
            if of_subgroups:
                template = {key: one for key, one in template.items() if key not in _SEGMENT_KEYS}
        if self._without_leader:
            return self._whole, of_subgroups, template
        return (*self._whole, *map(self._with_leader, of_subgroups)), (), template

    def _with_leader(self, layer: Layer) -> Layer:
        """A layer of all pods of a group: where the workers alone fill the subgroups, the first one has the
        leader besides.
        """
        if self._size % layer.size == 0 or (self._size - 1) % layer.size:
            return layer
        counts = (layer.size + 1, *[layer.size] * ((self._size - 1) // layer.size - 1))
        return msgspec.structs.replace(layer, size=0, counts=counts)


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
