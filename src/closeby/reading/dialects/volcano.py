"""Volcano's PodGroup (``scheduling.volcano.sh/v1beta1``) and its wish for a network topology.

Tiers of HyperNodes are levels of the topology that these make. A mode that is not given is hard, as in
Volcano: all pods in one HyperNode of the highest tier that is allowed, or of a lower one. A soft one prefers
the lowest.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted
from closeby.objects.groups import (
    ConstraintSource,
    Layer,
    LayerMode,
    PodGroup,
    SubGroup,
    TopologyConstraint,
)
from closeby.objects.labels import TASK_SPEC
from closeby.objects.reasons import Condition, Reason, invalid
from closeby.objects.topologies import HYPERNODES, tier_level
from closeby.reading.common.layers import WHOLE_NUMBER, whole_number
from closeby.reading.common.podgroups import PlacementAsk, new_group
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import VOLCANO_MODE, VOLCANO_TIER, with_queue
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.selectors import LabelSelectorWire
from closeby.reading.decoding.wire import Wire, WithSpec

GROUP_SOURCE: Final = "scheduling.volcano.sh/v1beta1"
#: Label by which Volcano's controller numbers the partitions of a task: index divided by size.
PARTITION: Final = "volcano.sh/partition-id"
_LOWEST_TIER: Final = tier_level(1)


class NetworkTopologyWire(Wire, gc=False):
    """``networkTopology``."""

    mode: str | None = None
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class SubGroupPolicyWire(Wire):
    """``subGroupPolicy[]``."""

    name: str = ""
    network_topology: NetworkTopologyWire | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: LabelSelectorWire | None = None
    match_label_keys: list[str] | None = None


class SpecWire(Wire):
    """``spec``."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    network_topology: NetworkTopologyWire | None = None
    sub_group_policy: list[SubGroupPolicyWire] | None = None
    priority_class_name: str | None = None
    queue: str | None = None


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
    wish = topology_wish(spec.network_topology, owner, "spec.networkTopology")
    problems = wish.conditions
    subgroups = task_subgroups(minimum, spec.min_task_member or {})
    layers: tuple[Layer, ...] = ()
    for i, policy in enumerate(spec.sub_group_policy or ()):
        field = f"spec.subGroupPolicy[{i}]"
        task, understood = _task_of(policy)
        size = policy.sub_group_size
        if not understood or size is None:
            problems += policy_conditions(policy.network_topology, owner, field)
            continue
        if size < 1:
            message = f"{size} is not a number of pods"
            problems += (invalid(owner, f"{field}.subGroupSize", message, WHOLE_NUMBER, blocking=True),)
            continue
        part = partition(policy.network_topology, size, policy.min_sub_groups or 0, owner, field)
        problems += part.conditions
        if task is None or (len(spec.sub_group_policy or ()) == 1 and not subgroups):
            # Of the whole gang: there are no other tasks that closeby knows of.
            layers = part.layers
            minimum = whole_segments(minimum, size) if layers else minimum
        elif part.layers:
            subgroups = _with_partition(subgroups, task, part.layers, spec)
    return checked(
        msgspec.structs.replace(
            group,
            min_member=minimum,
            constraint=wish.constraint,
            layers=() if subgroups else layers,
            subgroups=subgroups,
            priority_class_name=spec.priority_class_name or "",
            annotations=with_queue(group.annotations, spec.queue),
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


def topology_wish(wish: NetworkTopologyWire | None, owner: str, field: str) -> PlacementAsk:
    """What a wish for a network topology asks for; ``owner`` and ``field`` say in conditions where it is."""
    if wish is None:
        return PlacementAsk()
    name = "highestTierAllowed" if wish.highest_tier_name is None else "highestTierName"
    written = _Written(owner, f"{field}.mode", f"{field}.highestTierAllowed", f"{field}.{name}")
    if wish.highest_tier_allowed is not None and wish.highest_tier_name:
        message = "names a tier by its number and by its name, and Volcano refuses that"
        problem = invalid(owner, field, message, "keep one of the two", blocking=True)
        return PlacementAsk(conditions=(problem,))
    tier = None if wish.highest_tier_allowed is None else tier_level(wish.highest_tier_allowed)
    return _wish(wish.mode or "hard", wish.highest_tier_name or tier, written)


def ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What annotations of plain pods ask for; ``owner`` and ``part`` name object and field in conditions."""
    mode, tier = annotations.get(VOLCANO_MODE), annotations.get(VOLCANO_TIER)
    if mode is None and tier is None:
        return PlacementAsk()
    field = f'{part}["{VOLCANO_TIER}"]'
    number = None if tier is None else whole_number(tier)
    if tier is not None and number is None:
        message, remedy = f"{quoted(tier)} is not a tier", "give the number of a tier of the HyperNodes"
        return PlacementAsk(conditions=(invalid(owner, field, message, remedy, blocking=True),))
    written = _Written(owner, f'{part}["{VOLCANO_MODE}"]', field, field)
    return _wish(mode or "hard", None if number is None else tier_level(number), written)


class _Written(Struct, frozen=True):
    """Where a wish is written: the object, and its fields."""

    owner: str
    mode: str
    #: Where a tier is missing, and the one that is given.
    missing: str
    tier: str


def _wish(mode: str, level: str | None, written: _Written) -> PlacementAsk:
    source = ConstraintSource(
        owner=written.owner, required=written.tier, preferred=written.mode, topology="HyperNodes"
    )
    if mode == "soft":
        constraint = TopologyConstraint(topology=HYPERNODES, preferred=_LOWEST_TIER, written=source)
        return PlacementAsk(constraint=constraint)
    if mode != "hard":
        message = f"{quoted(mode)} is not a mode"
        problem = invalid(written.owner, written.mode, message, "use hard or soft", blocking=True)
        return PlacementAsk(conditions=(problem,))
    if level is None:
        message = "is hard without a tier, so it asks for nothing, as in Volcano"
        remedy = f"add {written.missing.rpartition('.')[2]}, or mode: soft"
        return PlacementAsk(conditions=(invalid(written.owner, written.missing, message, remedy),))
    return PlacementAsk(constraint=TopologyConstraint(topology=HYPERNODES, required=level, written=source))


def partition(
    wish: NetworkTopologyWire | None, size: int, least: int, owner: str, field: str
) -> PlacementAsk:
    """The layer of partitions of ``size`` pods; ``least`` of them must start at once (0: what the job needs).

    Partitions without a tier are not followed, which is said.
    """
    asked = topology_wish(wish, owner, f"{field}.networkTopology")
    place = asked.constraint
    if place is None:
        return PlacementAsk(conditions=asked.conditions or policy_conditions(None, owner, field))
    layer = Layer(
        level=place.required or place.preferred or "",
        size=size,
        mode=LayerMode.PREFERRED if place.required is None else LayerMode.REQUIRED,
        min_segments=least or None,
        topology=place.topology,
        written=place.written,
    )
    return PlacementAsk(layers=(layer,), conditions=asked.conditions)


def whole_segments(pods: int, size: int) -> int:
    """The least number of pods of whole partitions that is not below ``pods``."""
    return -(-pods // size) * size


def _task_of(policy: SubGroupPolicyWire) -> tuple[str | None, bool]:
    """The task whose pods a policy divides (None: all pods), and whether it divides them by their index, as
    Volcano's controller writes it.
    """
    selector = policy.label_selector or LabelSelectorWire()
    labels = selector.match_labels or {}
    by_index = policy.match_label_keys == [PARTITION] and not selector.match_expressions
    return labels.get(TASK_SPEC), by_index and labels.keys() <= {TASK_SPEC}


def _with_partition(
    subgroups: tuple[SubGroup, ...], task: str, layers: tuple[Layer, ...], spec: SpecWire
) -> tuple[SubGroup, ...]:
    """The subgroups, with layers of one; a task without a minimum of its own needs what its layer needs."""
    if task in {one.name for one in subgroups}:
        return tuple(
            msgspec.structs.replace(one, layers=layers) if one.name == task else one for one in subgroups
        )
    least = (spec.min_task_member or {}).get(task, 0)
    size = layers[0].size
    pods = max(least, (layers[0].min_segments or 0) * size)
    return (*subgroups, SubGroup(name=task, min_member=whole_segments(pods, size), layers=layers))


def policy_conditions(wish: NetworkTopologyWire | None, owner: str, field: str) -> tuple[Condition, ...]:
    """What to say about pods that are to be partitioned, maybe each part near itself."""
    if wish is None:
        return (_unsupported(owner, field, "a partition of the pods", hard=False),)
    tier = wish.highest_tier_name or wish.highest_tier_allowed
    tiers = "HyperNode tiers" if tier is None else f"HyperNode tier {tier}"
    asked = f"{tiers} for pods that labels other than {TASK_SPEC} and {PARTITION} divide"
    hard = (wish.mode or "hard") != "soft"
    return (_unsupported(owner, field, asked, hard=hard),)


def _unsupported(owner: str, field: str, asked: str, *, hard: bool) -> Condition:
    remedy = "divide them as partitionPolicy of a Volcano Job does, or remove it" if hard else "it is ignored"
    return Condition(
        reason=Reason.UNSUPPORTED,
        object=owner,
        field=field,
        message=f"asks for {asked}: not supported yet",
        remedy=remedy,
        blocking=hard,
    )
