"""What limits evictions: PodDisruptionBudgets, and pods and gangs that ask not to be evicted."""

from typing import NamedTuple

from msgspec import Struct

from closeby.objects.selectors import LabelSelector


class PodDisruptionBudget(Struct, frozen=True, kw_only=True):
    """Of ``min_available`` and ``max_unavailable`` one counts, a number of pods or a percentage.

    With neither the disruption controller allows no eviction; the API server fills in nothing.
    """

    namespace: str
    name: str
    #: None selects no pod, an empty one all of the namespace.
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    #: What the disruption controller worked out: ``status.disruptionsAllowed``; None in plain manifests.
    allowed: int | None = None
    #: Whether a pod that does not run yet may be evicted whatever the budget says (``AlwaysAllow``).
    unhealthy_may_go: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ProtectionRequest(NamedTuple):
    """Asks that a pod, or the pods of a gang, are not evicted."""

    #: Where that is said, such as ``spec.preemptibility=non-preemptible``.
    text: str
    #: Members beyond the minimum of the gang may be evicted. Source: KAI's ``semi-preemptible``.
    minimum_only: bool = False
