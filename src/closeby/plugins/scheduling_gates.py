"""SchedulingGates: a pod with gates stays out of the queue until they are removed."""

from closeby.objects.bounds import some
from closeby.objects.labels import STEP_GATE
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import PreEnqueue


class SchedulingGates(PreEnqueue):
    """Upstream's plugin of that name."""

    name = "SchedulingGates"
    reads = ("spec.scheduling_gates",)

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        noun, remedy = "gate" if len(gates) == 1 else "gates", "the controller that set a gate removes it"
        message = f"waits for scheduling {noun} {some(gates)}"
        if gates[-1].startswith(STEP_GATE):
            message = f"its turn comes when {gates[-1].removeprefix(STEP_GATE)}"
            remedy = "its controller makes the pods then"
        return Condition(
            reason=Reason.SCHEDULING_GATED,
            object=f"Pod/{pod.key}",
            field="spec.schedulingGates",
            message=message,
            remedy=remedy,
            blocking=True,
        )
