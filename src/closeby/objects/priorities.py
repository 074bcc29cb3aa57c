"""Named priorities (``scheduling.k8s.io`` PriorityClass)."""

from msgspec import Struct


class PriorityClass(Struct, frozen=True, kw_only=True):
    """``global_default`` applies to pods that name no class."""

    name: str
    value: int
    global_default: bool = False
