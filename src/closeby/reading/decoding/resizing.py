"""What a pod on a node holds while its resources are resized in place.

Source of the rule: Kubernetes' resource helpers (``determineContainerReqs``) and the KEP on in-place updates
of pod resources: a container holds the greatest of what its spec asks for, what the kubelet allocated and
what it has. Where the resize is infeasible, what the spec asks for does not count.
"""

from collections.abc import Iterator

from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.requests import (
    Amounts,
    ContainersWire,
    ResourcesWire,
    read_amounts,
    requests_or_limits,
)
from closeby.reading.decoding.wire import Quantities, Wire


class ContainerStatusWire(Wire, gc=False):
    """``containerStatuses[]`` or ``initContainerStatuses[]``."""

    name: str = ""
    #: What the container has; absent where the kubelet does not report it.
    resources: ResourcesWire | None = None
    allocated_resources: Quantities | None = None


class PodConditionWire(Wire, gc=False):
    """``conditions[]``."""

    type: str = ""
    reason: str | None = None


class ResizeStatusWire(Wire):
    """The part of a pod's ``status`` that says what it has."""

    container_statuses: list[ContainerStatusWire] | None = None
    init_container_statuses: list[ContainerStatusWire] | None = None
    #: Of the whole pod, where its resources are given for all containers together.
    resources: ResourcesWire | None = None
    allocated_resources: Quantities | None = None
    conditions: list[PodConditionWire] | None = None
    #: As Kubernetes before 1.33 reports it.
    resize: str | None = None


def hold_what_it_has(spec: ContainersWire, status: ResizeStatusWire) -> None:
    """Raises the requests in ``spec``, which belongs to a pod on a node, to what the pod holds.

    Raises:
        FieldError: a quantity that is none; the path starts at the pod.
    """
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return
    changes = [
        (resources, asked, held)
        for resources, asked, held in _resources(spec, status)
        if any(value != asked.get(name, 0) for name, value in held.items())
    ]
    if not changes:
        return
    infeasible = _is_infeasible(status)
    for resources, asked, held in changes:
        base = {name: value for name, value in asked.items() if name not in held} if infeasible else asked
        most = {name: max(base.get(name, 0), held.get(name, 0)) for name in (base | held)}
        requests: Quantities = {name: f"{value}n" for name, value in most.items()}
        limits = read_amounts(resources.limits, ("resources", "limits"))
        resources.requests = requests
        # No request is above its limit.
        resources.limits = {
            name: requests[name] if value < most[name] else f"{value}n" for name, value in limits.items()
        }


def _resources(
    spec: ContainersWire, status: ResizeStatusWire
) -> Iterator[tuple[ResourcesWire, Amounts, Amounts]]:
    """Resources in the spec with a counterpart in the status: what is asked for, and what is held."""
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    for containers, statuses, part in (
        (spec.containers or (), status.container_statuses or (), "containerStatuses"),
        (sidecars, status.init_container_statuses or (), "initContainerStatuses"),
    ):
        at = {one.name: (i, one) for i, one in enumerate(statuses) if one.resources is not None}
        for container in containers if at else ():
            found = at.get(container.name)
            if found is None:
                continue
            i, one = found
            path: Path = ("status", part, i)
            if container.resources is None:
                container.resources = ResourcesWire()
            yield (
                container.resources,
                *_amounts(container.resources, one.resources, one.allocated_resources, path),
            )
    if spec.resources is not None and status.resources is not None:
        yield (
            spec.resources,
            *_amounts(spec.resources, status.resources, status.allocated_resources, ("status",)),
        )


def _amounts(
    spec: ResourcesWire, has: ResourcesWire | None, allocated: Quantities | None, path: Path
) -> tuple[Amounts, Amounts]:
    asked = requests_or_limits(spec, ("spec", "containers"))
    held = read_amounts(has.requests if has else None, (*path, "resources", "requests"))
    for name, value in read_amounts(allocated, (*path, "allocatedResources")).items():
        held[name] = max(held.get(name, 0), value)
    return asked, held


def _is_infeasible(status: ResizeStatusWire) -> bool:
    """Whether the kubelet has refused the resize for good."""
    if status.resize == "Infeasible":
        return True
    return any(
        one.type == "PodResizePending" and one.reason == "Infeasible" for one in status.conditions or ()
    )
