"""What closeby's admission check says of a Workload: its state, by what the scheduler answered and when."""

from typing import Final

from msgspec import Struct

from closeby.controllers.admission.kueue_objects import ConditionWire

PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"


class CheckVerdict(Struct, frozen=True, kw_only=True):
    """What a check is to say."""

    state: str
    message: str
    #: With Retry: seconds after which Kueue may give the quota again.
    requeue_after: int | None = None


class AdmissionLimits(Struct, frozen=True, kw_only=True):
    """How long a Workload may hold its quota without places, and how long it waits then (seconds).

    Kueue 0.19 gives the quota back only when that second time is over. With 0 it does so at once, and the
    Workload goes behind those that wait.
    """

    deadline: float = 600.0
    retry_after: int = 0


#: What no change of the cluster cures.
_PERMANENT: Final = frozenset({"InvalidSpec", "Unsupported"})


def verdict_on(
    before: str, answer: ConditionWire | None, waited: float, limits: AdmissionLimits
) -> CheckVerdict | None:
    """What the check is to say; None where that stays as it is.

    ``before`` is its present state; ``answer`` what the scheduler says; ``waited``: seconds since the quota.
    """
    if before not in (PENDING, READY):
        return None
    if answer is not None and answer.status == "True":
        return CheckVerdict(state=READY, message=answer.message)
    again = limits.retry_after or None
    if before == READY:
        if answer is None:
            return None
        text = f"its places are lost: {answer.reason}: {answer.message}"
        return CheckVerdict(state=RETRY, message=text, requeue_after=again)
    if answer is not None and answer.reason in _PERMANENT:
        return CheckVerdict(state=REJECTED, message=f"{answer.reason}: {answer.message}")
    why = "the scheduler did not answer" if answer is None else f"{answer.reason}: {answer.message}"
    if waited >= limits.deadline:
        text = f"no places within {limits.deadline:g} s; {why}"
        return CheckVerdict(state=RETRY, message=text, requeue_after=again)
    return None if answer is None else CheckVerdict(state=PENDING, message=why)


def verdict_without_request(
    before: str, why: str, waited: float, limits: AdmissionLimits
) -> CheckVerdict | None:
    """What the check is to say where the scheduler could not be asked; places that are held stay so."""
    if before != PENDING:
        return None
    answer = ConditionWire(type="Scheduled", status="False", reason="NotAsked", message=why)
    return verdict_on(before, answer, waited, limits)
