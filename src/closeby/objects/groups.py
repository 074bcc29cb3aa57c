"""A gang: pods that start together, and where they may be relative to each other.

Places may be asked for before the pods are there: those of a Workload that Kueue gave its quota. Such a gang
is placed with placeholders for those to come. Each real pod takes the place of one of them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.pods import Pod, ProtectionRequest
from closeby.objects.reasons import Condition
from closeby.objects.selectors import Named

#: Annotation of the pods of a Workload: its uid. The admission check has Kueue write it into their template.
WORKLOAD: Final = "closeby.dev/workload"
#: Label of the pods of a Workload: which of its pod sets they belong to. Kueue writes it.
POD_SET: Final = "kueue.x-k8s.io/podset"
#: No object is called so: no pod can make itself a member of such a gang.
_PREFIX: Final = "workload:"
#: Of a uid: so many tell a Workload from an earlier one of its name.
_DIGITS: Final = 8
#: Digits of an index that a controller writes.
_LONGEST_NUMBER: Final = 9


class PlaceSet(Struct, frozen=True, kw_only=True):
    """``count`` places for equal pods; ``template`` is such a pod, but for its name."""

    name: str
    count: int
    template: Pod
    #: Label with the index of a pod; empty: that which its controller is known to write.
    index_label: str = ""
    #: Where the pods are those of several jobs of equal size: the label with the number of the job.
    group_label: str = ""
    group_size: int = 0
    #: Pods of the set in all, those that are done among them; 0: as many as places.
    size: int = 0

    def index_of(self, pod: Pod) -> int | None:
        """The index of a pod among those of the set; None where it has none."""
        index = pod.index
        if self.index_label in pod.labels:
            index = _number(pod.labels[self.index_label])
        if index is None or not self.group_label:
            return index
        group = _number(pod.labels.get(self.group_label, ""))
        return None if group is None else group * self.group_size + index


class AskedPlaces(Struct, frozen=True, kw_only=True):
    """What is asked for, and the Workload (by name and uid, in the namespace of its pods) it is for."""

    namespace: str
    workload: str
    uid: str
    sets: tuple[PlaceSet, ...]
    #: ``namespace/name`` of the PodGroup that asks.
    asker: str = ""

    @property
    def group(self) -> str:
        """What the gang of placeholders is called, in the namespace of the pods."""
        return f"{_PREFIX}{self.workload}:{self.uid[:_DIGITS]}"

    def means(self, name: str) -> bool:
        """Whether a user may mean the Workload by a name, which may be that of its job.

        Kueue calls it after the kind and the name of the job, with some digits at the end. A namespace or a
        kind may stand before the name.
        """
        *before, last = name.split("/")
        if len(before) > 1 and before[-1] != self.namespace:
            return False
        of_job = self.workload.partition("-")[2].rpartition("-")[0]
        return bool(last) and last in (self.workload, of_job)

    @property
    def key(self) -> str:
        """``namespace/name`` of that gang."""
        return f"{self.namespace}/{self.group}"


def is_for_places(group: str) -> bool:
    """Whether a gang of this name is one of placeholders."""
    return group.startswith(_PREFIX)


def workload_of(group: str) -> str:
    """The name of the Workload for whose pods the members of such a gang stand in."""
    return group.removeprefix(_PREFIX).rpartition(":")[0]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else None


class Strategy(StrEnum):
    """In which order domains are tried: the tightest that fits, or the emptiest."""

    BINPACK = "binpack"
    SPREAD = "spread"


class OnPartial(StrEnum):
    """What becomes of a gang whose start does not come to its end: some members are bound, others not."""

    #: The members that are bound keep their nodes, and the rest is tried again.
    KEEP = "Keep"
    #: After a while they are evicted, so that the gang can start over somewhere else.
    EVICT = "Evict"


class LayerMode(StrEnum):
    """Whether each segment of a layer must be in one domain of its level. Source: KAI and Volcano."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class Remainder(StrEnum):
    """Whether the last segment may have fewer pods. Source: KAI allows it, Kueue forbids it."""

    FORBID = "forbid"
    ALLOW = "allow"


