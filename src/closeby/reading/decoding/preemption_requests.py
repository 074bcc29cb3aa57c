"""What pods, PodGroups and workloads ask of preemption, in the words of closeby, KAI and Volcano."""

from collections.abc import Mapping
from typing import Final

from closeby.objects.bounds import quoted
from closeby.objects.reasons import Condition, invalid
from closeby.objects.times import parse_duration
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import (
    KAI_PREEMPTIBILITY,
    KAI_PREEMPTION_DELAY,
    PREEMPTIBLE,
    VOLCANO_PREEMPTABLE,
)

#: KAI evicts some members of what is semi-preemptible; closeby leaves it alone.
_NOT_PREEMPTIBLE: Final = frozenset({"non-preemptible", "semi-preemptible"})
#: Go's words for false, which Volcano reads.
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


def protection_request(annotations: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """Which of them asks that a pod, or the pods of a PodGroup, are not evicted, as ``key=value``; or empty.

    Source: Volcano's ``GetPodPreemptable`` (an annotation before a label), KAI's preemptibility.
    """
    if annotations.get(PREEMPTIBLE) == "false":
        return f"{PREEMPTIBLE}=false"
    if not_preemptible(labels.get(KAI_PREEMPTIBILITY)):
        return f"{KAI_PREEMPTIBILITY}={labels[KAI_PREEMPTIBILITY]}"
    volcano = annotations.get(VOLCANO_PREEMPTABLE, labels.get(VOLCANO_PREEMPTABLE))
    return f"{VOLCANO_PREEMPTABLE}={volcano}" if volcano in _FALSE else ""


def not_preemptible(preemptibility: str | None) -> bool:
    """Whether KAI's word asks that a workload, or what it needs at the least, is not evicted."""
    return preemptibility is not None and preemptibility.lower() in _NOT_PREEMPTIBLE


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
