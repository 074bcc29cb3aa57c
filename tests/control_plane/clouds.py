"""The labels that nodes have on GKE, EKS and AKS, for nodes of tests that have no cloud.

All nodes lie in one region and one zone of their cloud, unless a test says otherwise: its own labels count.
Each file of tests has one of the clouds, always the same.
"""

import os
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.control_plane.api import Api, Object

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
#: What the API server writes on pods as they are bound, from their node, since Kubernetes 1.35.
COPIED_TO_PODS: Final = (REGION, ZONE)

_OLD: Final = "failure-domain.beta.kubernetes.io"
_ACCELERATED: Final = {"gke": "a3-highgpu-8g", "eks": "p5.48xlarge", "aks": "Standard_ND96isr_H100_v5"}
_ZONES: Final = {"gke": "us-central1-a", "eks": "us-east-1a", "aks": "eastus-1"}
_REGIONS: Final = {"gke": "us-central1", "eks": "us-east-1", "aks": "eastus"}
#: Labels of each cloud's own, of a node in a pool of accelerated machines. "ZONE" stands for the node's zone.
_OWN: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gke": {
            "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
            "cloud.google.com/gke-accelerator-count": "8",
            "cloud.google.com/gke-boot-disk": "pd-balanced",
            "cloud.google.com/gke-container-runtime": "containerd",
            "cloud.google.com/gke-cpu-scaling-level": "208",
            "cloud.google.com/gke-gpu": "true",
            "cloud.google.com/gke-gpu-driver-version": "default",
            "cloud.google.com/gke-logging-variant": "DEFAULT",
            "cloud.google.com/gke-max-pods-per-node": "110",
            "cloud.google.com/gke-memory-gb-scaling-level": "1872",
            "cloud.google.com/gke-nodepool": "gpus",
            "cloud.google.com/gke-os-distribution": "cos",
            "cloud.google.com/gke-provisioning": "standard",
            "cloud.google.com/gke-stack-type": "IPV4",
            "cloud.google.com/machine-family": "a3",
            "cloud.google.com/private-node": "false",
            "topology.gke.io/zone": "ZONE",
        },
        "eks": {
            "alpha.eksctl.io/cluster-name": "training",
            "alpha.eksctl.io/nodegroup-name": "gpus",
            "eks.amazonaws.com/capacityType": "ON_DEMAND",
            "eks.amazonaws.com/nodegroup": "gpus",
            "eks.amazonaws.com/nodegroup-image": "ami-0123456789abcdef0",
            "eks.amazonaws.com/sourceLaunchTemplateId": "lt-0123456789abcdef0",
            "eks.amazonaws.com/sourceLaunchTemplateVersion": "1",
            "k8s.io/cloud-provider-aws": "0123456789abcdef0123456789abcdef",
            "topology.ebs.csi.aws.com/zone": "ZONE",
            "topology.k8s.aws/zone-id": "use1-az4",
        },
        "aks": {
            "agentpool": "gpus",
            "kubernetes.azure.com/accelerator": "nvidia",
            "kubernetes.azure.com/agentpool": "gpus",
            "kubernetes.azure.com/cluster": "MC_training_training_eastus",
            "kubernetes.azure.com/mode": "user",
            "kubernetes.azure.com/node-image-version": "AKSUbuntu-2204gen2containerd-202610.05.0",
            "kubernetes.azure.com/nodepool-type": "VirtualMachineScaleSets",
            "kubernetes.azure.com/os-sku": "Ubuntu",
            "kubernetes.azure.com/role": "agent",
            "kubernetes.azure.com/storageprofile": "managed",
            "kubernetes.azure.com/storagetier": "Premium_LRS",
            "kubernetes.io/role": "agent",
            "node-role.kubernetes.io/agent": "",
            "storageprofile": "managed",
            "storagetier": "Premium_LRS",
            "topology.disk.csi.azure.com/zone": "ZONE",
        },
    }
)
CLOUDS: Final = tuple(_OWN)


async def binds_with_labels(api: Api) -> bool:
    """Whether the API server gives a pod the labels of its binding and of its node: Kubernetes 1.35 on."""
    return int((await api.get("/version"))["minor"].removesuffix("+")) >= 35


def on_a_cloud(node: Object, cloud: str | None = None) -> Object:
    """The node with the labels that its cloud would give it, beside those that it has."""
    cloud = cloud or _of_this_test()
    metadata = node["metadata"]
    given: Mapping[str, str] = metadata.get("labels") or {}
    zone, region = given.get(ZONE, _ZONES[cloud]), given.get(REGION, _REGIONS[cloud])
    of_the_cloud = {key: value.replace("ZONE", zone) for key, value in _OWN[cloud].items()}
    alike = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": _ACCELERATED[cloud],
        "beta.kubernetes.io/os": "linux",
        f"{_OLD}/region": region,
        f"{_OLD}/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": metadata["name"],
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": _ACCELERATED[cloud],
        REGION: region,
        ZONE: zone,
    }
    return {**node, "metadata": {**metadata, "labels": {**alike, **of_the_cloud, **given}}}


def _of_this_test() -> str:
    # pytest names the test that runs, by its file.
    file = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    return CLOUDS[zlib.crc32(file.encode()) % len(CLOUDS)]
