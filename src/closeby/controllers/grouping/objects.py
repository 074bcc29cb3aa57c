"""The PodGroup objects that the pod-grouper keeps: what is written in them, under which name, and which of
those in the cluster are its own. Pure computation.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.controllers.grouping.owners import Ref
from closeby.kube.metrics.health import Right, seeing
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.writer import LONGEST_MESSAGE, StatusCondition
from closeby.objects.bounds import sentences
from closeby.objects.groups import Layer, PodGroup, SubGroup, TopologyConstraint
from closeby.objects.reasons import Condition
from closeby.reading.decoding.keys import (
    BY_NATURE,
    GANG,
    KAI_PREEMPTIBILITY,
    KAI_PREEMPTION_DELAY,
    MANAGED_BY,
    PLACEMENT_STRATEGY,
    POD_GROUPER,
    PREEMPTIBLE,
    ROLE_TOPOLOGY,
)
from closeby.reading.decoding.preemption_requests import SEMI_PREEMPTIBLE
from closeby.reading.registry import OWN_GROUP

Object = dict[str, object]

#: The pod-grouper's name on PodGroups that it made, in Events, and as the manager of fields that it writes.
MANAGER: Final = POD_GROUPER
#: Condition of a PodGroup: whether what its workload asks for makes sense. (Whether the PodGroup itself does,
#: given the topologies there are, is the scheduler's to say.)
VALID: Final = "WorkloadValid"
#: What a label's value may have; pods name their group by a label.
_LONGEST_NAME: Final = 63
#: A name of an object (DNS-1123 subdomain), and what it has not.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")

POD_GROUPS: Final = Resource(
    group=OWN_GROUP, version="v1alpha1", kind="PodGroup", plural="podgroups", namespaced=True
)
#: What the pod-grouper must be allowed to do.
RIGHTS: Final = (
    *seeing(("", "nodes"), ("", "pods"), (OWN_GROUP, POD_GROUPS.plural)),
    Right("patch", "pods"),
    *(Right(verb, POD_GROUPS.plural, OWN_GROUP) for verb in ("get", "create", "patch")),
    Right("patch", POD_GROUPS.plural, OWN_GROUP, "status"),
)


class SeenGroup(Struct, frozen=True):
    """A PodGroup of any dialect in the cluster."""

    resource: Resource
    #: Uids of its owners.
    owners: frozenset[str]
    #: Whether the pod-grouper made it.
    managed: bool
    uid: str = ""
    spec: Mapping[str, object] = {}
    annotations: Mapping[str, str] = {}
    #: Its condition ``WorkloadValid``.
    valid: StatusCondition | None = None


class _Reference(Struct, frozen=True):
    uid: str = ""


class _Meta(Struct, frozen=True, rename="camel"):
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Reference, ...] | None = None


class _Status(Struct, frozen=True):
    conditions: tuple[StatusCondition, ...] | None = None


class _Group(Struct, frozen=True):
    metadata: _Meta
    spec: dict[str, object] | None = None
    status: _Status | None = None


_read: Final = msgspec.json.Decoder(_Group).decode


def seen_group(resource: Resource, raw: bytes) -> SeenGroup:
    """A PodGroup as it stands in the cluster; one that can't be read belongs to another writer."""
    try:
        group = _read(raw)
    except msgspec.DecodeError:
        return SeenGroup(resource, frozenset(), managed=False)
    meta = group.metadata
    managed = resource == POD_GROUPS and (meta.labels or {}).get(MANAGED_BY) == MANAGER
    conditions = (group.status.conditions if group.status else None) or ()
    return SeenGroup(
        resource,
        frozenset(one.uid for one in meta.owner_references or ()),
        managed,
        meta.uid,
        group.spec or {},
        meta.annotations or {},
        next((one for one in conditions if one.type == VALID), None),
    )


def names_for(group: PodGroup, kind: str, uid: str) -> Iterator[str]:
    """Names for a gang's PodGroup, the best first: its workload's, then those that tell workloads apart.

    All of them are fit for an object and for a label, whatever an owner reference says. The last one belongs
    to this workload alone.
    """
    stem = group.name
    yield _fitted(stem)
    yield _fitted(f"{stem}-{kind.lower()}")
    yield _fitted(f"{stem}-{kind.lower()}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}")


def _fitted(name: str) -> str:
    if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    stem = name if _NAME.fullmatch(name) else _NOT_IN_NAMES.sub("-", name.lower()).strip("-") or "x"
    return f"{stem[: _LONGEST_NAME - 9].rstrip('-.')}-{mark}"


