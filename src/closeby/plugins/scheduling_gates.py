"""SchedulingGates: a pod with gates stays out of the queue until they are removed."""

from closeby.objects.bounds import some
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import PreEnqueue


class SchedulingGates(PreEnqueue):
    """Upstream's plugin of that name."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        noun = "gate" if len(gates) == 1 else "gates"
        return Condition(
            reason=Reason.SCHEDULING_GATED,
            object=f"Pod/{pod.key}",
            field="spec.schedulingGates",
            message=f"waits for scheduling {noun} {some(gates)}",
            remedy="the controller that set a gate removes it",
            blocking=True,
        )
