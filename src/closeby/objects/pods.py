"""A pod as the scheduler sees it: who it is, and its needs, which equal pods share."""

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from closeby.objects.selectors import LabelSelector, Named, PodAffinity, TopologySpreadConstraint

#: The scheduler of a pod without ``spec.schedulerName``.
DEFAULT_SCHEDULER: Final = "default-scheduler"


class Toleration(Struct, frozen=True):
    """``key`` empty with operator Exists tolerates all; ``effect`` empty matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """One ``matchExpressions`` or ``matchFields`` entry of a node selector.

    ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    """All requirements must hold; a term without any matches no node (as upstream)."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredTerm(Struct, frozen=True):
    """A preferred node affinity term; ``weight`` is 1 to 100."""

    weight: int
    term: NodeSelectorTerm


class HostPort(Struct, frozen=True):
    """A port claimed on the node; ``host_ip`` 0.0.0.0 stands for all addresses."""

    port: int
    protocol: str = "TCP"
    host_ip: str = "0.0.0.0"


class InlineDisk(Struct, frozen=True):
    """A network disk that the pod's spec names itself, and that a node attaches for one pod alone."""

    #: Field of the volume: ``gcePersistentDisk``, ``awsElasticBlockStore``, ``rbd`` or ``iscsi``.
    kind: str
    #: What names the disk: name, ID, IQN, or pool and image.
    name: str
    #: Whether pods that only read it share it. An AWS disk is never shared.
    shared: bool = False
    #: Of ``rbd``, sorted: two disks are one where they have a monitor in common.
    monitors: tuple[str, ...] = ()


class AttachedDisk(Struct, frozen=True, gc=False):
    """A network disk that the pod's spec names itself, as the CSI driver knows it that attaches it now."""

    driver: str
    handle: str

    @property
    def key(self) -> str:
        """One for each disk; no claim has such a key."""
        return f"disk:{self.driver}:{self.handle}"


#: What one node has for one pod alone.
PortOrDisk: TypeAlias = HostPort | InlineDisk


def conflict(one: PortOrDisk, other: PortOrDisk) -> bool:
    """Whether two pods cannot have these on one node."""
    match one, other:
        case HostPort(), HostPort():  # 0.0.0.0 stands for every address.
            anywhere = "0.0.0.0" in (one.host_ip, other.host_ip)
            same = one.port == other.port and one.protocol == other.protocol
            return same and (anywhere or one.host_ip == other.host_ip)
        case InlineDisk(), InlineDisk():
            same = one.kind == other.kind and one.name == other.name
            apart = bool(one.monitors) and set(one.monitors).isdisjoint(other.monitors)
            return same and not apart and not (one.shared and other.shared)
    return False


#: Mode of a volume that has a file system.
FILESYSTEM: Final = "Filesystem"


class ClaimName(StrEnum):
    """How the name of a pod's claim is made."""

    #: It is the name itself.
    GIVEN = "given"
    #: The name, a dash, and the name of the pod: as a StatefulSet names claims.
    BEFORE_POD = "before-pod"
    #: The name of the pod, a dash, and the name: a generic ephemeral volume, which is the pod's own.
    AFTER_POD = "after-pod"
    #: Of a pod that is still to come: its volume, and the uid of what it belongs to. No object is called so.
    TO_COME = "to-come"


class ClaimRequest(Struct, frozen=True, kw_only=True):
    #: None where it names no class, empty where it wants none.
    storage_class: str | None = None
    #: Bytes.
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = FILESYSTEM
    attributes_class: str = ""
    #: What the labels of its volume must meet; None where they don't matter.
    selector: LabelSelector | None = None