def object_of(group: PodGroup, name: str, owners: Sequence[Ref]) -> Object:
    """The PodGroup with all fields that the pod-grouper owns; the first of its owners controls it."""
    spec: Object = {"minMember": group.min_member, **_constraint(group.constraint), **_layers(group.layers)}
    if group.subgroups:
        spec["subGroups"] = [_subgroup(one) for one in group.subgroups]
    if group.min_subgroups is not None:
        spec["minSubGroup"] = group.min_subgroups
    if group.annotations.get(PLACEMENT_STRATEGY):
        spec["placement"] = {"strategy": str(group.strategy)}
    if group.priority_class_name:
        spec["priorityClassName"] = group.priority_class_name
    labels = {MANAGED_BY: MANAGER}
    metadata: Object = {
        "name": name,
        "namespace": group.namespace,
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": one.api_version,
                "kind": one.kind,
                "name": one.name,
                "uid": one.uid,
                **({} if place else {"controller": True}),
            }
            for place, one in enumerate(owners)
        ],
    }
    copied = (*ROLE_TOPOLOGY, KAI_PREEMPTION_DELAY)
    kept = {key: group.annotations[key] for key in copied if key in group.annotations}
    if group.by_nature:
        kept[GANG] = BY_NATURE
    if group.protected_by is not None:
        if group.protected_by.minimum_only:
            labels[KAI_PREEMPTIBILITY] = SEMI_PREEMPTIBLE
        else:
            kept[PREEMPTIBLE] = "false"
    if kept:
        metadata["annotations"] = kept
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _subgroup(group: SubGroup) -> Object:
    result: Object = {
        "name": group.name,
        "minMember": group.min_member,
        **_constraint(group.constraint),
        **_layers(group.layers),
    }
    if group.parent is not None:
        result["parent"] = group.parent
    if group.min_subgroups is not None:
        result["minSubGroup"] = group.min_subgroups
    return result


def _constraint(constraint: TopologyConstraint | None) -> Object:
    if constraint is None:
        return {}
    levels = {
        "topology": constraint.topology,
        "requiredTopologyLevel": constraint.required,
        "preferredTopologyLevel": constraint.preferred,
    }
    return {"topologyConstraint": {key: level for key, level in levels.items() if level is not None}}


#: A layer that says nothing beyond what must be said.
_PLAIN: Final = Layer(level="")


def _layers(layers: Sequence[Layer]) -> Object:
    """``layers``, without what goes without saying."""
    return {"layers": [_layer(one) for one in layers]} if layers else {}


def _layer(layer: Layer) -> Object:
    words = {
        "mode": layer.mode,
        "remainder": layer.remainder,
        "arrangement": layer.arrangement,
        "exclusive": layer.exclusive,
    }
    result: Object = {"level": layer.level}
    result |= {key: str(word) for key, word in words.items() if word != getattr(_PLAIN, key)}
    if layer.counts:
        result["counts"] = list(layer.counts)
    else:
        result["size"] = layer.size
    if layer.min_segments is not None:
        result["minSegments"] = layer.min_segments
    if layer.topology is not None:
        result["topology"] = layer.topology
    if layer.max_domains is not None:
        result["maxDomains"] = layer.max_domains
    if layer.relax_after is not None:
        result["relaxAfter"] = f"{layer.relax_after:g}s"
    return result


def stands(found: SeenGroup, wanted: Object) -> bool:
    """Whether a PodGroup says all that the pod-grouper wants it to."""
    metadata = wanted["metadata"]
    annotations = metadata.get("annotations", {}) if isinstance(metadata, dict) else {}
    return _covers(found.spec, wanted["spec"]) and _covers(found.annotations, annotations)


def _covers(found: object, wanted: object) -> bool:
    if isinstance(wanted, dict):
        if not isinstance(found, Mapping):
            return False
        return all(key in found and _covers(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list | tuple) or len(found) != len(wanted):
            return False
        return all(_covers(one, other) for one, other in zip(found, wanted, strict=True))
    return found == wanted


def validity(conditions: Collection[Condition], before: StatusCondition | None) -> StatusCondition | None:
    """The condition ``WorkloadValid``, without its time; None where there is nothing to say.

    What is merely ignored leaves it true, with a message.
    """
    ordered = sorted(conditions, key=lambda one: not one.blocking)
    if not ordered:
        if before is None:
            return None
        return StatusCondition(type=VALID, status="True", reason="Valid")
    message = sentences([f"{one.object} {one.located()}" for one in ordered], most=LONGEST_MESSAGE)
    return StatusCondition(
        type=VALID,
        status="False" if ordered[0].blocking else "True",
        reason=str(ordered[0].reason),
        message=message,
    )


def same_condition(one: StatusCondition | None, other: StatusCondition | None) -> bool:
    """Whether two conditions say the same, whenever it was said."""
    if one is None or other is None:
        return one is other
    return (one.status, one.reason, one.message) == (other.status, other.reason, other.message)
