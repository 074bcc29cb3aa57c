"""Labels and annotations of known schedulers that ask for placement in a way closeby does not read.

None of them is dropped silently: one that says required or hard keeps its pods waiting, others are reported.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from closeby.objects.bounds import shown
from closeby.objects.groups import WORKLOAD
from closeby.objects.labels import PLACEMENT, RANK, TOPOLOGY_DOMAIN
from closeby.objects.reasons import MOST_CONDITIONS, Condition, Reason, few
from closeby.objects.words import similar
from closeby.reading.decoding.errors import field_path

#: Who keeps an object, and what it says on PodGroups of the pod-grouper.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
POD_GROUPER: Final = "closeby-pod-grouper"

#: Whether the pods of a workload are a gang: ``false`` for one whose kind is a gang by nature, ``true`` for
#: one of another kind. On PodGroups of the pod-grouper ``by-nature`` says that nothing asked for the gang.
GANG: Final = "closeby.dev/gang"
BY_NATURE: Final = "by-nature"
#: closeby's own keys.
POD_GROUP: Final = "closeby.dev/pod-group"
SUBGROUP: Final = "closeby.dev/subgroup"
#: The pod-grouper's annotation of a pod that must wait as its workload asks for what makes no sense: a reason
#: token, a colon and what is wrong.
NOT_GROUPED: Final = "closeby.dev/not-grouped"
PLACEMENT_STRATEGY: Final = "closeby.dev/placement-strategy"
#: What a pod does in its job, for those whose controller does not say it Volcano's way.
ROLE: Final = "closeby.dev/role"
#: The traffic between the roles of a gang: ``ps-worker=10,worker-worker=1``.
TASK_TRAFFIC: Final = "closeby.dev/task-traffic"
#: Annotation in which older versions kept the plan of a start on PodGroups of other dialects. Who may write a
#: PodGroup may write that too, so it is not read.
PLAN: Final = "closeby.dev/plan"
#: Label of a PodGroup of ours that only keeps what we say of another dialect's of the same name; the value is
#: the API group of that.
MIRROR_OF: Final = "closeby.dev/mirror-of"
#: When the pod's owner expects it to be done, as an RFC 3339 time.
EXPECTED_END: Final = "closeby.dev/expected-end"
#: Annotation of a pod or PodGroup that asks not to be evicted (``false``), where the operator lets it; KAI's
#: label and Volcano's annotation or label for the same.
PREEMPTIBLE: Final = "closeby.dev/preemptible"
KAI_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
VOLCANO_PREEMPTABLE: Final = "volcano.sh/preemptable"
#: How long a pod or gang waits before it preempts.
KAI_PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
#: Scheduling gate of pods whose node closeby chooses while another scheduler binds them (``--mode gate``),
#: and the annotation with that node, which the pod gets as the gate is removed.
PLACEMENT_GATE: Final = PLACEMENT
PLACED_ON: Final = "closeby.dev/placed-on"
#: Labels and annotations that name a queue, which limits what its workloads may use: of Kueue, KAI, Volcano.
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
QUEUE_KEYS: Final = (
    QUEUE_NAME,
    "kai.scheduler/queue",
    "runai/queue",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
)
#: When a pod wrote its last checkpoint, as an RFC 3339 time.
CHECKPOINTED: Final = "closeby.dev/checkpointed-at"
#: Which roles of a gang belong together, which apart, and which come first (Volcano task-topology).
TASK_AFFINITY: Final = "volcano.sh/task-topology-affinity"
TASK_ANTI_AFFINITY: Final = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER: Final = "volcano.sh/task-topology-task-order"
#: Annotations of a gang that say how its roles are to be to each other.
ROLE_TOPOLOGY: Final = (TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER, TASK_TRAFFIC)

#: Volcano's wish of a plain pod; its mode is hard unless it says soft.
VOLCANO_MODE: Final = "volcano.sh/network-topology-mode"
VOLCANO_TIER: Final = "volcano.sh/network-topology-highest-tier"

#: What Kueue and KAI know as a wish for closeness.
KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
KAI_TOPOLOGY: Final = "kai.scheduler/topology"
KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"
KAI_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"

#: Segments: Kueue's slices of one layer or several, and pod sets that are together; KAI's segments.
KUEUE_SLICE: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
KUEUE_SLICES: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
KUEUE_POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
KAI_SEGMENT: Final = "kai.scheduler/segment-size"
KAI_SEGMENT_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
KAI_SEGMENT_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
#: One domain for each job of a JobSet, each group of a LeaderWorkerSet, each subgroup of it.
JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
#: What Slurm's options say, in annotations of ours: --segment, --exclusive=topo, --switches.
SEGMENT_SIZE: Final = "closeby.dev/segment-size"
SEGMENT_LEVEL: Final = "closeby.dev/segment-level"
SEGMENT_ARRANGEMENT: Final = "closeby.dev/segment-arrangement"
EXCLUSIVE_LEVEL: Final = "closeby.dev/exclusive-level"
SWITCHES: Final = "closeby.dev/switches"
SWITCH_LEVEL: Final = "closeby.dev/switch-level"

_OWN: Final = (
    GANG,
    POD_GROUP,
    SUBGROUP,
    NOT_GROUPED,
    RANK,
    TOPOLOGY_DOMAIN,
    PLACEMENT_STRATEGY,
    ROLE,
    TASK_TRAFFIC,
    PLAN,
    MIRROR_OF,
    EXPECTED_END,
    PREEMPTIBLE,
    PLACED_ON,
    CHECKPOINTED,
    SEGMENT_SIZE,
    SEGMENT_LEVEL,
    SEGMENT_ARRANGEMENT,
    EXCLUSIVE_LEVEL,
    SWITCHES,
    SWITCH_LEVEL,
    WORKLOAD,
)

_OWN_PREFIX: Final = "closeby.dev/"
_DOMAINS: Final = (
    "kueue.x-k8s.io",
    "kai.scheduler",
    "volcano.sh",
    "scheduling.x-k8s.io",
    "scheduling.k8s.io",
    "jobset.sigs.k8s.io",
    "leaderworkerset.sigs.k8s.io",
    "grove.io",
    "koordinator.sh",
)
_WORDS: Final = (
    "topology",
    "placement",
    "podset-slice",
    "podset-group",
    "segment",
    "hypernode",
    "tier",
    "partition-policy",
    "exclusive",
    "node-pool",
)
#: Keys with such a word that closeby does read, or that only say what was decided.
_READ: Final = frozenset(
    {
        KUEUE_REQUIRED,
        KUEUE_PREFERRED,
        KUEUE_UNCONSTRAINED,
        KAI_TOPOLOGY,
        KAI_REQUIRED,
        KAI_PREFERRED,
        TASK_AFFINITY,
        TASK_ANTI_AFFINITY,
        TASK_ORDER,
        VOLCANO_MODE,
        VOLCANO_TIER,
        KUEUE_SLICE,
        KUEUE_SLICE_SIZE,
        KUEUE_SLICES,
        KUEUE_GROUP,
        KAI_SEGMENT,
        KAI_SEGMENT_REQUIRED,
        KAI_SEGMENT_PREFERRED,
        JOBSET_EXCLUSIVE,
        LWS_EXCLUSIVE,
        LWS_SUBGROUP_EXCLUSIVE,
        # Much like the name of a group of pod sets.
        KUEUE_POD_GROUP,
    }
)
#: Keys with such a word that schedulers write themselves.
_DECIDED: Final = frozenset(
    {
        "kai.scheduler/numa-placement-observed",
        "kai.scheduler/numa-placement-predicted",
        "volcano.sh/job-allocated-hypernode",
        "volcano.sh/topology-decision",
    }
)
#: Koordinator's list (JSON) of the PodGroups that start together.
_GANGS_TOGETHER: Final = "gang.scheduling.koordinator.sh/groups"
#: Keys that ask for a part of a device, for one device of many, or for another scheduler's gang, and whether
#: a placement without it would be wrong. Sources: KAI's ``pkg/common/constants``, Koordinator's
#: ``apis/extension``, YuniKorn's labels and annotations, HAMi's and Volcano's devices, Armada's gangs,
#: scheduler-plugins' first gangs, Slinky's slurm-bridge; all of 2026.
_OTHERS: Final[Mapping[str, bool]] = {
    "gpu-fraction": True,
    "gpu-fraction.limit": True,
    "gpu-memory": True,
    "gpu-memory.limit": True,
    "gpu-sm-percentage": True,
    "gpu-sm-cores": True,
    "gpu-fraction-num-devices": True,
    "gpu-fraction-container-name": False,
    "alibabacloud.com/gpu-milli": True,
    "alibabacloud.com/gpu-mem": True,
    "alibabacloud.com/gpu-count": True,
    "alibabacloud.com/gpu-card-model": True,
    "armadaproject.io/gangId": True,
    "armadaproject.io/gangNodeUniformityLabel": True,
    "gang.scheduling.koordinator.sh/name": True,
    _GANGS_TOGETHER: False,
    "scheduling.koordinator.sh/device-allocate-hint": True,
    "scheduling.koordinator.sh/device-joint-allocate": False,
    "scheduling.koordinator.sh/exact-match-reservation": True,
    "scheduling.koordinator.sh/gpu-partition-spec": True,
    "scheduling.koordinator.sh/reservation-affinity": True,
    "scheduling.koordinator.sh/resource-spec": False,
    "yunikorn.apache.org/task-groups": True,
    "yunikorn.apache.org/task-group-name": True,
    "yunikorn.apache.org/schedulingPolicyParameters": False,
    "hami.io/gpu-scheduler-policy": False,
    "hami.io/node-scheduler-policy": False,
    "volcano.sh/vgpu-podgroup-policy": False,
    "pod-group.scheduling.sigs.k8s.io/name": True,
    "slurmjob.slinky.slurm.net/constraints": True,
    "slurmjob.slinky.slurm.net/exclusive": False,
    "slurmjob.slinky.slurm.net/partition": False,
    "slurmjob.slinky.slurm.net/reservation": True,
    "slurmjob.slinky.slurm.net/shared": False,
}
#: HAMi's keys and those of Volcano's vGPUs, which choose among the devices of a node, for each vendor
#: (``nvidia.com/use-gpuuuid``, ``hami.io/no-use-Ascend910B2-uuid``).
_DEVICES: Final = re.compile(
    r"(vgpu-)?(no-?)?use-[A-Za-z0-9]*-?(uuid|type)|gpu-(no-)?use-uuid|(no)?use-(va|biren)|numa-bind"
    r"|v[gn]pu-mode"
)
#: Values of Volcano's and Koordinator's NUMA policies by which the kubelet's and the scheduler's choice must
#: agree.
STRICT_NUMA: Final = frozenset({"restricted", "single-numa-node"})
#: Words in Koordinator's values (JSON) that make a wish binding.
_BINDING: Final = ("MustGather", "requiredScope", "requiredCPUBindPolicy", "SingleNUMANode", "Restricted")


#: How alike a key and the one that was meant are.
_ALIKE: Final = 0.95


class Wish(Struct, frozen=True):
    """``hard`` means that a placement without it would be wrong."""

    key: str
    value: str
    hard: bool


def unread_wishes(entries: Mapping[str, str], *, labels: bool = False) -> tuple[Wish, ...]:
    """The wishes among annotations or ``labels`` that closeby does not read.

    A key without a domain is a wish as an annotation only: labels such as ``gpu-memory`` are a user's own.
    """
    asking = [key for key in entries if _asks(key)]
    if not asking:
        return ()
    return tuple(
        Wish(key, entries[key], _hard(key, entries)) for key in asking if not (labels and "/" not in key)
    )


def wish_path(wish: Wish, part: str) -> str:
    """The field path of a wish; ``part`` is ``metadata.annotations`` or ``metadata.labels``, maybe longer."""
    return field_path((wish.key,), part)


def wish_conditions(
    entries: Mapping[str, str], owner: str, part: str = "metadata.annotations"
) -> tuple[Condition, ...]:
    """One condition for each wish that closeby does not read; ``owner`` names the object in them."""
    return few(
        wish_condition(wish, owner, part, guess=place < MOST_CONDITIONS)
        for place, wish in enumerate(unread_wishes(entries, labels=part.endswith("labels")))
    )


def wish_condition(wish: Wish, owner: str, part: str, *, guess: bool = True) -> Condition:
    """What to say about one wish; ``guess`` which key was meant, which takes a fraction of a millisecond."""
    if wish.key.startswith(_OWN_PREFIX):
        close = similar(wish.key, _OWN) if guess else None
        reason, message = Reason.INVALID_SPEC, f"{wish.key} is not a key that closeby knows"
        remedy = f"did you mean {close}?" if close else f"known keys: {', '.join(_OWN)}"
    else:
        right = _almost(wish.key) if guess else None
        reason, message = (
            Reason.UNSUPPORTED,
            f"{wish.key}: {shown(wish.value)} asks for what is not supported yet",
        )
        remedy = "leave the pods to a scheduler that follows it" if wish.hard else "it is ignored"
        if right is not None:
            message = f"is not a key that closeby knows{'' if wish.hard else f'; {remedy}'}"
            remedy = f"did you mean {right}?"
    return Condition(
        reason=reason,
        object=owner,
        field=wish_path(wish, part),
        message=message,
        remedy=remedy,
        blocking=wish.hard,
    )


@lru_cache(maxsize=4096)
def _almost(key: str) -> str | None:
    """The key of the same domain that was meant; None where none is so near that no other can be meant."""
    domain = key.partition("/")[0]
    # Other keys of a domain differ by a word, as podset-slice-required-topology does.
    return similar(key, (one for one in _READ if one.partition("/")[0] == domain), _ALIKE)


@lru_cache(maxsize=4096)
def _asks(key: str) -> bool:
    if key in _OTHERS:
        return True
    domain, slash, name = key.partition("/")
    if not slash or key in _READ or key in _DECIDED:
        return False
    if _DEVICES.fullmatch(name):
        return True
    if domain == "closeby.dev":
        return key not in _OWN
    known = any(domain == one or domain.endswith(f".{one}") for one in _DOMAINS)
    return known and (any(word in name.lower() for word in _WORDS) or _almost(key) is not None)


def _hard(key: str, entries: Mapping[str, str]) -> bool:
    if _OTHERS.get(key):
        return True
    if _DEVICES.fullmatch(key.partition("/")[2]):
        return entries[key] != "false"
    value = entries[key]
    if key == _GANGS_TOGETHER:
        return "," in value  # More than itself.
    if value in STRICT_NUMA or any(word in value for word in _BINDING):
        return True
    return key not in _OTHERS and ("required" in key or "exclusive" in key or value in ("required", "hard"))


def members_apart(annotations: Mapping[str, str]) -> bool:
    """Whether a gang's annotations ask that some of its members be on different nodes."""
    return TASK_ANTI_AFFINITY in annotations


def with_queue(annotations: Mapping[str, str], queue: str | None) -> Mapping[str, str]:
    """Annotations, with the queue that a field of KAI's or Volcano's names; everything is in ``default``."""
    return annotations if queue in (None, "", "default") else {**annotations, QUEUE_KEYS[-1]: queue or ""}
