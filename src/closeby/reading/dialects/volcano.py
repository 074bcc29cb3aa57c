"""Volcano's PodGroup (``scheduling.volcano.sh/v1beta1``) and its wish for a network topology.

Volcano counts tiers of HyperNodes, which closeby does not know: a hard wish makes the gang wait rather than
be placed wrongly, a soft one is reported. A mode that is not given is hard, as in Volcano.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import KUEUE_REQUIRED
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec
from closeby.reading.dialects.podgroups import new_group
from closeby.reading.dialects.trees import checked

GROUP_SOURCE: Final = "scheduling.volcano.sh/v1beta1"


class NetworkTopologyWire(Wire, gc=False):
    """``networkTopology``."""

    mode: str | None = None
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class SubGroupPolicyWire(Wire):
    """``subGroupPolicy[]``."""

    name: str = ""
    network_topology: NetworkTopologyWire | None = None


class SpecWire(Wire):
    """``spec``."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    network_topology: NetworkTopologyWire | None = None
    sub_group_policy: list[SubGroupPolicyWire] | None = None
    priority_class_name: str | None = None


def read_pod_group(document: Document, reading: DocumentReading) -> PodGroup:
    """A gang; minima of single tasks become subgroups called like the tasks.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    spec = wire.spec or SpecWire()
    minimum = 1 if spec.min_member is None else spec.min_member
    group = new_group(document, reading, wire.meta)
    owner = f"PodGroup/{group.key}"
    problems = topology_conditions(spec.network_topology, owner, "spec.networkTopology")
    for i, policy in enumerate(spec.sub_group_policy or ()):
        problems += policy_conditions(policy.network_topology, owner, f"spec.subGroupPolicy[{i}]")
    return checked(
        msgspec.structs.replace(
            group,
            min_member=minimum,
            subgroups=task_subgroups(minimum, spec.min_task_member or {}),
            priority_class_name=spec.priority_class_name or "",
            conditions=(*group.conditions, *problems),
        )
    )


def task_subgroups(minimum: int, task_minima: Mapping[str, int]) -> tuple[SubGroup, ...]:
    """One subgroup a task; none where the gang may start with fewer pods than its tasks add up to, for then
    Volcano does not look at single tasks.
    """
    if minimum < sum(task_minima.values()):
        return ()
    return tuple(SubGroup(name=name, min_member=least) for name, least in task_minima.items())


def topology_conditions(wish: NetworkTopologyWire | None, owner: str, field: str) -> tuple[Condition, ...]:
    """What to say about a wish for a network topology."""
    if wish is None:
        return ()
    tier = wish.highest_tier_name or wish.highest_tier_allowed
    asked = "HyperNode tiers" if tier is None else f"HyperNode tier {tier}"
    return (_unsupported(owner, field, asked, hard=(wish.mode or "hard") != "soft"),)


def policy_conditions(wish: NetworkTopologyWire | None, owner: str, field: str) -> tuple[Condition, ...]:
    """What to say about pods that are to be partitioned, maybe each part near itself."""
    if wish is not None:
        return topology_conditions(wish, owner, f"{field}.networkTopology")
    return (_unsupported(owner, field, "a partition of the pods", hard=False),)


def _unsupported(owner: str, field: str, asked: str, *, hard: bool) -> Condition:
    instead = f"remove it, and name a level of a Topology in the annotation {KUEUE_REQUIRED} instead"
    remedy = instead if hard else "it is ignored"
    return Condition(
        reason=Reason.UNSUPPORTED,
        object=owner,
        field=field,
        message=f"asks for {asked}: not supported yet",
        remedy=remedy,
        blocking=hard,
    )