class Arrangement(StrEnum):
    """How segments share domains: in as few as can be, or in as many. Source: Slurm's consolidate, spread."""

    PACK = "pack"
    SPREAD = "spread"


class Exclusive(StrEnum):
    """Who else may be in the domain of a segment. Source: JobSet, LeaderWorkerSet (kind), Slurm (all)."""

    NONE = "none"
    #: No other segment of such a layer: neither of this gang nor of another one of its kind.
    KIND = "kind"
    #: No pod that is not of this gang.
    ALL = "all"


#: More pods than any gang has: sizes and indices beyond are slips, and would cost memory.
MOST_PODS: Final = 1_000_000

#: Seconds after which a start that has not come to its end counts as failed, unless the gang says otherwise.
COMPLETION_TIMEOUT: Final = 300.0


class ConstraintSource(Struct, frozen=True, kw_only=True, eq=False):
    """Where a user wrote a constraint, if not in the PodGroup. It makes no constraint another one."""

    #: ``Kind/namespace/name``; empty: the PodGroup.
    owner: str = ""
    #: Fields of the level that is required and of the one that is preferred.
    required: str = ""
    preferred: str = ""
    #: Where a topology can be named.
    topology: str = ""
    #: Of a layer: where its size is; empty: it follows from the workload.
    size: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstraintSource)

    def __hash__(self) -> int:
        return hash(ConstraintSource)


class TopologyConstraint(Struct, frozen=True, kw_only=True):
    """Source: KAI topology-aware scheduling design, ``TopologyConstraint``.

    Levels are named by node label, by the level's alias, or by the label's last part. ``topology`` may be
    None for peers that name only a label key; it is then the one topology that has such a level.
    """

    topology: str | None = None
    required: str | None = None
    preferred: str | None = None
    written: ConstraintSource = ConstraintSource()


class Layer(Struct, frozen=True, kw_only=True):
    """A layer of a gang: its pods, in the order of their index, in segments that each have a domain.

    Layers come coarse to fine; each segment of a layer consists of whole segments of the next one.
    """

    #: Named like the level of a constraint. Source: Kueue's ``topology``, KAI's ``-required-placement``.
    level: str
    #: Pods of each segment; 0 where ``counts`` are given. Source: Kueue's ``size``, Slurm's ``--segment``.
    size: int = 0
    mode: LayerMode = LayerMode.REQUIRED
    remainder: Remainder = Remainder.FORBID
    #: So many segments must be placed at once; None means what the gang's minimum needs. Source: Volcano's
    #: ``minPartitions``, KAI's ``minSubGroup``.
    min_segments: int | None = None
    arrangement: Arrangement = Arrangement.PACK
    exclusive: Exclusive = Exclusive.NONE
    #: Pods of each segment, in order, where they are unequal. Source: users of Kueue (1 + 3 + 4).
    counts: tuple[int, ...] = ()
    #: Of the first layer: in so many domains of its level all segments are. Source: Slurm's ``--switches``.
    max_domains: int | None = None
    #: Seconds after which that limit falls, or, without one, the layer is only preferred. Source: Slurm's
    #: ``count@time``.
    relax_after: float | None = None
    #: None: the topology of the constraint, else the only one that has the level.
    topology: str | None = None
    #: Where a user wrote it; ``required`` is the field of the level.
    written: ConstraintSource = ConstraintSource()


class SubGroup(Struct, frozen=True, kw_only=True):
    """A part of a gang with a minimum and a constraint of its own; ``parent`` names another subgroup."""

    name: str
    min_member: int = 1
    parent: str | None = None
    constraint: TopologyConstraint | None = None
    #: How many of its child subgroups must be placed; None means all.
    min_subgroups: int | None = None
    #: Coarse to fine; only where it has no subgroups below it.
    layers: tuple[Layer, ...] = ()


class GangTemplate(Struct, frozen=True, kw_only=True):
    """One of the pod groups of a Workload; without a minimum its pods need not start together."""

    name: str
    min_member: int = 0


