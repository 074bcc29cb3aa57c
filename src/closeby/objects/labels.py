"""Labels: what Kubernetes takes as one, and those that several rooms know."""

import re
from typing import Final

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
#: The older name of the same.
OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
#: Role of a pod in its job, as annotation and label (Volcano).
TASK_SPEC: Final = "volcano.sh/task-spec"
#: The API version of closeby's own objects and reports.
API_VERSION: Final = "closeby.dev/v1alpha1"
#: Who places pods: scheduling gate of pods that closeby alone chooses the node of, and the controller of
#: Kueue's AdmissionChecks that wait for places.
PLACEMENT: Final = "closeby.dev/placement"
#: In files: begins a gate of pods that their controller makes after a step, and that says what they wait for.
STEP_GATE: Final = "closeby.dev/after: "
#: Label of a gang's member: its place in topology order (KAI topology-aware scheduling design, rank hints).
RANK: Final = "closeby.dev/rank"
#: Annotation of a gang's member: the path of the tightest domain that holds the gang.
TOPOLOGY_DOMAIN: Final = "closeby.dev/topology-domain"
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_ONE_NAME: Final = re.compile(_NAME, re.ASCII)
_VALUE: Final = re.compile(rf"({_NAME})?", re.ASCII)
_KEY: Final = re.compile(rf"(({_DNS_LABEL}(\.{_DNS_LABEL})*)/)?{_NAME}", re.ASCII)
_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*", re.ASCII)
_LONGEST_PREFIX: Final = 253


def is_label_name(text: str) -> bool:
    """Whether ``text`` is what a key has behind its prefix, or a value that is not empty."""
    return _ONE_NAME.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether ``text`` is a qualified name: an optional DNS prefix and a name of at most 63 characters."""
    return len(text.partition("/")[0]) <= _LONGEST_PREFIX and _KEY.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether ``text`` is a DNS subdomain, which names most objects."""
    return len(text) <= _LONGEST_PREFIX and _SUBDOMAIN.fullmatch(text) is not None


def is_label(key: str, value: str) -> bool:
    """Whether Kubernetes takes this as a label."""
    return is_label_key(key) and _VALUE.fullmatch(value) is not None


#: The label that the API server gives every Namespace.
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
