"""Families of node labels that say where a node is in the network. Labels of two families are never mixed.

Families share prefixes and even words with different meanings (``datacenter`` is spine-level in the Topograph
label standard, and the top of the successor proposal), so labels of two families are never read together.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from closeby.objects.labels import is_label_name
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition, invalid
from closeby.objects.words import natural_key, plural

#: Topograph's label of accelerator domains.
TOPOGRAPH_DOMAIN = "accelerator.topograph.run/domain"
#: And those of as many tiers as the fabric has, before their numbers.
TOPOGRAPH_TIERS = "fabric.topograph.run/tier-"
KUBERNETES_NETWORK = "network.topology.kubernetes.io/"
NVIDIA_NETWORK = "network.topology.nvidia.com/"


class LabelFamily(Struct, frozen=True, kw_only=True):
    """The label keys of one family and what may be assumed about their values."""

    name: str
    #: Label keys whose order is known, closest to the node first.
    labels: tuple[str, ...]
    #: The one of ``labels`` whose domains need not nest in those of the next layer; None if there is none.
    accelerator: str | None = None
    #: Prefix of numbered keys of any depth, 0 being the closest; they are above ``labels``.
    tiers: str | None = None
    #: Prefix of custom types, which need a distance from the QoS annotation; None where there are none, and
    #: then the annotation is not read.
    custom: str | None = None
    #: False where a value need not be unique in the cluster, so that it may be found under two parents.
    unique: bool = True

    def place(self, label: str) -> int | None:
        """1 for the closest layer of the family and so on outwards; None if the order does not name it."""
        if label in self.labels:
            return self.labels.index(label) + 1
        tier = self._tier(label)
        return None if tier is None else len(self.labels) + 1 + tier

    def covers(self, label: str) -> bool:
        """Whether the label belongs to this family."""
        if self.custom is not None and label.startswith(self.custom):
            return True
        return label in self.labels or self._tier(label) is not None

    def _tier(self, label: str) -> int | None:
        if self.tiers is None or not label.startswith(self.tiers):
            return None
        number = label[len(self.tiers) :]
        # Other spellings of a number (such as 01) would make two keys one place.
        return int(number) if number.isdecimal() and len(number) < 5 and str(int(number)) == number else None


def _prefixed(prefix: str, *types: str) -> tuple[str, ...]:
    return tuple(prefix + one for one in types)


#: Topograph label standard: reserved types, custom types and the QoS annotation.
NETWORK_LABELS = LabelFamily(
    name="network-labels",
    labels=_prefixed(KUBERNETES_NETWORK, "accelerator", "block", "datacenter", "zone"),
    accelerator=KUBERNETES_NETWORK + "accelerator",
    custom=KUBERNETES_NETWORK,
)
#: Its continuation, Kubernetes enhancement 4962, in which ``spine`` is new and ``datacenter`` the coarsest.
KEP_4962 = LabelFamily(
    name="kep4962",
    labels=_prefixed(KUBERNETES_NETWORK, "accelerator", "block", "spine", "datacenter"),
    accelerator=KUBERNETES_NETWORK + "accelerator",
    custom=KUBERNETES_NETWORK,
)
#: Kubernetes' well-known labels. A zone's name is only said to be unique within its region.
ZONES = LabelFamily(name="zones", labels=_prefixed("topology.kubernetes.io/", "zone", "region"), unique=False)
#: What Topograph wrote before its version 1.0.
TOPOGRAPH_NVIDIA = LabelFamily(
    name="topograph-nvidia",
    labels=_prefixed(NVIDIA_NETWORK, "accelerator", "leaf", "spine", "core"),
    accelerator=NVIDIA_NETWORK + "accelerator",
)
#: What Topograph writes since its version 1.0: as many tiers as the fabric has.
TOPOGRAPH = LabelFamily(
    name="topograph", labels=(TOPOGRAPH_DOMAIN,), accelerator=TOPOGRAPH_DOMAIN, tiers=TOPOGRAPH_TIERS
)
#: Google's compact placement labels on GKE.
GKE = LabelFamily(name="gke", labels=_prefixed("cloud.google.com/gce-topology-", "host", "subblock", "block"))
#: Amazon's network nodes on EKS; layer 1 is the top.
EKS = LabelFamily(name="eks", labels=_prefixed("topology.k8s.aws/network-node-layer-", "3", "2", "1"))
#: Oracle's labels on OKE, closest first.
OKE = LabelFamily(
    name="oke",
    labels=_prefixed(
        "oci.oraclecloud.com/",
        "host.rack_id",
        "rdma.local_block_id",
        "host.network_block_id",
        "rdma.network_block_id",
        "rdma.hpc_island_id",
    ),
)
_NVLINK_DOMAIN: Final = "ds.coreweave.com/nvlink.domain"
#: CoreWeave's labels of its InfiniBand and RoCE networks, with the NVLink domain of a rack of GB200s. Leaf
#: groups and superpods have numbers.
COREWEAVE = LabelFamily(
    name="coreweave",
    labels=(_NVLINK_DOMAIN, *_prefixed("backend.coreweave.cloud/", "leafgroup", "superpod", "fabric")),
    accelerator=_NVLINK_DOMAIN,
    unique=False,
)
#: NVLink partitions as NVIDIA's GPU feature discovery names them, ``<ClusterUUID>.<CliqueID>``.
GPU_CLIQUE = LabelFamily(
    name="gpu-clique", labels=("nvidia.com/gpu.clique",), accelerator="nvidia.com/gpu.clique"
)
_ULTRASERVER: Final = "topology.k8s.aws/ultraserver-id"
_CAPACITY_BLOCK: Final = "topology.k8s.aws/capacity-block-id"
#: EKS with UltraServers, as HyperPod labels them.
EKS_ULTRASERVER = LabelFamily(
    name="eks-ultraserver", labels=(_ULTRASERVER, *EKS.labels), accelerator=_ULTRASERVER
)
#: EKS with capacity blocks, which are the UltraServers of EC2's own description.
EKS_CAPACITY_BLOCK = LabelFamily(
    name="eks-capacity-block", labels=(_CAPACITY_BLOCK, *EKS.labels), accelerator=_CAPACITY_BLOCK
)

#: All families by name.
PRESETS: Mapping[str, LabelFamily] = MappingProxyType(
    {
        family.name: family
        for family in (
            NETWORK_LABELS,
            KEP_4962,
            ZONES,
            TOPOGRAPH_NVIDIA,
            TOPOGRAPH,
            GKE,
            EKS,
            OKE,
            COREWEAVE,
            GPU_CLIQUE,
            EKS_ULTRASERVER,
            EKS_CAPACITY_BLOCK,
        )
    }
)


#: Annotation that holds the quality of a node's switches as JSON (Topograph label standard).
QOS_ANNOTATION = "network.qos.kubernetes.io/switches"


class NodeGroup(NamedTuple):
    """Nodes that carry the same switches and the same annotation."""

    #: Switch name per label key, with legal values only.
    switches: Mapping[str, str]
    annotation: str | None
    #: Names in natural order, at least one.
    nodes: tuple[str, ...]


class GroupedNodes(NamedTuple):
    """All groups, in the natural order of their first nodes, and what had to be left out."""

    groups: tuple[NodeGroup, ...]
    #: Nodes per label key whose value is not a legal one and must not count.
    illegal: Mapping[str, frozenset[str]]
    conditions: tuple[Condition, ...]


def group_nodes(nodes: Iterable[Node], family: LabelFamily) -> GroupedNodes:
    """Group nodes by their labels of the family and their annotation. An empty value is a missing label."""
    names: dict[tuple[tuple[tuple[str, str], ...], str | None], list[str]] = {}
    for node in nodes:
        labels = tuple(
            sorted((key, value) for key, value in node.labels.items() if value and family.covers(key))
        )
        annotation = node.annotations.get(QOS_ANNOTATION) if family.custom is not None else None
        names.setdefault((labels, annotation), []).append(node.name)
    groups: list[NodeGroup] = []
    illegal: dict[tuple[str, str], list[str]] = {}
    for (labels, annotation), members in names.items():
        legal = {key: value for key, value in labels if _is_legal(key, value)}
        groups.append(NodeGroup(legal, annotation, tuple(sorted(members, key=natural_key))))
        for key, value in labels:
            if key not in legal:
                illegal.setdefault((key, value), []).extend(members)
    left_out: dict[str, frozenset[str]] = {}
    for (key, _), members in illegal.items():
        left_out[key] = left_out.get(key, frozenset()).union(members)
    return GroupedNodes(
        tuple(sorted(groups, key=lambda group: natural_key(group.nodes[0]))),
        left_out,
        tuple(_illegal_label(key, value, illegal[key, value]) for key, value in sorted(illegal)),
    )


def and_more(nodes: Sequence[str]) -> str:
    """The first name, and how many there are besides."""
    more = len(nodes) - 1
    return nodes[0] if not more else f"{nodes[0]} and {plural(more, 'more node')}"


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first few of the names in natural order, and how many there are besides."""
    ordered = sorted(names, key=natural_key)
    shown = ", ".join(ordered[:most])
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"


def label_field(label: str) -> str:
    """The field of a node that holds a label."""
    return f"metadata.labels[{label}]"


def type_of(label: str) -> str:
    """The network type that a label key names."""
    return label.rsplit("/", 1)[-1]


def _is_legal(key: str, value: str) -> bool:
    prefix, slash, name = key.partition("/")
    return is_label_name(value) and is_label_name(name if slash else prefix)


def _illegal_label(key: str, value: str, nodes: Sequence[str]) -> Condition:
    ordered = sorted(nodes, key=natural_key)
    return invalid(
        f"Node/{ordered[0]}",
        label_field(key),
        f'"{value[:80]}" is not a legal label, so it does not count on {and_more(ordered)}',
        "use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    )