class GangTemplates(Named, frozen=True, kw_only=True):
    """A Workload of Kubernetes 1.35: the gangs to which pods belong that refer to it."""

    templates: tuple[GangTemplate, ...] = ()
    created: float | None = None
    constraint: TopologyConstraint | None = None
    layers: tuple[Layer, ...] = ()
    annotations: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class SizeField(Struct, frozen=True, kw_only=True):
    """A field of a workload from which the minimum of its gang comes."""

    #: Below ``spec``, such as ``workerGroupSpecs[0].replicas``.
    path: str
    value: int
    #: Members for each unit of it.
    each: int = 1
    #: The role of the pods of which there are fewer if it is lower; empty where only the minimum is.
    role: str = ""


class PodGroup(Named, frozen=True, kw_only=True):
    """A gang in closeby's terms, whatever dialect it was written in."""

    uid: str = ""
    min_member: int = 1
    constraint: TopologyConstraint | None = None
    subgroups: tuple[SubGroup, ...] = ()
    #: How many top-level subgroups must be placed; None means all.
    min_subgroups: int | None = None
    #: Coarse to fine; only where there are no subgroups.
    layers: tuple[Layer, ...] = ()
    strategy: Strategy = Strategy.BINPACK
    priority_class_name: str = ""
    priority: int | None = None
    #: ``preemptionPolicy`` of its object, which counts instead of its pods'; empty where it has none. Source:
    #: upstream's PodGroup of 1.37.
    preemption_policy: str = ""
    #: Seconds that it waits before it preempts, from its creation on. Source: KAI's ``preemptionDelay``.
    preemption_delay: float = 0.0
    #: What its object asks about evictions. It counts where the operator lets users protect their pods.
    protected_by: ProtectionRequest | None = None
    created: float | None = None
    #: False when its peer asks for no closeness at all (Kueue's unconstrained topology).
    wants_closeness: bool = True
    #: True when some members must be on different nodes, so that no single node is what the gang wants.
    members_apart: bool = False
    on_partial: OnPartial = OnPartial.KEEP
    #: What of it is evicted together: ``all``, or each pod alone (``single``). Empty: each member beyond the
    #: minimum alone, then the rest.
    disruption: str = ""
    #: Seconds.
    completion_timeout: float = COMPLETION_TIMEOUT
    #: Whether a member that has done its work counts towards the minimum; not where the controller that keeps
    #: the minimum takes such members off it.
    counts_finished: bool = True
    #: uid -> node: where a start that was written down before its first binding puts each of its pods. Empty
    #: when there is none, or when it has come to its end.
    plan: Mapping[str, str] = {}
    #: uid -> rank of the members that were placed earlier.
    ranks: Mapping[str, int] = {}
    #: The API group of the PodGroup of this name for which this one only keeps the plan and the ranks; empty
    #: where it is a gang itself.
    mirrors: str = ""
    annotations: Mapping[str, str] = {}
    #: ``Kind/name`` of the object that controls it; empty where there is none.
    owner: str = ""
    #: The kind of its workload, if only that makes it a gang; empty where something asks for it.
    by_nature: str = ""
    #: The fields of its workload from which the minimum comes, where these are not one known field.
    sizes: tuple[SizeField, ...] = ()
    #: Where it came from, such as ``closeby.dev/v1alpha1`` or ``Job annotations``.
    source: str = ""
    #: What its reader found wrong; a blocking one keeps the gang pending with that reason.
    conditions: tuple[Condition, ...] = ()
    #: It has no pods of its own, but asks for places for those to come.
    places: AskedPlaces | None = None

    @property
    def can_be_partial(self) -> bool:
        """Whether some members may have a node, but too few; where one suffices, none is ever too few."""
        return self.min_member > 1 or bool(self.subgroups)

    @property
    def relaxing(self) -> tuple[Layer, ...]:
        """Layers that are required for a time only, of the gang and of its subgroups; soonest first."""
        layers = (*self.layers, *(layer for one in self.subgroups for layer in one.layers))
        found = [layer for layer in layers if layer.relax_after is not None]
        return tuple(sorted(found, key=lambda layer: layer.relax_after or 0.0))

    def after(self, waited: float) -> "PodGroup":
        """The gang as it is once it has waited so many seconds."""
        if not any((layer.relax_after or 0.0) <= waited for layer in self.relaxing):
            return self
        subgroups = tuple(replace(one, layers=_after(one.layers, waited)) for one in self.subgroups)
        return replace(self, layers=_after(self.layers, waited), subgroups=subgroups)


