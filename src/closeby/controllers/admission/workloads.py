"""Workloads of Kueue, as far as the admission check needs them, and what is asked of the scheduler for one.

Templates are kept as they are written: the scheduler reads them as it reads pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from closeby.kube.state.ownership import DEFAULT_SCHEDULER
from closeby.objects.places import WORKLOAD
from closeby.reading.decoding.keys import MANAGED_BY, PLACEMENT_GATE

KUEUE: Final = "kueue.x-k8s.io"
#: ``spec.controllerName`` of AdmissionChecks that are ours.
PLACEMENT: Final = PLACEMENT_GATE
#: Who keeps the PodGroups that ask for places.
MANAGER: Final = "closeby-admission-checks"
PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"

Object = dict[str, Any]
"""As JSON."""


class ConditionWire(Struct, frozen=True, rename="camel"):
    """``conditions[]``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int | None = None


class MetaWire(Struct, frozen=True, rename="camel"):
    """``metadata``."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None


class CheckState(Struct, frozen=True, rename="camel"):
    """``status.admissionChecks[]`` of a Workload."""

    name: str = ""
    state: str = ""
    message: str = ""
    last_transition_time: str = ""
    pod_set_updates: list[Object] | None = None


class PodSetWire(Struct, frozen=True, rename="camel"):
    """``spec.podSets[]``."""

    name: str = "main"
    count: int = 1
    template: Object = {}
    topology_request: Object | None = None


class _Assignment(Struct, frozen=True, rename="camel"):
    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None


class _Admission(Struct, frozen=True, rename="camel"):
    pod_set_assignments: list[_Assignment] | None = None


class _Reclaimable(Struct, frozen=True):
    name: str = ""
    count: int = 0


class _Status(Struct, frozen=True, rename="camel"):
    conditions: list[ConditionWire] | None = None
    admission: _Admission | None = None
    admission_checks: list[CheckState] | None = None
    reclaimable_pods: list[_Reclaimable] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    pod_sets: list[PodSetWire] | None = None
    active: bool | None = None


class QueuedWorkload(Struct, frozen=True):
    """A Workload of Kueue."""

    metadata: MetaWire
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def asker(self) -> str:
        """Name of the PodGroup that asks for its places."""
        return f"workload-{self.metadata.uid}"

    @property
    def pod_sets(self) -> Sequence[PodSetWire]:
        """Its pod sets."""
        return self.spec.pod_sets or ()

    def condition(self, type_: str) -> ConditionWire | None:
        """A condition that is true."""
        found = (one for one in self.status.conditions or () if one.type == type_ and one.status == "True")
        return next(found, None)

    def checks(self, names: Mapping[str, object]) -> list[CheckState]:
        """The states of these checks."""
        return [one for one in self.status.admission_checks or () if one.name in names]

    @property
    def wants_places(self) -> bool:
        """Whether it has its quota, is not about to lose it, and has not come to its end.

        Kueue evicts a Workload by one write that also sets its checks back to Pending. The quota goes later,
        when no pod is left. What a check says in between would count for the next quota.
        """
        ended = self.condition("Finished") or self.condition("Evicted")
        return self.condition("QuotaReserved") is not None and ended is None

    def schedulers(self) -> set[str]:
        """The schedulers that its pods name."""
        found = (one.template.get("spec") or {} for one in self.pod_sets)
        return {spec.get("schedulerName") or DEFAULT_SCHEDULER for spec in found}

    def flavors(self) -> set[str]:
        """Names of the flavors that it was given."""
        sets = self.status.admission.pod_set_assignments if self.status.admission else None
        return {flavor for one in sets or () for flavor in (one.flavors or {}).values()}


class _FlavorSpec(Struct, frozen=True, rename="camel"):
    node_labels: dict[str, str] | None = None
    tolerations: list[Object] | None = None


class Flavor(Struct, frozen=True):
    """A ResourceFlavor of Kueue."""

    metadata: MetaWire
    spec: _FlavorSpec = _FlavorSpec()


class _CheckSpec(Struct, frozen=True, rename="camel"):
    controller_name: str = ""


class _Conditions(Struct, frozen=True):
    conditions: list[ConditionWire] | None = None


class Check(Struct, frozen=True):
    """An AdmissionCheck of Kueue."""

    metadata: MetaWire
    spec: _CheckSpec = _CheckSpec()
    status: _Conditions = _Conditions()


class _AskerSpec(Struct, frozen=True, rename="camel"):
    places_for: Object | None = None


class Asker(Struct, frozen=True):
    """A PodGroup that asks for places, and what the scheduler says of it."""

    metadata: MetaWire
    spec: _AskerSpec = _AskerSpec()
    status: _Conditions = _Conditions()

    @property
    def ours(self) -> bool:
        """Whether the admission check wrote it."""
        return (self.metadata.labels or {}).get(MANAGED_BY) == MANAGER

    @property
    def workload(self) -> str:
        """``namespace/name`` of the Workload that it asks for."""
        about = (self.spec.places_for or {}).get("workload") or {}
        return f"{about.get('namespace', '')}/{about.get('name', '')}"

    def older_than(self, other: "Asker") -> bool:
        """Whether the PodGroup asked for this before it asked for what ``other`` has."""
        return self.metadata.generation < other.metadata.generation

    @property
    def answer(self) -> ConditionWire | None:
        """What the scheduler says of it as it is now."""
        found = next((one for one in self.status.conditions or () if one.type == "Scheduled"), None)
        return found if found and found.observed_generation == self.metadata.generation else None


read_workload: Final = msgspec.json.Decoder(QueuedWorkload).decode
read_flavor: Final = msgspec.json.Decoder(Flavor).decode
read_check: Final = msgspec.json.Decoder(Check).decode
read_asker: Final = msgspec.json.Decoder(Asker).decode


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
        given = assigned.get(one.name, _Assignment())
        count = one.count if given.count is None else given.count
        own = [
            flavors[name].spec for name in dict.fromkeys((given.flavors or {}).values()) if name in flavors
        ]
        added = [{"nodeSelector": each.node_labels, "tolerations": each.tolerations} for each in own]
        added += [update for update in updates if update.get("name") == one.name]
        template = _with_additions(one.template, added)
        left = max(count - done.get(one.name, 0), 0)
        asked: Object = {"name": one.name, "count": left, "template": template}
        if one.topology_request:
            asked |= {"size": count, "topologyRequest": _said(one.topology_request)}
        sets.append(asked)
    about = {
        "namespace": workload.metadata.namespace,
        "name": workload.metadata.name,
        "uid": workload.metadata.uid,
    }
    return {"workload": about, "podSets": sets}


def _with_additions(template: Object, added: Sequence[Mapping[str, Any]]) -> Object:
    made: Object = _said(template)
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


def _said(value: Any) -> Any:
    """A copy without null, which an API server leaves out."""
    if isinstance(value, dict):
        return {key: _said(one) for key, one in value.items() if one is not None}
    return [_said(one) for one in value] if isinstance(value, list) else value


def pod_set_updates(workload: QueuedWorkload) -> list[Object]:
    """What Kueue is to write into the pods, so that they find their places."""
    annotations = {WORKLOAD: workload.metadata.uid}
    return [{"name": one.name, "annotations": annotations} for one in workload.pod_sets]


class CheckVerdict(Struct, frozen=True, kw_only=True):
    """What a check is to say."""

    state: str
    message: str
    #: With Retry: seconds after which Kueue may give the quota again.
    requeue_after: int | None = None


class Patience(Struct, frozen=True, kw_only=True):
    """How long a Workload may hold its quota without places, and how long it waits then (seconds).

    Kueue 0.19 gives the quota back only when that second time is over. With 0 it does so at once, and the
    Workload goes behind those that wait.
    """

    deadline: float = 600.0
    retry_after: int = 0


#: What no change of the cluster cures.
_HOPELESS: Final = frozenset({"InvalidSpec", "Unsupported"})


def verdict_on(
    before: str, answer: ConditionWire | None, waited: float, patience: Patience
) -> CheckVerdict | None:
    """What the check is to say; None where that stays as it is.

    ``before`` is its present state; ``answer`` what the scheduler says; ``waited``: seconds since the quota.
    """
    if before not in (PENDING, READY):
        return None
    if answer is not None and answer.status == "True":
        return CheckVerdict(state=READY, message=answer.message)
    again = patience.retry_after or None
    if before == READY:
        if answer is None:
            return None
        text = f"its places are lost: {answer.reason}: {answer.message}"
        return CheckVerdict(state=RETRY, message=text, requeue_after=again)
    if answer is not None and answer.reason in _HOPELESS:
        return CheckVerdict(state=REJECTED, message=f"{answer.reason}: {answer.message}")
    why = "the scheduler did not answer" if answer is None else f"{answer.reason}: {answer.message}"
    if waited >= patience.deadline:
        text = f"no places within {patience.deadline:g} s; {why}"
        return CheckVerdict(state=RETRY, message=text, requeue_after=again)
    return None if answer is None else CheckVerdict(state=PENDING, message=why)


def verdict_unasked(before: str, why: str, waited: float, patience: Patience) -> CheckVerdict | None:
    """What the check is to say where the scheduler could not be asked; places that are held stay so."""
    if before != PENDING:
        return None
    answer = ConditionWire(type="Scheduled", status="False", reason="NotAsked", message=why)
    return verdict_on(before, answer, waited, patience)
