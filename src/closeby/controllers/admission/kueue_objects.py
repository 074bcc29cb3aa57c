"""Kueue's objects, as far as the admission check needs them: Workloads, ResourceFlavors, AdmissionChecks.

Templates are kept as they are written: the scheduler reads them as it reads pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from closeby.objects.pods import DEFAULT_SCHEDULER

KUEUE: Final = "kueue.x-k8s.io"

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


class AssignmentWire(Struct, frozen=True, rename="camel"):
    """``status.admission.podSetAssignments[]``."""

    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None


class _Admission(Struct, frozen=True, rename="camel"):
    pod_set_assignments: list[AssignmentWire] | None = None


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
    def request_name(self) -> str:
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
    #: A reference to an object of the controller's own kind; closeby has none.
    parameters: object = None


class ConditionsWire(Struct, frozen=True):
    """``status`` of an object of which only the conditions count."""

    conditions: list[ConditionWire] | None = None


class Check(Struct, frozen=True):
    """An AdmissionCheck of Kueue."""

    metadata: MetaWire
    spec: _CheckSpec = _CheckSpec()
    status: ConditionsWire = ConditionsWire()


read_workload: Final = msgspec.json.Decoder(QueuedWorkload).decode
read_flavor: Final = msgspec.json.Decoder(Flavor).decode
read_check: Final = msgspec.json.Decoder(Check).decode
