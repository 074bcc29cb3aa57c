"""Families of node labels that say where a node is in the network. Labels of two families are never mixed.

Families share prefixes and even words with different meanings (``datacenter`` is spine-level in the Topograph
label standard, and the top of the successor proposal), so labels of two families are never read together.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

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
ZONES = LabelFamily(
    name="zones",
    labels=_prefixed("topology.kubernetes.io/", "zone", "region"),
    unique=False,
)
#: What Topograph wrote before its version 1.0.
TOPOGRAPH_NVIDIA = LabelFamily(
    name="topograph-nvidia",
    labels=_prefixed(NVIDIA_NETWORK, "accelerator", "leaf", "spine", "core"),
    accelerator=NVIDIA_NETWORK + "accelerator",
)
#: What Topograph writes since its version 1.0: as many tiers as the fabric has.
TOPOGRAPH = LabelFamily(
    name="topograph",
    labels=(TOPOGRAPH_DOMAIN,),
    accelerator=TOPOGRAPH_DOMAIN,
    tiers=TOPOGRAPH_TIERS,
)
#: Google's compact placement labels on GKE.
GKE = LabelFamily(
    name="gke",
    labels=_prefixed("cloud.google.com/gce-topology-", "host", "subblock", "block"),
)
#: Amazon's network nodes on EKS; layer 1 is the top.
EKS = LabelFamily(
    name="eks",
    labels=_prefixed("topology.k8s.aws/network-node-layer-", "3", "2", "1"),
)
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
    name="eks-ultraserver",
    labels=(_ULTRASERVER, *EKS.labels),
    accelerator=_ULTRASERVER,
)
#: EKS with capacity blocks, which are the UltraServers of EC2's own description.
EKS_CAPACITY_BLOCK = LabelFamily(
    name="eks-capacity-block",
    labels=(_CAPACITY_BLOCK, *EKS.labels),
    accelerator=_CAPACITY_BLOCK,
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
