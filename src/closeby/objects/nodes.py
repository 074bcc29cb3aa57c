"""A node as the scheduler sees it, which of its resources are accelerators, and who tolerates its taints."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from closeby.objects.pods import Toleration

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


class Taint(Struct, frozen=True):
    """``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class NodeImage(Struct, frozen=True, gc=False):
    """A container image that a node has, by one of its names."""

    name: str
    #: Bytes.
    size: int


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
    #: Under every name, those without a size left out; sorted by name. Equal ones are one object.
    images: tuple[NodeImage, ...] = ()


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration matches a taint (upstream's ``Toleration.ToleratesTaint``).

    An empty effect matches every effect, an empty key every key; an empty operator is Equal; Gt and Lt
    compare whole numbers, and match no other values; an operator that is unknown matches nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Gt", "Lt"):
        bound, value = whole_number(toleration.value), whole_number(taint.value)
        if bound is None or value is None:
            return False
        return value > bound if toleration.operator == "Gt" else value < bound
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def whole_number(text: str) -> int | None:
    """The number of a taint or a toleration: 64 bits, without leading zeros or a plus; None if it is none."""
    if _WHOLE.fullmatch(text) is None or not -(2**63) <= int(text) < 2**63:
        return None
    return int(text)


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of the tolerations matches a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def keeps_off(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether a taint keeps a pod with these tolerations off; one that only prefers others does not."""
    return taint.effect != PREFER_NO_SCHEDULE and not tolerated(tolerations, taint)


def admission_tolerations(resources: Iterable[str]) -> tuple[Toleration, ...]:
    """What upstream's admission plugin ExtendedResourceToleration gives a pod that requests these."""
    extended = (name for name in resources if "/" in name and "kubernetes.io/" not in name)
    return tuple(Toleration(name, "Exists", "", NO_SCHEDULE) for name in sorted(extended))


def describe(taint: Taint) -> str:
    """As kubectl writes it: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


#: Extended resources that are a part of a device: a node's sum says nothing of what is free on one of them.
_PARTS: Final = re.compile(
    r"(koordinator\.sh|kubernetes\.io)/gpu(-core|-memory|-memory-ratio|\.shared)?"
    r"|volcano\.sh/vgpu-number|gpu\.intel\.com/(millicores|memory\.max)"
    # The device, what is measured of it, and in what.
    r"|[a-z0-9.-]+/[a-z]*(gpu|npu|cuda|dcu)[-_.]?(mem(ory)?|cores?|milli(cores)?|percent(age)?|fraction)"
    r"([-_.](ratio|percent(age)?))?"
    r"|[a-z0-9.-]+/(mlu\.smlu\.(vmemory|vcore)"
    r"|[A-Za-z0-9-]+\.(vMem|vCore)|sgpu|vcore|vmemory|sgpu-(core|memory)|Ascend[0-9A-Za-z-]+-memory"
    r"|vgcu(-percentage)?|vxpu(-memory)?)"
)


def is_part_of_a_device(resource: str) -> bool:
    """Whether what a pod requests under this name is taken from a device that others use too."""
    return _PARTS.fullmatch(resource) is not None


def is_share(resource: str) -> bool:
    """Whether one of it is less than a device: a part, or a turn of time-slicing."""
    return resource.endswith(".shared") or is_part_of_a_device(resource)


def is_gpu(resource: str) -> bool:
    """Extended resources such as ``nvidia.com/gpu`` and ``nvidia.com/mig-1g.5gb``; a share is none."""
    return _of_gpus(resource) and not is_share(resource)


def _of_gpus(resource: str) -> bool:
    vendor, _, kind = resource.partition("/")
    return bool(kind) and ("gpu" in kind or (vendor == "nvidia.com" and kind.startswith("mig-")))


#: Words in the names of extended resources that are no accelerators: networks, virtual machines, storage,
#: other devices of a host, and what is no device.
_NO_ACCELERATOR: Final = re.compile(
    r"(?<![a-z])(rdma|roce|hca|infiniband|efa|eni|mlnxnics?|nics?|sriov|vfs?|hostdev|netdevices?|net|network(ing)?"
    r"|bandwidth|bridge|ovs|macvtap|ips?|kvm|tun|vhost|fuse|video|tty|usb|sev|tdx|sgx|tpm|qat|dsa|iaa"
    r"|cpus?|mem|memory|storage|disks?|volumes?|licen[cs]es?|tokens?|monitoring)(?![a-z])"
)


@lru_cache(maxsize=4096)
def is_accelerator(resource: str) -> bool:
    """Extended resources of devices that compute: GPUs, TPUs, Gaudi, Ascend, Neuron, FPGAs and so on.

    Judged by name; shares of them count. Kubernetes' own resources, network cards, KVM devices, bandwidth and
    the like are none.
    """
    vendor, _, kind = resource.lower().partition("/")
    if not kind or kind.endswith("_monitoring"):
        return False
    if _of_gpus(resource):
        return True
    own = vendor == "kubernetes.io" or vendor.endswith(".kubernetes.io")
    return not own and _NO_ACCELERATOR.search(f"{vendor}/{kind}") is None
