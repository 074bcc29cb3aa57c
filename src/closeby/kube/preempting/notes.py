"""Whom preemption evicts, in words: for Events on the preemptor and on its victims.

The owner of the preemptor does not learn the names of pods in other namespaces, nor the owner of a victim
who took its place there.
"""

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.writing.writer import Note, Reference, pod_reference
from closeby.objects.pods import Pod
from closeby.objects.words import names_text, path_text, plural
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Preemption


def where_text(plan: Preemption) -> str:
    """The node or the domain that is cleared."""
    return plan.node or path_text(plan.path)


def victims_text(plan: Preemption) -> str:
    """The victims: names of the preemptor's own namespace, and how many others."""
    namespace = plan.preemptor.partition("/")[0]
    named = [pod.name for pod in plan.victims if pod.namespace == namespace]
    other = len(plan.victims) - len(named)
    parts = [names_text(named)] if named else []
    parts += [f"{plural(other, 'pod')} of other namespaces"] if other else []
    return " and ".join(parts) or "no pods"


def preemptor_of(plan: Preemption, state: SchedulingState, objects: GangObjects) -> Reference | None:
    """The PodGroup, or the pod, as Events name it; None where it is gone."""
    if plan.is_gang:
        group = state.groups.get(plan.preemptor)
        found = None if group is None else objects.of(group)
        return None if found is None else found.reference
    pod = state.pods.get(plan.places[0][0])
    return None if pod is None else pod_reference(pod)


def evicted_note(
    victim: Pod, plan: Preemption, id_: str, preemptor: Reference | None, *, overruled: bool = False
) -> Note:
    """For a victim; ``overruled``: a budget covers it and counts for nothing."""
    namespace = plan.preemptor.partition("/")[0]
    by = plan.preemptor
    if victim.namespace != namespace:
        kind, uid = ("a workload", "") if preemptor is None else (preemptor.kind, f" {preemptor.uid}")
        by = f"{kind}{uid} of another namespace"
    text = f"evicted for {by}, plan {id_}"
    if overruled:
        text += "; its PodDisruptionBudget gives way to higher priority, as overruleBudgets says"
    return Note(reason="Preempted", action="Preempting", text=text, warning=True)


def begun_note(plan: Preemption, id_: str) -> Note:
    """For the preemptor."""
    text = f"{victims_text(plan)} must go so that it fits in {where_text(plan)}, plan {id_}"
    return Note(reason="Preempting", action="Preempting", text=text)


def given_up_note(id_: str, why: str) -> Note:
    """For the preemptor."""
    return Note(
        reason="PreemptionGivenUp", action="Preempting", text=f"plan {id_} is given up: {why}", warning=True
    )
