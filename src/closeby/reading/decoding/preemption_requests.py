"""What pods, PodGroups and workloads ask of preemption, in the words of closeby, KAI and Volcano."""

from collections.abc import Mapping
from typing import Final

from closeby.objects.bounds import quoted
from closeby.objects.pods import ProtectionRequest
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import Condition, invalid
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import (
    KAI_PREEMPTIBILITY,
    KAI_PREEMPTION_DELAY,
    PREEMPTIBLE,
    VOLCANO_PREEMPTABLE,
)

#: KAI's word for a gang whose members beyond the minimum alone may be evicted.
SEMI_PREEMPTIBLE: Final = "semi-preemptible"
#: KAI's words that protect anything, and whether that is the minimum only.
_KAI: Final = {"non-preemptible": False, SEMI_PREEMPTIBLE: True}
#: Go's words for false, which Volcano reads.
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


def protection_request(annotations: Mapping[str, str], labels: Mapping[str, str]) -> ProtectionRequest | None:
    """Which of them asks that a pod, or the pods of a PodGroup, are not evicted; None: none of them.

    Source: Volcano's ``GetPodPreemptable`` (an annotation before a label), KAI's preemptibility.
    """
    if annotations.get(PREEMPTIBLE) == "false":
        return ProtectionRequest(f"{PREEMPTIBLE}=false")
    kai = kai_request(KAI_PREEMPTIBILITY, labels.get(KAI_PREEMPTIBILITY))
    volcano = annotations.get(VOLCANO_PREEMPTABLE, labels.get(VOLCANO_PREEMPTABLE))
    if volcano in _FALSE and (kai is None or kai.minimum_only):
        return ProtectionRequest(f"{VOLCANO_PREEMPTABLE}={volcano}")
    return kai


def minimum_request(labels: Mapping[str, str]) -> ProtectionRequest | None:
    """What a pod asks about the minimum of its gang alone."""
    found = kai_request(KAI_PREEMPTIBILITY, labels.get(KAI_PREEMPTIBILITY))
    return found if found is not None and found.minimum_only else None


def kai_request(where: str, preemptibility: str | None) -> ProtectionRequest | None:
    """What KAI's word asks, which is the value of ``where``."""
    minimum_only = None if preemptibility is None else _KAI.get(preemptibility.lower())
    return None if minimum_only is None else ProtectionRequest(f"{where}={preemptibility}", minimum_only)


def preemption_delay(annotations: Mapping[str, str]) -> float:
    """Seconds for which a pod or gang waits before it preempts; 0 where nothing, or nothing valid, says so.

    Source: KAI's preemption delay.
    """
    text = annotations.get(KAI_PREEMPTION_DELAY)
    return 0.0 if text is None else parse_duration(text) or 0.0


def delay_problems(annotations: Mapping[str, str], owner: str) -> tuple[Condition, ...]:
    """What is wrong with the delay that an object names; as with KAI it is ignored then."""
    text = annotations.get(KAI_PREEMPTION_DELAY)
    if text is None or parse_duration(text) is not None:
        return ()
    return (delay_problem(text, owner, field_path((KAI_PREEMPTION_DELAY,), "metadata.annotations")),)


def delay_problem(text: str, owner: str, field: str) -> Condition:
    """A delay that is not a span of time."""
    return invalid(owner, field, f"{quoted(text)} is not a span of time", "write it like 90s or 5m")
