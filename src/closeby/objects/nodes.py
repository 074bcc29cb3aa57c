"""A node as the scheduler sees it, which of its resources are GPUs, and who tolerates its taints."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from closeby.objects.pods import Toleration

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(Struct, frozen=True):
    """``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class Node(Struct, frozen=True, kw_only=True, gc=False):
    """What Kubernetes says about a node, cut down to what placement needs."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    #: All that ``status.addresses`` names: IP addresses and DNS names.
    addresses: tuple[str, ...] = ()
    #: Amount per resource in whole units, cpu in thousandths (see ``quantities``), rounded down.
    allocatable: Mapping[str, int] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    #: False when a Ready condition is there and is not True.
    ready: bool = True
    uid: str = ""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration matches a taint (upstream's ``Toleration.ToleratesTaint``).

    An empty effect matches every effect, an empty key every key; an empty operator is Equal; an operator
    that is unknown matches nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations matches a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def describe(taint: Taint) -> str:
    """As kubectl writes it: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


#: What the names of other accelerators than GPUs contain, such as ``google.com/tpu``.
_ACCELERATORS: Final = (
    "tpu",
    "neuron",
    "gaudi",
    "npu",
    "ascend",
    "mlu",
    "dcu",
    "qaic",
    "xpu",
    "accelerator",
)


def is_accelerator(resource: str) -> bool:
    """Extended resources of devices that compute: GPUs, and what other vendors call theirs."""
    kind = resource.partition("/")[2].lower()
    return is_gpu(resource) or any(name in kind for name in _ACCELERATORS)


def is_gpu(resource: str) -> bool:
    """Extended resources such as ``nvidia.com/gpu`` and ``nvidia.com/mig-1g.5gb``."""
    vendor, _, kind = resource.partition("/")
    return bool(kind) and ("gpu" in kind or (vendor == "nvidia.com" and kind.startswith("mig-")))
