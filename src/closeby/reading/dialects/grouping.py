"""The pod-grouper's decision: which pods must wait until it has decided whether they belong to a gang.

What a gang asks for mostly stands at the top owner (a JobSet, say), which the scheduler does not read. So a
pod with an owner waits until it names its PodGroup, or is marked to have none.
"""

from typing import Final

import msgspec

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.keys import NOT_GROUPED, PLACED_ON, PLACEMENT_GATE, POD_GROUP
from closeby.reading.dialects.gangs import read_ask
from closeby.reading.dialects.kueue import POD_GROUP_NAME

#: Value of the annotation ``closeby.dev/pod-group`` of a pod that belongs to no gang. The pod-grouper writes
#: it; in a pod template it keeps the pod-grouper away from the pods.
NO_GROUP: Final = "none"
#: Owners whose pods are never a gang: one pod a node, each for itself.
_NEVER: Final = frozenset({"DaemonSet", "Node"})


#: How what an undecided pod waits for ends, among what is unsupported of it.
_NOT_SAID: Final = ", which the pod-grouper has not said yet"
#: Likewise, where the pod-grouper has said that what is asked for makes no sense.
_NO_SENSE: Final = ", so the pod-grouper makes no gang of it"
_TOKENS: Final = frozenset(Reason)


def undecided(pod: Pod) -> bool:
    """Whether the pod-grouper has still to say to which gang a pod belongs, if to any."""
    if pod.group is not None or pod.annotations.get(POD_GROUP) == NO_GROUP:
        return False
    if pod.workload_ref is not None:
        return True
    if pod.owner:
        return pod.owner.partition("/")[0] not in _NEVER
    return POD_GROUP_NAME in pod.labels or read_ask(pod.annotations, "").given


def is_gated(pod: Pod) -> bool:
    """Whether closeby chooses the pod's node and another scheduler binds it: it has our gate, or had it."""
    return PLACEMENT_GATE in pod.spec.scheduling_gates or PLACED_ON in pod.annotations


def says_it_has_none(pod: Pod) -> bool:
    """Whether a pod with an owner has the pod-grouper's mark that it belongs to no gang."""
    return bool(pod.owner) and pod.annotations.get(POD_GROUP) == NO_GROUP


def held_for_the_grouper(pod: Pod) -> Pod:
    """An undecided pod so that no scheduler places it."""
    wrong = pod.annotations.get(NOT_GROUPED)
    lack = f"{wrong}{_NO_SENSE}" if wrong else f"what {_asking(pod)} asks for{_NOT_SAID}"
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, unsupported=(*pod.spec.unsupported, lack))
    )


def awaits_the_grouper(pod: Pod) -> bool:
    """Whether all that a pod waits for is the pod-grouper's word."""
    lacks = pod.spec.unsupported
    return bool(lacks) and all(one.endswith(_NOT_SAID) for one in lacks)


def not_grouped(pod: Pod) -> Condition | None:
    """What the pod-grouper found wrong with what a held pod's workload asks for; None where nothing is."""
    found = next((one for one in pod.spec.unsupported if one.endswith(_NO_SENSE)), None)
    if found is None:
        return None
    token, _, message = found.removesuffix(_NO_SENSE).partition(": ")
    reason = Reason(token) if token in _TOKENS else Reason.INVALID_SPEC
    return Condition(reason=reason, object=f"Pod/{pod.key}", message=message, blocking=True)


def _asking(pod: Pod) -> str:
    if pod.workload_ref is not None:
        return f"Workload {pod.workload_ref.name}"
    return pod.owner or "its group"
