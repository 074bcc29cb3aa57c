"""The labels and annotations that more than one room knows, one constant each."""

from typing import Final

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"

#: Label of a gang's member: its place in topology order (KAI topology-aware scheduling design, rank hints).
RANK: Final = "closeby.dev/rank"
#: Annotation of a gang's member: the path of the tightest domain that holds the gang.
TOPOLOGY_DOMAIN: Final = "closeby.dev/topology-domain"
