"""Which taints a pod puts up with."""

from collections.abc import Iterable

from closeby.objects.nodes import Taint
from closeby.objects.pods import Toleration

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


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