def _after(layers: tuple[Layer, ...], waited: float) -> tuple[Layer, ...]:
    return tuple(
        layer
        if layer.relax_after is None or layer.relax_after > waited
        else replace(layer, mode=LayerMode.PREFERRED, relax_after=None)
        if layer.max_domains is None
        else replace(layer, max_domains=None, relax_after=None)
        for layer in layers
    )


#: Two roles in alphabetical order; a role with itself stands for the pods of that role among each other.
Pair = tuple[str, str]

#: What makes a role go earlier: the greatest that holds for it counts.
_SELF_ANTI_AFFINITY: Final = 4
_INTER_AFFINITY: Final = 3
_SELF_AFFINITY: Final = 2
_INTER_ANTI_AFFINITY: Final = 1


class RoleRules(Struct, frozen=True, kw_only=True):
    """How the roles of one gang belong together."""

    affinity: frozenset[Pair] = frozenset()
    anti_affinity: frozenset[Pair] = frozenset()
    #: Roles that come first, in this order; the others follow.
    order: tuple[str, ...] = ()
    #: Traffic between two pods of these roles; pairs that are not in it have none.
    traffic: Mapping[Pair, float] = {}

    def ranks(self) -> dict[str, int]:
        """Self-anti-affinity 4, affinity to others 3, self-affinity 2, anti-affinity to others 1.

        Roles that no rule names are not in it; their rank is 0.
        """
        found: dict[str, int] = {}
        for pairs, to_itself, to_others in (
            (self.anti_affinity, _SELF_ANTI_AFFINITY, _INTER_ANTI_AFFINITY),
            (self.affinity, _SELF_AFFINITY, _INTER_AFFINITY),
        ):
            for one, other in pairs:
                rank = to_itself if one == other else to_others
                found[one] = max(found.get(one, 0), rank)
                found[other] = max(found.get(other, 0), rank)
        return found

    def place(self, role: str) -> int:
        """Place in ``order``; roles that are not in it share the last one."""
        return self.order.index(role) if role in self.order else len(self.order)

    def pulls(self) -> dict[str, dict[str, int]]:
        """For each role the others with affinity (1) or anti-affinity (-1), where not both are asked for."""
        found: dict[str, dict[str, int]] = {}
        for pairs, pull in (
            (self.affinity - self.anti_affinity, 1),
            (self.anti_affinity - self.affinity, -1),
        ):
            for one, other in pairs:
                found.setdefault(one, {})[other] = pull
                found.setdefault(other, {})[one] = pull
        return found

    def repels(self, one: str, other: str) -> bool:
        """Whether pods of these roles are to be apart."""
        return pair_of(one, other) in self.anti_affinity

    def weight(self, one: str, other: str) -> float:
        """The traffic between two pods of these roles."""
        return self.traffic.get(pair_of(one, other), 0.0)

    def by_traffic(self, sizes: Mapping[str, int]) -> "RoleRules":
        """The rules with what traffic adds where the annotations leave something open.

        Without affinity, roles with traffic belong together; without an order either, the role whose pod says
        most goes first. ``sizes`` holds the number of pods of each role.
        """
        if not self.traffic or self.affinity:
            return self
        order = self.order or tuple(sorted(sizes, key=lambda role: (-self._traffic_of(role, sizes), role)))
        return RoleRules(
            affinity=frozenset(self.traffic),
            anti_affinity=self.anti_affinity,
            order=order,
            traffic=self.traffic,
        )

    def _traffic_of(self, role: str, sizes: Mapping[str, int]) -> float:
        """The traffic of one pod of a role with all others."""
        return sum(self.weight(role, other) * (count - (role == other)) for other, count in sizes.items())


def pair_of(one: str, other: str) -> Pair:
    """Two roles as ``RoleRules`` names them."""
    return (one, other) if one <= other else (other, one)