class PodClaim(Struct, frozen=True):
    """A volume of a pod that a PersistentVolumeClaim of its namespace stands for."""

    name: str
    naming: ClaimName = ClaimName.GIVEN
    #: What the claim asks for that a controller makes for each pod, where a manifest says so.
    request: ClaimRequest | None = None

    @property
    def volume(self) -> str:
        """The volume in the pod's spec, of an ephemeral one."""
        return self.name.partition(":")[0]

    def of(self, pod_name: str) -> str:
        """The claim's name, for the pod of this name."""
        match self.naming:
            case ClaimName.BEFORE_POD:
                return f"{self.name}-{pod_name}"
            case ClaimName.AFTER_POD:
                return f"{pod_name}-{self.name}"
            case ClaimName.TO_COME:
                return f"{pod_name}:{self.name}"
            case ClaimName.GIVEN:
                return self.name


class PodSpec(Struct, frozen=True, kw_only=True, cache_hash=True):
    """A pod's needs. Hashable, so that pods with equal needs are recognised and judged once."""

    #: Effective requests, sorted by resource name: containers, sidecars, init containers and overhead
    #: combined as the kubelet does; whole units, cpu in thousandths, rounded up. ``pods`` is not in it.
    requests: tuple[tuple[str, int], ...] = ()
    #: Sorted by key.
    node_selector: tuple[tuple[str, str], ...] = ()
    #: None means no required affinity; the terms are alternatives.
    required_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_affinity: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    #: Sorted, without repeats.
    inline_disks: tuple[InlineDisk, ...] = ()
    #: Sorted, without repeats: those of them, and others, that count against the limits of CSI drivers.
    attached_disks: tuple[AttachedDisk, ...] = ()
    #: Images of all containers and image volumes with their tags, sorted, as often as they are used.
    images: tuple[str, ...] = ()
    #: Of its ResourceClaims for which devices are allocated: the nodes that can use them, as alternatives.
    claimed_nodes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    #: ``runtimeClassName`` of a pod without overhead of its own.
    runtime_class: str = ""
    #: Sorted by name. Those that each pod has for itself are named by rule, so that equal pods share this.
    claims: tuple[PodClaim, ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    #: None without any term.
    pod_affinity: PodAffinity | None = None
    topology_spread: tuple[TopologySpreadConstraint, ...] = ()
    #: Hard constraints that closeby does not know yet, as field paths; such a pod waits.
    unsupported: tuple[str, ...] = ()
    #: Constraints that no API server accepts, as field paths with what is wrong; such a pod waits too.
    invalid: tuple[str, ...] = ()
    #: Guaranteed, Burstable or BestEffort.
    qos_class: str = "BestEffort"
    scheduler_name: str = ""
    priority_class_name: str = ""
    #: ``spec.priority``; None when only the class name (or nothing) is given.
    priority: int | None = None
    #: ``spec.preemptionPolicy``: empty when it is not given.
    preemption_policy: str = ""

    @property
    def ports_and_disks(self) -> tuple[PortOrDisk, ...]:
        """What no other pod on its node may have."""
        return (*self.host_ports, *self.inline_disks) if self.inline_disks else self.host_ports


class PodResourceClaim(Struct, frozen=True, gc=False):
    """A ResourceClaim that a pod names, or that a controller made for it."""

    #: Where it stands in the pod, as what the pod waits for.
    field: str
    #: Name of the ResourceClaim.
    claim: str


class RuntimeClass(Struct, frozen=True, kw_only=True):
    """What the pods of a runtime class need besides; admission writes it into them."""

    name: str
    #: Sorted by resource name, in whole units.
    overhead: tuple[tuple[str, int], ...] = ()
    #: Sorted by key.
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class WorkloadRef(Struct, frozen=True, gc=False):
    """``spec.workloadRef`` of Kubernetes 1.35: a pod group of a Workload, and which replica of it."""

    name: str
    pod_group: str
    replica_key: str = ""

    @property
    def gang(self) -> str:
        return ".".join(filter(None, (self.name, self.pod_group, self.replica_key)))


class BandwidthLimits(Struct, frozen=True, gc=False):
    """Bits per second that a node's network plugin lets a pod receive and send; None means no limit."""

    ingress: int | None = None
    egress: int | None = None


class Pod(Named, frozen=True, kw_only=True, gc=False):
    """One pod. Equal pods share one ``spec`` object.

    Hundreds of thousands of them live at once and none is part of a reference cycle, so the garbage collector
    is spared looking at them.
    """

    #: ``namespace/name`` when the manifest has none.
    uid: str
    spec: PodSpec
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    #: ``spec.nodeName``: where it is bound; None while it waits.
    node_name: str | None = None
    #: Kubernetes' phase: Pending, Running, Succeeded, Failed or Unknown.
    phase: str = "Pending"
    #: Seconds since the epoch; None when unknown (such pods sort last).
    created: float | None = None
    #: True once deletionTimestamp is set; it still occupies its node.
    terminating: bool = False
    #: ``deletionTimestamp``: when the grace of one that is being deleted ends; None when unknown.
    deleted_by: float | None = None
    #: Name of its PodGroup, in its namespace.
    group: str | None = None
    #: What says to which gang it belongs, where that is a Workload and not a PodGroup.
    workload_ref: WorkloadRef | None = None
    #: Its ResourceClaims, as far as their names are known.
    resource_claims: tuple[PodResourceClaim, ...] = ()
    #: Name of its leaf subgroup.
    subgroup: str | None = None
    #: Position of what it belongs to in the spec of its workload: of a JobSet's replicated job, of a role.
    part: int = 0
    #: Index of its job within that part (a JobSet's job, a replica of a LeaderWorkerSet).
    job: int = 0
    #: Index given by its controller (Job completion index, StatefulSet ordinal, ...), in that job.
    index: int | None = None
    #: Rank that it was given, if the author of this record gave it. Never read from the pod's label, which
    #: its owner may write too: what stands in a cluster is ``PodGroup.ranks``, or else ``labelled_rank``.
    rank: int | None = None
    #: ``Kind/name`` of its controller; empty for a plain pod.
    owner: str = ""
    #: What it does in its job (``ps``, ``worker``, ...); empty if unknown.
    role: str = ""
    #: What its annotations limit its traffic to; None when they say nothing.
    bandwidth_limits: BandwidthLimits | None = None
    #: ``status.startTime``; None when unknown.
    started: float | None = None
    #: When it wrote its last checkpoint, by its annotation; None when unknown.
    checkpointed: float | None = None
    #: Whether an earlier process chose its node, to which another scheduler has not bound it yet.
    begun: bool = False
    #: Rank that its label says, of a pod to which closeby gave its node for another scheduler to bind, and in
    #: files. Its owner may write the label too: it counts only where no status says a rank, and within its
    #: gang alone.
    labelled_rank: int | None = None
    #: When it will be done, in seconds since the epoch: its deadline, or what its annotation says where that
    #: is earlier; None if unknown.
    ends: float | None = None
    #: Seconds from its start by which it is gone at the latest, its deadline with the grace to terminate;
    #: None: it may take any time.
    lasts: float | None = None
    #: ``terminationGracePeriodSeconds``: what it may take to end; 30 where nothing is said.
    grace: int = 30

    @property
    def finished(self) -> bool:
        """Finished pods hold nothing on their node."""
        return self.phase in ("Succeeded", "Failed")


def gang_key(pod: Pod) -> str:
    """``namespace/name`` of the gang that a pod names."""
    return f"{pod.namespace}/{pod.group}"


class PriorityClass(Struct, frozen=True, kw_only=True):
    """``global_default`` applies to pods that name no class."""

    name: str
    value: int
    global_default: bool = False
    #: What a pod of this class does that names no policy itself: ``Never`` or ``PreemptLowerPriority``.
    preemption_policy: str = ""


#: Those that every API server has.
SYSTEM_CLASSES: Final = (
    PriorityClass(name="system-cluster-critical", value=2_000_000_000),
    PriorityClass(name="system-node-critical", value=2_000_001_000),
)


def one_of_each_spec(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Of some pods one for each spec: the members of a gang mostly share theirs."""
    specs = [pod.spec for pod in pods]
    if specs and specs.count(first := specs[0]) == len(specs) and not (first.claims or first.attached_disks):
        return pods[-1:]
    return tuple(dict(zip(map(id, specs), pods, strict=True)).values())


def all_alike(pods: Sequence[Pod]) -> bool:
    """Whether nothing that decides where pods may go tells these apart: needs, labels, owner and group.

    Pods with claims are not alike, since each may have its own.
    """
    first, count = pods[0], len(pods)
    if count == 1:
        return True
    # Gangs have thousands of these. A list of one field takes half the time of a getter, or of tuples.
    return (
        not first.spec.claims
        and [pod.spec for pod in pods].count(first.spec) == count
        and [pod.labels for pod in pods].count(first.labels) == count
        and [pod.owner for pod in pods].count(first.owner) == count
        and [pod.group for pod in pods].count(first.group) == count
        and [pod.namespace for pod in pods].count(first.namespace) == count
        and [pod.node_name for pod in pods].count(first.node_name) == count
        and [pod.terminating for pod in pods].count(first.terminating) == count
    )


class PodDisruptionBudget(Named, frozen=True, kw_only=True):
    """Of ``min_available`` and ``max_unavailable`` one counts, a number of pods or a percentage.

    With neither the disruption controller allows no eviction; the API server fills in nothing.
    """

    #: None selects no pod, an empty one all of the namespace.
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    #: What the disruption controller worked out: ``status.disruptionsAllowed``; None in plain manifests.
    allowed: int | None = None
    #: Whether a pod that does not run yet may be evicted whatever the budget says (``AlwaysAllow``).
    unhealthy_may_go: bool = False


class ProtectionRequest(NamedTuple):
    """Asks that a pod, or the pods of a gang, are not evicted."""

    #: Where that is said, such as ``spec.preemptibility=non-preemptible``.
    text: str
    #: Members beyond the minimum of the gang may be evicted. Source: KAI's ``semi-preemptible``.
    minimum_only: bool = False


#: So many pods can share a claim.
MOST_CONSUMERS: Final = 256


class ResourceClaim(Named, frozen=True, kw_only=True):
    allocated: bool = False
    #: Nodes from which the allocated devices can be used, as alternatives; None where all can.
    nodes: tuple[NodeSelectorTerm, ...] | None = None
    #: uids of the pods (or names of other objects) that use it, and names of the upstream PodGroups.
    reserved_for: frozenset[str] = frozenset()
    reserved_for_groups: tuple[str, ...] = ()
    terminating: bool = False

    @property
    def usable(self) -> bool:
        """Whether pods may use it, as far as there are places."""
        return self.allocated and not self.terminating

    def reserves(self, pod: Pod) -> bool:
        """Whether it is reserved for a pod, or for the pod's PodGroup."""
        return pod.uid in self.reserved_for or pod.group in self.reserved_for_groups

    def serves(self, pod: Pod, places: Container[str]) -> bool:
        """Whether a pod may use it; ``places`` are uids of pods for which it can still be reserved."""
        return self.usable and (self.reserves(pod) or pod.uid in places)

    def places(self, pods: Iterable[Pod]) -> frozenset[str]:
        """uids of those of its pods that have the places left, and for which it is not reserved yet.

        The API server and a controller reserve it for each pod that has its node. So the places are first of
        the pods with a node, then of those that wait, in this order.
        """
        left = MOST_CONSUMERS - len(self.reserved_for) - len(self.reserved_for_groups)
        unreserved = (pod.uid for pod in pods if not self.reserves(pod))
        return frozenset(islice(unreserved, max(left, 0)))
