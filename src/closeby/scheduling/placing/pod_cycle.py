"""One cycle for a plain pod: the best node, or the reason why there is none."""

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition
from closeby.scheduling.judging.needs import need_of
from closeby.scheduling.placing.tools import Attempt, Tools
from closeby.scheduling.state import CycleState


def place_pod(tools: Tools, pod: Pod) -> Attempt:
    """Place one plain pod."""
    state = CycleState()
    refusal = tools.pre_filter(state, (pod,))
    if refusal is not None:
        return Attempt(refusal=refusal)
    explanations = (tools.explain_pod(state, pod),) if tools.explains(pod.key) else ()
    statement = tools.statement(state)
    slot = tools.filler(statement).best_node(pod, None)
    if slot is None:
        tools.pace.take(200 + tools.cluster.capacity // 50)
        tools.post_filter(state, (pod,))
        reason, message = tools.diagnosis.why_no_node(state, pod)
        refusal = Condition(reason=reason, object=f"Pod/{pod.key}", message=message, blocking=True)
        need = need_of(tools.table, tools.table.shares((pod,)))
        return Attempt(refusal=refusal, need=need, explanations=explanations)
    statement.assume_one(pod, slot)
    placed = ((pod, slot),)
    refusal = tools.permit(state, placed)
    if refusal is not None:
        statement.discard()
        return Attempt(refusal=refusal, explanations=explanations)
    statement.commit()
    return Attempt(placed=placed, explanations=explanations)
