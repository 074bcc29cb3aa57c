"""A node as the scheduler sees it."""

from collections.abc import Mapping

from msgspec import Struct


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
