"""What the admission check asks of the scheduler for a Workload: a PodGroup that requests its places."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from closeby.controllers.admission.kueue_objects import (
    AssignmentWire,
    ConditionsWire,
    ConditionWire,
    Flavor,
    MetaWire,
    Object,
    QueuedWorkload,
)
from closeby.objects.groups import WORKLOAD
from closeby.reading.decoding.keys import MANAGED_BY

#: Who keeps the PodGroups that ask for places.
MANAGER: Final = "closeby-admission-checks"


class _RequestSpec(Struct, frozen=True, rename="camel"):
    places_for: Object | None = None


class PlaceRequest(Struct, frozen=True):
    """A PodGroup that asks for places, and what the scheduler says of it."""

    metadata: MetaWire
    spec: _RequestSpec = _RequestSpec()
    status: ConditionsWire = ConditionsWire()

    @property
    def ours(self) -> bool:
        """Whether the admission check wrote it."""
        return (self.metadata.labels or {}).get(MANAGED_BY) == MANAGER

    @property
    def workload(self) -> str:
        """``namespace/name`` of the Workload that it asks for."""
        about = (self.spec.places_for or {}).get("workload") or {}
        return f"{about.get('namespace', '')}/{about.get('name', '')}"

    def older_than(self, other: "PlaceRequest") -> bool:
        """Whether the PodGroup asked for this before it asked for what ``other`` has."""
        return self.metadata.generation < other.metadata.generation

    @property
    def answer(self) -> ConditionWire | None:
        """What the scheduler says of it as it is now."""
        found = next((one for one in self.status.conditions or () if one.type == "Scheduled"), None)
        return found if found and found.observed_generation == self.metadata.generation else None


read_request: Final = msgspec.json.Decoder(PlaceRequest).decode


def places_for(
    workload: QueuedWorkload, flavors: Mapping[str, Flavor], names: Mapping[str, object]
) -> Object:
    """``spec.placesFor`` of the PodGroup that asks for the places of a Workload.

    The templates get what Kueue will give to the pods: the labels and tolerations of their flavors, and what
    other admission checks than those of ``names`` add.
    """
    admission = workload.status.admission
    assigned = {one.name: one for one in (admission.pod_set_assignments if admission else None) or ()}
    done = {one.name: one.count for one in workload.status.reclaimable_pods or ()}
    others = [one for one in workload.status.admission_checks or () if one.name not in names]
    updates = [update for one in others for update in one.pod_set_updates or ()]
    sets = []
    for one in workload.pod_sets:
        given = assigned.get(one.name, AssignmentWire())
        # As Kueue counts it: what it admits after pods were done is without them already.
        left = one.count - done.get(one.name, 0)
        left = max(left if given.count is None else min(given.count, left), 0)
        own = [
            flavors[name].spec for name in dict.fromkeys((given.flavors or {}).values()) if name in flavors
        ]
        added = [{"nodeSelector": each.node_labels, "tolerations": each.tolerations} for each in own]
        added += [update for update in updates if update.get("name") == one.name]
        template = _with_additions(one.template, added)
        asked: Object = {"name": one.name, "count": left, "template": template}
        if one.topology_request or left != one.count:
            asked["size"] = one.count
        if one.topology_request:
            asked["topologyRequest"] = _without_nulls(one.topology_request)
        sets.append(asked)
    about = {
        "namespace": workload.metadata.namespace,
        "name": workload.metadata.name,
        "uid": workload.metadata.uid,
    }
    return {"workload": about, "podSets": sets}


def _with_additions(template: Object, added: Sequence[Mapping[str, Any]]) -> Object:
    made: Object = _without_nulls(template)
    spec, metadata = made.setdefault("spec", {}), made.setdefault("metadata", {})
    # Its pods are held by Kueue alone, which lets them go when all checks are ready.
    spec.pop("schedulingGates", None)
    for one in added:
        if one.get("nodeSelector"):
            spec["nodeSelector"] = {**one["nodeSelector"], **(spec.get("nodeSelector") or {})}
        if one.get("tolerations"):
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *one["tolerations"]]
        for field in ("labels", "annotations"):
            if one.get(field):
                metadata[field] = {**(metadata.get(field) or {}), **one[field]}
    if not metadata:
        del made["metadata"]
    return made


def _without_nulls(value: Any) -> Any:
    """A copy without null, which an API server leaves out."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def pod_set_updates(workload: QueuedWorkload) -> list[Object]:
    """What Kueue is to write into the pods, so that they find their places."""
    annotations = {WORKLOAD: workload.metadata.uid}
    return [{"name": one.name, "annotations": annotations} for one in workload.pod_sets]
